"""A run that goes on until it is sure, for real, small: in three sessions."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import start

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces: needs root"),
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.timeout(600),  # three sessions
]


def measured(run: Path) -> Counter[tuple[str, int]]:
    with (run / "trials.csv").open(newline="") as file:
        return Counter((row["point"], int(row["round"])) for row in csv.DictReader(file))


def stopping(run: Path) -> list[dict[str, Any]]:
    return [session["stopping"] for session in json.loads((run / "manifest.json").read_text())["sessions"]]


def test_a_run_goes_on_until_it_is_sure(tmp_path: Path) -> None:
    def finished(*arguments: str) -> str:
        process = start(tmp_path, *arguments)
        out, err = process.communicate(timeout=180)
        assert process.returncode in (0, 1), out + err  # a busy machine may make a trial invalid
        return " ".join(out.split())

    job = (
        "--model",
        "squeezenet1_1",
        "--netem",
        "none",
        "--points",
        "3,8",
        "--backend",
        "tcp",
        "--quick",
        "--figures",
        "none",
    )
    out = finished(*job, "--trials", "2", "--budget", "1s")
    assert "2 of 2 rounds to begin with" in out
    assert "does not fit into 1 s" in out
    (run,) = tmp_path.iterdir()
    assert measured(run) == {("3", 1): 1, ("8", 1): 1}
    assert stopping(run) == [{"until": None, "budget_s": 1.0, "ended": "budget"}]

    # So wide that a busy machine is sure, too: what decides is that there is an interval at all.
    out = finished("--resume", run.name, "--figures", "none", "--until", "90%", "--budget", "30min")
    assert "round 3 is added: 2 points unsure, with too few valid trials to say how much" in out
    assert "sure after" in out
    rounds = max(number for _, number in measured(run))
    assert rounds >= 6
    assert measured(run) == {(point, number): 1 for point in ("3", "8") for number in range(1, rounds + 1)}
    ended = stopping(run)[-1]
    assert (ended["ended"], ended["until"], ended["rounds"], ended["unsure"]) == ("sure", 0.9, rounds, 0)

    out = finished("--resume", run.name, "--figures", "none")
    assert f"sure after {rounds} rounds" in out
    assert sum(measured(run).values()) == 2 * rounds
    assert len(stopping(run)) == 2  # nothing was measured: no session
