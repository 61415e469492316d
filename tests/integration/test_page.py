"""The report in a real browser: what a reader sees, does, and is spared."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pareto.analysis import page
from pareto.analysis.advice import predict
from pareto.analysis.comparing.between_runs import compare
from pareto.analysis.figures.marks import FILLS, states
from pareto.analysis.findings import Findings
from pareto.analysis.naming import cell_names
from pareto.analysis.page import comparison
from pareto.analysis.runs.load import Run
from pareto.analysis.tables.columns import sureness
from tests.integration.browser import CHROMIUM, Page, browser
from tests.integration.contrast import worst_contrast
from tests.less_than_root import needs_networks
from tests.unit.example_findings import PROFILES, findings, probes
from tests.unit.example_run import trials, write

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium"),
]
EVIL = '</script ><img src=x onerror="alert(1)">'
SHOWN = "[...document.querySelectorAll('.condition:not([hidden]) .points tbody tr:not(.filtered)')]"
MARKS = "[...document.querySelectorAll('.chart > svg .mark')]"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def quiet(tab: Page) -> Iterator[None]:
    """Whatever a test does, nothing is complained of and nothing asked for but the page itself."""
    tab.complaints.clear()
    tab.requests.clear()
    yield
    assert tab.complaints == []
    assert [address for address in tab.requests if not address.startswith(("file:", "data:"))] == []
    assert len({address for address in tab.requests if address.startswith("file:")}) <= 1


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """Two profiles, names that are markup, a failed trial, a probe that is off."""
    rows = trials(rounds=7)
    for row in rows:
        row["point_name"] = EVIL if row["point"] == 3 else row["point_name"]
    rows[0] |= {"status": "failed", "reason": EVIL}
    for row in trials(rounds=7, backends=("rpc",), netem="lte", seed=2):
        row["latency_s"] *= 40 if row["point"] < 8 else 1  # a range that asks for a logarithmic axis
        rows.append(row)
    links = probes(verdict=["ok", "off"], reason=["", EVIL], asked_rtt_s=[0.2, 0.2], rtt_s=[0.2, 0.3])
    told = {"answers": [f"cut at 7 {EVIL}", "mobilenetv2 at lte: keep all on the edge"]}
    told |= {"warnings": ["too few rounds"], "verdicts": ["rpc is slower"]}
    folder = tmp_path_factory.mktemp("found")
    return findings(folder, rows, links=links, runs=[Run(folder / "run", PROFILES)], **told)


@pytest.fixture(scope="module")
def report(found: Findings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page.write(found, tmp_path_factory.mktemp("page") / "report.html")


def mark(backend: str, point: int) -> str:
    return f"#panel .mark[aria-label^='{backend} {point} ']"


def column(tab: Page, head: str) -> list[str]:
    """The cells of the visible rows under a head of the shown table."""
    return list(
        tab.js(
            f"(() => {{ const heads = [...document.querySelectorAll('.condition:not([hidden]) .points th')]; "
            f"const place = heads.findIndex((each) => each.innerText.startsWith('{head}')); "
            f"return {SHOWN}.map((row) => row.cells[place].textContent) }})()"
        )
    )


def sort(head: str) -> str:
    return f".condition:not([hidden]) .points th:nth-child({head}) button"


def choose(tab: Page, name: str, value: str) -> None:
    """Take an option of that list."""
    tab.js(
        f"(() => {{ const it = document.querySelector('select[name={name}]'); it.value = '{value}'; "
        "it.dispatchEvent(new Event('change')) })()"
    )


def test_markup_in_a_run_stays_text(tab: Page, report: Path) -> None:
    tab.open(report)
    assert tab.js("document.images.length") == 0
    assert EVIL in tab.text(".answers")
    assert EVIL in tab.text(".reasons")
    tab.hover(mark("rpc", 3))
    assert EVIL in tab.text(".detail strong")


def test_hover_names_the_point_and_its_times(tab: Page, report: Path, found: Findings) -> None:
    tab.open(report)
    rows = found.front[(found.front["netem"] == "200ms-5mbit") & (found.front["backend"] == "tcp")]
    row = rows[rows["point"] == "20"].iloc[0]
    assert tab.js("document.querySelector('.detail').hidden")
    tab.hover(mark("tcp", 20))
    told = " ".join(tab.text("#panel .detail").split())
    assert told.startswith("tcp 20 features.19")
    for what, value in (
        ("median", row["latency_s"]),
        ("bound", row["latency_bound_s"]),
        ("edge", row["edge_s"]),
        ("serialize", row["serialize_s"]),
        ("network", row["network_s"]),
        ("server", row["server_s"]),
    ):
        assert f"{what} {value * 1e3:.2f} ms" in told
    assert f"95 % {row['latency_low_s'] * 1e3:.2f}..{row['latency_high_s'] * 1e3:.2f} ms" in told
    assert f"median {row['throughput_ips']:.3f} images/s" in told
    assert f"efficiency {row['latency_efficiency'] * 100:.1f} %" in told
    assert "payload 5.1 kB" in told
    assert "rounds 7" in told
    assert "trials left out 0" in told
    assert f"sure of its own front {sureness(row['probability'])} %" in told
    tab.hover("h1")
    assert tab.js("document.querySelector('#panel .detail').hidden")


def test_points_lie_where_they_were_measured(tab: Page, report: Path, found: Findings) -> None:
    """Right of another is slower, above it is faster, and a logarithmic axis says that it is one."""
    tab.open(report)
    at = "each.transform.baseVal[0].matrix"
    places = f"{MARKS}.map((each) => [Number(each.dataset.row), {at}.e, {at}.f])"
    conditions = [rows for _, rows in found.front.groupby("netem")]
    for number, rows in enumerate(conditions):
        tab.js(f"(reader.condition = {number}, update())")
        by_backend = rows.sort_values("backend", ascending=False, kind="stable")  # tcp before rpc
        marks = sorted(tab.js(places))
        assert len(marks) == len(rows)
        x, y = ([place[axis] for place in marks] for axis in (1, 2))
        latency, throughput = (by_backend[name].tolist() for name in ("latency_s", "throughput_ips"))
        assert sorted(range(len(x)), key=x.__getitem__) == sorted(range(len(x)), key=latency.__getitem__)
        assert sorted(range(len(y)), key=y.__getitem__) == sorted(
            range(len(y)), key=lambda place: -throughput[place]
        )
        # The ticks say the same of each mark as its row does.
        log = rows["latency_s"].max() / rows["latency_s"].min() >= 8
        ticks = sorted(
            tab.js(
                "[...document.querySelectorAll('#panel .tick text[text-anchor=middle]')]"
                ".map((each) => [Number(each.textContent), Number(each.getAttribute('x'))])"
            )
        )
        values, pixels = np.array(ticks).T
        bend = np.log if log else np.asarray
        slope, start = np.polyfit(bend(values), pixels, 1)
        assert start + slope * bend(by_backend["latency_s"].to_numpy() * 1e3) == pytest.approx(x, abs=1)
        labels = tab.js("[...document.querySelectorAll('#panel svg > text')].map((each) => each.textContent)")
        assert ("latency (ms, log)" in labels or "latency (s, log)" in labels) == log


def test_answer_and_chart_are_on_the_first_screen_and_an_answer_leads_to_its_chart(
    tab: Page, report: Path
) -> None:
    for width, height in ((1280, 800), (390, 844)):
        tab.open(report, width, height)
        for it in ("#panel .chart > svg", ".answers .now"):
            assert tab.js(f"document.querySelector('{it}').getBoundingClientRect().bottom") <= height
    shown = "[...document.querySelectorAll('.answers li')].map((each) => each.getClientRects().length)"
    assert tab.js(shown) == [1, 0]  # in a narrow window one, until all are asked for
    tab.click(".every")
    assert tab.js(shown) == [1, 1]
    tab.click(".answers li:nth-child(2)")
    assert "lte" in tab.text(".condition:not([hidden]) h3")
    assert tab.text(".answers .now").startswith("mobilenetv2 at lte")


def test_marks_are_as_full_as_in_the_figure_and_intervals_stay_in_the_axes(
    tab: Page, found: Findings, tmp_path: Path
) -> None:
    wide = {name: 2 * found.front[name] for name in ("latency_high_s", "throughput_high_ips")}
    tab.open(page.write(dataclasses.replace(found, front=found.front.assign(**wide)), tmp_path / "wide.html"))
    rows = found.front[found.front["netem"] == "200ms-5mbit"]
    rows = rows.sort_values("backend", ascending=False, kind="stable")  # as in the table
    fill = "Number(each.querySelector('path:last-child').getAttribute('fill-opacity'))"
    drawn = dict(tab.js(f"{MARKS}.map((each) => [Number(each.dataset.row), {fill}])"))
    kinds = states(rows)
    assert [drawn[place] for place in range(len(rows))] == [FILLS[kind] for kind in kinds]
    boxes = tab.js(
        "[...document.querySelectorAll('#panel .whisker')].map((each) => each.getBBox())"
        ".map(({x, y, width, height}) => [x, y, x + width, y + height])"
    )
    assert len(boxes) == (kinds != "dominated").sum()
    left, top, right, bottom = tab.js(
        "(() => { const [x, y] = [...document.querySelectorAll('#panel .axis')].map((each) => each.getBBox());"
        " return [x.x, y.y, x.x + x.width, y.y + y.height] })()"
    )
    for box in boxes:
        assert left <= box[0] < box[2] <= right
        assert top <= box[1] < box[3] <= bottom


def test_parts_of_a_bar_are_the_rows(tab: Page, found: Findings, tmp_path: Path) -> None:
    """A bar is as long as the median latency, its parts in proportion to their medians; keys and filters hold."""
    # The medians of parts do not add up to the median of their sum.
    apart = found.front["latency_s"] * np.where(found.front["point"] == "20", 1.3, 1.0)
    found = dataclasses.replace(found, front=found.front.assign(latency_s=apart))
    tab.open(page.write(found, tmp_path / "apart.html"))
    tab.click("#tab-parts")
    row = found.front.query("netem == '200ms-5mbit' and backend == 'tcp' and point == '20'").iloc[0]
    bar = "document.querySelector('.bar[aria-label^=\"tcp 20 \"]')"
    parts = tab.js(
        f"[...{bar}.querySelectorAll('.part')]"
        ".map((each) => [each.classList[1], Number(each.getAttribute('width'))])"
    )
    assert [name for name, _ in parts] == ["edge", "serialize", "network", "server"]
    wide = np.array([width for _, width in parts])
    medians = np.array([row[f"{name}_s"] for name, _ in parts])
    assert wide / wide.sum() == pytest.approx(medians / medians.sum(), abs=1e-3)
    longest = tab.js(
        "Math.max(...[...document.querySelectorAll('.bar')].map((bar) => "
        "[...bar.querySelectorAll('.part')].reduce((sum, each) => sum + Number(each.getAttribute('width')), 0)))"
    )
    front = found.front[found.front["netem"] == "200ms-5mbit"]
    assert wide.sum() / longest == pytest.approx(row["latency_s"] / front["latency_s"].max(), rel=1e-3)
    assert tab.js("document.querySelectorAll('.bar').length") == len(front)
    tab.click(".legend button:nth-child(2)")
    assert tab.js("document.querySelectorAll('.bar').length") == 22
    tab.js("document.querySelector('.bar').focus()")
    tab.press("ArrowRight")
    tab.press("Enter")
    assert tab.js("document.activeElement.ariaPressed") == "true"
    assert tab.text("#panel .detail").startswith("tcp 1 ")


def test_the_map_says_what_the_prediction_says(tab: Page, report: Path, found: Findings) -> None:
    """The script's arithmetic is Python's, at any delay and rate; the sliders move the answer, by keys, too."""
    tab.open(report)
    tab.click("#tab-map")
    predictor = predict.predictors(found.trials, found.stages, [PROFILES])[0]
    random = np.random.default_rng(1)
    delays = [0.0, 0.2, *random.uniform(0, 1, 20)]
    rates = [np.inf, 5e6, *10 ** random.uniform(4, 10, 20)]
    for objective in ("latency", "throughput"):
        for delay_s, rate_bps in zip(delays, rates, strict=True):
            place = f"'{objective}', {delay_s}, {'Infinity' if np.isinf(rate_bps) else rate_bps}"
            told = tab.value(
                f"networkMaps[0].map.cells.map((cell) => costOf(networkMaps[0].map, cell.line, {place}))"
            )
            assert told == pytest.approx(
                predictor.cost(objective, delay_s=delay_s, rate_bps=rate_bps).ravel(), rel=1e-6
            )
    tab.click(".measured button:nth-of-type(1)")
    assert "Measured at 200ms-5mbit: " in tab.text(".said-there")
    assert tab.text(".sliders output") == "200 ms"
    tab.js("document.querySelector('.sliders input').focus()")
    tab.press("ArrowLeft")
    moved = tab.text(".sliders output")
    assert moved != "200 ms"
    assert tab.text(".there").startswith(f"At a round trip of {moved} and 5 Mbit/s: ")
    assert tab.js("document.activeElement.ariaValueText") == moved
    delay_s = tab.js("networkMaps[0].values.delays[networkMaps[0].at.delays]")
    best = int(np.argmin(predictor.cost("latency", delay_s=delay_s, rate_bps=5e6)))
    assert tab.js("ranked(networkMaps[0].map, 'latency', " + f"{delay_s}, 5e6)[0][1].name").split() == [
        predictor.cells["backend"][best] or "any",
        predictor.cells["point"][best],
    ]


def test_legend_filters_chart_and_table(tab: Page, report: Path) -> None:
    tab.open(report)
    assert set(column(tab, "backend")) == {"tcp", "rpc", "any"}
    tab.click(".legend button:nth-child(2)")
    assert tab.js("document.querySelector('.legend button:nth-child(2)').ariaPressed") == "false"
    assert set(column(tab, "backend")) == {"tcp", "any"}
    assert tab.js(f"{MARKS}.length") == 22
    tab.click(".legend button:nth-child(1)")
    assert tab.js(f"{MARKS}.length") == 1
    tab.click(".legend button:nth-child(3)")
    assert tab.js(f"{MARKS}.length") == 0
    assert "No point to show with these filters" in tab.text("#panel .chart")
    tab.click(".legend button:nth-child(2)")
    assert set(column(tab, "backend")) == {"rpc"}


@pytest.mark.deep
def test_where_nothing_crosses_is_a_corner_of_each_staircase(tab: Page, report: Path) -> None:
    tab.open(report)
    stairs = "[...document.querySelectorAll('#panel .stairs')].map((each) => each.getAttribute('d'))"
    at = tab.js(f"document.querySelector({mark('any', 21)!r}).getAttribute('transform')")
    x, y = at.removeprefix("translate(").removesuffix(")").split()
    drawn = tab.js(stairs)
    assert len(drawn) == 2
    assert all(f"H{x}V{y}" in path for path in drawn)
    tab.click(".legend button:nth-child(3)")
    assert not any(f"H{x}V{y}" in path for path in tab.js(stairs))


def test_only_points_on_a_front(tab: Page, report: Path, found: Findings) -> None:
    tab.open(report)
    shown = found.front[found.front["netem"] == "200ms-5mbit"]
    for value, column_name in (("own", "on_backend_front"), ("front", "on_front")):
        choose(tab, "points", value)
        assert len(column(tab, "point")) == shown[column_name].sum()
        assert tab.js(f"{MARKS}.length") == shown[column_name].sum()


@pytest.mark.deep
def test_without_a_front_no_backend_is_blamed(tab: Page, found: Findings, tmp_path: Path) -> None:
    front = found.front.assign(on_backend_front=False, on_front=False)
    tab.open(page.write(dataclasses.replace(found, front=front), tmp_path / "none.html"))
    choose(tab, "points", "front")
    assert "No point to show with these filters." in tab.text("#panel .chart")


def test_selector_changes_the_condition(tab: Page, report: Path) -> None:
    tab.open(report)
    assert tab.js("document.querySelectorAll('.condition:not([hidden])').length") == 1
    assert "200ms-5mbit" in tab.text(".condition:not([hidden]) h3")
    choose(tab, "profile", "lte")
    assert "lte" in tab.text(".condition:not([hidden]) h3")
    assert set(column(tab, "backend")) == {"rpc", "any"}
    assert tab.js(
        "getComputedStyle(document.querySelector('#panel .mark')).getPropertyValue('--tone')"
    ) == tab.js(
        "getComputedStyle(document.documentElement).getPropertyValue('--s1')"
    )  # rpc's, as in the other


def test_sorting_takes_numbers_as_numbers(tab: Page, report: Path) -> None:
    tab.open(report)
    heads = tab.js(
        "[...document.querySelectorAll('.condition:not([hidden]) .points th')].map((each) => each.innerText)"
    )
    place = {
        name: next(number for number, head in enumerate(heads, 1) if head.startswith(name))
        for name in ("point", "payload", "server", "95 %")
    }
    tab.click(sort(str(place["payload"])))
    payloads = [float(cell) for cell in column(tab, "payload")]
    assert payloads == sorted(payloads)
    assert [str(value) for value in payloads] != sorted(map(str, payloads))
    assert (
        tab.js(
            f"document.querySelector('.condition:not([hidden]) th:nth-child({place['payload']})').ariaSort"
        )
        == "ascending"
    )
    tab.click(sort(str(place["payload"])))
    assert [float(cell) for cell in column(tab, "payload")] == sorted(payloads, reverse=True)
    assert tab.js("document.querySelectorAll('.condition:not([hidden]) th[aria-sort]').length") == 1
    tab.click(sort(str(place["point"])))
    assert [int(cell) for cell in column(tab, "point")] == sorted([*2 * list(range(21)), 21])
    # Of an interval the lower end counts.
    tab.click(sort(str(place["95 %"])))
    lows = [float(cell.split("..")[0]) for cell in column(tab, "95 %")]
    assert lows == sorted(lows)
    # By key too; what was not measured stays last, either way.
    tab.click(sort(str(place["payload"])))
    assert column(tab, "server")[0] == "-"
    tab.js(f"document.querySelector({sort(str(place['server']))!r}).focus()")
    for _ in range(2):
        tab.press("Enter")
        assert column(tab, "server")[-1] == "-"
    servers = [float(cell) for cell in column(tab, "server")[:-1]]
    assert servers == sorted(servers, reverse=True)


def test_rows_and_points_are_one(tab: Page, report: Path) -> None:
    """A click on either marks both, also after sorting."""
    tab.open(report)
    tab.click(sort("5"))
    tab.click(".condition:not([hidden]) .points tbody tr:nth-child(3)")
    picked = "document.querySelector('.condition:not([hidden]) tr.picked')"
    row = tab.js(f"[{picked}.cells[0].textContent, {picked}.cells[1].textContent]")
    assert tab.js("document.querySelector('.mark.picked').ariaLabel").startswith(f"{row[0]} {row[1]} ")
    assert tab.text("#panel .detail").startswith(f"{row[0]} {row[1]} ")
    tab.click(mark("tcp", 0))
    assert tab.js(f"[{picked}.cells[0].textContent, {picked}.cells[1].textContent]") == ["tcp", "0"]
    assert tab.js("document.querySelectorAll('.mark[aria-pressed=true]').length") == 1
    tab.click(mark("tcp", 0))
    assert tab.js(f"{picked}") is None


def test_keys_go_from_point_to_point(tab: Page, report: Path, found: Findings) -> None:
    tab.open(report)
    shown = found.front[found.front["netem"] == "200ms-5mbit"].sort_values("latency_s")
    tab.js("document.querySelector('[aria-selected=true]').focus()")
    for name in ("parts", "map"):
        tab.press("ArrowRight")
        assert tab.js("document.activeElement.id") == f"tab-{name}"
        assert tab.js("document.activeElement.ariaSelected") == "true"
    tab.press("ArrowRight")
    tab.js("document.querySelector('.legend button:last-child').focus()")
    tab.press("Tab")
    names = []
    for _ in range(3):
        names.append(tab.js("document.activeElement.ariaLabel.split(' ').slice(0, 2).join(' ')"))
        assert tab.text("#panel .detail").startswith(names[-1])
        tab.press("ArrowRight")
    assert names == cell_names(shown.head(3)).tolist()
    tab.press("Enter")
    assert tab.js("document.activeElement.ariaPressed") == "true"
    tab.press("Escape")
    assert tab.js("document.querySelectorAll('.mark[aria-pressed=true]').length") == 0
    tab.press("Tab")  # one stop for all of the chart
    assert tab.js("document.activeElement.className") == "scroll"


@pytest.mark.parametrize(
    "width", [320, *(pytest.param(each, marks=pytest.mark.deep) for each in (360, 700, 1280))]
)
def test_no_page_is_wider_than_its_window(tab: Page, report: Path, width: int) -> None:
    tab.open(report, width, 740)
    assert tab.js("window.innerWidth") == width
    assert tab.js("document.documentElement.scrollWidth") <= width
    tab.hover(mark("tcp", 20))
    assert not tab.js("document.querySelector('#panel .detail').hidden")
    assert tab.js("document.documentElement.scrollWidth") <= width
    for name in ("parts", "map", "front"):
        tab.click(f"#tab-{name}")
        assert tab.js("document.documentElement.scrollWidth") <= width
    tab.resize(width + 60, 740)
    assert tab.js("document.documentElement.scrollWidth") <= width + 60
    box = "document.querySelector('#panel .chart')"
    assert tab.js(f"{box}.querySelector('svg').viewBox.baseVal.width === {box}.clientWidth")


@pytest.mark.deep
def test_a_finger_is_enough(tab: Page, report: Path) -> None:
    tab.open(report, 360, 740)
    tab.ask("Emulation.setTouchEmulationEnabled", enabled=True)
    try:
        tab.tap(mark("any", 21))
        assert tab.text("#panel .detail").startswith("any 21 classifier")
        small = tab.js(
            "[...document.querySelectorAll('button, select')].filter((each) => each.getClientRects().length)"
            ".filter((each) => each.getBoundingClientRect().height < 24).length"
        )
        assert small == 0
    finally:
        tab.ask("Emulation.setTouchEmulationEnabled", enabled=False)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read(tab: Page, report: Path, scheme: str) -> None:
    """Contrast as WCAG 2.2 AA asks: 4.5 of text, 3 of marks and lines."""
    tab.open(report, scheme=scheme)
    dark = tab.js("getComputedStyle(document.body).backgroundColor").startswith("rgb(20")
    assert dark == (scheme == "dark")
    tab.click(".legend button:nth-child(2)")
    tab.hover(mark("tcp", 20))
    for name in ("front", "parts", "map"):
        tab.click(f"#tab-{name}")
        worst = worst_contrast(tab)
        assert worst["text"][0] >= 4.5, worst["text"]
        assert worst["marks"][0] >= 3, worst["marks"]


def test_without_scripts_the_answer_and_the_tables_are_there(
    tab: Page, report: Path, found: Findings
) -> None:
    tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(report)
        text = tab.value("document.body.innerText")
        assert "cut at 7" in text
        assert "Without JavaScript there is no chart" in text
        assert tab.value("document.querySelectorAll('.points tbody tr').length") == len(found.front)
        assert tab.value(
            "[...document.querySelectorAll('.points')].every((each) => each.getClientRects().length)"
        )
        assert tab.value("document.querySelectorAll('.mark').length") == 0
    finally:
        tab.ask("Emulation.setScriptExecutionDisabled", value=False)


@pytest.mark.deep
def test_on_paper_every_condition_has_its_chart(tab: Page, report: Path, tmp_path: Path) -> None:
    tab.open(report)
    assert tab.pdf(tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    tab.js("window.dispatchEvent(new Event('beforeprint'))")
    tab.ask("Emulation.setEmulatedMedia", media="print")
    try:
        assert tab.js(f"{MARKS}.length") == 65
        assert tab.js("document.querySelectorAll('.printed .bar').length") == 65
        assert tab.js("document.querySelectorAll('.printed .frame').length") == 1
        assert {"tcp", "rpc"} <= set(tab.text("figure:has(.key) .key").split("\n"))
        assert tab.js("document.querySelector('#controls').getClientRects().length") == 0
        assert tab.js(
            "[...document.querySelectorAll('td')].every((each) => getComputedStyle(each).position === 'static')"
        )
    finally:
        tab.ask("Emulation.setEmulatedMedia", media="")
    tab.js("window.dispatchEvent(new Event('afterprint'))")
    assert tab.js("document.querySelectorAll('.condition:not([hidden])').length") == 1


@pytest.mark.deep
def test_a_chain_of_hosts_sorts_by_its_cuts(tab: Page, found: Findings, tmp_path: Path) -> None:
    front = found.front[found.front["netem"] == "lte"].copy()
    front["point"] = [f"{number // 5}+{5 + number % 7}" for number in range(len(front))]
    tab.open(page.write(dataclasses.replace(found, front=front), tmp_path / "chain.html"))
    tab.click(sort("2"))
    cuts = [tuple(map(int, cell.split("+"))) for cell in column(tab, "point")]
    assert cuts == sorted(cuts)


@pytest.mark.deep
def test_with_next_to_nothing_it_still_stands(tab: Page, found: Findings, tmp_path: Path) -> None:
    for count in (0, 1):
        front = found.front.head(count)
        tab.open(page.write(dataclasses.replace(found, front=front), tmp_path / f"little{count}.html"))
        assert tab.js(f"{MARKS}.length") == count
        tab.requests.clear()


def test_two_runs_beside_each_other(tab: Page, tmp_path: Path) -> None:
    """On the same axes; what is pointed at in one is marked in both."""
    runs = [trials(rounds=7, seed=seed, run=name) for seed, name in ((1, "a"), (2, "b"))]
    for row in runs[1]:
        row["latency_s"] *= 2
    folders = [write(tmp_path / name, rows) for name, rows in zip("ab", runs, strict=True)]
    tab.open(comparison.write(compare(*folders), tmp_path), 1280, 800)
    halves = tab.js(
        "[...document.querySelectorAll('.half')].map((each) => each.querySelectorAll('.mark').length)"
    )
    assert halves == [43, 43]
    ticks = "[...each.querySelectorAll('.tick text')].map((tick) => tick.textContent)"
    left, right = tab.js(f"[...document.querySelectorAll('.half')].map((each) => {ticks})")
    assert left == right
    tab.hover(".half:last-child .mark[aria-label^='tcp 20 ']")
    assert tab.js("[...document.querySelectorAll('.near')].map((each) => each.dataset.row)") == ["20", "20"]
    assert tab.text("#panel .detail").startswith("tcp 20 ")
    for width in (1280, 390):
        tab.resize(width, 800)
        assert tab.js("document.documentElement.scrollWidth") <= width
    assert worst_contrast(tab)["text"][0] >= 4.5


@needs_networks
def test_opens_where_there_is_no_network(report: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.integration.browser import browser\n"
        "with browser(Path(sys.argv[1])) as tab:\n"
        "    tab.open(Path(sys.argv[2])); print(tab.js('document.querySelectorAll(\".mark\").length'), tab.complaints)"
    )
    command = ["unshare", "--net", sys.executable, "-c", script, str(tmp_path), str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "49 []"  # 43 points, three of the legend, three of the key
