"""What a stage takes by itself, also while something else wants its core."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pareto import pacing
from pareto.worker import served


@pytest.fixture
def shared_core() -> Iterator[int]:
    """A core that this test must share with a busy loop."""
    allowed = os.sched_getaffinity(0)
    core = max(allowed)
    loop = f"import os; os.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", loop], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        os.sched_setaffinity(0, {core})
        yield core
        os.sched_setaffinity(0, allowed)
        other.kill()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel counts no waits")
@pytest.mark.parametrize("size", [400_000, 20_000])
def test_the_wait_for_a_core_that_another_has_is_no_part_of_a_baseline(shared_core: int, size: int) -> None:
    walls, worked = [], []

    def run() -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        sum(range(size))
        if len(walls) % 5 == 0:
            os.sched_yield()  # the other has the core for a turn
        walls.append(time.perf_counter() - wall)
        worked.append(time.thread_time() - cpu)

    for _ in range(50):  # until the other had the core within the runs, not beside a reading of the clocks
        walls.clear()
        worked.clear()
        baseline_s = served.baseline_s(run)
        really_s = pytest.approx(statistics.fmean(worked), rel=0.1)
        if statistics.fmean(walls) > 1.3 * baseline_s and baseline_s == really_s:
            break
    assert baseline_s == really_s
    assert statistics.fmean(walls) > 1.3 * baseline_s


def test_a_slow_stage_is_not_run_often() -> None:
    runs = []
    assert (
        served.baseline_s(lambda: runs.append(time.sleep(1.1 * pacing.BASELINE_MOST_S)))
        >= pacing.BASELINE_MOST_S
    )
    assert len(runs) == 1


def test_a_quick_stage_is_run_until_it_says_something() -> None:
    runs = []
    began = time.perf_counter()
    served.baseline_s(lambda: runs.append(None))
    assert time.perf_counter() - began >= pacing.BASELINE_S
    assert len(runs) >= pacing.BASELINE_RUNS


def every(seconds: float, count: int, origin: float = 0.0) -> list[served.Span]:
    return [(origin + k * seconds, origin + (k + 1) * seconds) for k in range(count)]


def test_the_least_pace_is_that_of_the_best_stretch() -> None:
    slow = every(0.1, 20)
    assert served.steady_s(slow) == pytest.approx(0.1)
    fast = every(0.05, 20, origin=slow[-1][1])
    assert served.steady_s(slow + fast) == pytest.approx(0.05)


def test_one_quick_run_is_no_pace() -> None:
    """As under a CPU quota: each fourth run meets a period of its own."""
    ends = [0.0]
    for number in range(400):
        ends.append(ends[-1] + (0.001 if number % 4 == 0 else 0.005))
    runs = list(itertools.pairwise(ends))
    assert served.steady_s(runs) == pytest.approx(0.004, rel=0.02)


def test_no_throughput_is_above_the_least_pace() -> None:
    spaced = [(k * 0.1, k * 0.1 + 0.02) for k in range(30)]
    least = served.steady_s(spaced)
    assert least is not None
    assert 0.02 < least <= 0.1


@pytest.mark.parametrize("runs", [[], every(0.01, 5)])
def test_too_short_a_time_has_no_pace(runs: list[served.Span]) -> None:
    assert served.steady_s(runs) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("nr_periods 61\nnr_throttled 59\nthrottled_time 204375240\n", 0.20437524),
        ("usage_usec 9\nnr_throttled 2\nthrottled_usec 1500\n", 0.0015),
        ("usage_usec 9\n", None),
        ("cut off\nin the middle of", None),
    ],
)
def test_what_a_quota_held_back_is_read_from_either_version_of_cgroups(
    tmp_path: Path, text: str, seconds: float | None
) -> None:
    file = tmp_path / "cpu.stat"
    file.write_text(text)
    assert served.throttled_s(file) == seconds
    assert served.throttled_s(tmp_path / "gone") is served.throttled_s(None) is None


def test_windows_are_of_the_last_runs_and_only_of_as_many_as_there_were() -> None:
    runs = served.Runs()
    for number in range(5):
        runs.note(number, number + 0.5)
    assert runs.trial_window() == (0, 4.5)
    assert runs.steady_s() == 0.5
    assert runs.last(4, 3) == [(1, 1.5), (2, 2.5), (3, 3.5)]
    for requests, steady in ((0, 0), (4, 1), (6, 3), (3, 4)):
        assert not runs.last(requests, steady)
