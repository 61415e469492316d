"""How a fleet grows: simulated testbeds that really take a share of their time. It prints figures and judges none.

Run by `./pareto.sh test --deep tests/measure/test_fleet.py`; TESTBEDS=1,2,8 chooses how many.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import psutil
import pytest

pytest.importorskip("distributed")

from pareto.sweep import plan
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.foreseen import ModelFacts
from pareto.sweep.networks import networks_of
from tests import rows_of
from tests.measure.conftest import Printed
from tests.program import pareto
from tests.unit.simulated.worlds import MODEL

pytestmark = pytest.mark.deep
WORLD = """
hosts: {edge: {gflops: 0.02}, server: {gflops: 0.2}}
requests: 20
real_time: 50%
"""
TRIAL_S, START_S, WINDOW_S = 0.9, 3.0, 30.0
"""What a trial really takes there, a member to start on two cores, and for how long all are to be at work."""
TESTBEDS = tuple(map(int, os.environ.get("TESTBEDS", "1,2,4,8,16,32").split(",")))


@pytest.mark.timeout(1800)
def test_rows_a_second_of_many_testbeds(printed: Printed, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(WORLD)
    first = 0.0
    for testbeds in TESTBEDS:
        out = tmp_path / str(testbeds)
        rounds = int(testbeds * (START_S * testbeds + WINDOW_S) / (16 * TRIAL_S)) + testbeds
        driver = pareto(
            *("--model", MODEL, "--netem", "10ms-50mbit", "--trials", str(rounds)),
            *("--testbed", f"simulated:{tmp_path}/w.yaml*{testbeds}", "--out", str(out), "--figures", "none"),
        )
        came: list[tuple[float, str]] = []
        """When each row was there, and of which testbed."""
        watched, looks = psutil.Process(driver.pid), []
        while driver.poll() is None:
            time.sleep(0.2)
            found = rows(out)
            came += [(time.monotonic(), row["testbed"]) for row in found[len(came) :]]
            with suppress(psutil.Error):
                user_s, system_s = watched.cpu_times()[:2]
                looks.append((time.monotonic(), user_s + system_s, watched.memory_info().rss / 1e6))
        said = "".join(driver.communicate())
        assert driver.returncode == 0, said
        names = {name for _, name in came}
        # While all are at work: neither while they start, nor when the last tasks end.
        begin = max(min(at for at, name in came if name == each) for each in names)
        end = min(max(at for at, name in came if name == each) for each in names)
        inside = [look for look in looks if begin <= look[0] <= end]
        rate = sum(begin < at <= end for at, _ in came) / (end - begin)
        first = first or rate / testbeds
        cpu = (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])
        printed(
            f"{len(names):3} testbeds: {len(came):5} rows; {end - begin:5.1f} s with all at work: {rate:6.2f} rows/s, "
            f"efficiency {rate / testbeds / first:.2f}; "
            f"driver with scheduler {cpu:5.1%} of a core, {inside[-1][2]:.0f} MB"
        )


def rows(out: Path) -> list[dict[str, str]]:
    for path in out.glob("*/trials.csv"):
        return rows_of(path)
    return []


@pytest.mark.timeout(1800)
def test_planning_many_cells(printed: Printed) -> None:
    facts = ModelFacts(tuple((f"p{number}", 1000) for number in range(101)), 0.01)
    for models in (10, 100, 1000):
        sweep = make_sweep({"model": "any", "netem": "10ms-50mbit", "trials": 1, "batch_size": "1,2,3,4,5"})
        known = {
            f"m{number}": ModelFacts(facts.points, 0.01, splits=tuple((cut,) for cut in range(100)))
            for number in range(models)
        }
        began, worked = time.monotonic(), time.process_time()
        planned = plan.make((sweep, known, networks_of(sweep, 1)))
        tasks = sum(
            1
            for _ in groupby(planned.trials, key=lambda each: (each.round, each.cell.model, each.cell.netem))
        )
        printed(
            f"{len(planned.trials):8,} cells, {tasks:5} tasks: planned in {time.monotonic() - began:5.1f} s "
            f"({time.process_time() - worked:.1f} s of processor time), "
            f"{psutil.Process().memory_info().rss / 1e6:.0f} MB"
        )
