"""Many drivers want one host: one at a time measures on it, the others are refused or wait, first come first served."""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tests.lab import Lab, open_lab
from tests.less_than_root import needs_networks
from tests.program import LENIENT, wait_until
from tests.unit.simulated.worlds import MODEL

pytestmark = [pytest.mark.integration, pytest.mark.deep, needs_networks, pytest.mark.timeout(3600)]

DRIVERS = 20
AT_ONCE = 5
START_S, END_S = 120.0, 300.0
REFUSED = re.compile(
    r"error: (pi|gpu): (?P<who>\S+@\S+) measures there, from [0-9.]+, for \d[\w ]* \((?P<run>.+)\); "
    r"wait for it with --wait 30min\n"
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("lab")) as made:
        yield made


def driver(lab: Lab, out: Path, *options: str) -> subprocess.Popen[str]:
    """A sweep of one cell, which others tell by its folder."""
    small = ("--model", MODEL, "--netem", "none", "--points", "5", "--only", "--backend", "tcp", "--quick")
    where = ("--out", str(out), "--testbed", str(lab.testbed()), "--figures", "none")
    return lab.pareto("run", *where, *options, *small, *LENIENT)


def names(words: str, out: Path) -> bool:
    """Whether a refusal names the run with that folder: its command, of which the end may be cut off."""
    return str(out) in words or f"run --out {out}".startswith(words.rstrip("…"))


def rows(out: Path) -> list[dict[str, str]]:
    for path in out.glob("*/trials.csv"):
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    return []


@contextmanager
def measuring(lab: Lab, out: Path) -> Iterator[None]:
    """A long sweep, which has measured something, and is still at it in the end, when it is interrupted."""
    process = driver(lab, out, "--trials", "1000")
    try:
        assert wait_until(lambda: rows(out) or process.poll() is not None, START_S)
        yield
        assert process.poll() is None, process.communicate()
    finally:
        process.terminate()
        process.communicate(timeout=END_S)


def before(process: subprocess.Popen[str]) -> int:
    """How many wait before it, when it says that it waits: in lines of 80 columns."""
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += " " * bool(said) + line.strip() if said or line.startswith("waiting for") else ""
        if said.endswith(")"):
            return 0
        if others := re.search(r"\); (\d+) more waits?$", said):
            return int(others[1])
    raise AssertionError(process.communicate())


def test_while_one_measures_all_others_are_refused(lab: Lab, tmp_path: Path) -> None:
    with measuring(lab, tmp_path / "first"):
        for number in range(DRIVERS):
            process = driver(lab, tmp_path / str(number))
            said = process.communicate(timeout=END_S)
            refused = REFUSED.fullmatch(said[1])
            assert refused, said
            assert process.returncode == 2
            assert names(refused["run"], tmp_path / "first")
            assert not rows(tmp_path / str(number))


def test_those_who_wait_are_served_in_the_order_of_coming(lab: Lab, tmp_path: Path) -> None:
    with measuring(lab, tmp_path / "first"):
        waiting = [
            driver(lab, tmp_path / str(number), "--trials", "3", "--wait", "10min")
            for number in range(AT_ONCE)
        ]
        places = list(map(before, waiting))
    assert sorted(places) == list(range(AT_ONCE))
    for process in waiting:
        said = "".join(process.communicate(timeout=END_S))
        assert process.returncode == 0, said
    served = [
        rows(tmp_path / "first"),
        *(rows(tmp_path / str(places.index(place))) for place in range(AT_ONCE)),
    ]
    for earlier, later in pairwise(served):
        assert len(later) == 3
        began = datetime.fromisoformat(earlier[-1]["started_at"])
        assert began + timedelta(seconds=float(earlier[-1]["wall_s"])) <= datetime.fromisoformat(
            later[0]["started_at"]
        )


def test_of_two_that_start_at_the_same_moment_one_measures(lab: Lab, tmp_path: Path) -> None:
    for number in range(DRIVERS):
        pair = {name: driver(lab, tmp_path / f"{number}{name}") for name in "ab"}
        said = {name: process.communicate(timeout=END_S) for name, process in pair.items()}
        codes = {name: process.returncode for name, process in pair.items()}
        assert sorted(codes.values()) == [0, 2], said
        winner, loser = sorted(codes, key=lambda name: codes[name])
        refused = REFUSED.fullmatch(said[loser][1])
        assert refused, said
        assert names(refused["run"], tmp_path / f"{number}{winner}")
        assert rows(tmp_path / f"{number}{winner}")
        assert not rows(tmp_path / f"{number}{loser}")
