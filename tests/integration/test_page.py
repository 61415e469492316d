"""The report in a real browser: what a reader sees, does, and is spared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pareto.analysis.advice.answers import Answer
from pareto.analysis.comparing.between_runs import compare
from pareto.analysis.page.document import conditions, html, write_comparison
from pareto.analysis.runs.load import Run
from pareto.analysis.statistics.doubt import Doubt
from tests.integration.browser import CHROMIUM, Page, browser, worst_contrast
from tests.unit.example_findings import PROFILES, findings, probes
from tests.unit.example_run import trials, write

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium")
EVIL = '</script ><img src=x onerror="alert(1)">'
TABLE = "#points [data-of]:not([hidden])"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def quiet(tab: Page) -> Iterator[None]:
    """Whatever a test does, nothing is complained of and nothing asked for but the page itself."""
    yield
    assert tab.complaints == []
    assert [address for address in tab.requests if not address.startswith(("file:", "data:"))] == []


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two profiles, names that are markup, a failed trial, a probe that is off."""
    rows = [*trials(rounds=7), *trials(rounds=7, backends=("rpc",), netem="lte", seed=2)]
    for row in rows:
        row["point_name"] = EVIL if row["point"] == 3 else row["point_name"]
    rows[0] |= {"status": "failed", "reason": EVIL}
    links = probes(verdict=["ok", "off"], reason=["", EVIL], asked_rtt_s=[0.2, 0.2], rtt_s=[0.2, 0.3])
    folder = tmp_path_factory.mktemp("found")
    found = findings(
        folder, rows, links=links, runs=[Run(folder / "run", PROFILES)], doubts=[Doubt("few rounds")]
    )
    keys = [condition["key"] for condition in conditions(found)]
    found.answers = [Answer(f"cut at 7 {EVIL}", (keys[0],)), Answer("keep all on the edge", (keys[1],))]
    path = folder / "report.html"
    path.write_text(html(found), encoding="utf-8")
    return path


def column(tab: Page, number: int) -> list[str]:
    """The cells of a column of the shown table."""
    cells = f"document.querySelectorAll('{TABLE} td:nth-child({number})')"
    return list(tab.js(f"[...{cells}].map((each) => each.textContent)"))


def choose(tab: Page, number: int) -> None:
    """Take a condition from the list, and wait until it is shown."""
    tab.js(
        "new Promise((done) => { window.addEventListener('hashchange', done, { once: true }); "
        f"const list = document.getElementById('condition'); list.value = '{number}'; "
        "list.dispatchEvent(new Event('change')) })"
    )


def test_what_a_reader_does(tab: Page, report: Path) -> None:
    """Sort by a click and by keys, choose a condition, show every column, move the sliders."""
    tab.open(report)
    assert tab.js("document.images.length") == 0
    assert EVIL in tab.text(".answers")
    assert len(column(tab, 1)) == 43
    tab.click(f"{TABLE} th:nth-child(6) button")
    rates = list(map(float, column(tab, 6)))
    assert rates == sorted(rates) and list(map(str, rates)) != sorted(map(str, rates))
    tab.press("Enter")
    assert list(map(float, column(tab, 6))) == sorted(rates, reverse=True)
    assert tab.js(f"document.querySelector('{TABLE} th:nth-child(6)').ariaSort") == "descending"
    tab.click(f"{TABLE} th:nth-child(2) button")
    points = [int(cell.rstrip("*")) for cell in column(tab, 2)]
    assert points == sorted(points)
    wide = f"document.querySelector('{TABLE} th:nth-child(10)').getClientRects().length"
    assert tab.js(wide) == 0
    tab.click("#more")
    assert tab.js(wide) == 1
    choose(tab, 1)
    assert set(column(tab, 1)) == {"rpc", "any"}
    assert tab.text(".answers .now") == "keep all on the edge"
    assert tab.js("document.querySelectorAll('.condition:not([hidden]) use[fill-opacity]').length") > 22
    tab.click("#tab-map")
    tab.click(".sliders button")
    assert tab.text("[data-say=delay]") == "200 ms"
    order = tab.text("[data-objective=latency] [data-say=order]")
    tab.js("document.querySelector('[name=delay]').focus()")
    tab.press("ArrowLeft")
    moved = tab.text("[data-say=delay]")
    assert moved != "200 ms" and tab.js("document.activeElement.ariaValueText") == moved
    assert order and tab.text("[data-objective=latency] [data-say=cost]").endswith("ms")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_answer_and_chart_are_on_the_first_screen_and_can_be_read(
    tab: Page, report: Path, tmp_path: Path, scheme: str
) -> None:
    """Contrast as WCAG 2.2 AA asks: 4.5 of text, 3 of marks and lines. Nothing is wider than its window."""
    runs = [
        write(tmp_path / name, trials(rounds=7, seed=seed, run=name)) for seed, name in ((1, "a"), (2, "b"))
    ]
    for path in (report, write_comparison(compare(*runs), tmp_path)):
        for width, height in ((1280, 800), (390, 844)):
            tab.open(path, width, height, scheme=scheme)
            for it in (".condition:not([hidden]) .chart > svg", ".answers .now"):
                assert tab.js(f"document.querySelector('{it}').getBoundingClientRect().bottom") <= height
            tabs = ("#tab-map", "#tab-front") if path == report else ("#theme", "#theme")
            for it in tabs:
                tab.click(it)
                worst = worst_contrast(tab)
                assert worst["text"][0] >= 4.5, worst["text"]
                assert worst.get("marks", (21.0, "the map has none"))[0] >= 3, worst["marks"]
                assert tab.js("document.documentElement.scrollWidth") <= width


def test_on_paper_and_without_scripts_it_can_be_read(tab: Page, report: Path, tmp_path: Path) -> None:
    tab.open(report)
    assert tab.pdf(tmp_path / "page.pdf").read_bytes().count(b"/Type /Page\n") == 2
    tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(report)
        assert tab.value("[...document.querySelectorAll('#points tbody tr, .condition use')].length") > 130
        shown = "[...document.querySelectorAll('.points, .condition')].every((each) => each.getClientRects().length)"
        assert tab.value(shown)
    finally:
        tab.ask("Emulation.setScriptExecutionDisabled", value=False)
