"""The page of a report, as a browser takes it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis import page
from pareto.analysis.costs import overhead
from pareto.analysis.findings import Findings
from pareto.analysis.fronts.front import front
from pareto.analysis.page import document
from pareto.analysis.page import fronts as page_fronts
from pareto.analysis.page.document import LONG, MOST_TRIALS
from pareto.analysis.points import TRIAL
from pareto.analysis.runs.load import load
from pareto.analysis.statistics.doubt import Doubt
from pareto.analysis.tables.columns import sureness
from pareto.basics.escaping import terminal
from pareto.protocol.constants import GOODPUT
from tests.unit.example_findings import MANIFEST, PROFILES, Run, findings, probes
from tests.unit.example_run import trials, write

EVIL = '</script ><img src=x onerror="alert(1)">'
VOID = {"meta", "link", "img", "br", "input"}


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

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts["body"]).split())

    def beside(self, usual: Read) -> list[str]:
        """The paragraphs and list items that the usual page has not."""
        return [
            text
            for tag in ("p", "li")
            for text in self.texts.get(tag, [])
            if text not in usual.texts["p"] + usual.texts["li"]
        ]


def read(found: Any, folder: Path) -> Read:
    return Read(page.write(found, folder / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """What is not to be changed: take `replace`."""
    return findings(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def usual(plain: Findings, tmp_path_factory: pytest.TempPathFactory) -> Read:
    return read(plain, tmp_path_factory.mktemp("usual"))


def rows_of(text: str, head: str) -> int:
    """Rows of the table under that caption."""
    table = re.search(rf'<table aria-label="{head}[^>]*>(.*?)</table>', text, re.DOTALL)
    assert table is not None
    return table[1].count("<tr>") - 1


def test_all_its_words(usual: Read, snapshot: SnapshotAssertion) -> None:
    assert {tag: usual.texts[tag] for tag in ("h1", "h2", "p", "th", "dt")} == snapshot


def test_same_bytes_and_nothing_from_elsewhere(plain: Findings, tmp_path: Path) -> None:
    first, second = (page.write(plain, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second
    text = first.decode()
    seen = Read(text)
    for tag, attributes in seen.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    policies = [told["content"] or "" for _, told in seen.tags if told.get("http-equiv")]
    assert policies[0].startswith("default-src 'none'; ")
    assert "unsafe" not in policies[0]
    for inline in (seen.texts["style"][0], seen.texts["script"][-1]):
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policies[0]
    assert "http" not in seen.texts["style"][0]


def test_answer_comes_first_and_its_absence_is_told(
    plain: Findings, usual: Read, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    told = {
        "answers": ["cut at 7", "keep all"],
        "doubts": [Doubt("unstable: add rounds")],
        "verdicts": ["tcp is faster"],
        "notes": ["no energy"],
    }
    seen = read(replace(plain, **told), tmp_path)
    for lines in told.values():
        for line in lines:
            assert line in seen.texts["li"]
    assert seen.texts["li"][:2] == told["answers"]
    assert read(replace(plain, answers=[]), tmp_path).beside(usual) == snapshot


def test_every_figure_of_a_point_is_in_its_row(plain: Findings, tmp_path: Path) -> None:
    found = plain
    text = page.write(found, tmp_path / "report.html").read_text()
    row = found.front[(found.front["backend"] == "tcp") & (found.front["point"] == "14")].iloc[0]
    cells = next(
        re.findall(r"<td[^>]*>(.*?)</td>", line)
        for line in re.findall(r"<tr>.*?</tr>", text)
        if line.startswith("<tr><td>tcp</td><td class=n>14</td>")
    )
    for column in ("latency_s", "latency_bound_s", "edge_s", "serialize_s", "network_s", "server_s"):
        assert f"{row[column] * 1e3:.2f}" in cells
    assert f"{row['throughput_ips']:.3f}" in cells
    assert f"{row['latency_low_s'] * 1e3:.2f}..{row['latency_high_s'] * 1e3:.2f}" in cells
    assert f"{row['latency_efficiency'] * 100:.1f}" in cells
    assert f"{row['payload_bytes'] / 1e3:.1f}" in cells
    assert "features.13" in cells
    assert html.escape(sureness(row["probability"])) in cells
    # What crosses nowhere was not measured: a dash, not 0.
    last = next(
        line
        for line in re.findall(r"<tr>.*?</tr>", text)
        if line.startswith("<tr><td>any</td><td class=n>21<")
    )
    assert "<td class=n>-</td>" in last


def test_chart_has_the_same_rows_in_the_same_order(plain: Findings, usual: Read) -> None:
    found = plain
    data = json.loads(usual.texts["script"][0])
    assert data["backends"] == ["tcp", "rpc", "any"]
    (chart,) = data["charts"]
    ordered = pd.concat([found.front[found.front["backend"] == name] for name in ("tcp", "rpc", "")])
    assert [point[0] for point in chart["points"]] == pytest.approx(ordered["latency_s"] * 1e3, rel=1e-5)
    assert [point[1] for point in chart["points"]] == pytest.approx(ordered["throughput_ips"], rel=1e-5)
    assert [point[7] > 0 for point in chart["points"]] == ordered["on_backend_front"].tolist()
    assert [point[7] == 2 for point in chart["points"]] == ordered["on_front"].tolist()
    assert chart["stairs"]


def test_front_of_other_objectives_is_no_staircase(
    usual: Read, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    found = findings(tmp_path, objectives=("latency", "throughput", "payload"), where="latency_s < 0.5")
    seen = read(found, tmp_path)
    assert not json.loads(seen.texts["script"][0])["charts"][0]["stairs"]
    assert seen.beside(usual) == snapshot
    assert set(seen.texts["td"]) - set(usual.texts["td"]) == {"ruled out"}
    assert "--objectives latency,throughput,payload --where 'latency_s < 0.5'" in seen.texts["pre"][-1]


def test_text_from_runs_is_never_markup(tmp_path: Path) -> None:
    rows = trials(rounds=3)
    for row in rows:
        row["model"], row["netem"] = EVIL, f"{EVIL}&amp;"
        row["point_name"] = EVIL if row["point"] == 3 else row["point_name"]
    rows[0] |= {"status": "failed", "reason": f"{EVIL}\n{EVIL * 20}"}
    rows[1] |= {"status": "invalid", "reason": EVIL}
    lines = [f"answer {EVIL}"]
    manifest = {
        **MANIFEST,
        "testbed": EVIL,
        "sweep": {"models": [EVIL], "input": "auto"},
        "models": {EVIL: {"weights": EVIL}},
        "sessions": [{"hosts": {EVIL: {"cpu": EVIL}}, "driver": {"hostname": EVIL}}],
    }
    links = probes(verdict=["off"], reason=[EVIL], netem=[EVIL])
    found = findings(
        tmp_path, rows, answers=lines, doubts=[*map(Doubt, lines)], verdicts=lines, notes=lines, links=links
    )
    found.runs[0] = Run(found.runs[0].folder, manifest)
    seen = read(found, tmp_path)
    assert "img" not in seen.texts
    assert len(seen.texts["script"]) == 2
    assert not set("<>&") & set(seen.texts["script"][0])
    assert json.loads(seen.texts["script"][0])["charts"][0]["keys"]["model"] == EVIL
    assert seen.texts["td"].count(EVIL) >= 4
    assert seen.texts["li"].count(lines[0]) == 4
    assert shlex.split(seen.texts["pre"][-2]) == ["./pareto.sh", "--model", EVIL]


def test_link_says_what_was_asked_and_measured(
    plain: Findings, usual: Read, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    links = probes(
        verdict=["ok", "ok", "off", "ok"],
        reason=["", "", "rate edge to server 2.1 Mbit/s, asked 4.78 Mbit/s", ""],
        asked_rtt_s=[0.2] * 4,
        rtt_s=[0.2004, 0.2006, 0.2032, np.nan],
        asked_rate_bps=[5e6] * 4,
        rate_bps=[4.78e6, 4.8e6, 2.1e6, 4.79e6],
    )
    seen = read(replace(plain, links=links), tmp_path)
    assert "200" in seen.texts["td"]
    assert "200.6 (200.4 to 203.2)" in seen.texts["td"]
    # What was read is payload, what was asked is on the wire: both stand here as they are on the wire.
    low, middle, high = (f"{rate / GOODPUT:.3f}" for rate in (2.1, 4.785, 4.8))
    assert f"{middle} ({low} to {high})" in seen.texts["td"]
    assert seen.texts["td"][seen.texts["td"].index("edge-server") + 5 :][:2] == ["3", "1"]
    assert seen.beside(usual) == snapshot(name="paragraphs")
    heads = seen.texts["th"][len(usual.texts["th"]) - 2 :]
    assert heads == snapshot(name="heads")  # no rate back: nobody asked, nobody measured


def test_each_trial_that_does_not_count_has_its_reason(
    usual: Read, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    rows = trials(rounds=3)
    rows[0] |= {"status": "invalid", "reason": "link off after the trial"}
    rows[5] |= {
        "status": "failed",
        "reason": "Traceback (most recent call last):\n  File x\nBackendError: gone",
    }
    rows[9] |= {"status": "failed", "reason": "x" * 3 * LONG}
    text = page.write(findings(tmp_path, rows), tmp_path / "report.html").read_text()
    seen = Read(text)
    assert re.search(r"3 of 132 trials: 1 .* 2 ", seen.text)
    assert [text for text in seen.beside(usual) if "\n" not in text] == snapshot
    assert rows_of(text, "Trials that are not ok") == 3
    assert "link off after the trial" in seen.texts["td"]
    assert "BackendError: gone" in seen.texts["summary"]
    assert f"{2 * LONG} characters more" in seen.text


@pytest.mark.deep
def test_more_than_can_be_read_are_counted_not_cut_silently(tmp_path: Path) -> None:
    rows = trials(rounds=6)
    for number, row in enumerate(rows[:250]):
        row |= {
            "status": "invalid",
            "reason": f"round trip {number} ms, asked 200 ms" if number % 5 else "swapped",
        }
    text = page.write(findings(tmp_path, rows), tmp_path / "report.html").read_text()
    seen = Read(text)
    assert rows_of(text, "Trials that are not ok") == MOST_TRIALS
    assert f"{MOST_TRIALS} of 250" in seen.text
    assert rows_of(text, "Reasons by how often") == 2
    assert "200" in seen.texts["td"]
    assert "50" in seen.texts["td"]


@pytest.mark.deep
def test_condition_without_a_valid_trial_has_no_chart(
    usual: Read, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    rows = [*trials(rounds=1), *trials(rounds=1, netem="lte", status="failed", reason="no route")]
    for row in rows[44:]:
        row |= dict.fromkeys(("latency_s", "throughput_ips", "latency_bound_s", "throughput_bound_ips"), "")
    seen = read(findings(tmp_path, rows), tmp_path)
    assert len(seen.texts["figure"]) == 1
    assert seen.beside(usual) == snapshot


def test_nothing_measured_yet(usual: Read, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    seen = read(findings(tmp_path, [], answers=[], runs=[]), tmp_path)
    assert seen.beside(usual) == snapshot
    assert "figure" not in seen.texts


@pytest.mark.deep
def test_a_million_trials_stay_small(plain: Findings, tmp_path: Path) -> None:
    count = 1_000_000
    needed = plain.trials[[*TRIAL, "status", "reason"]]
    repeated = needed.iloc[np.arange(count) % len(needed)].reset_index(drop=True)
    bad = np.arange(count) % 10 == 0
    repeated["status"] = np.where(bad, "failed", "ok")
    repeated["reason"] = np.where(
        bad, "timed out after " + pd.Series(np.arange(count)).astype(str) + " ms", ""
    )
    written = page.write(replace(plain, trials=repeated), tmp_path / "report.html")
    assert written.stat().st_size < 1_000_000
    assert "100000 of 1000000 " in Read(written.read_text()).text


def test_many_points_leave_out_what_is_on_no_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for number in range(3) for row in trials(rounds=3, netem=f"{number}ms-5mbit")]
    found = findings(tmp_path, rows)
    likely = found.front["on_backend_front"] | (found.front["probability"] > 0)
    monkeypatch.setattr(page_fronts, "MOST_CELLS", int(likely.sum()))
    seen = read(found, tmp_path)
    assert f"{likely.sum()} of 129 points" in seen.text
    assert (
        sum(len(chart["points"]) for chart in json.loads(seen.texts["script"][0])["charts"]) == likely.sum()
    )
    monkeypatch.setattr(page_fronts, "MOST_CELLS", int(likely.sum()) - 1)
    assert "2 of 3 conditions" in read(found, tmp_path).text


@pytest.mark.deep
def test_most_points_fit_five_megabytes(plain: Findings, tmp_path: Path) -> None:
    many = plain.front.iloc[np.arange(page_fronts.MOST_CELLS) % len(plain.front)].reset_index(drop=True)
    many["netem"] = [f"{number // 100}ms-100mbit" for number in range(len(many))]
    many["point_name"], many["ties"] = "features.17.conv.0.activation", "rpc 21; tcp 17; tcp 18"
    assert page.write(replace(plain, front=many), tmp_path / "report.html").stat().st_size < 5_000_000


def test_environment_and_what_is_missing(
    plain: Findings, usual: Read, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    for told in ("Cortex-A76", "6.6.1", "0,1", "not set"):
        assert told in usual.texts["td"]
    for told in ("lab.yaml", "netem", "3", "3042ca80", "7f4eedca", "not recorded"):
        assert told in usual.texts["dd"]
    seen = read(without_manifest(plain), tmp_path)
    assert [*seen.beside(usual), *seen.texts["pre"]] == snapshot


def test_other_networks_are_left_out_where_a_condition_is_set(tmp_path: Path) -> None:
    """What a condition asks of a measured network cannot be asked of a predicted one."""
    for where, count in (("", 1), ("latency_s < 0.5", 0)):
        found = findings(tmp_path / str(count), runs=[], where=where)
        found.runs = [Run(tmp_path, PROFILES)]
        assert len(json.loads(read(found, tmp_path).texts["script"][0])["maps"]) == count


def without_manifest(found: Findings, manifest: Mapping[str, Any] | None = None) -> Findings:
    return replace(found, runs=[Run(Path("run"), manifest or {})])


@pytest.mark.parametrize(
    "manifest", [{"sweep": 3, "sessions": 4, "models": []}, {"sessions": [5, {"hosts": [1]}]}]
)
def test_manifest_of_another_make_is_no_fault(
    plain: Findings, tmp_path: Path, manifest: Mapping[str, Any]
) -> None:
    assert "not recorded" in read(without_manifest(plain, manifest), tmp_path).text


def test_runs_on_the_same_hosts_are_told_together(plain: Findings, tmp_path: Path) -> None:
    runs = [Run(tmp_path / "results" / name, MANIFEST) for name in ("one", "two")]
    seen = read(replace(plain, runs=[*runs, Run(tmp_path / "three", {})]), tmp_path)
    assert "one, two" in seen.texts["h3"]
    assert "three" in seen.texts["h3"]
    assert seen.texts["td"].count("Cortex-A76") == 1
    assert "report results/one results/two PATH/TO/three" in seen.texts["pre"][-1]


def test_costs_and_hypervolumes_are_told_where_there_are_any(
    plain: Findings, usual: Read, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    costs = overhead(plain.trials, plain.stages, {})
    key = {
        "model": "mobilenetv2",
        "netem": "200ms-5mbit",
        "batch_size": 1,
        "codec": "",
        "in_flight_asked": "auto",
    }
    volumes = [
        key
        | {"setup": "", "backend": "tcp", "hypervolume": 12.345678, "hypervolume_low": 12.0}
        | {"hypervolume_high": 13.5},
        key
        | {"setup": "", "backend": "all", "hypervolume": 14.5, "hypervolume_low": np.nan}
        | {"hypervolume_high": np.nan},
    ]
    rows = pd.DataFrame(volumes).assign(rounds=7, reference="the worst of each")
    seen = read(replace(plain, overhead=costs, hypervolumes=rows), tmp_path)
    for told in ("12.346", "12..13.5", "14.5", "the worst of each"):
        assert told in seen.texts["td"]
    assert len(costs) == 2
    for row in costs.to_dict("records"):
        assert f"{row['a_s'] * 1e3:.2f}" in seen.texts["td"]
        assert f"{row['b_s_per_byte'] * 1e9:.2f}" in seen.texts["td"]
    assert [*seen.texts["h3"], *seen.beside(usual)] == snapshot
    assert "hypervolume" not in usual.text


def test_every_word_in_a_head_is_explained(usual: Read) -> None:
    explained = " ".join(usual.texts["dt"])
    for head in (
        "latency",
        "bound",
        "eff.",
        "throughput",
        "gain",
        "bound by",
        "busiest",
        "serialize",
        "network",
        "front",
        "p",
    ):
        assert head in explained


def test_unreadable_characters_do_no_harm(tmp_path: Path) -> None:
    rows = trials(rounds=1)
    rows[0] |= {"status": "failed", "reason": "\x1b[31mred\x00 \ufffd  \x9b\u202e"}
    made = findings(tmp_path, rows, notes=["\udc80"])
    read(made, tmp_path)
    text = document.html(made)
    assert "red" in text and terminal(text) == text
    assert load([write(tmp_path / "again", rows)]).pipe(front).shape[0] == 43


@pytest.mark.parametrize(
    ("setup", "place"),
    [
        ("edge_cpu=0.25 onnx", 1),
        ("edge_cpu=0.25 compile", 2),
        ("edge_cpu=0.25 eager", None),
        ("edge_cpu=0.25", 1),
    ],
)
def test_the_answer_that_chooses_an_engine_leads_to_its_setup(setup: str, place: int | None) -> None:
    told = {"model": "net", "netem": "wifi", "batch_size": 1, "codec": "none", "in_flight_asked": "auto"}
    answers = [
        "net at lte, edge_cpu=0.25: send the input by eager: 5 ms",
        "net at wifi, edge_cpu=0.25: keep everything on the edge by onnx: 6.56 ms",
        "net at wifi, edge_cpu=0.25: cut at 3 by edge=compile: 7 ms",
    ]
    assert page_fronts._answer(pd.Series({**told, "setup": setup}), answers) == place
