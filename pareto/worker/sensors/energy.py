"""Gauges of one present value, and meters of energy since the first sample. Joules, watts, seconds.

RAPL are the energy counters of x86 processors, by Linux' powercap tree:
https://docs.kernel.org/power/powercap/powercap.html. Only root may read them since CVE-2020-8694, unless a machine's
owner decided otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Gauge:
    """`field` of a sample, and where it comes from. `read` gives None where the sensor did not answer."""

    field: str
    source: str
    read: Callable[[], float | int | None]


def answering(gauge: Gauge) -> Gauge | None:
    """The gauge if it gives a value now: a file or a command that is there may still be denied."""
    return None if gauge.read() is None else gauge


@dataclass(frozen=True)
class Metered:
    """A meter's reading. None: the source did not answer, or there is no earlier reading to derive the power from."""

    energy_j: float | None
    power_w: float | None


class Meter(Protocol):
    """One source of energy; `sample` is called with rising times of one clock."""

    @property
    def name(self) -> str: ...

    def sample(self, at_s: float) -> Metered: ...


class CounterMeter:
    """A source that counts its energy itself: taken as it is, from its first reading on.

    Power is what `read_power_w` says, or else the difference quotient of the last two readings.
    """

    def __init__(
        self,
        name: str,
        read_energy_j: Callable[[], float | None],
        read_power_w: Callable[[], float | None] | None = None,
    ) -> None:
        self.name = name
        self._read_energy_j = read_energy_j
        self._read_power_w = read_power_w
        self._first_j: float | None = None
        self._last: tuple[float, float] | None = None

    def sample(self, at_s: float) -> Metered:
        counted_j = self._read_energy_j()
        power_w = self._read_power_w() if self._read_power_w else self._quotient(at_s, counted_j)
        if counted_j is None:
            return Metered(None, power_w)
        if self._first_j is None:
            self._first_j = counted_j
        self._last = (at_s, counted_j)
        return Metered(counted_j - self._first_j, power_w)

    def _quotient(self, at_s: float, counted_j: float | None) -> float | None:
        if counted_j is None or self._last is None or at_s <= self._last[0]:
            return None
        return (counted_j - self._last[1]) / (at_s - self._last[0])


class PowerMeter:
    """A source that only reports present power: integrated by the trapezoid rule over the samples' times.

    Across a reading that is missing the rule goes on from the last one that was there. The sample without it
    has no energy, so that a reader sees that what lies around it was not measured all the time.
    """

    def __init__(self, name: str, read_power_w: Callable[[], float | None]) -> None:
        self.name = name
        self._read_power_w = read_power_w
        self._energy_j = 0.0
        self._last: tuple[float, float] | None = None

    def sample(self, at_s: float) -> Metered:
        power_w = self._read_power_w()
        if power_w is None:
            return Metered(None, None)
        if self._last is not None:
            last_at_s, last_w = self._last
            self._energy_j += (last_w + power_w) / 2 * (at_s - last_at_s)
        self._last = (at_s, power_w)
        return Metered(self._energy_j, power_w)


def rapl_meters(sysfs: Path) -> list[CounterMeter]:
    """A meter for each processor package that can be read, and for its memory where that is a zone of its own.

    Zones `core` and `uncore` are parts of their package, `psys` holds all packages, and `intel-rapl-mmio`
    is the same packages by another way: each would count energy twice. `dram` lies outside its package.
    """
    meters = []
    for package in _zones(sysfs / "sys/class/powercap", r"intel-rapl:\d+", r"package-.*"):
        memory = _zones(package, re.escape(package.name) + r":\d+", "dram")
        for zone, note in ((package, ""), *((x, " dram") for x in memory)):
            counter = _counter(zone)
            if counter is not None:
                meters.append(CounterMeter(f"powercap {zone.name}{note}", counter.read_j))
    return meters


class RaplCounter:
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
        now_uj = integer(self._energy)
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


def _counter(zone: Path) -> RaplCounter | None:
    range_uj = integer(zone / "max_energy_range_uj")
    if range_uj is None or integer(zone / "energy_uj") is None:
        return None
    return RaplCounter(zone / "energy_uj", range_uj)


def integer(path: Path) -> int | None:
    """The number in a file of sysfs; None where there is none."""
    content = text(path)
    try:
        return None if content is None else int(content)
    except ValueError:
        return None


def text(path: Path) -> str | None:
    """The text of a file of sysfs; None where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None
