"""One direction of the relay: when each frame is due, and the queue it waits in. No sockets, no clock."""

from __future__ import annotations

from collections import deque

from pareto.link.profile import Direction

NEVER = 1 << 62
_FREE_RATE_BPS = 10e9  # what an unlimited link is taken to carry when its queue is sized
_SLACK_BYTES = 64 << 20  # a few TCP connections with full windows (tcp_wmem's default maximum is 4 MiB)
_MAX_LIMIT_BYTES = 1 << 30


class Lane:
    """Delay and rate as one netem qdisc applies them; times are integer nanoseconds of one monotonic clock.

    A frame starts when it has arrived and its predecessor has left, takes its wire bytes / rate, then travels
    for the delay. Frames leave in the order they came, whatever profile is put in force meanwhile.
    """

    def __init__(self) -> None:
        self.queue: deque[tuple[int, bytes, int, int]] = deque()  # due, frame, packets, wire bytes
        self.packets = self.bytes = self.dropped = 0
        self.late_ns: deque[int] = deque(maxlen=10_000)
        self._queued_bytes = 0
        self._line_free_ns = 0
        self._last_due_ns = 0
        self.shape(Direction())

    def shape(self, direction: Direction) -> None:
        """Put a direction in force for the frames that arrive from now on."""
        self.direction = direction
        per_byte_ns = 8e9 / direction.rate_bps if direction.rate_bps else 0.0
        in_flight = (direction.rate_bps or _FREE_RATE_BPS) / 8 * direction.delay_s
        self.limit_bytes = min(int(2 * in_flight) + _SLACK_BYTES, _MAX_LIMIT_BYTES)
        # One assignment: the control thread changes it while the relay's thread reads it.
        self._shape = round(direction.delay_s * 1e9), per_byte_ns, self.limit_bytes
        self.late_ns.clear()

    @property
    def straight(self) -> bool:
        """Whether a frame that arrives now leaves at once."""
        return not self.queue and not self._shape[0] and not self._shape[1]

    @property
    def next_due_ns(self) -> int:
        return self.queue[0][0] if self.queue else NEVER

    def accept(self, frame: memoryview, packets: int, wire_bytes: int, now_ns: int) -> None:
        """Queue a copy of a frame that arrived at `now_ns`, or count it as dropped: the queue is full."""
        delay_ns, per_byte_ns, limit = self._shape
        if self._queued_bytes + wire_bytes > limit:
            self.dropped += packets
            return
        free = max(now_ns, self._line_free_ns) + int(wire_bytes * per_byte_ns)
        due = max(free + delay_ns, self._last_due_ns)
        self._line_free_ns, self._last_due_ns = free, due
        self._queued_bytes += wire_bytes
        self.queue.append((due, bytes(frame), packets, wire_bytes))

    def left(self, now_ns: int) -> None:
        """The first frame of the queue was sent at `now_ns`."""
        due, _, packets, wire_bytes = self.queue.popleft()
        self._queued_bytes -= wire_bytes
        self.count(packets, wire_bytes)
        self.late_ns.append(now_ns - due)

    def discard(self) -> None:
        """The first frame of the queue cannot be sent."""
        _, _, packets, wire_bytes = self.queue.popleft()
        self._queued_bytes -= wire_bytes
        self.dropped += packets

    def count(self, packets: int, wire_bytes: int) -> None:
        self.packets += packets
        self.bytes += wire_bytes
