"""`runs`, the runs that commands take by themselves, and `compare --fail-if`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pareto.analysis.findings import Options
from pareto.basics.console import console
from pareto.commands import advise, compare, report, runs
from pareto.commands.compare import surely
from pareto.commands.report import show
from tests.program import command, refused, well
from tests.unit.example_run import trials, write


def made(results: Path, name: str, when: str, slower: float = 1.0, rounds: int = 2) -> Path:
    """A run of three points."""
    rows = [row for row in trials(rounds=rounds, noise=0.01, run=name) if row["point"] in (0, 17, 21)]
    for row in rows:
        row["latency_s"] *= slower
    manifest: dict[str, Any] = {"created_at": when} if when else {}
    sweep = {"models": ["mobilenetv2"], "netems": ["200ms-5mbit"]}
    return write(results / name, rows, **manifest, sweep=sweep)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs: by the names first, last and middle."""
    folder = tmp_path / "results"
    made(folder, "b-first", "2026-01-01T10:00:00Z")
    made(folder, "a-last", "2026-01-03T10:00:00Z", slower=2.0)
    made(folder, "c-middle", "2026-01-02T10:00:00Z")
    for module in (runs, report, compare, advise):
        monkeypatch.setattr(module, "RESULTS", folder)
    return folder


def test_runs_are_listed_the_last_first_with_their_answers(results: Path) -> None:
    well("report", f"{results}/c-middle", "--figures", "none")
    lines = well("runs", str(results)).out.splitlines()
    assert [line.split()[0] for line in lines if line[0] != " "] == ["a-last", "c-middle", "b-first"]
    assert "12 ok" in lines[0]
    assert lines[1].strip() == "mobilenetv2 at 200ms-5mbit: no report yet"
    assert lines[3].strip().startswith("mobilenetv2 at 200ms-5mbit: keep everything on the edge")
    assert max(map(len, lines)) <= 80
    listed = json.loads(well("runs", str(results), "--json").out)["runs"]
    assert [each["run"] for each in listed] == ["a-last", "c-middle", "b-first"]
    assert len(listed[1]["answers"]) == 1


def test_old_runs_are_counted_and_a_broken_one_does_not_hide_the_others(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (results / "b-first" / "trials.csv").write_text("no,such\n")
    (results / "b-first" / "manifest.json").write_text("[")
    shown = well("runs", str(results)).out
    assert "no column" in shown
    assert "c-middle" in shown
    monkeypatch.setattr(runs, "MOST", 1)
    assert well("runs", str(results)).out.splitlines()[-1] == "and 2 more: --all lists them"
    assert "c-middle" in well("runs", str(results), "--all").out


def test_commands_take_the_last_run_and_say_so(results: Path, tmp_path: Path) -> None:
    for words in (
        ("report", "--figures", "none", "--out", f"{tmp_path}/out"),
        ("advise", "--latency", "20ms", "--rate", "30mbit"),
    ):
        assert command(*words).out.startswith("the last run: results/a-last\n")
    out = ("--out", f"{tmp_path}/compared")
    assert "the last 2 runs: results/c-middle, results/a-last\n" in well("compare", *out).out
    assert "the last run: results/a-last\n" in well("compare", f"{results}/b-first", *out).out
    assert (tmp_path / "compared" / "compare-b-first-a-last").is_dir()
    published = command("compare", "sweeps/published/paretopipe.yaml", *out)
    assert published.out.startswith("the last run: results/a-last\n")


def test_without_runs_commands_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "RESULTS", tmp_path / "results")
    for words in (("report",), ("compare",), ("advise", "--latency", "2ms", "--rate", "3mbit")):
        assert "measure first" in refused(*words)
    assert "makes one" in refused("runs", str(tmp_path))
    made(tmp_path / "results", "only", "2026-01-01T10:00:00Z")
    assert "only one run" in refused("compare")


def test_a_sure_regression_ends_with_1_and_an_unsure_one_with_0(tmp_path: Path) -> None:
    before = made(tmp_path, "before", "", rounds=8)
    after = made(tmp_path, "after", "", slower=2.0, rounds=8)
    few = made(tmp_path, "few", "", slower=2.0, rounds=2)

    def judged(a: Path, b: Path, limit: str) -> tuple[int, str]:
        done = command("compare", str(a), str(b), "--fail-if", limit, "--out", f"{tmp_path}/out")
        assert not done.err
        return done.code, done.out.splitlines()[-1]

    code, line = judged(before, after, "latency_s > 1.5 x")
    assert code == 1
    assert line.startswith("--fail-if latency_s > 1.5 x: so at rpc 0 (mobilenetv2 at 200ms-5mbit")
    assert judged(before, after, "latency_s > 3 x") == (0, "--fail-if latency_s > 3 x: surely so at no point")
    assert judged(after, before, "latency_s>1.5x")[0] == 0
    assert judged(after, before, "latency_s < 0.7 x")[0] == 1
    code, line = judged(before, few, "latency_s > 1.5 x")
    assert code == 0
    assert "at 5 of 5 points rounds are too few to be sure of anything" in line
    for wrong in ("latency_s > 1.5", "latency > 1.5 x", "latency_s >= 1 x"):
        refused("compare", str(before), str(after), "--fail-if", wrong)


@pytest.mark.parametrize(
    ("significant", "low", "high", "limit", "expected"),
    [
        (True, 11.0, 30.0, (">", 1.1), True),
        (True, 9.0, 30.0, (">", 1.1), False),
        (False, 11.0, 30.0, (">", 1.1), False),
        (True, -30.0, -11.0, ("<", 0.9), True),
        (True, -30.0, -9.0, ("<", 0.9), False),
        (True, float("nan"), float("nan"), (">", 1.1), False),
    ],
)
def test_sure_is_an_interval_beyond_the_limit_and_a_test_that_counts_all_points(
    significant: bool, low: float, high: float, limit: tuple[str, float], expected: bool
) -> None:
    of = {"latency_significant": significant, "latency_low_percent": low, "latency_high_percent": high}
    assert len(surely(pd.DataFrame([of]), "latency_s", *limit)) == expected


def test_the_report_keeps_its_answers_as_a_table(tmp_path: Path) -> None:

    run = made(tmp_path, "run", "", rounds=8)
    show(console(), [run], Options(figures="none"))
    (row,) = pd.read_csv(run / "answers.csv").to_dict("records")
    assert (row["netem"], row["sure"]) == ("200ms-5mbit", True)
    assert "keep everything on the edge" in row["answer"]
