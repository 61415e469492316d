"""A link that changes: rate and delay as steps over time, played in a loop. No clock, no I/O."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import Annotated

from pareto.protocol.errors import UserError
from pareto.protocol.validation import NAME, Bounds, check

MAX_STEPS = 200_000
MAX_DELAY_S = 60.0
MIN_RATE_BPS = 1e3
MAX_RATE_BPS = 34e9  # netem's rate is a 32-bit number of bytes a second: it wraps at 34.36 Gbit/s
MIN_STEP_S = 1e-3
"""No step is shorter: whoever plays a trace does something for each."""
MAX_POSITION_S = 1e7
"""About four months: floats still tell microseconds apart, and nothing runs longer."""

DELAY = Annotated[float, Bounds(0, MAX_DELAY_S, unit="s")]
POSITION = Annotated[float, Bounds(0, MAX_POSITION_S, unit="s")]

# More than sums of floats are off, less than anything that is sent or timed.
_ROUNDING = 1e-12  # of a number of bits
_A_MOMENT_S = 1e-6
_ROUNDING_S = 1e-9


@dataclass(frozen=True)
class Step:
    """From `at_s` on: delay in seconds, rate in bit/s on the wire (None: not limited; 0: nothing passes)."""

    at_s: POSITION
    delay_s: DELAY
    rate_bps: (
        Annotated[float, Bounds(0, MAX_RATE_BPS, unit="bit/s", words="is out of range: 0 to 34gbit")] | None
    )


@dataclass(frozen=True)
class Trace:
    """Steps in order, the first at 0, and the time after which they begin again. `name` says where it came from. All
    positions are seconds since the trace's own beginning; those at or past the period wrap. Raises UserError."""

    name: NAME
    period_s: POSITION
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        check(self, "a trace's ")
        if len(self.steps) > MAX_STEPS:
            raise UserError(f"a trace of {len(self.steps)} steps is too long: {MAX_STEPS} at most")
        for step in self.steps:
            check(step, "a step's ")
        if not self.steps or self.steps[0].at_s != 0:
            raise UserError("a trace begins at time 0")
        least_s = min(seconds for _, seconds in self._lasting())
        if least_s <= 0:
            raise UserError("the times of a trace must rise, and end before its period")
        # Sums of such times are off by less than what is allowed here.
        if least_s < MIN_STEP_S - _A_MOMENT_S:
            raise UserError(f"a trace's step of {least_s:g} s is too short: {MIN_STEP_S:g} s at least")
        limited = [step.rate_bps is not None for step in self.steps]
        if any(limited) and not all(limited):
            raise UserError("a trace gives a rate in every step or in none")
        if all(limited) and not any(step.rate_bps for step in self.steps):
            raise UserError("a trace that lets nothing pass is no link")

    @property
    def limited(self) -> bool:
        return self.steps[0].rate_bps is not None

    @cached_property
    def _at(self) -> list[float]:
        return [step.at_s for step in self.steps]

    def _lasting(self) -> Iterator[tuple[Step, float]]:
        """Each step, and how many seconds it lasts."""
        ends = [*self._at[1:], self.period_s]
        return ((step, end - step.at_s) for step, end in zip(self.steps, ends, strict=True))

    @cached_property
    def _carried(self) -> list[float]:
        """Bits carried from the beginning to each step, and to the end of the period."""
        return [0.0, *accumulate((step.rate_bps or 0.0) * seconds for step, seconds in self._lasting())]

    @property
    def mean_rate_bps(self) -> float | None:
        return self._carried[-1] / self.period_s if self.limited else None

    @property
    def mean_delay_s(self) -> float:
        return sum(step.delay_s * seconds for step, seconds in self._lasting()) / self.period_s

    def step(self, position_s: float) -> Step:
        """The step in force at a position; at an edge, also of a later lap, the one that begins there."""
        return self.steps[bisect_right(self._at, (position_s + _ROUNDING_S) % self.period_s) - 1]

    def carried_bits(self, position_s: float) -> float:
        """Bits the link can carry from the beginning to a position, wraps included."""
        laps, at = divmod(position_s, self.period_s)
        index = bisect_right(self._at, at) - 1
        rate = self.steps[index].rate_bps or 0.0
        return laps * self._carried[-1] + self._carried[index] + rate * (at - self._at[index])

    def when_carried(self, bits: float) -> float:
        """The first position by which the link can have carried so many bits: the inverse of `carried_bits`."""
        # What a step ends with is carried before the outage that follows, also where rounding says a little more.
        slack = _ROUNDING * bits
        laps, left = divmod(bits, self._carried[-1])
        if laps and left <= slack:
            laps, left = laps - 1, left + self._carried[-1]
        index = max(0, min(bisect_left(self._carried, left - slack), len(self.steps)) - 1)
        rate = self.steps[index].rate_bps or inf
        return laps * self.period_s + self._at[index] + (left - self._carried[index]) / rate

    def transfer_s(self, nbytes: float, position_s: float) -> float:
        """Seconds that `nbytes` on the wire take when they start at a position (0 where the rate is not limited)."""
        if not self.limited or not nbytes:
            return 0.0
        return self.when_carried(self.carried_bits(position_s) + 8 * nbytes) - position_s

    def least_transfer_s(self, nbytes: float, from_s: float, to_s: float) -> float:
        """The least of `transfer_s` over all starts in a span."""
        return min(self.transfer_s(nbytes, start) for start in self._turning_points(nbytes, from_s, to_s))

    def most_transfer_s(self, nbytes: float, from_s: float, to_s: float) -> float:
        """The most of `transfer_s` over all starts in a span."""
        # Where the end meets an outage it jumps: the start just after that counts.
        starts = (start + _A_MOMENT_S for start in self._turning_points(nbytes, from_s, to_s))
        return max(self.transfer_s(nbytes, min(start, to_s)) for start in starts)

    def _turning_points(self, nbytes: float, from_s: float, to_s: float) -> Iterator[float]:
        """The starts in a span at which the start or the end crosses a step: between them `transfer_s` is linear."""
        yield from self.edges(from_s, to_s)
        if not self.limited:
            return
        for end in self.edges(from_s, to_s + self.transfer_s(nbytes, to_s)):
            start = self.when_carried(max(0.0, self.carried_bits(end) - 8 * nbytes))
            if from_s <= start <= to_s:
                yield start

    def edges(self, from_s: float, to_s: float) -> Iterator[float]:
        """Both ends of a span, and each position between them at which a step begins."""
        yield from_s
        for lap in range(int(from_s // self.period_s), int(to_s // self.period_s) + 1):
            base = lap * self.period_s
            first, last = bisect_right(self._at, from_s - base), bisect_right(self._at, to_s - base)
            yield from (base + at_s for at_s in self._at[first:last])
        yield to_s
