"""The processor cores that a process may run on: how busy they are, and with whom.

By Linux' /proc: https://docs.kernel.org/filesystems/proc.html, https://docs.kernel.org/scheduler/sched-stats.html. All
figures are seconds since some fixed time, of which only differences mean anything.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from pareto.worker.baseline import throttled_s, throttling

_TICKS = os.sysconf("SC_CLK_TCK")
_USER, _NICE, _SYSTEM, _INTERRUPT, _SOFT_INTERRUPT, _STEAL = 0, 1, 2, 5, 6, 7
"""Places of a core's counters in /proc/stat; what guests take is in the first two."""


@dataclass(frozen=True, slots=True)
class Use:
    """Mean over the cores. None: the kernel does not tell.

    busy_s: of all that ran there. others_s: of programs that are not the process; interrupts, which no program has to
    answer for, are not in it. steal_s: taken by a hypervisor for other machines. waited_s: that the process' threads
    were ready to run and had no core, summed over the threads. throttled_s: that a CPU quota held the process back.
    """

    busy_s: float | None = None
    others_s: float | None = None
    steal_s: float | None = None
    waited_s: float | None = None
    throttled_s: float | None = None


class Cores:
    """Those of a process, which is this one's to look at. Raises psutil.NoSuchProcess."""

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._process = psutil.Process(pid)
        self._proc = proc
        self._tasks = proc / str(pid) / "task"
        self._quota = throttling(pid)
        try:
            self._cores = os.sched_getaffinity(pid)
        except ProcessLookupError:
            raise psutil.NoSuchProcess(pid) from None
        self._waits: dict[str, int] = {}
        self._waited_ns = 0

    def use(self) -> Use:
        """So far."""
        try:
            times = self._process.cpu_times()
            counters = cores((self._proc / "stat").read_text(), self._cores)
        except (psutil.Error, OSError):
            return Use()
        programs_s = sum(of[_USER] + of[_NICE] + of[_SYSTEM] for of in counters) / _TICKS
        interrupts_s = sum(of[_INTERRUPT] + of[_SOFT_INTERRUPT] for of in counters) / _TICKS
        count = len(counters)
        return Use(
            busy_s=(programs_s + interrupts_s) / count,
            others_s=(programs_s - times.user - times.system) / count,
            steal_s=sum(of[_STEAL] for of in counters) / _TICKS / count,
            waited_s=self._waited_s(),
            throttled_s=throttled_s(self._quota),
        )

    def _waited_s(self) -> float | None:
        """Grows with each thread's own count, so that a thread that has ended takes nothing away."""
        now: dict[str, int] = {}
        try:
            for task in self._tasks.iterdir():
                try:
                    now[task.name] = int((task / "schedstat").read_text().split()[1])
                except ProcessLookupError:  # it has ended since
                    continue
        except (OSError, IndexError, ValueError):
            return None
        self._waited_ns += sum(waited - self._waits.get(name, 0) for name, waited in now.items())
        self._waits = now
        return self._waited_ns / 1e9


def cores(stat: str, which: set[int]) -> list[list[int]]:
    """The counters of these cores in the text of /proc/stat, in ticks."""
    lines = (line.split() for line in stat.splitlines() if line.startswith("cpu"))
    return [list(map(int, values)) for name, *values in lines if name[3:] and int(name[3:]) in which]
