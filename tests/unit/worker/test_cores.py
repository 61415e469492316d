"""How busy a process' cores are, and with whom: this machine's own kernel is asked."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import psutil
import pytest

from pareto.worker.sensors.cores import Cores, cores

STAT = """\
cpu  30 3 33 300 9 0 6 12 0 0
cpu0 10 1 11 100 3 0 2 4 0 0
cpu1 20 2 22 200 6 0 4 8 0 0
cpu10 7 7 7 7 7 7 7 7 7 7
intr 17267044 0 0
"""
LOOP = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
print(flush=True)
while True: pass
"""
ENOUGH_S = 0.5
"""Of a core's time: fifty of the kernel's ticks."""


@pytest.fixture
def core() -> int:
    return max(os.sched_getaffinity(0))


@pytest.fixture
def watched(core: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that computes on one core, as a worker does."""
    with subprocess.Popen([sys.executable, "-c", LOOP, str(core)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_the_counters_of_some_cores() -> None:
    assert cores(STAT, {1}) == [[20, 2, 22, 200, 6, 0, 4, 8, 0, 0]]
    assert [of[0] for of in cores(STAT, {0, 10})] == [10, 7]


def used(watched: subprocess.Popen[bytes]) -> float:
    times = psutil.Process(watched.pid).cpu_times()
    return times.user + times.system


def until_it_has_worked(watched: subprocess.Popen[bytes]) -> None:
    begun = used(watched)
    while used(watched) < begun + ENOUGH_S:
        threading.Event().wait(0.05)


def test_what_others_take_of_a_core_and_what_a_process_waits_for_it(
    watched: subprocess.Popen[bytes], core: int
) -> None:
    """With a second busy loop there, each has half: as much as it works it waits, and the other works."""
    with subprocess.Popen([sys.executable, "-c", LOOP, str(core)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        found = Cores(watched.pid)
        before, begun = found.use(), used(watched)
        until_it_has_worked(watched)
        after, worked_s = found.use(), used(watched) - begun
        other.kill()
    rise = {name: getattr(after, name) - getattr(before, name) for name in ("busy_s", "others_s", "waited_s")}
    assert rise["others_s"] > 0.5 * worked_s
    assert rise["waited_s"] > 0.5 * worked_s
    assert rise["busy_s"] == pytest.approx(rise["others_s"] + worked_s, rel=0.2)


def test_a_thread_that_has_ended_keeps_what_it_waited(core: int) -> None:
    """The pipeline's threads end with each phase."""
    found = Cores(os.getpid())
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            sum(range(1000))

    before = found.use().waited_s
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    while (during := found.use().waited_s) == before:
        pass
    stop.set()
    for thread in threads:
        thread.join()
    after = found.use().waited_s
    assert before is not None
    assert during is not None
    assert after is not None
    assert after >= during > before


def test_a_process_that_is_gone_has_nothing_to_tell(watched: subprocess.Popen[bytes]) -> None:
    found = Cores(watched.pid)
    watched.kill()
    watched.wait()
    assert set(vars_of(found)) == {None}
    with pytest.raises(psutil.NoSuchProcess):
        Cores(watched.pid)


def vars_of(found: Cores) -> list[float | None]:
    use = found.use()
    return [use.busy_s, use.others_s, use.steal_s, use.waited_s]
