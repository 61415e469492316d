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


def answering(field: str, source: str, read: Callable[[], float | int | None]) -> Gauge | None:
    """The gauge if it gives a value now: a file or a command that is there may still be denied."""
    return None if read() is None else Gauge(field, source, read)


class Metered(NamedTuple):
    """A meter's reading. None: the source did not answer, or there is no earlier reading to derive the power from.
    integrated_j: of one that counts its energy and tells its power, the same energy by its power."""

    energy_j: float | None
    power_w: float | None
    integrated_j: float | None = None


@dataclass(eq=False)
class Meter:
    """A source of energy. Over less than `least_window_s` its energy says little. leaves_out: what it does not see.

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
    leaves_out: str = ""
    _energy_j: float = field(default=0.0, init=False)
    _integrated_j: float = field(default=0.0, init=False)
    _last: tuple[float, float] | None = field(default=None, init=False)
    _last_power: tuple[float, float] | None = field(default=None, init=False)

    def sample(self, at_s: float) -> Metered:
        """The reading at a time; the times of one meter rise."""
        counted_j = self.read_energy_j() if self.read_energy_j else None
        power_w = self.read_power_w() if self.read_power_w else None
        if power_w is not None:
            last_at_s, last_w = self._last_power or (at_s, power_w)
            self._integrated_j += (last_w + power_w) / 2 * (at_s - last_at_s)
            self._last_power = at_s, power_w
        integrated_j = None if power_w is None else self._integrated_j
        if self.read_energy_j is None:
            return Metered(integrated_j, power_w)
        if counted_j is None:
            return Metered(None, power_w, integrated_j)
        last_at_s, last_j = self._last or (at_s, counted_j)
        step_j = counted_j - last_j + (self.range_j if counted_j < last_j else 0.0)
        if self.read_power_w is None and at_s > last_at_s:
            power_w = step_j / (at_s - last_at_s)
        self._energy_j += step_j
        self._last = at_s, counted_j
        return Metered(self._energy_j, power_w, integrated_j)


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
                out = (
                    "" if note else f"{'' if memory else 'memory, '}the board, disks, cards, the power supply"
                )
                meters.append(Meter(name, partial(_counted_j, zone), range_j=range_uj / 1e6, leaves_out=out))
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
