"""A whole sweep on a simulated testbed: the command, its files, going on with it, and that all say it is none."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.text import Text

from pareto.analysis import figures
from pareto.analysis.runs import load
from pareto.protocol.errors import UserError
from tests import REPOSITORY, rows_of
from tests.program import measured, refused, well
from tests.unit.simulated.worlds import MODEL, POINTS

EXAMPLE = REPOSITORY / "results" / "example"
SLOW = "hosts: {edge: {gflops: 0.02}, server: {gflops: 0.2}}"
"""So slow that a trial has few requests."""
Rows = list[dict[str, str]]
Words = tuple[str, ...]


SETTING = ("--model", MODEL, "--netem", "10ms-50mbit", "--trials", "3", "--figures", "none")


@pytest.fixture
def job(tmp_path: Path) -> Words:
    return (*SETTING, "--out", f"{tmp_path}/out")


@pytest.fixture
def world(tmp_path: Path) -> Callable[[str], Words]:
    """A testbed of slow hosts of which this is said."""

    def made(more: str) -> Words:
        (tmp_path / "world.yaml").write_text(f"{SLOW}\n{more}\n")
        return ("--testbed", f"simulated:{tmp_path}/world.yaml")

    return made


def only_run(folder: Path) -> Path:
    (run,) = (folder / "out").iterdir()
    return run


def read(folder: Path, file: str = "trials.csv") -> Rows:
    return rows_of(only_run(folder) / file)


def session(folder: Path) -> dict[str, Any]:
    (session,) = json.loads((only_run(folder) / "manifest.json").read_text())["sessions"]
    return dict(session)


def test_a_sweep_runs_without_a_machine_and_says_so_everywhere(tmp_path: Path, job: Words) -> None:
    done = well(*job, "--testbed", "simulated", "--points", "0,3,7", "--only")
    out, run, rows = done.out, only_run(tmp_path), read(tmp_path)
    assert Counter(row["status"] for row in rows) == {"ok": 3 * 2 * 3}
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["simulated"] is True
    assert manifest["testbed"].startswith("simulated")
    assert session(tmp_path)["testbed_name"] == "simulated"
    for file in ("trials.csv", "stages.csv", "link.csv"):
        assert {row["testbed"] for row in read(tmp_path, file)} == {"simulated"}, file
    assert all("simulated" in row["run"] for row in rows)
    assert len(list((run / "requests").iterdir())) == 18
    for lines in (out.splitlines(), (run / "report.html").read_text().splitlines()):
        assert any("simulated" in line for line in lines)
    loaded = load.load([run])
    assert set(loaded["setup"]) == {"simulated"}
    answer, _, table = out.partition("real ones would take")[2].partition("\n\n")
    assert "simulated" in answer
    assert "nothing of this was measured" in " ".join(table.split())
    assert any("simulated" in text.get_text() for text in figures.front(loaded).findobj(Text))
    # They are never joined with real ones.
    with pytest.raises(UserError, match="simulated"):
        load.load([run, EXAMPLE])
    assert run.name in refused("report", str(run), str(EXAMPLE), "--out", str(tmp_path / "joined"))


def test_phases_have_as_many_requests_as_asked_for(tmp_path: Path, job: Words) -> None:
    asked = "--testbed simulated --points 3 --only --backend tcp --requests 662"
    done = well(*job, *asked.split())
    (line,) = (line for line in done.out.splitlines() if line.startswith("phases "))
    assert "662 requests each: a trial tells p99 " in line
    rows, files = read(tmp_path), sorted((only_run(tmp_path) / "requests").iterdir())
    assert len(rows) == len(files) == 3
    for row, file in zip(rows, files, strict=True):
        made, depth = Counter(pd.read_parquet(file)["phase"]), int(row["in_flight"])
        assert made["latency"] == int(row["latency_requests"]) == 662
        assert made["throughput"] == int(row["throughput_requests"])
        # Whole bursts, and those that fill the steps.
        assert 662 + depth < made["throughput"] <= 662 + 2 * depth + 1


def test_what_a_cut_has_to_beat_is_measured_too(tmp_path: Path, job: Words) -> None:
    done = measured(*job, "--testbed", "simulated", "--points", "3", "--trials", "1")
    assert done.code == 0, done.err
    assert {row["point"] for row in read(tmp_path)} == {"0", "3", str(POINTS - 1)}
    assert "--only" in done.out.partition("estimate")[0]


def test_what_failed_is_done_again_and_the_rest_stays(
    tmp_path: Path, job: Words, world: Callable[[str], Words]
) -> None:
    testbed = world("faults: {failed: 20%}")
    assert measured(*job, *testbed).code == 1
    first = read(tmp_path)
    kept = [row for row in first if row["status"] == "ok"]
    assert 0 < len(kept) < len(first) == POINTS * 2 * 3
    again = ("--resume", str(only_run(tmp_path)), "--model", MODEL, *testbed, "--figures", "none")
    assert any(measured(*again).code == 0 for _ in range(9))
    rows = read(tmp_path)
    assert rows[: len(kept)] == kept
    assert Counter(row["status"] for row in rows) == {"ok": POINTS * 2 * 3}
    assert set(Counter((row["point"], row["backend"], row["round"]) for row in rows).values()) == {1}
    # The same figures as of a run that was never interrupted by a fault.
    calm = tmp_path / "calm"
    assert measured(*SETTING, "--out", f"{calm}/out", *world("")).code == 0
    names = ("point", "backend", "round", "latency_s", "throughput_ips")
    one, other = (sorted(tuple(row[it] for it in names) for row in each) for each in (rows, read(calm)))
    assert one == other


def test_a_world_that_changed_is_another_run(
    tmp_path: Path, job: Words, world: Callable[[str], Words]
) -> None:
    assert measured(*job, *world("seed: 1"), "--trials", "1").code == 0
    line = refused("--resume", str(only_run(tmp_path)), "--model", MODEL, *world("seed: 2"))
    assert "start a new run" in line


@pytest.mark.parametrize("arguments", [("doctor",), ("doctor", "--link", "wifi")])
def test_only_sweeps_are_simulated(arguments: Words) -> None:
    assert "only sweeps" in refused(*arguments, "--testbed", "simulated")
