"""A run that goes on until it is sure, in three sessions: the whole command on a simulated testbed."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.program import measured
from tests.unit.simulated.worlds import MODEL


def trials(run: Path) -> Counter[tuple[str, int]]:
    with (run / "trials.csv").open(newline="") as file:
        return Counter((row["point"], int(row["round"])) for row in csv.DictReader(file))


def stopping(run: Path) -> list[dict[str, Any]]:
    return [session["stopping"] for session in json.loads((run / "manifest.json").read_text())["sessions"]]


def test_a_run_goes_on_until_it_is_sure(tmp_path: Path) -> None:
    def finished(*arguments: str) -> str:
        done = measured(*arguments, "--figures", "none", "--out", str(tmp_path))
        assert done.code == 0, done
        return " ".join(done.out.split())

    job = ("--model", MODEL, "--netem", "none", "--points", "3,5", "--only", "--backend", "tcp", "--quick")
    finished(*job, "--testbed", "simulated", "--trials", "2", "--budget", "1s")
    (run,) = tmp_path.iterdir()
    assert trials(run) == {("3", 1): 1, ("5", 1): 1}
    assert stopping(run) == [{"until": None, "budget_s": 1.0, "ended": "budget"}]

    out = finished("--resume", run.name, *job[:2], "--until", "10%", "--budget", "30min")
    assert "round 3 is added: 2 points unsure" in out
    rounds = max(number for _, number in trials(run))
    assert rounds >= 6
    assert trials(run) == {(point, number): 1 for point in "35" for number in range(1, rounds + 1)}
    ended = stopping(run)[-1]
    assert (ended["ended"], ended["until"], ended["rounds"], ended["unsure"]) == ("sure", 0.1, rounds, 0)

    finished("--resume", run.name, *job[:2])
    assert sum(trials(run).values()) == 2 * rounds
    assert len(stopping(run)) == 2  # nothing was measured: no session
