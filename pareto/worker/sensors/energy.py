"""Energy since the first sample, from counters or from present power. Joules, watts, seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Metered:
    """None where the source did not answer. A first difference quotient has nothing to be taken from."""

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
    """A source that only tells present power: integrated by the trapezoid rule over the samples' times.

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
