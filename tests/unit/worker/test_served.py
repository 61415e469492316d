"""What a stage takes by itself, also while something else wants its core."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from pareto.protocol import pace
from pareto.remote.worker import served


class Clock:
    """In place of `time`, and of what the kernel says that this thread waited: goes on where a run takes time."""

    def __init__(self) -> None:
        self.now_s = self.waited_s = 0.0
        self.runs = 0

    def perf_counter(self) -> float:
        return self.now_s

    def run(self, seconds: float, waits_s: float = 0.0) -> None:
        self.now_s += seconds + waits_s
        self.waited_s += waits_s
        self.runs += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(served, "time", clock)
    monkeypatch.setattr(served.Waits, "seconds", lambda _: clock.waited_s)
    return clock


@pytest.mark.parametrize(
    ("takes_s", "waits_s", "runs"),
    [
        (pace.BASELINE_S / 8, 0.0, 8),  # quick: until it says something
        (pace.BASELINE_S, 0.0, pace.BASELINE_RUNS),
        (1.1 * pace.BASELINE_MOST_S, 0.0, 1),  # slow: not often
        (pace.BASELINE_S / 8, pace.BASELINE_S / 8, 4),  # another has the core for half of the time
    ],
)
def test_a_baseline_is_a_stages_time_without_its_waits(
    clock: Clock, takes_s: float, waits_s: float, runs: int
) -> None:
    assert served.baseline_s(lambda: clock.run(takes_s, waits_s)) == pytest.approx(takes_s)
    assert clock.runs == runs


def test_a_clock_is_read_where_nothing_was_waited_between(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    waited = iter([0.0, 1.0, 1.0])
    monkeypatch.setattr(served.Waits, "seconds", lambda _: next(waited))
    assert served.Waits().clock() == (0.0, 1.0)
    assert next(waited, None) is None


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


@pytest.mark.parametrize(("requests", "pace_s"), [(3, 0.005), (12, 0.0075)])
def test_the_pace_of_as_many_runs_as_count_is_no_less_than_theirs(requests: int, pace_s: float) -> None:
    """In a short phase, and where a quick beginning and end are further apart than a stretch is long."""
    runs = [*every(0.005, 3), *every(0.015, 3, origin=0.015), *every(0.005, 6, origin=0.06)]
    assert served.steady_s(runs) is None
    assert served.steady_s(runs, requests) == pytest.approx(pace_s)


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
    assert runs.steady_s(0) == 0.5
    assert runs.last(4, 3) == [(1, 1.5), (2, 2.5), (3, 3.5)]
    for requests, steady in ((0, 0), (4, 1), (6, 3), (3, 4)):
        assert not runs.last(requests, steady)
