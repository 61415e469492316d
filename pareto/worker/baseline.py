"""What a stage takes when it has its host to itself, and the least that it takes in steady work.

A stage that is alone may still wait: for a core that another program keeps busy. The kernel counts that wait for each
thread, to the nanosecond (`schedstat`, its second figure), and it is taken off, so that a baseline is one also where
something disturbs it. Time held back by a CPU quota is the host's own speed, and stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

LEAST_RUNS, LEAST_S = 2, 0.03
"""A baseline has as many runs and lasts as long, but for a stage so slow that it would take longer than `MOST_S`."""
MOST_S = 0.5
STEADY_S = 0.25
"""Shorter stretches of steady work say little: a CPU quota is spent in bursts, and one quick run is no pace."""

ATTEMPTS, WAITED_S = 20, 1e-4
"""How often two clocks are read until they are of one time, and how long a wait between them may be."""

Span = tuple[float, float]
"""When a run of a stage began, and when it ended."""


def baseline_s(run: Callable[[], object]) -> float:
    """Mean seconds of a run, without the time that it waited for a core."""
    waits, runs = Waits(), 0
    began, waited = waits.clock()
    while (elapsed := time.perf_counter() - began) < LEAST_S or runs < LEAST_RUNS:
        if runs and elapsed > MOST_S:
            break
        run()
        runs += 1
    ended, waited_since = waits.clock()
    return (ended - began - max(0.0, waited_since - waited)) / runs


def steady_s(runs: Sequence[Span]) -> float | None:
    """The least seconds from one run to the next over any stretch of `STEADY_S` or more; None: there is none.

    runs: in the order of time. A throughput over such runs cannot be above one run in this time.
    """
    least: float | None = None
    first = 0
    for last, (_, ended) in enumerate(runs):
        while first < last and ended - runs[first + 1][0] >= STEADY_S:
            first += 1
        span = ended - runs[first][0]
        if span >= STEADY_S:
            pace = span / (last - first + 1)
            least = pace if least is None else min(least, pace)
    return least


class Waits:
    """How long the calling thread has waited for a core, but for what a CPU quota held it back.

    Always 0 where the kernel does not count it.
    """

    def __init__(self) -> None:
        self._quota = throttling("self")

    def clock(self) -> tuple[float, float]:
        """`time.perf_counter`, and `seconds` until then: read until nothing was waited between the two readings."""
        waited = self.seconds()
        for _ in range(ATTEMPTS):
            now = time.perf_counter()
            before, waited = waited, self.seconds()
            if waited - before < WAITED_S:
                break
        return now, waited

    def seconds(self) -> float:
        try:
            waited_s = int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0
        return waited_s - (throttled_s(self._quota) or 0.0)


def throttling(pid: int | str) -> Path | None:
    """The file that counts how long a CPU quota held a process back; None: there is none."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return None
    for _, mount, kind, options, *_ in mounts:
        for group in groups:
            _, controllers, path = group.split(":", 2)
            if kind == "cgroup" and "cpu" in options.split(",") and "cpu" in controllers.split(","):
                break
            if kind == "cgroup2" and not controllers:
                break
        else:
            continue
        file = Path(mount + path) / "cpu.stat"
        if throttled_s(file) is not None:
            return file
    return None


def throttled_s(file: Path | None) -> float | None:
    """Seconds so far that `cpu.stat` tells of; None where it does not."""
    if file is None:
        return None
    try:
        counted = dict(line.split() for line in file.read_text().splitlines())
    except (OSError, ValueError):
        return None
    if "throttled_usec" in counted:  # cgroup v2
        return int(counted["throttled_usec"]) / 1e6
    return int(counted["throttled_time"]) / 1e9 if "throttled_time" in counted else None
