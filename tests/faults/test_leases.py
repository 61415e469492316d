"""Many drivers want one host: one at a time measures on it, the others are refused or wait, first come first served."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tests.integration.test_sweep import rows_in
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
    small = f"--model {MODEL} --netem none --points 5 --only --backend tcp --quick --figures none"
    where = ("--out", str(out), "--testbed", str(lab.testbed()))
    return lab.pareto("run", *where, *options, *small.split(), *LENIENT)


def names(words: str, out: Path) -> bool:
    """Whether a refusal names the run with that folder: its command, of which the end may be cut off."""
    return str(out) in words or f"run --out {out}".startswith(words.rstrip("…"))


@contextmanager
def measuring(lab: Lab, out: Path) -> Iterator[None]:
    """A long sweep, which has measured something, and is still at it in the end, when it is interrupted."""
    process = driver(lab, out, "--trials", "1000")
    try:
        assert wait_until(lambda: rows_in(out) or process.poll() is not None, START_S)
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


def is_refused(process: subprocess.Popen[str], out: Path, measuring: Path) -> None:
    """By a line that names the run that measures; nothing is measured."""
    said = process.communicate(timeout=END_S)
    refused = REFUSED.fullmatch(said[1])
    assert refused, said
    assert process.returncode == 2
    assert names(refused["run"], measuring)
    assert not rows_in(out)


def test_while_one_measures_all_others_are_refused(lab: Lab, tmp_path: Path) -> None:
    with measuring(lab, tmp_path / "first"):
        for number in range(DRIVERS):
            out = tmp_path / str(number)
            is_refused(driver(lab, out), out, tmp_path / "first")


def test_those_who_wait_are_served_in_the_order_of_coming(lab: Lab, tmp_path: Path) -> None:
    outs = [tmp_path / str(number) for number in range(AT_ONCE)]
    with measuring(lab, tmp_path / "first"):
        waiting = [driver(lab, out, "--trials", "3", "--wait", "10min") for out in outs]
        places = list(map(before, waiting))
    assert sorted(places) == list(range(AT_ONCE))
    for process in waiting:
        said = "".join(process.communicate(timeout=END_S))
        assert process.returncode == 0, said
    served = [tmp_path / "first", *(outs[places.index(place)] for place in range(AT_ONCE))]
    for earlier, later in pairwise(map(rows_in, served)):
        assert len(later) == 3
        began, next_began = (datetime.fromisoformat(row["started_at"]) for row in (earlier[-1], later[0]))
        assert began + timedelta(seconds=float(earlier[-1]["wall_s"])) <= next_began


def test_of_two_that_start_at_the_same_moment_one_measures(lab: Lab, tmp_path: Path) -> None:
    for number in range(DRIVERS):
        pair = {tmp_path / f"{number}{name}": driver(lab, tmp_path / f"{number}{name}") for name in "ab"}
        winner, loser = sorted(pair, key=lambda out: pair[out].wait(END_S))
        assert pair[winner].returncode == 0, pair[winner].communicate()
        assert rows_in(winner)
        is_refused(pair[loser], loser, winner)
