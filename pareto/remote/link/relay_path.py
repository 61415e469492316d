"""One direction of the relay: what becomes of each frame, when it leaves, and the queue it waits in.

Times are integer nanoseconds of one monotonic clock. No sockets, no clock: a packet's time is known as soon as it
arrives, for the future of every line here is known.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import erfc, pi, sin, sqrt
from random import Random

from pareto.remote.link.packets import VNET_HEADER, damaged
from pareto.remote.link.profile import FREE_RATE_BPS, Bucket, Direction, Gilbert
from pareto.remote.link.trace import Trace

NEVER = 1 << 62
FULL = -1
_SLACK_BYTES = 64 << 20  # a few TCP connections with full windows (tcp_wmem's default maximum is 4 MiB)
_MAX_QUEUED_BYTES = 1 << 30


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
    """netem's delay and rate: `max(arrival + delay, the one before) + bytes / rate`. Packets leave as they came. The
    queue, of `limit_bytes` (None: no limit), is a router's at the near end: what jitter holds up does not fill it."""

    def __init__(self, direction: Direction, random: Random) -> None:
        self.limit_bytes = direction.waiting_bytes
        self._delay_ns = round(direction.delay_s * 1e9)
        self._jitter = Jitter(direction, random)
        self._per_byte_ns = 8e9 / direction.line_bps if direction.line_bps else 0.0
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
    """netem's delay, then tbf: what finds tokens passes at once, the rest waits for them. The bucket starts full. Its
    queue is `rate x latency + burst` long, as tc computes it from a latency."""

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
    """Rate and delay over time: the wait for the line, until the trace carried its bits, then the delay in force."""

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


class Losses:
    """A direction's losses, copies, damage and reordering, drawn for one packet at a time in netem's order."""

    def __init__(self, direction: Direction, random: Random) -> None:
        self.direction = direction
        self._random = random
        self._bad = False  # the state of a model of bursts

    def copies(self) -> tuple[int, int]:
        """How often the packet is sent, 0 to 2, and how many of it and its copy were lost. As in netem a loss cancels a
        copy, and a copy that is made is a packet of its own and can be lost too."""
        copies = 1 + self.strikes(self.direction.duplicate)
        lost = int(self.loses())
        if copies - lost == 2:
            lost = int(self.loses())
        return copies - lost, lost

    def loses(self) -> bool:
        loss = self.direction.loss
        if not isinstance(loss, Gilbert):
            return self.strikes(loss)
        bad = self._bad  # a packet's state is the one before its own transition
        if self._random.random() < (loss.bad_to_good if bad else loss.good_to_bad):
            self._bad = not bad
        return self._random.random() < (loss.in_bad if bad else loss.in_good)

    def bit(self, of_bytes: int) -> int:
        """The number of the bit of so many bytes that is damaged."""
        return self._random.randrange(8 * of_bytes)

    def strikes(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability


@dataclass(frozen=True)
class _Shape:
    """The settings in force for frames that arrive now."""

    straight: bool  # nothing is asked: frames pass at once
    pacing: Line
    losses: Losses | None
    max_queued_bytes: int


class RelayPath:
    """Does what one netem qdisc does. Frames leave in the order they came, whatever profile is put in force meanwhile;
    only reordered ones overtake. A super-packet is lost, repeated or reordered whole, as in netem, and never damaged,
    for its segments' checksums are not made yet."""

    def __init__(self, random: Random | None = None) -> None:
        self.queue: deque[tuple[int, bytes, int, int]] = deque()  # due, frame, packets, wire bytes
        self.packets = self.bytes = self.dropped = 0
        self.lost = self.duplicated = self.reordered = self.corrupted = 0
        self.late_ns: deque[int] = deque(maxlen=10_000)
        # Chance on a link, no secret. Losses are drawn apart from jitter, which is not drawn for packets that find the
        # queue full: so the n-th packet is lost or not, whatever the queue was.
        self._random = random or Random()  # noqa: S311
        self._jitter = random or Random()  # noqa: S311
        self._queued_bytes = 0
        self._last_due_ns = 0
        self.shape(Direction())

    def shape(self, direction: Direction, bucket: Bucket | None = None, begin_ns: int = 0) -> None:
        """Put a direction in force for the frames that arrive from now on; its trace begins at `begin_ns`."""
        self.direction, self._bucket = direction, bucket
        self.restart(begin_ns)
        self.late_ns.clear()

    def restart(self, begin_ns: int) -> None:
        """Begin the trace anew at `begin_ns`. Frames in the queue keep the times at which they leave."""
        direction = self.direction
        pacing = pacing_for(direction, self._bucket, self._jitter, begin_ns)
        # Memory stays bounded whatever the profile says: this counts all that is queued, in flight or not.
        bound = min(2 * _in_flight_bytes(direction) + _SLACK_BYTES, _MAX_QUEUED_BYTES)
        # One assignment: the control thread changes it while the relay's thread reads it.
        self._shape = _Shape(
            straight=not direction.shaped,
            pacing=pacing,
            losses=Losses(direction, self._random) if direction.impaired else None,
            max_queued_bytes=min(bound + (pacing.limit_bytes or 0), _MAX_QUEUED_BYTES),
        )

    def seed(self, seed: int, begin_ns: int) -> None:
        """Begin chance anew: after the same seed the same packets, by number, are lost. Also begins the trace anew."""
        # "fate" is part of the seed of every run so far.
        self._random, self._jitter = (Random(f"{seed}/{what}") for what in ("fate", "jitter"))  # noqa: S311
        self.restart(begin_ns)

    @property
    def limit_bytes(self) -> int:
        """The bytes that may wait for the line, or, where the profile sets no limit, all that may be queued."""
        shape = self._shape
        return min(shape.pacing.limit_bytes or shape.max_queued_bytes, shape.max_queued_bytes)

    @property
    def straight(self) -> bool:
        """Whether a frame that arrives now leaves at once."""
        return not self.queue and self._shape.straight

    def draining_ns(self, now_ns: int) -> int:
        """How long until all frames that are queued now have left; those that arrive now leave after them."""
        return max(0, self._last_due_ns - now_ns) if self.queue else 0

    @property
    def next_due_ns(self) -> int:
        return self.queue[0][0] if self.queue else NEVER

    def accept(self, frame: memoryview, packets: int, wire_bytes: int, now_ns: int) -> None:
        """Queue a copy of a frame that arrived at `now_ns`, or count it as lost, or as dropped by a full queue."""
        shape = self._shape
        losses = shape.losses
        if losses is None:
            self._queue(shape, frame, packets, wire_bytes, now_ns)
            return
        copies, lost = losses.copies()
        self.lost += lost * packets
        self.duplicated += (copies + lost - 1) * packets
        for _ in range(copies):
            sent: memoryview | bytes = frame
            if packets == 1 and losses.strikes(losses.direction.corrupt):
                sent = damaged(frame, losses.bit(len(frame) - VNET_HEADER.size))
                self.corrupted += 1
            overtakes = losses.strikes(losses.direction.reorder)
            self._queue(shape, sent, packets, wire_bytes, now_ns, overtakes)

    def _queue(
        self,
        shape: _Shape,
        frame: memoryview | bytes,
        packets: int,
        wire_bytes: int,
        now_ns: int,
        overtakes: bool = False,
    ) -> None:
        line_bytes = self.direction.on_line(wire_bytes, packets)
        if self._queued_bytes + wire_bytes > shape.max_queued_bytes:
            due = FULL
        elif overtakes:
            shape.pacing.overtaken(now_ns, line_bytes)
            due = now_ns
        else:
            due = shape.pacing.leave_ns(now_ns, line_bytes, self._last_due_ns)
        if due == FULL:
            self.dropped += packets
            return
        self._queued_bytes += wire_bytes
        entry = due, bytes(frame), packets, wire_bytes
        if overtakes:
            self.reordered += packets
            self.queue.appendleft(entry)
        else:
            self._last_due_ns = due
            self.queue.append(entry)

    def left(self, now_ns: int) -> None:
        """Remove the first frame of the queue, which was sent at `now_ns`, and count it."""
        due, _, packets, wire_bytes = self.queue.popleft()
        self._queued_bytes -= wire_bytes
        self.count(packets, wire_bytes)
        self.late_ns.append(now_ns - due)

    def discard(self) -> None:
        """Remove the first frame of the queue, which cannot be sent, and count it as dropped."""
        _, _, packets, wire_bytes = self.queue.popleft()
        self._queued_bytes -= wire_bytes
        self.dropped += packets

    def count(self, packets: int, wire_bytes: int) -> None:
        self.packets += packets
        self.bytes += wire_bytes


def _in_flight_bytes(direction: Direction) -> int:
    """The most bytes that can be in flight, over all steps of its trace."""
    steps = direction.trace.steps if direction.trace is not None else (direction,)
    rate_bps = max(step.rate_bps or 0.0 for step in steps) or FREE_RATE_BPS
    return int(rate_bps / 8 * (max(step.delay_s for step in steps) + direction.jitter_s))
