"""One direction of the relay without its sockets: times are made up, in nanoseconds; seeds are fixed.

When packets leave, exactly; what becomes of each; the distribution of jitter.
"""

from __future__ import annotations

import statistics
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from pareto.remote.link import relay_path
from pareto.remote.link.packets import VNET_HEADER
from pareto.remote.link.profile import Bucket, Direction
from pareto.remote.link.relay_path import FULL, Line, RelayPath, pacing_for
from pareto.remote.link.trace import Step, Trace

MS = 1_000_000
S = 1000 * MS
FRAME = memoryview(b"frame")


def pacing_of(bucket: Bucket | None = None, begin_ns: int = 0, **fields: Any) -> Line:
    return pacing_for(Direction(**fields), bucket, Random(1), begin_ns)  # noqa: S311


def send(pacing: Line, *arrivals: tuple[float, int]) -> list[float]:
    """When packets leave that arrive at (ms, bytes), one after the other, in ms."""
    leaves, last = [], 0
    for at_ms, size in arrivals:
        leave = pacing.leave_ns(round(at_ms * MS), size, last)
        leaves.append(leave if leave == FULL else leave / MS)
        last = max(last, leave)
    return leaves


def trace_of(*steps: tuple[float, float, float | None], period_s: float) -> Trace:
    return Trace("test", period_s, tuple(Step(*step) for step in steps))


Packets = list[tuple[float, int, float]]
"""When each arrives, its bytes, and when it leaves."""


def at_once(*leaves: float) -> Packets:
    return [(0, 1000, each) for each in leaves]


def limited(limit_bytes: int) -> Line:
    return pacing_of(rate_bps=8e6, limit_bytes=limit_bytes)


def burst(**fields: Any) -> Line:
    return pacing_of(Bucket(3000), rate_bps=8e6, **fields)


SLOWER = trace_of((0, 0.0, 8e6), (0.002, 0.0, 4e6), period_s=10)
OUTAGE = trace_of((0, 0.0, 8e6), (0.002, 0.0, 0.0), (0.5, 0.0, 8e6), period_s=1)
LATE_OUTAGE = trace_of((0, 0.1, 8e6), (0.002, 0.1, 0.0), (0.5, 0.1, 8e6), period_s=1)
QUICKER = trace_of((0, 0.1, 8e6), (0.0015, 0.01, 8e6), (0.2, 0.02, 8e6), period_s=1)
DELAYS = trace_of((0, 0.1, None), (1, 0.05, None), period_s=2)
DAILY = trace_of((0, 0.01, 8e6), (0.7, 0.01, 16e6), period_s=1)
A_DAY_MS = 86_400_000
LEAVES: dict[str, tuple[Line, Packets]] = {
    "delay first, then the line": (
        pacing_of(delay_s=0.1, rate_bps=8e6),
        [*at_once(101, 102), (200, 1000, 301)],
    ),
    "delay first, then the line, by a trace of one step": (
        pacing_of(trace=trace_of((0, 0.1, 8e6), period_s=0.05)),
        [*at_once(101, 102), (200, 1000, 301)],
    ),
    # The first has left the line after a millisecond; for 99 more it is in flight, and no longer in the queue.
    "the packet that does not fit is dropped": (
        pacing_of(delay_s=0.1, rate_bps=8e6, limit_bytes=3000),
        [*at_once(101, 102, 103, FULL), (1 - 1e-6, 1000, FULL), (1, 1000, 104), (1, 1000, FULL)],
    ),
    "a trace begins where it is told": (
        pacing_of(trace=DAILY, begin_ns=-700 * MS),
        [(0, 2000, 11), (300, 2000, 312)],
    ),
    # Read just before `apply` looked at the clock: the beginning, not the end of the lap before.
    "or just after": (pacing_of(trace=DAILY, begin_ns=10), [(0, 1000, 11 + 1e-5)]),
    "a dropped packet takes no time": (limited(2000), [(0, 1000, 1), (0, 1500, FULL), (0, 1000, 2)]),
    "a super-packet": (limited(3000), [(0, 64_000, 64), (0, 1000, FULL), (64, 64_000, 128)]),
    "an idle line saves up no credit": (pacing_of(rate_bps=8e6), [(0, 1000, 1), (500, 1000, 501)]),
    "a queue drains at the rates that come": (pacing_of(trace=SLOWER), at_once(1, 2, 4, 6)),
    "a packet is carried at two rates": (pacing_of(trace=SLOWER), [(1, 2000, 4)]),
    "an outage": (pacing_of(trace=OUTAGE), [(0, 1500, 1.5), (0, 1500, 501), (100, 1000, 502)]),
    "an outage holds what comes in it": (pacing_of(trace=OUTAGE), [(100, 1000, 501)]),
    "the bucket drops what exceeds tc's queue: 4 ms at a byte a microsecond, and 3000 bytes": (
        pacing_of(Bucket(3000, latency_s=0.004), rate_bps=8e6),
        at_once(0, 0, 0, *range(1, 8), FULL),
    ),
    "the bucket fills at the rate and no further than the burst": (
        burst(),
        [*at_once(0, 0, 0), (1.5, 1000, 1.5), (1.5, 1000, 2), *[(500, 1500, 500)] * 2, (500, 1500, 501.5)],
    ),
    "a full bucket passes its burst at once": (burst(delay_s=0.1), at_once(100, 100, 100, 101, 102)),
    "a super-packet larger than the burst is paid for": (burst(), [(0, 10_000, 7), (0, 1000, 8)]),
    "the delay is that of the departure, and order is kept": (
        pacing_of(trace=QUICKER),
        [*at_once(101, 101), (150, 1000, 161), (200, 1000, 221)],
    ),
    "a trace of delays alone": (
        pacing_of(trace=DELAYS),
        [(0, 1000, 100), (0, 9000, 100), (1500, 1000, 1550), (2000, 1000, 2100)],
    ),
    "the queue of a trace is limited": (
        pacing_of(trace=LATE_OUTAGE, limit_bytes=3000),
        [*at_once(101, 102, 601, FULL), *((300, 1000, leaves) for leaves in (602, 603, FULL))],
    ),
    "a day later": (
        pacing_of(trace=DAILY),
        [(A_DAY_MS, 1000, pytest.approx(A_DAY_MS + 11, abs=1e-4, rel=0))],
    ),
}


@pytest.mark.parametrize(("pacing", "packets"), LEAVES.values(), ids=LEAVES)
def test_when_packets_leave(pacing: Line, packets: Packets) -> None:
    """max(arrival + delay, the one before) + bytes / rate: at 8 Mbit/s a byte takes a microsecond."""
    assert send(pacing, *(packet[:2] for packet in packets)) == [leaves for *_, leaves in packets]


def test_jitter_delays_the_line_but_costs_it_nothing() -> None:
    """Behind a late packet the next ones leave at the rate, not later; an idle line drops nothing for one."""
    delays = Random(1)  # noqa: S311
    delays.gauss(0, 1)  # the jitter's own start
    leaves, last = [], 0
    for number in range(100):
        ready = number * MS + 100 * MS + round(50 * MS * (2 * delays.random() - 1))
        last = max(ready, last) + 1 * MS
        leaves.append(last / MS)
    pacing = pacing_of(delay_s=0.1, rate_bps=8e6, jitter_s=0.05)
    assert send(pacing, *((number, 1000) for number in range(100))) == leaves
    far_above = pacing_of(delay_s=0.2, jitter_s=0.2, rate_bps=8e6, limit_bytes=3000)
    assert FULL not in send(far_above, *((number * 4, 1000) for number in range(500)))
    # Jitter alone never reorders.
    sent = send(pacing_of(delay_s=0.1, jitter_s=0.1), *((number, 1000) for number in range(1000)))
    assert sent == sorted(sent)
    assert len(set(sent)) < 500  # many catch up with one that was held up
    trace = trace_of((0, 0.1, 8e6), period_s=1)  # not before it has left the line
    for pacing, least_ms, most_ms in (
        (pacing_of(delay_s=0.1, jitter_s=0.1), (0, 1), (199, 200)),
        (pacing_of(trace=trace, jitter_s=0.2), (1, 1), (291, 301)),
    ):
        apart = send(pacing, *((1000 * number, 1000) for number in range(1000)))
        delays = [leave - 1000 * number for number, leave in enumerate(apart)]
        assert least_ms[0] <= min(delays) <= least_ms[1]
        assert most_ms[0] < max(delays) <= most_ms[1]


@pytest.mark.parametrize("correlation", [0.0, 0.25, 0.7, 1.0])
def test_jitter_is_uniform_and_correlated_as_asked(correlation: float) -> None:
    direction = Direction(delay_s=0.1, jitter_s=0.1, jitter_correlation=correlation)
    count = 40_000
    jitter = relay_path.Jitter(direction, Random(3))  # noqa: S311
    if correlation == 1:
        drawn_ns = [jitter.draw_ns() for _ in range(100)]
        assert max(drawn_ns) - min(drawn_ns) < 1000
        return
    drawn = [jitter.draw_ns() / (100 * MS) for _ in range(count)]
    # Kolmogorov-Smirnov's distance to the uniform distribution; correlated draws are worth fewer.
    distance = max(abs((value + 1) / 2 - rank / count) for rank, value in enumerate(sorted(drawn)))
    worth = count * (1 - correlation) / (1 + correlation)
    assert distance < 1.95 / worth**0.5  # p = 0.001
    variance = statistics.fmean(value * value for value in drawn)
    assert variance == pytest.approx(1 / 3, abs=0.02)
    neighbours = statistics.fmean(a * b for a, b in pairwise(drawn)) / variance
    assert neighbours == pytest.approx(correlation, abs=0.02)


# A router's queue: what waits for the line, what is in flight not counted. tbf: 8 Mbit/s, bursts of 3000 bytes.


def test_a_reordered_packet_spends_tokens_and_without_a_rate_there_is_no_bucket() -> None:
    pacing = pacing_of(Bucket(3000), delay_s=0.1, rate_bps=8e6)
    pacing.overtaken(100 * MS, 2000)
    assert send(pacing, (0, 1000), (0, 1000)) == [100, 101]
    assert not isinstance(pacing_of(Bucket(), delay_s=0.1), relay_path.TokenBucket)


def test_what_jitter_held_up_finds_the_queue_as_it_is_then() -> None:
    class Draws(Random):
        # The first two go into the jitter's own start.
        values = iter([0.5] * 2 + [0.5] * 5 + [1.0] + [0.5] * 3)

        def random(self) -> float:
            return next(self.values)

    direction = Direction(delay_s=0.1, rate_bps=8e6, jitter_s=0.1)
    pacing = pacing_for(direction, Bucket(2000, latency_s=0.001), Draws(), 0)
    # Five fill burst and queue, the sixth is 100 ms late; those behind it come when the burst is whole again.
    assert send(pacing, *[(0, 1000)] * 9) == [100, 100, 101, 102, 103, 200, 200, 201, 202]


# Frames on the path


def path_of(direction: Direction, *more: Any, **named: Any) -> RelayPath:
    path = RelayPath()
    path.shape(direction, *more, **named)
    return path


def dues(path: RelayPath) -> list[int]:
    return [due for due, *_ in path.queue]


def test_a_shorter_delay_does_not_overtake() -> None:
    """An unshaped path is straight, but for what is on its way."""
    assert (RelayPath().straight, RelayPath().next_due_ns) == (True, relay_path.NEVER)
    assert not path_of(Direction(loss=0.1)).straight
    path = path_of(Direction(delay_s=0.3))
    path.accept(FRAME, 1, 1000, 0)
    path.shape(Direction())
    assert not path.straight
    path.accept(FRAME, 1, 1000, MS)
    assert dues(path) == [300 * MS, 300 * MS]
    # Packets that left or were dropped are counted. Packets of a full queue, and how late others were.
    path = path_of(Direction(rate_bps=1e6))
    path.accept(FRAME, 1, path.limit_bytes, 0)
    path.accept(FRAME, 3, 1, 0)
    for _ in range(2):
        assert (len(path.queue), path.dropped) == (1, 3)
        path.left(9 * MS)
        path.accept(FRAME, 1, 1, 0)
    path = path_of(Direction(delay_s=0.01))
    path.accept(FRAME, 2, 3000, 0)
    path.left(11 * MS)
    assert (path.packets, path.bytes, list(path.late_ns)) == (2, 3000, [MS])


@pytest.mark.parametrize(
    ("line", "takes_us"),
    [({"overhead_bytes": 24}, 1024 + 3 * 1024), ({"atm": True}, 21 * 53 + 63 * 53), ({}, 1000 + 3000)],
)
def test_the_line_carries_more_than_the_frames(line: dict[str, Any], takes_us: int) -> None:
    """At 8 Mbit/s a byte takes a microsecond: of each of a super-packet's packets, of each cell."""
    path = path_of(Direction(rate_bps=1.0e6, **line).with_line(8e6))
    path.accept(FRAME, 1, 1000, 0)
    path.accept(FRAME, 3, 3000, 0)
    assert dues(path)[-1] == pytest.approx(1000 * takes_us, abs=2)
    path.left(0)
    assert path.bytes == 1000, "as the interface counts"


def numbered(number: int) -> bytes:
    """A frame with the number in its last four bytes."""
    return bytes(VNET_HEADER.size + 60) + number.to_bytes(4, "big")


def impaired(count: int, **fields: Any) -> RelayPath:
    """A path that numbered frames have come to, a millisecond apart."""
    path = RelayPath(Random(11))  # noqa: S311
    path.shape(Direction(**fields))
    for number in range(count):
        path.accept(memoryview(numbered(number)), 1, 64, number * MS)
    return path


def numbers(path: RelayPath) -> list[int]:
    return [int.from_bytes(frame[-4:], "big") for _, frame, *_ in path.queue]


def test_lost_doubled_and_damaged_frames_are_counted_apart() -> None:
    """A copy follows its original, and takes its own time on the line; what is damaged differs in one bit."""
    path = impaired(1000, loss=0.1)
    assert (path.lost, path.dropped) == (1000 - len(path.queue), 0)
    assert 60 < path.lost < 140
    path = impaired(1000, duplicate=0.1, delay_s=0.1)
    sent = numbers(path)
    assert sent == sorted([*range(1000), *(a for a, b in pairwise(sent) if a == b)])
    assert path.duplicated == len(sent) - 1000
    assert 60 < path.duplicated < 140
    assert dues(impaired(1, duplicate=1.0, rate_bps=512e3)) == [1 * MS, 2 * MS]
    assert numbers(impaired(1000)) == list(range(1000))
    path = impaired(1000, corrupt=0.1)
    pairs = zip(path.queue, map(numbered, range(1000)), strict=True)
    damage = [int.from_bytes(it, "big") ^ int.from_bytes(asked, "big") for (_, it, *_), asked in pairs]
    flipped = [bits.bit_count() for bits in damage]
    assert (sum(flipped), set(flipped)) == (path.corrupted, {0, 1})
    assert 60 < path.corrupted < 140
    # A super packet is lost whole and is not damaged.
    path = RelayPath(Random(1))  # noqa: S311
    path.shape(Direction(loss=0.5, corrupt=1.0))
    for _ in range(100):
        path.accept(FRAME, 10, 15_000, 0)
    assert (path.lost, path.corrupted) == (10 * (100 - len(path.queue)), 0)
    assert {frame for _, frame, *_ in path.queue} == {bytes(FRAME)}
    # A reordered frame leaves at once ahead of all.
    path = impaired(10, delay_s=1.0)
    path.shape(Direction(delay_s=1.0, reorder=1.0))
    path.accept(FRAME, 1, 64, 10 * MS)
    assert path.queue[0][:2] == (10 * MS, bytes(FRAME))
    assert path.reordered == 1
    path.left(10 * MS)
    path.shape(Direction(delay_s=1.0))
    path.accept(FRAME, 1, 64, 11 * MS)  # the one that overtook has not moved the others
    assert dues(path) == [1000 * MS + number * MS for number in (*range(10), 11)]


def test_memory_is_bounded_with_a_bucket_under_any_trace_and_with_reordering() -> None:
    path = path_of(Direction(rate_bps=8e6), Bucket(2000, latency_s=0.003))
    for _ in range(9):
        path.accept(FRAME, 1, 1000, 0)
    assert dues(path) == [0, 0, 1 * MS, 2 * MS, 3 * MS, 4 * MS, 5 * MS]
    assert (path.limit_bytes, path.dropped) == (5000, 2)
    for rates, most_bps in (((1e6, 1e9), 1e9), ((None, None), 10e9)):
        path = path_of(Direction(trace=trace_of((0, 0.1, rates[0]), (1, 0.2, rates[1]), period_s=2.0)))
        assert path.limit_bytes == 2 * most_bps / 8 * 0.2 + (64 << 20)
    path = path_of(Direction(delay_s=1.0, reorder=1.0))
    for _ in range(3):
        path.accept(FRAME, 1, path.limit_bytes // 2, 0)
    assert (len(path.queue), path.dropped, path.reordered) == (2, 1, 2)


LOSSY = Direction(0.01, 8e6, loss=0.3, jitter_s=0.005, queue_bytes=20_000)


def fates(path: RelayPath, count: int = 200, gap_ns: int = 2 * MS) -> list[bool]:
    """Of each packet in turn: whether it was lost by chance."""
    found = []
    for number in range(count):
        before = path.lost
        path.accept(FRAME, 1, 1000, 10_000 * MS + number * gap_ns)
        found.append(path.lost > before)
        while path.queue:
            path.left(path.next_due_ns)
    return found


def seeded(seed: int) -> RelayPath:
    path = path_of(LOSSY)
    path.seed(seed, 0)
    return path


def test_a_seed_decides_what_becomes_of_each_packet() -> None:
    """Two backends send at different paces, fill the queue or not, and lose the packets of the same numbers."""
    first, second = seeded(7), seeded(7)
    once = fates(first)
    assert 30 < sum(once) < 90
    assert fates(second) == once != fates(second), "the numbers go on"
    for seed, same in ((7, True), (8, False)):
        second.seed(seed, 0)
        assert (fates(second) == once) is same
    slow, fast = seeded(7), seeded(7)
    assert fates(slow) == fates(fast, gap_ns=0)
    assert fast.dropped > 100 > slow.dropped == 0
