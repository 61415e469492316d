"""Members, scheduler and driver of a fleet killed at random moments: each (cell, round) once, none lost."""

from __future__ import annotations

import csv
import random
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from tests.program import descendants, ended, pareto, wait_until
from tests.unit.simulated.worlds import MODEL

SWEEP = ("--model", MODEL, "--points", "3,5", "--only", "--backend", "tcp", "--netem", "wifi")
WORLD = """
hosts: {edge: {gflops: 0.02}, server: {gflops: 0.2}}
requests: 20
real_time: 20%
"""
TESTBEDS = 3
KILLS, MOST_KILLS = 3, 50
ROUNDS_A_KILL = 5
START_S = 200.0
SEED = 7


def read(out: Path) -> list[dict[str, str]]:
    for path in out.glob("*/trials.csv"):
        with path.open(newline="") as file:
            return [row for row in csv.DictReader(file) if row["started_at"]]
    return []


@pytest.mark.timeout(3600)
def test_kills_at_random_moments(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kills = MOST_KILLS if request.config.getoption("--all-faults", default=False) else KILLS
    rounds, out, draws = ROUNDS_A_KILL * kills, tmp_path / "out", random.Random(SEED)  # noqa: S311
    (tmp_path / "w.yaml").write_text(WORLD)
    testbed = ("--testbed", f"simulated:{tmp_path}/w.yaml*{TESTBEDS}")
    begin = (*SWEEP, *testbed, "--trials", str(rounds), "--figures", "none", "--out", str(out))
    driver = pareto(*begin)
    victims = Counter[str]()
    for kill in range(kills):
        enough = len(read(out)) + draws.randint(1, 4)
        assert wait_until(lambda: len(read(out)) >= min(enough, 2 * rounds), START_S), driver.communicate()  # noqa: B023
        kept = read(out)
        # The driver, which the scheduler is a part of, every third time: it is what takes long.
        victim = "driver" if kill % 3 == 1 else "member"
        victims[victim] += 1
        members = descendants(driver.pid, "pareto.fleet.member")
        if victim == "member":
            of = [each for each in members if each.cmdline()[-1] == kept[-1]["testbed"]]
            (of or members)[0].kill()
            continue
        driver.kill()
        driver.communicate()
        assert ended(members)
        (run,) = out.iterdir()
        driver = pareto("--resume", str(run), *SWEEP[:2], *testbed, "--figures", "none")
        assert read(out)[: len(kept)] == kept
    said = "".join(driver.communicate(timeout=START_S * 5))
    assert driver.returncode == 0, said
    assert "Traceback" not in said
    found = Counter((row["point"], int(row["round"])) for row in read(out))
    assert found == {(point, number): 1 for point in "35" for number in range(1, rounds + 1)}
    assert set(victims) == {"driver", "member"}
