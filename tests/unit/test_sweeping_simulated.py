"""A whole sweep on a simulated testbed: the command, its files, going on with it, and that all say it is none."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from analysis import figures
from analysis.errors import AnalysisError
from analysis.runs import trials
from pareto import cli
from tests import REPOSITORY
from tests.unit.simulated.worlds import MODEL, POINTS

SLOW = "hosts: {edge: {gflops: 0.02}, server: {gflops: 0.2}}"
"""So slow that a trial has few requests."""
Rows = list[dict[str, str]]


def pareto(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["pareto", *map(str, arguments)])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    return cli.main()


@pytest.fixture
def job(tmp_path: Path) -> tuple[str, ...]:
    return (
        "--model",
        MODEL,
        "--netem",
        "10ms-50mbit",
        "--figures",
        "none",
        "--out",
        str(tmp_path / "out"),
    )


def only_run(folder: Path) -> Path:
    (run,) = (folder / "out").iterdir()
    return run


def read(folder: Path) -> Rows:
    with (only_run(folder) / "trials.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_sweep_runs_without_a_machine_and_says_so_everywhere(
    tmp_path: Path, job: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pareto(monkeypatch, *job, "--testbed", "simulated", "--points", "0,3,7") == 0
    out, run, rows = capsys.readouterr().out, only_run(tmp_path), read(tmp_path)
    assert Counter(row["status"] for row in rows) == {"ok": 3 * 2 * 3}
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["simulated"] is True
    assert manifest["testbed"].startswith("simulated")
    assert all("simulated" in row["run"] for row in rows)
    assert len(list((run / "requests").iterdir())) == 18
    for lines in (out.splitlines(), (run / "report.html").read_text().splitlines()):
        assert any("simulated" in line for line in lines)
    assert set(trials.load([run])["setup"]) == {"simulated"}
    assert "simulated" in next(line for line in out.splitlines() if "Pareto front" in line)
    assert "simulated" in out.split("attention:")[-1]  # the answer
    (axes,) = figures.front(trials.load([run])).axes
    assert "simulated" in axes.get_title(loc="left") + axes.get_title()


def test_what_failed_is_done_again_and_the_rest_stays(
    tmp_path: Path, job: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "world.yaml").write_text(f"{SLOW}\nfaults: {{failed: 20%}}\n")
    testbed = f"simulated:{tmp_path}/world.yaml"
    assert pareto(monkeypatch, *job, "--testbed", testbed) == 1
    first = read(tmp_path)
    kept = [row for row in first if row["status"] == "ok"]
    assert 0 < len(kept) < len(first) == POINTS * 2 * 3
    for _ in range(9):
        if pareto(monkeypatch, "--resume", only_run(tmp_path), "--figures", "none") == 0:
            break
    rows = read(tmp_path)
    assert rows[: len(kept)] == kept
    assert Counter(row["status"] for row in rows) == {"ok": POINTS * 2 * 3}
    assert set(Counter((row["point"], row["backend"], row["round"]) for row in rows).values()) == {1}

    # The same figures as of a run that was never interrupted by a fault.
    (tmp_path / "calm.yaml").write_text(SLOW)
    calm = (*job[:-1], tmp_path / "whole", "--testbed", f"simulated:{tmp_path}/calm.yaml")
    assert pareto(monkeypatch, *calm) == 0
    (whole,) = (tmp_path / "whole").iterdir()
    with (whole / "trials.csv").open(newline="") as file:
        again = list(csv.DictReader(file))
    names = ("point", "backend", "round", "latency_s", "throughput_ips")
    assert sorted(tuple(row[it] for it in names) for row in rows) == sorted(
        tuple(row[it] for it in names) for row in again
    )


def test_a_world_that_changed_is_another_run(
    tmp_path: Path,
    job: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = tmp_path / "world.yaml"
    world.write_text(f"{SLOW}\nseed: 1\n")
    assert pareto(monkeypatch, *job, "--testbed", f"simulated:{world}", "--trials", "1") == 0
    world.write_text(f"{SLOW}\nseed: 2\n")
    assert pareto(monkeypatch, "--resume", only_run(tmp_path)) == 2
    assert "start a new run" in capsys.readouterr().err


def test_a_host_that_is_gone_ends_the_run_and_says_how_to_go_on(
    tmp_path: Path,
    job: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "world.yaml").write_text(f"{SLOW}\nfaults: {{lost: server, after: 4}}\n")
    assert pareto(monkeypatch, *job, "--testbed", f"simulated:{tmp_path}/world.yaml") == 1
    out = capsys.readouterr().out
    assert f"--resume {only_run(tmp_path)}" in out
    assert Counter(row["status"] for row in read(tmp_path)) == {"ok": 4, "failed": 5}


def test_rounds_are_added_until_it_is_sure(
    tmp_path: Path, job: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "world.yaml").write_text(f"{SLOW}\nnoise: {{trial: 5%}}\n")
    wanted = (*job, "--testbed", f"simulated:{tmp_path}/world.yaml", "--until", "4%", "--points", "0,7")
    assert pareto(monkeypatch, *wanted) == 0
    (session,) = json.loads((only_run(tmp_path) / "manifest.json").read_text())["sessions"]
    assert session["stopping"]["ended"] == "sure"
    rounds = {int(row["round"]) for row in read(tmp_path)}
    assert max(rounds) == len(rounds) == session["stopping"]["rounds"] > 6


def test_a_budget_is_of_the_time_that_trials_would_take(
    tmp_path: Path, job: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = (*job, "--testbed", "simulated", "--budget", "3min", "--points", "0,7", "--trials", "1")
    assert pareto(monkeypatch, *wanted) == 0
    (session,) = json.loads((only_run(tmp_path) / "manifest.json").read_text())["sessions"]
    assert session["stopping"]["ended"] == "budget"
    spent_s = sum(float(row["wall_s"]) for row in read(tmp_path))
    assert 2.5 * 60 < spent_s <= 3 * 60


def test_simulated_trials_are_never_joined_with_real_ones(
    tmp_path: Path, job: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pareto(monkeypatch, *job, "--testbed", "simulated", "--points", "0,7", "--trials", "1") == 0
    example = REPOSITORY / "results" / "example"
    with pytest.raises(AnalysisError, match="simulated"):
        trials.load([only_run(tmp_path), example])
    capsys.readouterr()
    assert pareto(monkeypatch, "report", only_run(tmp_path), example, "--out", tmp_path / "joined") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert only_run(tmp_path).name in line


@pytest.mark.parametrize("command", [("doctor",), ("netem", "check", "wifi")])
def test_only_sweeps_are_simulated(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pareto(monkeypatch, *command, "--testbed", "simulated") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "only sweeps" in line
