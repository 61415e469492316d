"""The page of a report, as a browser takes it; `tests/integration/test_page.py` has it in one."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.advice.answers import Answer
from pareto.analysis.advice.workload import workloads
from pareto.analysis.comparing.between_runs import Comparison
from pareto.analysis.costs import overhead
from pareto.analysis.figures.look import FILLS, states
from pareto.analysis.findings import Findings
from pareto.analysis.page import document
from pareto.analysis.page.tables import LONG
from pareto.analysis.runs.points import CONDITION, TRIAL
from pareto.analysis.statistics.doubt import Doubt
from pareto.analysis.tables.table import sureness
from pareto.basics.escaping import terminal
from pareto.protocol.constants import GOODPUT
from tests.unit.example_findings import MANIFEST, PROFILES, Run, compared, findings, probes
from tests.unit.example_run import trials

EVIL = '</script ><img src=x onerror="alert(1)">'
VOID = {"meta", "link", "input", "br"}


class Read(HTMLParser):
    """A page as a browser takes it: its tags, and the text in each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts[tag][-1] += data

    def of(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        """The attributes of the tags that have these."""
        return [has for name, has in self.tags if name == tag and attributes.items() <= has.items()]

    @property
    def lines(self) -> list[str]:
        """What it says outside of tables and charts."""
        told = (
            self.texts.get(tag, []) for tag in ("h1", "h2", "h3", "p", "li", "summary", "pre", "th", "dd")
        )
        return [" ".join(text.split()) for texts in told for text in texts]


def read(found: Findings) -> Read:
    return Read(document.html(found))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """What is not to be changed: take `replace`."""
    return findings(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def usual(plain: Findings) -> Read:
    return read(plain)


def without_a_valid_trial(folder: Path) -> Findings:
    rows = [*trials(rounds=1), *trials(rounds=1, netem="lte", status="failed", reason="no route")]
    for row in rows[44:]:
        row |= dict.fromkeys(("latency_s", "throughput_ips", "latency_bound_s", "throughput_bound_ips"), "")
    return findings(folder, rows)


def with_reasons(folder: Path) -> Findings:
    rows = trials(rounds=3)
    for number in range(4):
        rows[number] |= {"status": "invalid", "reason": f"link off: {number} ms, asked 200 ms"}
    rows[5] |= {"status": "failed", "reason": "Traceback (most recent call last):\n  File x\nError: gone"}
    rows[9] |= {"status": "failed", "reason": "x" * 3 * LONG}
    rows[10] |= {"status": "latency only"}
    return findings(folder, rows)


def with_tables(plain: Findings) -> Findings:
    volume = {"backend": "tcp", "hypervolume": 12.345678, "hypervolume_low": 12.0, "hypervolume_high": np.nan}
    volumes = plain.front[CONDITION].head(1).assign(**volume, rounds=7, reference="the worst of each")
    return replace(plain, overhead=overhead(plain.trials, plain.stages, {}), hypervolumes=volumes)


PROBES = {
    "verdict": ["ok", "ok", "off", "ok"], "reason": ["", "", "rate edge to server 2.1 Mbit/s, asked 4.78 Mbit/s", ""],
    "asked_rtt_s": [0.2] * 4, "rtt_s": [0.2004, 0.2006, 0.2032, np.nan],
    "asked_rate_bps": [5e6] * 4, "rate_bps": [4.78e6, 4.8e6, 2.1e6, 4.79e6],
}  # fmt: skip
SAID = {name: [f"{name}: something"] for name in ("verdicts", "codecs", "engines", "notes")}
SAID |= {"doubts": [Doubt("warnings: something")], "answers": ["cut at 7", *["or at 8"] * 100]}
OTHERS = ("latency", "throughput", "payload")
ODD: list[dict[str, Any]] = [{}, {"sweep": 3, "sessions": 4, "models": []}, {"sessions": [5, {"hosts": [1]}]}]
RUNS = [Run(Path("results", f"run{number}"), of) for number, of in enumerate([MANIFEST, MANIFEST, *ODD])]
PAGES: dict[str, Callable[[Path, Findings], Findings]] = {
    "as_usual": lambda folder, plain: plain,
    "of_other_objectives": lambda folder, _: findings(folder, objectives=OTHERS, where="latency_s < 0.5"),
    "with_what_is_said": lambda _, plain: replace(plain, **SAID),
    "without_a_valid_trial": lambda folder, _: without_a_valid_trial(folder),
    "with_reasons": lambda folder, _: with_reasons(folder),
    "with_probes": lambda _, plain: replace(plain, links=probes(**PROBES)),
    "with_tables": lambda _, plain: with_tables(plain),
    "of_several_runs": lambda _, plain: replace(plain, runs=RUNS),
    "of_nothing": lambda folder, _: findings(folder, [], answers=[], runs=[]),
}


@pytest.mark.parametrize("name", PAGES)
def test_what_it_says(
    name: str, plain: Findings, usual: Read, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """What the usual page does not say; of that all."""
    known = [] if name == "as_usual" else usual.lines
    lines = read(PAGES[name](tmp_path, plain)).lines
    assert [line[:200] for line in dict.fromkeys(lines) if line not in known] == snapshot


def test_the_same_text_and_nothing_from_elsewhere(plain: Findings) -> None:
    first, second = (document.html(plain) for _ in range(2))
    assert first == second
    seen = Read(first)
    for tag, attributes in seen.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    (policy,) = (told["content"] or "" for _, told in seen.tags if told.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for inline in (seen.texts["style"][0], seen.texts["script"][-1]):
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
        assert "http" not in inline


def test_text_from_runs_is_never_markup(tmp_path: Path) -> None:
    rows = [row | {"model": EVIL, "netem": f"{EVIL}&amp;"} for row in trials(rounds=3)]
    for row in rows:
        row["point_name"] = EVIL if row["point"] == 3 else row["point_name"]
    rows[0] |= {"status": "failed", "reason": f"{EVIL}\n{EVIL * 20}"}
    rows[1] |= {"status": "invalid", "reason": "\x1b[31mred\x00 \ufffd  \x9b\u202e"}
    manifest = MANIFEST | {
        "testbed": EVIL, "created_at": EVIL, "sweep": {"models": [EVIL], "input": "auto"},
        "models": {EVIL: {"weights": EVIL}},
        "sessions": [{"hosts": {EVIL: {"cpu": EVIL}}, "driver": {"hostname": EVIL}}],
        "profiles": {f"{EVIL}&amp;": PROFILES["profiles"]["200ms-5mbit"]},
    }  # fmt: skip
    told = {name: [f"answer {EVIL}"] for name in ("answers", "verdicts", "notes")}
    links = probes(verdict=["off"], reason=[EVIL], netem=[EVIL])
    found = findings(tmp_path, rows, links=links, doubts=[Doubt(f"answer {EVIL}")], **told)
    found.runs[0] = Run(found.runs[0].folder, manifest)
    text = document.html(found)
    assert terminal(text) == text and "red" in text
    seen = Read(text)
    assert "img" not in seen.texts
    assert len(seen.texts["script"]) == 2
    assert not set("<>&") & set(seen.texts["script"][0])
    assert sum(EVIL in told for told in seen.texts["title"]) >= 3  # of the page, and of marks
    assert seen.texts["td"].count(EVIL) >= 3
    assert seen.texts["li"].count(f"answer {EVIL}") == 4
    assert any(shlex.split(told) == ["./pareto.sh", "--model", EVIL] for told in seen.texts["pre"])


def test_every_figure_of_a_point_is_in_its_row_those_of_the_terminal_first(
    plain: Findings, usual: Read
) -> None:
    (rows,) = re.findall(r'<table class="points".*?</table>', document.html(plain), re.DOTALL)
    each = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in re.findall(r"<tr .*?</tr>", rows)]
    of_point = {(cells[0], cells[1].strip()): cells[2:] for cells in each}
    row = plain.front.query("backend == 'tcp' and point == '14'").iloc[0]
    cells, (latency, low, high) = (
        of_point["tcp", "14"],
        1e3 * row[["latency_s", "latency_low_s", "latency_high_s"]],
    )
    shares = (f"{row[f'{figure}_efficiency'] * 100:.0f}" for figure in ("latency", "throughput"))
    first = ["features.13", f"{latency:.2f}", f"{low:.2f}..{high:.2f}", f"{row['throughput_ips']:.2f}"]
    assert cells[:5] == [*first, " ".join(shares)]
    assert cells[6] == html.escape(sureness(row["probability"]))
    for column in ("latency_bound_s", "edge_s", "serialize_s", "network_s", "server_s"):
        assert f"{row[column] * 1e3:.4g}" in cells
    assert of_point["any", "21*"].count("-") >= 2, "what crosses nowhere was not measured: no 0"
    assert len(usual.of("tr", **{"class": "on"})) == plain.front["on_backend_front"].sum()


def test_marks_are_the_rows_and_lie_where_they_were_measured(plain: Findings, usual: Read) -> None:
    (condition,) = document.conditions(plain)
    ((_, chart),) = condition["charts"]
    rows = pd.concat([plain.front[plain.front["backend"] == name] for name in ("tcp", "rpc", "none")])
    marks = pd.DataFrame(chart["marks"]).sort_values("row")
    assert marks["row"].tolist() == list(range(len(rows)))
    assert marks["fill"].tolist() == [FILLS[state] for state in states(rows)]
    for axis, column, sign, scale in (("x", "latency_s", 1, 1e3), ("y", "throughput_ips", -1, 1.0)):
        title, ticks = chart[axis]
        assert title.endswith(", log)")  # both span a factor of 8 and more
        slope, start = np.polyfit(np.log(rows[column]), marks[axis], 1)
        assert slope * sign > 0
        assert start + slope * np.log(rows[column].to_numpy()) == pytest.approx(marks[axis], abs=0.02)
        at = np.array([start + slope * np.log(float(text) / scale) for _, text in ticks])
        assert (at if axis == "x" else 100 - at) == pytest.approx([place for place, _ in ticks], abs=0.02)
    ends = marks[["x", "x_low", "x_high", "y", "y_low", "y_high"]]
    assert ((ends > 0) & (ends < 100) | ends.isna() | (marks["fill"] == 0).to_numpy()[:, None]).all(axis=None)
    assert [tone for tone, _ in chart["stairs"]] == ["s0", "s1"]
    alone = marks[marks["backend"] == "none"].iloc[0]
    assert all(f"H{alone['x']}V{alone['y']}" in path for _, path in chart["stairs"])
    assert usual.of("use", href="#s1", **{"class": "s1"})
    assert len(usual.of("a", href="#p0")) == 1


def test_an_answer_leads_to_the_condition_that_it_is_of(tmp_path: Path) -> None:
    rows = [row for netem in ("lte", "wifi") for row in trials(rounds=2, netem=netem)]
    found = findings(tmp_path, rows)
    keys = [condition["key"] for condition in document.conditions(found)]
    answers = [Answer("of wifi", (keys[1],)), Answer("of both", (keys[1], keys[0])), "of none"]
    seen = read(replace(found, answers=answers))
    assert [each.get("data-of") for each in seen.of("li")[:3]] == ["1", "1 0", None]
    assert [each["href"] for each in seen.of("a") if (each["href"] or "").startswith("#c")] == ["#c1", "#c1"]
    assert {"c0", "c1"} <= {each.get("id") for each in seen.of("section")}


def test_the_map_says_what_the_prediction_says(plain: Findings, tmp_path: Path) -> None:
    found = replace(plain, runs=[Run(tmp_path, PROFILES)])
    seen = read(found)
    (data,) = json.loads(seen.texts["script"][0])
    predictor = next(workloads(found.joined)).predictor
    assert (data["delay"][0], data["rate"][-1]) == ("0 ms", "no limit")
    at = data["delay"].index("200 ms"), data["rate"].index("5 Mbit/s")
    button = seen.of("button", **{"data-delay": str(at[0]), "data-rate": str(at[1])})
    assert "200ms-5mbit, measured: " in (button[0]["title"] or "")
    cell = at[0] * len(data["rate"]) + at[1]
    for objective, unit in (("latency", 1e-3), ("throughput", 1.0)):
        of = data[objective]
        assert len(of["best"]) == len(of["cost"]) == len(of["note"]) == len(data["delay"]) * len(data["rate"])
        cost = predictor.cost(objective, delay_s=0.2, rate_bps=5e6).ravel()
        number = float(of["cost"][cell].removesuffix(" ms")) * unit
        assert (number if objective == "latency" else 1 / number) == pytest.approx(cost.min(), rel=0.01)
        best = predictor.cells.iloc[int(cost.argmin())]
        is_whole = best["backend"] == "none"
        words = "keep everything on the edge" if is_whole else f"cut at {best['point']} "
        assert of["orders"][of["best"][cell]].startswith(words)
        assert of["note"][cell] < 2 <= of["note"][0], "only the first is beyond what was measured"
    areas = seen.of("path", **{"class": "area"})
    assert len(areas) == sum(len(data[objective]["orders"]) for objective in ("latency", "throughput"))
    asked = read(replace(found, where="latency_s < 0.5"))
    assert asked.texts["script"][0] == "[]", "what a condition asks cannot be asked of a predicted network"


def test_many_points_leave_out_what_is_on_no_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings(
        tmp_path, [row for number in range(3) for row in trials(rounds=3, netem=f"{number}ms-5mbit")]
    )
    likely = found.front["on_backend_front"] | (found.front["probability"] > 0)
    for most, some in ((likely.sum(), ""), (likely.sum() - 1, ", of the first 2 of 3 conditions")):
        monkeypatch.setattr(document, "MOST_CELLS", int(most))
        shown = document.conditions(found)
        kept = sum(len(condition["bold"]) for condition in shown)
        told = f"{kept} of 129 points are shown here: those that are, or may be, on a front{some}."
        assert any(told in line for line in read(found).lines)


@pytest.mark.deep
def test_however_much_was_measured_the_page_stays_small(plain: Findings) -> None:
    many = plain.front.iloc[np.arange(document.MOST_CELLS) % len(plain.front)].reset_index(drop=True)
    many["netem"] = [f"{number // 100}ms-100mbit" for number in range(len(many))]
    many["point_name"], many["ties"] = "features.17.conv.0.activation", "rpc 21; tcp 17; tcp 18"
    assert len(document.html(replace(plain, front=many))) < 6_000_000
    count = 1_000_000
    needed = plain.trials[[*TRIAL, "status", "reason"]]
    repeated = needed.iloc[np.arange(count) % len(needed)].reset_index(drop=True)
    bad = np.arange(count) % 10 == 0
    repeated["status"] = np.where(bad, "failed", "ok")
    repeated["reason"] = np.where(bad, "after " + pd.Series(np.arange(count)).astype(str) + " ms", "")
    text = document.html(replace(plain, trials=repeated))
    assert len(text) < 1_000_000
    assert "100000 of 1000000 trials" in text


def test_rates_of_probes_are_on_the_wire(plain: Findings) -> None:
    """What was read is payload, what was asked is on the wire: both stand here as they are on the wire."""
    cells = read(replace(plain, links=probes(**PROBES))).texts["td"]
    low, middle, high = (f"{rate / GOODPUT:.4g}" for rate in (2.1, 4.785, 4.8))
    assert f"{middle} ({low} to {high})" in cells
    assert "200.6 (200.4 to 203.2)" in cells


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compared(tmp_path_factory.mktemp("runs"), name=EVIL)


def test_both_runs_have_their_points_and_fronts_on_the_same_axes(two: Comparison, tmp_path: Path) -> None:
    text = document.write_comparison(two, tmp_path).read_text(encoding="utf-8")
    assert text == document.comparison_html(two)
    seen = Read(text)
    assert "img" not in seen.texts
    assert seen.texts["td"].count(EVIL) == 2
    assert [each["data-of"] for each in seen.of("li")[:1]] == ["0"]
    sides = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    places = [re.findall(r' x="([\d.]+)%"', side) for side in sides]
    assert places[0] != places[1]
    ticks = [re.findall(r'<text class="tick".*?</text>', side) for side in sides]
    assert ticks[0] == ticks[1] and len(ticks[0]) > 6
    front = two.fronts.iloc[0]
    for side, moved in zip(sides, ("leave", "enter"), strict=True):
        fill = np.array(re.findall(r'<a href="#p\d+".*? fill-opacity="([\d.]+)"', side), dtype=float)
        assert len(fill) == len(two.differences)
        named = ["; ".join(front[[f"{may}stay", f"{may}{moved}"]]).split("; ") for may in ("", "may_")]
        counts = [len([*filter(None, each)]) for each in named]
        assert [(fill == FILLS[state]).sum() for state in ("front", "unsure")] == counts
        assert sum(counts) > 0
