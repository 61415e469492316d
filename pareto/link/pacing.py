"""When a packet leaves: over a line of constant rate, through a token bucket, or as a trace says.

Times are integer nanoseconds of one monotonic clock. No sockets, no clock, no queue of packets: a packet's time
is known as soon as it arrives, for the future of every line here is known.
"""

from __future__ import annotations

from collections import deque
from math import erfc, pi, sin, sqrt
from random import Random

from pareto.link.profile import Bucket, Direction
from pareto.link.trace import Trace

FULL = -1


def pacing_for(direction: Direction, bucket: Bucket | None, random: Random, begin_ns: int) -> Line:
    """The pacing of a direction whose trace, if it has one, is at its beginning at `begin_ns`."""
    if direction.trace is not None:
        return TraceLine(direction, direction.trace, random, begin_ns)
    if bucket is not None and direction.rate_bps is not None:
        return TokenBucket(direction, direction.rate_bps, bucket, random)
    return Line(direction, random)


class Jitter:
    """Uniform in +-`jitter_s`; neighbours have the given correlation.

    A Gaussian copula: a first-order autoregressive normal, taken through its own distribution function. (netem
    mixes each value with the last one, which is no longer uniform and spreads less than it was told to.)
    """

    def __init__(self, direction: Direction, random: Random) -> None:
        self._spread_ns = direction.jitter_s * 1e9
        self._random = random
        # What correlation two normals need for their distribution functions' values to have the one asked for.
        self._keep = 2 * sin(pi * direction.jitter_correlation / 6)
        self._renew = sqrt(max(0.0, 1 - self._keep**2))
        self._normal = random.gauss(0, 1)

    def draw_ns(self) -> int:
        if not self._spread_ns:
            return 0
        if self._keep:
            self._normal = self._keep * self._normal + self._renew * self._random.gauss(0, 1)
            uniform = erfc(-self._normal / sqrt(2)) / 2
        else:
            uniform = self._random.random()
        return round(self._spread_ns * (2 * uniform - 1))


class Line:
    """netem's delay and rate: `max(arrival + delay, the one before) + bytes / rate`. Packets leave as they came.

    The queue is a router's at the near end of the line, before jitter: what jitter holds up does not fill it.
    limit_bytes: how much may wait there (None: the path's own bound on memory is all there is).
    """

    def __init__(self, direction: Direction, random: Random) -> None:
        self.limit_bytes = direction.waiting_bytes
        self._delay_ns = round(direction.delay_s * 1e9)
        self._jitter = Jitter(direction, random)
        self._per_byte_ns = 8e9 / direction.rate_bps if direction.rate_bps else 0.0
        self._line_free_ns = 0
        self._waiting: deque[tuple[int, int]] = deque()
        """When each packet in front of the line, the one on it included, has left, and its bytes."""
        self._waiting_bytes = 0

    def leave_ns(self, now_ns: int, wire_bytes: int, after_ns: int) -> int:
        """When a packet that arrives now leaves, not before `after_ns`; FULL where the queue has no room for it."""
        if not self._has_room(now_ns, wire_bytes):
            return FULL
        takes_ns = round(wire_bytes * self._per_byte_ns)
        self._line_free_ns = max(now_ns, self._line_free_ns) + takes_ns
        self._add(self._line_free_ns, wire_bytes)
        return max(now_ns + self._delay_ns + self._jitter.draw_ns(), after_ns) + takes_ns

    def overtaken(self, now_ns: int, wire_bytes: int) -> None:
        """Take note of a reordered packet, which goes out at once: as in netem it takes none of the line's time."""

    def _has_room(self, now_ns: int, wire_bytes: int) -> bool:
        """Whether so many bytes may wait too. An idle line takes any: a super-packet can exceed the queue."""
        if self.limit_bytes is None:
            return True
        waiting = self._waiting
        while waiting and waiting[0][0] <= now_ns:
            self._waiting_bytes -= waiting.popleft()[1]
        return not waiting or self._waiting_bytes + wire_bytes <= self.limit_bytes

    def _add(self, leave_ns: int, wire_bytes: int) -> None:
        if self.limit_bytes is not None:
            self._waiting.append((leave_ns, wire_bytes))
            self._waiting_bytes += wire_bytes


class TokenBucket(Line):
    """netem's delay, then tbf: what finds tokens passes at once, the rest waits for them.

    The bucket starts full. Its queue is `rate x latency + burst` long, as tc computes it from a latency.
    """

    def __init__(self, direction: Direction, rate_bps: float, bucket: Bucket, random: Random) -> None:
        super().__init__(direction, random)
        self.limit_bytes = int(rate_bps / 8 * bucket.latency_s) + bucket.burst_bytes
        self._burst_ns = round(bucket.burst_bytes * self._per_byte_ns)
        self._ready_ns = 0
        self._full_ns = 0  # when the bucket will be full again if nothing more comes

    def leave_ns(self, now_ns: int, wire_bytes: int, after_ns: int) -> int:
        ready = max(now_ns + self._delay_ns + self._jitter.draw_ns(), self._ready_ns)
        if not self._has_room(ready, wire_bytes):
            return FULL
        start = max(ready, after_ns)
        self._take(start, wire_bytes)
        leave = max(start, self._full_ns - self._burst_ns)
        self._add(leave, wire_bytes)
        self._ready_ns = ready
        return leave

    def overtaken(self, now_ns: int, wire_bytes: int) -> None:
        """It passed netem's queue, and tbf takes its tokens all the same."""
        self._take(now_ns, wire_bytes)

    def _take(self, at_ns: int, wire_bytes: int) -> None:
        self._full_ns = max(self._full_ns, at_ns) + round(wire_bytes * self._per_byte_ns)


class TraceLine(Line):
    """Rate and delay over time: the wait for the line comes first, then the delay in force when it is over.

    A transmission ends when the trace has carried its bits, so what waits drains at the rates that come, and an
    outage stops it.
    """

    def __init__(self, direction: Direction, trace: Trace, random: Random, begin_ns: int) -> None:
        super().__init__(direction, random)
        self._trace = trace
        self._begin_ns = begin_ns
        # Bits and not a time: an outage passes no bit, and a sum of bits gathers no rounding of times. Asked for
        # here, so that a long trace makes its sums now and not while the first packet waits.
        self._sent_bits = trace.carried_bits(0.0)

    def leave_ns(self, now_ns: int, wire_bytes: int, after_ns: int) -> int:
        # A packet may have been read a moment before the trace began.
        sent_s = max(0.0, (now_ns - self._begin_ns) / 1e9)
        if self._trace.limited:
            if not self._has_room(now_ns, wire_bytes):
                return FULL
            self._sent_bits = max(self._sent_bits, self._trace.carried_bits(sent_s)) + 8 * wire_bytes
            sent_s = self._trace.when_carried(self._sent_bits)
        sent_ns = self._begin_ns + round(sent_s * 1e9)
        self._add(sent_ns, wire_bytes)
        delay_ns = round(self._trace.step(sent_s).delay_s * 1e9) + self._jitter.draw_ns()
        return max(sent_ns + max(0, delay_ns), after_ns)
