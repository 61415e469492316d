"""A link that changes: rate and delay as steps over time, played in a loop. No clock, no I/O."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import inf

MAX_STEPS = 200_000


@dataclass(frozen=True)
class Step:
    """From `at_s` on: delay in seconds, rate in bit/s on the wire (None: not limited; 0: nothing passes)."""

    at_s: float
    delay_s: float
    rate_bps: float | None


@dataclass(frozen=True)
class Trace:
    """Steps in order, the first at 0, and the time after which they begin again. `name` says where it came from.

    All positions are seconds since the trace's own beginning; those at or past the period wrap. Raises ValueError.
    """

    name: str
    period_s: float
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        at = [step.at_s for step in self.steps]
        if not at or at[0] != 0:
            raise ValueError("a trace begins at time 0")
        if len(at) > MAX_STEPS:
            raise ValueError(f"a trace of {len(at)} steps is too long: {MAX_STEPS} at most")
        if any(later <= earlier for earlier, later in zip(at, [*at[1:], self.period_s], strict=True)):
            raise ValueError("the times of a trace must rise, and end before its period")
        limited = [step.rate_bps is not None for step in self.steps]
        if any(limited) and not all(limited):
            raise ValueError("a trace gives a rate in every step or in none")
        if all(limited) and not any(step.rate_bps for step in self.steps):
            raise ValueError("a trace that lets nothing pass is no link")

    @property
    def limited(self) -> bool:
        return self.steps[0].rate_bps is not None

    @cached_property
    def _at(self) -> list[float]:
        return [step.at_s for step in self.steps]

    @cached_property
    def _carried(self) -> list[float]:
        """Bits carried from the beginning to each step, and to the end of the period."""
        ends = [*self._at[1:], self.period_s]
        amounts = (
            (step.rate_bps or 0.0) * (end - step.at_s) for step, end in zip(self.steps, ends, strict=True)
        )
        return [0.0, *accumulate(amounts)]

    @property
    def mean_rate_bps(self) -> float | None:
        return self._carried[-1] / self.period_s if self.limited else None

    @property
    def mean_delay_s(self) -> float:
        ends = [*self._at[1:], self.period_s]
        return (
            sum(step.delay_s * (end - step.at_s) for step, end in zip(self.steps, ends, strict=True))
            / self.period_s
        )

    def step(self, position_s: float) -> Step:
        """The step in force at a position."""
        return self.steps[bisect_right(self._at, position_s % self.period_s) - 1]

    def carried_bits(self, position_s: float) -> float:
        """Bits the link can carry from the beginning to a position, wraps included."""
        laps, at = divmod(position_s, self.period_s)
        index = bisect_right(self._at, at) - 1
        rate = self.steps[index].rate_bps or 0.0
        return laps * self._carried[-1] + self._carried[index] + rate * (at - self._at[index])

    def when_carried(self, bits: float) -> float:
        """The first position by which the link can have carried so many bits: the inverse of `carried_bits`."""
        laps, left = divmod(bits, self._carried[-1])
        if laps and not left:
            laps, left = laps - 1, self._carried[-1]
        index = max(0, min(bisect_left(self._carried, left), len(self.steps)) - 1)
        rate = self.steps[index].rate_bps or inf
        return laps * self.period_s + self._at[index] + (left - self._carried[index]) / rate

    def transfer_s(self, nbytes: float, position_s: float) -> float:
        """Seconds that `nbytes` on the wire take when they start at a position (0 where the rate is not limited)."""
        if not self.limited or not nbytes:
            return 0.0
        return self.when_carried(self.carried_bits(position_s) + 8 * nbytes) - position_s

    def least_transfer_s(self, nbytes: float, from_s: float, to_s: float) -> float:
        """The least that `transfer_s` is for any start in a span."""
        # Linear between the points where the start or the end crosses a step: so the least is at one of these.
        if not self.limited or not nbytes:
            return 0.0
        bits = 8 * nbytes
        last_end = from_s + self.transfer_s(nbytes, to_s) + (to_s - from_s)
        ends = (
            self.when_carried(max(0.0, self.carried_bits(at) - bits)) for at in self.edges(from_s, last_end)
        )
        starts = (start for start in (*self.edges(from_s, to_s), *ends) if from_s <= start <= to_s)
        return min(self.transfer_s(nbytes, start) for start in starts)

    def edges(self, from_s: float, to_s: float) -> Iterator[float]:
        """Both ends of a span, and each position between them at which a step begins."""
        yield from_s
        for lap in range(int(from_s // self.period_s), int(to_s // self.period_s) + 1):
            base = lap * self.period_s
            first, last = bisect_right(self._at, from_s - base), bisect_right(self._at, to_s - base)
            yield from (base + at for at in self._at[first:last])
        yield to_s

    def steps_between(self, from_s: float, to_s: float) -> Sequence[Step]:
        """The steps in force at some time of a span (each once, wraps included)."""
        if to_s - from_s >= self.period_s:
            return self.steps
        return tuple(dict.fromkeys(self.step(at) for at in self.edges(from_s, to_s)))
