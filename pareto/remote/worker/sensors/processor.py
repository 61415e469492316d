"""The processor: how busy the cores of a process are and with whom, the process itself, temperature and clock.

Cores by Linux' /proc: https://docs.kernel.org/filesystems/proc.html,
https://docs.kernel.org/scheduler/sched-stats.html. Temperature and clock by sysfs, of sensors known to sit in the
processor only: others (`acpitz`, a disk's) are somewhere else. They are read here and not by psutil, which reads every
sensor of the machine each time: a disk's takes a command to it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

from pareto.remote.worker.sensors.energy import Gauge, answering, integer, text

_TICKS = os.sysconf("SC_CLK_TCK")
_USER, _NICE, _SYSTEM, _INTERRUPT, _SOFT_INTERRUPT, _STEAL = 0, 1, 2, 5, 6, 7
"""Places of a core's counters in /proc/stat; what guests take is in the first two."""
_CHIPS = ("cpu_thermal", "cpu_thermal_zone", "soc_thermal", "coretemp", "k10temp", "zenpower")
"""Names under /sys/class/hwmon."""
_ZONES = ("cpu-thermal", "cpu_thermal", "soc-thermal", "soc_thermal", "CPU-therm", "x86_pkg_temp")
"""Types under /sys/class/thermal, for kernels that show none of these under hwmon."""


class WatchedProcess:
    """A process, and the cores that it may run on. Raises psutil.NoSuchProcess."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._tasks = Path(f"/proc/{pid}/task")
        self._quota = throttling(pid)
        self._cores = set(self._process.cpu_affinity())
        self._last: tuple[float, float] | None = None
        self._waits: dict[str, int] = {}
        self._waited_ns = 0

    def sample(self, at_s: float) -> dict[str, Any]:
        """Fields of a SensorSample; nothing once the process is gone, which a zombie is.

        cpu_percent is since the previous sample. Seconds are means over the cores, since some fixed time. busy_s: of
        all that ran there. others_s: of programs that are not the process; interrupts, which no program has to answer
        for, are not in it. steal_s: taken by a hypervisor for other machines. waited_s: that the process' threads were
        ready to run and had no core, summed over the threads. throttled_s: that a CPU quota held the process back.
        """
        try:
            with self._process.oneshot():
                # It runs no longer, too, where its number is another's now.
                if not self._process.is_running() or self._process.status() == psutil.STATUS_ZOMBIE:
                    return {}
                times = self._process.cpu_times()
                resident = int(self._process.memory_info().rss)
            counters = cores(Path("/proc/stat").read_text(), self._cores)
        except (psutil.Error, OSError):
            return {}
        used_s = times.user + times.system
        percent = None
        if self._last is not None and at_s > self._last[0]:
            percent = (used_s - self._last[1]) / (at_s - self._last[0]) * 100
        self._last = (at_s, used_s)
        ticks, count = [sum(of) for of in zip(*counters, strict=True)], len(counters)
        programs_s = (ticks[_USER] + ticks[_NICE] + ticks[_SYSTEM]) / _TICKS
        interrupts_s = (ticks[_INTERRUPT] + ticks[_SOFT_INTERRUPT]) / _TICKS
        return {
            "cpu_percent": percent,
            "rss_bytes": resident,
            "busy_s": (programs_s + interrupts_s) / count,
            "others_s": (programs_s - used_s) / count,
            "steal_s": ticks[_STEAL] / _TICKS / count,
            "waited_s": self._waited_s(),
            "throttled_s": throttled_s(self._quota),
        }

    def _waited_s(self) -> float | None:
        """The sum of what each thread waited, those included that have ended; None: the kernel does not count it. A
        listing may name a thread that has ended, or pass one over: what each has waited so far is therefore kept."""
        now: dict[str, int] = {}
        try:
            for task in self._tasks.iterdir():
                with suppress(ProcessLookupError, FileNotFoundError):
                    now[task.name] = int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return None
        if not now:
            return None
        for name, waited in now.items():
            before = self._waits.get(name, 0)
            # Less than before: the number was another thread's.
            self._waited_ns += waited if waited < before else waited - before
        self._waits |= now
        return self._waited_ns / 1e9


def cores(stat: str, which: set[int]) -> list[list[int]]:
    """The counters of these cores in the text of /proc/stat, in ticks."""
    lines = (line.split() for line in stat.splitlines() if line.startswith("cpu"))
    return [list(map(int, values)) for name, *values in lines if name[3:] and int(name[3:]) in which]


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
            first = kind == "cgroup" and "cpu" in options.split(",") and "cpu" in controllers.split(",")
            file = Path(mount + path) / "cpu.stat"
            if (first or (kind == "cgroup2" and not controllers)) and throttled_s(file) is not None:
                return file
    return None


def throttled_s(file: Path | None) -> float | None:
    """The seconds so far in a `cpu.stat`; None where it does not count them."""
    try:
        counted = dict(line.split() for line in file.read_text().splitlines()) if file else {}
    except (OSError, ValueError):
        return None
    if "throttled_usec" in counted:  # cgroup v2
        return int(counted["throttled_usec"]) / 1e6
    return int(counted["throttled_time"]) / 1e9 if "throttled_time" in counted else None


def temperature(sysfs: Path) -> Gauge | None:
    """`temperature_c`: the hottest of the processor's sensors, those of several sockets together."""
    found: dict[tuple[str, str], list[Path]] = {}
    for names, known in (("hwmon/hwmon*/name", _CHIPS), ("thermal/thermal_zone*/type", _ZONES)):
        for file in sorted((sysfs / "sys/class").glob(names)):
            if (name := text(file) or "") in known:
                found.setdefault((names, name), []).extend(_inputs(file.parent))
    gauges = (
        answering("temperature_c", of, partial(_hottest_c, inputs)) for (_, of), inputs in found.items()
    )
    return next(filter(None, gauges), None)


def frequency(sysfs: Path) -> Gauge | None:
    """`frequency_hz`: the mean over the processors that are online. Without cpufreq there is none: the MHz in
    /proc/cpuinfo are a constant in virtual machines."""

    def mean_hz() -> float | None:
        files = (sysfs / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")
        khz = [x for x in map(integer, files) if x is not None]
        return fmean(khz) * 1e3 if khz else None

    return answering("frequency_hz", "cpufreq", mean_hz)


def _inputs(folder: Path) -> list[Path]:
    """A zone's sensor, or a chip's. AMD's Tctl is up to 27 K above the truth on models that have that as Tdie."""
    files = [*folder.glob("temp"), *folder.glob("temp*_input")]
    labels = {file: text(file.with_name(file.name.replace("_input", "_label"))) for file in files}
    return sorted(path for path, label in labels.items() if label != "Tctl" or "Tdie" not in labels.values())


def _hottest_c(inputs: list[Path]) -> float | None:
    """The highest of these files, which give thousandths of a degree."""
    return max((x / 1e3 for x in map(integer, inputs) if x is not None), default=None)
