"""What is said of a core that others want, too: shares, waits, baselines, the times of units and of serializing."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest

from pareto.remote.worker import served
from pareto.remote.worker.sensors.processor import WatchedProcess
from pareto.remote.worker.worker import Worker
from tests.measure.conftest import Figures
from tests.unit.backends.test_chain import Chain
from tests.unit.worker.test_units import request, worker

__all__ = ["worker"]  # a fixture

LOOP = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
print(flush=True)
while True: pass
"""


@pytest.fixture
def core() -> int:
    return max(os.sched_getaffinity(0))


@pytest.fixture
def busy(core: int) -> Iterator[subprocess.Popen[bytes]]:
    """A loop on that core."""
    with subprocess.Popen([sys.executable, "-c", LOOP, str(core)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_shares_of_a_core_that_two_have(busy: subprocess.Popen[bytes], core: int, figures: Figures) -> None:
    """As much as the one works it waits, and the other works."""
    with subprocess.Popen([sys.executable, "-c", LOOP, str(core)]) as other:
        found, process = WatchedProcess(busy.pid), psutil.Process(busy.pid)
        before, begun_s = found.sample(time.monotonic()), process.cpu_times().user
        time.sleep(1.5)
        after, worked_s = found.sample(time.monotonic()), process.cpu_times().user - begun_s
        other.kill()
    for name in ("others_s", "waited_s"):
        share = (after[name] - before[name]) / worked_s
        figures.about(f"two on a core: {name} of one, by what it worked", share, aim=1, within=0.3)


@pytest.mark.parametrize("size", [400_000, 20_000])
@pytest.mark.usefixtures("busy")
def test_a_baseline_has_no_waits(core: int, figures: Figures, size: int) -> None:
    allowed, worked = os.sched_getaffinity(0), list[float]()

    def run() -> None:
        cpu = time.thread_time()
        sum(range(size))
        if len(worked) % 5 == 0:
            os.sched_yield()  # the other has the core for a turn
        worked.append(time.thread_time() - cpu)

    os.sched_setaffinity(0, {core})
    try:
        share = 100 * served.baseline_s(run) / statistics.fmean(worked)
    finally:
        os.sched_setaffinity(0, allowed)
    name = f"baseline of {size:,} beside a busy loop, by what it worked"
    figures.about(name, share, "%", aim=100, within=10)


def test_units_add_up_to_their_stage(worker: Worker, figures: Figures) -> None:
    report = worker.units(request(runs=30))
    share = 100 * statistics.median(map(sum, report.units_s)) / statistics.median(report.whole_s)
    figures.about("units of a stage, by the whole", share, "%", aim=100, within=50)


def test_waiting_for_the_interpreter_is_not_serializing(figures: Figures) -> None:
    """A call that lets go of it gets it back 50 ms later, with the request on its way since."""
    with closing(Chain()) as chain:
        for backend in ("tcp", "rpc"):
            chain.stage(backend)
            crowded = chain.hosts["edge"].result("crowded", backend=backend, seconds=0.05)
            name = f"serializing beside a thread that keeps the interpreter 50 ms, {backend}"
            figures.state(name, 1e3 * statistics.median(crowded), "ms", most=25)
