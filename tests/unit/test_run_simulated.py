"""A whole sweep on a simulated testbed: the command, its files, going on with it, and that all say it is none."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.text import Text

from pareto.analysis import figures
from pareto.analysis.runs import load
from pareto.protocol.errors import UserError
from tests import REPOSITORY
from tests.program import command, measured
from tests.unit.simulated.worlds import MODEL, POINTS

SLOW = "hosts: {edge: {gflops: 0.02}, server: {gflops: 0.2}}"
"""So slow that a trial has few requests."""
Rows = list[dict[str, str]]


@pytest.fixture
def job(tmp_path: Path) -> tuple[str, ...]:
    words = f"--model {MODEL} --netem 10ms-50mbit --trials 3 --figures none --out {tmp_path}/out"
    return tuple(words.split())


def only_run(folder: Path) -> Path:
    (run,) = (folder / "out").iterdir()
    return run


def read(folder: Path) -> Rows:
    with (only_run(folder) / "trials.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_sweep_runs_without_a_machine_and_says_so_everywhere(tmp_path: Path, job: tuple[str, ...]) -> None:
    done = command(*job, "--testbed", "simulated", "--points", "0,3,7", "--only")
    assert done.code == 0, done.err
    out, run, rows = done.out, only_run(tmp_path), read(tmp_path)
    assert Counter(row["status"] for row in rows) == {"ok": 3 * 2 * 3}
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["simulated"] is True
    assert manifest["testbed"].startswith("simulated")
    assert [session["testbed_name"] for session in manifest["sessions"]] == ["simulated"]
    for file in ("trials.csv", "stages.csv", "link.csv"):
        with (run / file).open(newline="") as table:
            assert {row["testbed"] for row in csv.DictReader(table)} == {"simulated"}, file
    assert all("simulated" in row["run"] for row in rows)
    assert len(list((run / "requests").iterdir())) == 18
    for lines in (out.splitlines(), (run / "report.html").read_text().splitlines()):
        assert any("simulated" in line for line in lines)
    assert set(load.load([run])["setup"]) == {"simulated"}
    answer, _, table = out.partition("real ones would take")[2].partition("\n\n")
    assert "simulated" in answer
    assert "nothing of this was measured" in " ".join(table.split())
    texts = [text.get_text() for text in figures.front(load.load([run])).findobj(Text)]
    assert any("simulated" in text for text in texts)


def test_phases_have_as_many_requests_as_asked_for(tmp_path: Path, job: tuple[str, ...]) -> None:
    asked = "--testbed simulated --points 3 --only --backend tcp --requests 662"
    done = command(*job, *asked.split())
    assert done.code == 0, done.err
    (line,) = (line for line in done.out.splitlines() if line.startswith("phases "))
    assert "662 requests each: a trial tells p99 " in line
    rows, files = read(tmp_path), sorted((only_run(tmp_path) / "requests").iterdir())
    assert len(rows) == len(files) == 3
    for row, file in zip(rows, files, strict=True):
        made, depth = Counter(pd.read_parquet(file)["phase"]), int(row["in_flight"])
        assert made["latency"] == int(row["latency_requests"]) == 662
        assert made["throughput"] == int(row["throughput_requests"])
        assert (
            662 + depth < made["throughput"] <= 662 + 2 * depth + 1
        )  # whole bursts, and those that fill the steps


def test_what_a_cut_has_to_beat_is_measured_too(tmp_path: Path, job: tuple[str, ...]) -> None:
    done = measured(*job, "--testbed", "simulated", "--points", "3", "--trials", "1")
    assert done.code == 0, done.err
    assert {row["point"] for row in read(tmp_path)} == {"0", "3", str(POINTS - 1)}
    assert "--only" in done.out.partition("estimate")[0]


def test_what_failed_is_done_again_and_the_rest_stays(tmp_path: Path, job: tuple[str, ...]) -> None:
    (tmp_path / "world.yaml").write_text(f"{SLOW}\nfaults: {{failed: 20%}}\n")
    testbed = f"simulated:{tmp_path}/world.yaml"
    assert measured(*job, "--testbed", testbed).code == 1
    first = read(tmp_path)
    kept = [row for row in first if row["status"] == "ok"]
    assert 0 < len(kept) < len(first) == POINTS * 2 * 3
    for _ in range(9):
        again = ("--resume", str(only_run(tmp_path)), "--model", MODEL, "--testbed", testbed)
        if measured(*again, "--figures", "none").code == 0:
            break
    rows = read(tmp_path)
    assert rows[: len(kept)] == kept
    assert Counter(row["status"] for row in rows) == {"ok": POINTS * 2 * 3}
    assert set(Counter((row["point"], row["backend"], row["round"]) for row in rows).values()) == {1}

    # The same figures as of a run that was never interrupted by a fault.
    (tmp_path / "calm.yaml").write_text(SLOW)
    calm = (*job[:-1], str(tmp_path / "whole"), "--testbed", f"simulated:{tmp_path}/calm.yaml")
    assert measured(*calm).code == 0
    (whole,) = (tmp_path / "whole").iterdir()
    with (whole / "trials.csv").open(newline="") as file:
        calmly = list(csv.DictReader(file))
    names = ("point", "backend", "round", "latency_s", "throughput_ips")
    assert sorted(tuple(row[it] for it in names) for row in rows) == sorted(
        tuple(row[it] for it in names) for row in calmly
    )


def test_a_world_that_changed_is_another_run(
    tmp_path: Path,
    job: tuple[str, ...],
) -> None:
    world = tmp_path / "world.yaml"
    world.write_text(f"{SLOW}\nseed: 1\n")
    assert measured(*job, "--testbed", f"simulated:{world}", "--trials", "1").code == 0
    world.write_text(f"{SLOW}\nseed: 2\n")
    named = ("--model", MODEL, "--testbed", f"simulated:{world}")
    refused = measured("--resume", str(only_run(tmp_path)), *named)
    assert (refused.code, "start a new run" in refused.err) == (2, True)


def test_a_host_that_is_gone_ends_the_run_and_says_how_to_go_on(
    tmp_path: Path,
    job: tuple[str, ...],
) -> None:
    (tmp_path / "world.yaml").write_text(f"{SLOW}\nfaults: {{lost: server, after: 4}}\n")
    done = measured(*job, "--testbed", f"simulated:{tmp_path}/world.yaml")
    assert done.code == 1
    assert f"--resume {only_run(tmp_path)}" in done.out
    assert Counter(row["status"] for row in read(tmp_path)) == {"ok": 4, "failed": 5}


@pytest.mark.deep
def test_rounds_are_added_until_it_is_sure(tmp_path: Path, job: tuple[str, ...]) -> None:
    (tmp_path / "world.yaml").write_text(f"{SLOW}\nnoise: {{trial: 3%}}\n")
    wanted = (*job, *f"--testbed simulated:{tmp_path}/world.yaml --until 4% --points 0,7 --only".split())
    assert measured(*wanted).code == 0
    (session,) = json.loads((only_run(tmp_path) / "manifest.json").read_text())["sessions"]
    assert session["stopping"]["ended"] == "sure"
    rounds = {int(row["round"]) for row in read(tmp_path)}
    assert max(rounds) == len(rounds) == session["stopping"]["rounds"] > 6


def test_a_budget_is_of_the_time_that_trials_would_take(tmp_path: Path, job: tuple[str, ...]) -> None:
    where = ("--testbed", "simulated", "--points", "0,7", "--only", "--trials", "1")
    wanted = (*job, *where, "--budget", "30s")
    assert measured(*wanted).code == 0
    (session,) = json.loads((only_run(tmp_path) / "manifest.json").read_text())["sessions"]
    assert session["stopping"]["ended"] == "budget"
    spent_s = sum(float(row["wall_s"]) for row in read(tmp_path))
    assert 20 < spent_s <= 30


def test_simulated_trials_are_never_joined_with_real_ones(tmp_path: Path, job: tuple[str, ...]) -> None:
    assert measured(*job, "--testbed", "simulated", "--points", "0,7", "--only", "--trials", "1").code == 0
    example = REPOSITORY / "results" / "example"
    with pytest.raises(UserError, match="simulated"):
        load.load([only_run(tmp_path), example])
    refused = command("report", str(only_run(tmp_path)), str(example), "--out", str(tmp_path / "joined"))
    assert refused.code == 2
    (line,) = refused.err.splitlines()
    assert only_run(tmp_path).name in line


@pytest.mark.parametrize("arguments", [("doctor",), ("doctor", "--link", "wifi")])
def test_only_sweeps_are_simulated(arguments: tuple[str, ...]) -> None:
    refused = command(*arguments, "--testbed", "simulated")
    assert refused.code == 2
    (line,) = refused.err.splitlines()
    assert "only sweeps" in line
