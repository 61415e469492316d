"""Energy counters of x86 processors: RAPL by Linux' powercap tree.

https://docs.kernel.org/power/powercap/powercap.html. Only root may read them since CVE-2020-8694, unless a
machine's owner decided otherwise.
"""

from __future__ import annotations

import re
from pathlib import Path

from pareto.worker.sensors.energy import CounterMeter


def meters(sysfs: Path) -> list[CounterMeter]:
    """One for each processor package that can be read, and for its memory where that is a zone of its own.

    Zones `core` and `uncore` are parts of their package, `psys` holds all packages, and `intel-rapl-mmio`
    is the same packages by another way: each would count energy twice. `dram` lies outside its package.
    """
    found = []
    for package in _zones(sysfs / "sys/class/powercap", r"intel-rapl:\d+", r"package-.*"):
        memory = _zones(package, re.escape(package.name) + r":\d+", "dram")
        for zone, note in ((package, ""), *((x, " dram") for x in memory)):
            counter = _counter(zone)
            if counter is not None:
                found.append(CounterMeter(f"powercap {zone.name}{note}", counter.read_j))
    return found


class Counter:
    """A zone's counter without its wrap-around: it starts again from 0 at `range_uj`.

    At 65 kJ, a usual range, and 300 W that is every 3 minutes: samples must be closer than that.
    """

    def __init__(self, energy: Path, range_uj: int) -> None:
        self._energy = energy
        self._range_uj = range_uj
        self._last_uj: int | None = None
        self._total_uj = 0

    def read_j(self) -> float | None:
        """Joules since the first reading."""
        now_uj = _integer(self._energy)
        if now_uj is None:
            return None
        if self._last_uj is not None:
            step_uj = now_uj - self._last_uj
            self._total_uj += step_uj if step_uj >= 0 else step_uj + self._range_uj
        self._last_uj = now_uj
        return self._total_uj / 1e6


def _zones(folder: Path, zone: str, name: str) -> list[Path]:
    try:
        inside = sorted(x for x in folder.iterdir() if re.fullmatch(zone, x.name))
        return [x for x in inside if re.fullmatch(name, (x / "name").read_text().strip())]
    except OSError:
        return []


def _counter(zone: Path) -> Counter | None:
    range_uj = _integer(zone / "max_energy_range_uj")
    if range_uj is None or _integer(zone / "energy_uj") is None:
        return None
    return Counter(zone / "energy_uj", range_uj)


def _integer(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
