"""Gauges of one present value, and meters of energy since the first sample. Joules, watts, seconds.

RAPL, x86 processors' energy counters: https://docs.kernel.org/power/powercap/powercap.html. Only root may read them
since CVE-2020-8694, unless a machine's owner decided otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True)
class Gauge:
    """`field` of a sample, and where it comes from. `read` gives None where the sensor did not answer."""

    field: str
    source: str
    read: Callable[[], float | int | None]


def answering(gauge: Gauge) -> Gauge | None:
    """The gauge if it gives a value now: a file or a command that is there may still be denied."""
    return None if gauge.read() is None else gauge


class Metered(NamedTuple):
    """A meter's reading. None: the source did not answer, or there is no earlier reading to derive the power from."""

    energy_j: float | None
    power_w: float | None


@dataclass(eq=False)
class Meter:
    """A source of energy, and how often it may be asked: over less than `least_window_s` its energy says little.

    One that counts its energy itself is taken as it is, from its first reading on; power, where it is not read too, is
    the difference quotient of the last two readings. range_j: where the counter starts anew. At 65 kJ, a usual range,
    and 300 W that is every 3 minutes: samples must be closer than that.

    One that only reports present power is integrated by the trapezoid rule over the samples' times. Across a missing
    reading the rule goes on from the last one; that sample has no energy, so that a reader sees the gap.
    """

    name: str
    read_energy_j: Callable[[], float | None] | None = None
    read_power_w: Callable[[], float | None] | None = None
    range_j: float = 0.0
    least_window_s: float = 0.0
    _energy_j: float = field(default=0.0, init=False)
    _last: tuple[float, float] | None = field(default=None, init=False)

    def sample(self, at_s: float) -> Metered:
        """The reading at a time; the times of one meter rise."""
        counted_j = self.read_energy_j() if self.read_energy_j else None
        power_w = self.read_power_w() if self.read_power_w else None
        reading = counted_j if self.read_energy_j else power_w
        if reading is None:
            return Metered(None, power_w)
        if self._last is not None:
            last_at_s, last = self._last
            passed_s = at_s - last_at_s
            if self.read_energy_j is None:
                step_j = (last + reading) / 2 * passed_s
            else:
                step_j = reading - last + (self.range_j if reading < last else 0.0)
                if self.read_power_w is None and passed_s > 0:
                    power_w = step_j / passed_s
            self._energy_j += step_j
        self._last = (at_s, reading)
        return Metered(self._energy_j, power_w)


def rapl_meters(sysfs: Path) -> list[Meter]:
    """A meter for each processor package that can be read, and for its memory where that is a zone of its own.

    Zones `core` and `uncore` are parts of their package, `psys` holds all packages, and `intel-rapl-mmio`
    is the same packages by another way: each would count energy twice. `dram` lies outside its package.
    """
    meters = []
    for package in _zones(sysfs / "sys/class/powercap", r"intel-rapl:\d+", r"package-.*"):
        memory = _zones(package, re.escape(package.name) + r":\d+", "dram")
        for zone, note in ((package, ""), *((x, " dram") for x in memory)):
            range_uj = integer(zone / "max_energy_range_uj")
            if range_uj is not None and _counted_j(zone) is not None:
                name = f"powercap {zone.name}{note}"
                meters.append(Meter(name, partial(_counted_j, zone), range_j=range_uj / 1e6))
    return meters


def _zones(folder: Path, zone: str, name: str) -> list[Path]:
    try:
        inside = sorted(x for x in folder.iterdir() if re.fullmatch(zone, x.name))
        return [x for x in inside if re.fullmatch(name, (x / "name").read_text().strip())]
    except OSError:
        return []


def _counted_j(zone: Path) -> float | None:
    counted_uj = integer(zone / "energy_uj")
    return None if counted_uj is None else counted_uj / 1e6


def integer(path: Path) -> int | None:
    """The number in a file of sysfs; None where there is none."""
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def text(path: Path) -> str | None:
    """The text of a file of sysfs; None where it cannot be read."""
    with suppress(OSError):
        return path.read_text().strip()
    return None
