"""One direction of the relay without its sockets: times are made up, in nanoseconds; seeds are fixed.

When packets leave, exactly; what becomes of each; the distributions of jitter and losses. Intervals of shares are four
standard deviations wide.
"""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import groupby, pairwise
from random import Random
from typing import Any

import pytest

from pareto.remote.link.packets import VNET_HEADER
from pareto.remote.link.profile import Bucket, Direction, Gilbert
from pareto.remote.link.relay_path import (
    FULL,
    NEVER,
    Jitter,
    Line,
    Losses,
    RelayPath,
    TokenBucket,
    pacing_for,
)
from pareto.remote.link.trace import Step, Trace

MS = 1_000_000
S = 1000 * MS
FRAME = memoryview(b"frame")


def pacing_of(bucket: Bucket | None = None, begin_ns: int = 0, **fields: Any) -> Line:
    return pacing_for(Direction(**fields), bucket, Random(1), begin_ns)  # noqa: S311


def send(pacing: Line, *arrivals: tuple[int, int]) -> list[int]:
    """When packets leave that arrive at (ns, bytes), one after the other."""
    leaves, last = [], 0
    for now, size in arrivals:
        leave = pacing.leave_ns(now, size, last)
        leaves.append(leave)
        last = max(last, leave)
    return leaves


def trace_of(*steps: tuple[float, float, float | None], period_s: float) -> Trace:
    return Trace("test", period_s, tuple(Step(*step) for step in steps))


OUTAGE = trace_of((0, 0.0, 8e6), (0.002, 0.0, 0.0), (0.5, 0.0, 8e6), period_s=1)
ALL_AT_ONCE = (0, 1000)
LEAVES: dict[str, tuple[Line, list[tuple[int, int]], list[int]]] = {
    "a dropped packet takes no time on the line": (
        pacing_of(rate_bps=8e6, limit_bytes=2000),
        [(0, 1000), (0, 1500), (0, 1000)],
        [1 * MS, FULL, 2 * MS],
    ),
    "a super-packet larger than the limit passes an idle line": (
        pacing_of(rate_bps=8e6, limit_bytes=3000),
        [(0, 64_000), (0, 1000), (64 * MS, 64_000)],
        [64 * MS, FULL, 128 * MS],
    ),
    "an idle line saves up no credit": (
        pacing_of(rate_bps=8e6),
        [(0, 1000), (500 * MS, 1000)],
        [1 * MS, 501 * MS],
    ),
    "a queue drains at the rates that come": (
        pacing_of(trace=trace_of((0, 0.0, 8e6), (0.002, 0.0, 4e6), period_s=10)),
        [ALL_AT_ONCE] * 4,
        [1 * MS, 2 * MS, 4 * MS, 6 * MS],
    ),
    "a packet is carried at two rates": (
        pacing_of(trace=trace_of((0, 0.0, 8e6), (0.002, 0.0, 4e6), period_s=10)),
        [(1 * MS, 2000)],
        [4 * MS],
    ),
    "an outage stops the line": (
        pacing_of(trace=OUTAGE),
        [(0, 1500), (0, 1500), (100 * MS, 1000)],
        [1_500_000, 501 * MS, 502 * MS],
    ),
    "an outage holds what comes in it": (pacing_of(trace=OUTAGE), [(100 * MS, 1000)], [501 * MS]),
    "the bucket drops what exceeds tc's queue: 4 ms at a byte a microsecond, and 3000 bytes": (
        pacing_of(Bucket(3000, latency_s=0.004), rate_bps=8e6),
        [ALL_AT_ONCE] * 11,
        [0, 0, 0, *(number * MS for number in range(1, 8)), FULL],
    ),
    "the bucket fills at the rate and no further than the burst": (
        pacing_of(Bucket(3000), rate_bps=8e6),
        [*[ALL_AT_ONCE] * 3, *[(1500_000, 1000)] * 2, *[(500 * MS, 1500)] * 3],
        [0, 0, 0, 1500_000, 2 * MS, 500 * MS, 500 * MS, 500 * MS + 1500_000],
    ),
    "a full bucket passes its burst at once": (
        pacing_of(Bucket(3000), delay_s=0.1, rate_bps=8e6),
        [ALL_AT_ONCE] * 5,
        [100 * MS, 100 * MS, 100 * MS, 101 * MS, 102 * MS],
    ),
    "a super-packet larger than the burst is paid for": (
        pacing_of(Bucket(3000), rate_bps=8e6),
        [(0, 10_000), (0, 1000)],
        [7 * MS, 8 * MS],
    ),
    "the delay is that of the departure, and order is kept": (
        pacing_of(trace=trace_of((0, 0.1, 8e6), (0.0015, 0.01, 8e6), (0.2, 0.02, 8e6), period_s=1)),
        [(0, 1000), (0, 1000), (150 * MS, 1000), (200 * MS, 1000)],
        [101 * MS, 101 * MS, 161 * MS, 221 * MS],
    ),
    "a trace of delays alone": (
        pacing_of(trace=trace_of((0, 0.1, None), (1, 0.05, None), period_s=2)),
        [(0, 1000), (0, 9000), (1500 * MS, 1000), (2000 * MS, 1000)],
        [100 * MS, 100 * MS, 1550 * MS, 2100 * MS],
    ),
    "the queue of a trace is limited": (
        pacing_of(
            trace=trace_of((0, 0.1, 8e6), (0.002, 0.1, 0.0), (0.5, 0.1, 8e6), period_s=1), limit_bytes=3000
        ),
        [ALL_AT_ONCE] * 4 + [(300 * MS, 1000)] * 3,
        [101 * MS, 102 * MS, 601 * MS, FULL, 602 * MS, 603 * MS, FULL],
    ),
}


@pytest.mark.parametrize(("pacing", "arrivals", "leaves"), LEAVES.values(), ids=LEAVES)
def test_when_packets_leave(pacing: Line, arrivals: list[tuple[int, int]], leaves: list[int]) -> None:
    assert send(pacing, *arrivals) == leaves


# A line: max(arrival + delay, the one before) + bytes / rate. At 8 Mbit/s a byte takes a microsecond.


def test_delay_first_then_the_line() -> None:
    """A line of a rate, and a trace of one step."""
    for pacing in (
        pacing_of(delay_s=0.1, rate_bps=8e6),
        pacing_of(trace=trace_of((0, 0.1, 8e6), period_s=0.05)),
    ):
        sent = send(pacing, (0, 1000), (0, 2000), (200 * MS, 1000))
        assert sent == [101 * MS, 103 * MS, 301 * MS]


def test_jitter_delays_the_line_but_costs_it_nothing() -> None:
    """Behind a late packet the next ones leave at the rate, not later."""
    pacing = pacing_of(delay_s=0.1, rate_bps=8e6, jitter_s=0.05)
    delays = Random(1)  # noqa: S311
    delays.gauss(0, 1)  # the jitter's own start
    leaves, last = [], 0
    for number in range(100):
        ready = number * MS + 100 * MS + round(50 * MS * (2 * delays.random() - 1))
        last = max(ready, last) + 1 * MS
        leaves.append(last)
    assert send(pacing, *((number * MS, 1000) for number in range(100))) == leaves


def test_jitter_alone_never_reorders() -> None:
    sent = send(pacing_of(delay_s=0.1, jitter_s=0.1), *((number * MS, 1000) for number in range(1000)))
    assert sent == sorted(sent)
    assert len(set(sent)) < 500  # many catch up with one that was held up
    apart = send(pacing_of(delay_s=0.1, jitter_s=0.1), *((number * S, 1000) for number in range(1000)))
    delays = [leave - number * S for number, leave in enumerate(apart)]
    assert 0 <= min(delays) < 1 * MS
    assert 199 * MS < max(delays) <= 200 * MS


@pytest.mark.parametrize("correlation", [0.0, 0.25, 0.7, 1.0])
def test_jitter_is_uniform_and_correlated_as_asked(correlation: float) -> None:
    direction = Direction(delay_s=0.1, jitter_s=0.1, jitter_correlation=correlation)
    count = 40_000
    jitter = Jitter(direction, Random(3))  # noqa: S311
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


# A router's queue: what waits for the line, what is in flight not counted.


def test_the_packet_that_does_not_fit_is_dropped() -> None:
    pacing = pacing_of(delay_s=0.1, rate_bps=8e6, limit_bytes=3000)
    sent = send(pacing, *[(0, 1000)] * 4)
    assert sent == [101 * MS, 102 * MS, 103 * MS, FULL]
    # The first has left the line after a millisecond; for 99 more it is in flight, and no longer in the queue.
    assert send(pacing, (1 * MS - 1, 1000)) == [FULL]
    assert pacing.leave_ns(1 * MS, 1000, 103 * MS) == 104 * MS
    assert pacing.leave_ns(1 * MS, 1000, 104 * MS) == FULL


def test_what_a_late_packet_holds_up_is_not_a_queue() -> None:
    """With jitter far above what the limit takes to drain, an idle line still drops nothing."""
    pacing = pacing_of(delay_s=0.2, jitter_s=0.2, rate_bps=8e6, limit_bytes=3000)
    assert FULL not in send(pacing, *((number * 4 * MS, 1000) for number in range(500)))


# tbf: 8 Mbit/s, bursts of 3000 bytes.


def test_a_reordered_packet_spends_tokens() -> None:
    pacing = pacing_of(Bucket(3000), delay_s=0.1, rate_bps=8e6)
    pacing.overtaken(100 * MS, 2000)
    assert send(pacing, (0, 1000), (0, 1000)) == [100 * MS, 101 * MS]


def test_what_jitter_held_up_finds_the_queue_as_it_is_then() -> None:
    class Draws(Random):
        # The first two go into the jitter's own start.
        values = iter([0.5] * 2 + [0.5] * 5 + [1.0] + [0.5] * 3)

        def random(self) -> float:
            return next(self.values)

    direction = Direction(delay_s=0.1, rate_bps=8e6, jitter_s=0.1)
    pacing = pacing_for(direction, Bucket(2000, latency_s=0.001), Draws(), 0)
    # Five fill burst and queue, the sixth is 100 ms late; those behind it come when the burst is whole again.
    expected = [100, 100, 101, 102, 103, 200, 200, 201, 202]
    assert send(pacing, *[(0, 1000)] * 9) == [leave * MS for leave in expected]


def test_without_a_rate_there_is_no_bucket() -> None:
    assert not isinstance(pacing_of(Bucket(), delay_s=0.1), TokenBucket)


# Traces.


def test_a_trace_begins_where_it_is_told_and_wraps() -> None:
    trace = trace_of((0, 0.0, 8e6), (1, 0.0, 1.6e6), period_s=2)
    delays = trace_of((0, 0.01, None), (1, 0.5, None), period_s=2)
    now = 1000 * S
    for told, begin_ns, leaves_ns in (
        (trace, now, now + 1 * MS),
        (trace, now - S, now + 5 * MS),
        (trace, now - 2 * S, now + 1 * MS),
        # Read just before `apply` looked at the clock: the beginning, not the end of the lap before.
        (trace, now + 10, now + 10 + 1 * MS),
        (delays, now + 10, now + 10 + 10 * MS),
    ):
        assert send(pacing_of(trace=told, begin_ns=begin_ns), (now, 1000)) == [leaves_ns]


def test_a_trace_after_a_day_is_still_exact() -> None:
    trace = trace_of((0, 0.01, 8e6), (0.7, 0.01, 16e6), period_s=1)
    day = 86400 * S
    assert send(pacing_of(trace=trace), (day, 1000))[0] == pytest.approx(day + 11 * MS, abs=100)


def test_a_trace_takes_jitter() -> None:
    trace = trace_of((0, 0.1, 8e6), period_s=1)
    sent = send(pacing_of(trace=trace, jitter_s=0.2), *((number * S, 1000) for number in range(500)))
    delays = [leave - number * S - 1 * MS for number, leave in enumerate(sent)]
    assert min(delays) == 0  # not before it has left the line
    assert 290 * MS < max(delays) <= 300 * MS


# Frames on the path


def path_of(direction: Direction, *more: Any, **named: Any) -> RelayPath:
    path = RelayPath()
    path.shape(direction, *more, **named)
    return path


def dues(path: RelayPath) -> list[int]:
    return [due for due, *_ in path.queue]


def test_an_unshaped_path_is_straight() -> None:
    assert (RelayPath().straight, RelayPath().next_due_ns) == (True, NEVER)
    assert not path_of(Direction(loss=0.1)).straight


def test_a_shorter_delay_does_not_overtake() -> None:
    path = path_of(Direction(delay_s=0.3))
    path.accept(FRAME, 1, 1000, 0)
    path.shape(Direction())
    assert not path.straight
    path.accept(FRAME, 1, 1000, MS)
    assert dues(path) == [300 * MS, 300 * MS]


def test_a_full_queue_drops_and_counts_packets() -> None:
    path = path_of(Direction(rate_bps=1e6))
    path.accept(FRAME, 1, path.limit_bytes, 0)
    path.accept(FRAME, 3, 1, 0)
    for _ in range(2):
        assert (len(path.queue), path.dropped) == (1, 3)
        path.left(9 * MS)
        path.accept(FRAME, 1, 1, 0)


def test_what_left_is_counted_with_its_lateness() -> None:
    path = path_of(Direction(delay_s=0.01))
    path.accept(FRAME, 2, 3000, 0)
    path.left(11 * MS)
    assert (path.packets, path.bytes, list(path.late_ns)) == (2, 3000, [MS])


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


def test_lost_frames_are_counted_apart_from_dropped_ones() -> None:
    path = impaired(1000, loss=0.1)
    assert (path.lost, path.dropped) == (1000 - len(path.queue), 0)
    assert 60 < path.lost < 140


def test_duplicates_follow_their_original() -> None:
    path = impaired(1000, duplicate=0.1, delay_s=0.1)
    sent = numbers(path)
    assert sent == sorted([*range(1000), *(a for a, b in pairwise(sent) if a == b)])
    assert path.duplicated == len(sent) - 1000
    assert 60 < path.duplicated < 140


def test_a_copy_takes_its_own_time_on_the_line() -> None:
    path = impaired(1, duplicate=1.0, rate_bps=512e3)
    assert dues(path) == [1 * MS, 2 * MS]


def test_a_reordered_frame_leaves_at_once_ahead_of_all() -> None:
    path = impaired(10, delay_s=1.0)
    path.shape(Direction(delay_s=1.0, reorder=1.0))
    path.accept(FRAME, 1, 64, 10 * MS)
    assert path.queue[0][:2] == (10 * MS, bytes(FRAME))
    assert path.reordered == 1
    path.left(10 * MS)
    path.shape(Direction(delay_s=1.0))
    path.accept(FRAME, 1, 64, 11 * MS)  # the one that overtook has not moved the others
    assert dues(path) == [1000 * MS + number * MS for number in (*range(10), 11)]


def test_reordering_keeps_memory_bounded() -> None:
    path = path_of(Direction(delay_s=1.0, reorder=1.0))
    for _ in range(3):
        path.accept(FRAME, 1, path.limit_bytes // 2, 0)
    assert (len(path.queue), path.dropped, path.reordered) == (2, 1, 2)


def test_corrupt_frames_differ_in_one_bit() -> None:
    assert numbers(impaired(1000)) == list(range(1000))
    path = impaired(1000, corrupt=0.1)
    flipped = [
        bin(int.from_bytes(frame, "big") ^ int.from_bytes(numbered(number), "big")).count("1")
        for number, (_, frame, *_) in enumerate(path.queue)
    ]
    assert len(flipped) == 1000
    assert sum(flipped) == path.corrupted
    assert set(flipped) == {0, 1}
    assert 60 < path.corrupted < 140


def test_a_super_packet_is_lost_whole_and_is_not_damaged() -> None:
    path = RelayPath(Random(1))  # noqa: S311
    path.shape(Direction(loss=0.5, corrupt=1.0))
    for _ in range(100):
        path.accept(FRAME, 10, 15_000, 0)
    assert path.lost == 10 * (100 - len(path.queue))
    assert {frame for _, frame, *_ in path.queue} == {bytes(FRAME)}
    assert path.corrupted == 0


def test_a_bucket_passes_its_burst() -> None:
    path = path_of(Direction(rate_bps=8e6), Bucket(2000, latency_s=0.003))
    for _ in range(9):
        path.accept(FRAME, 1, 1000, 0)
    assert dues(path) == [0, 0, 1 * MS, 2 * MS, 3 * MS, 4 * MS, 5 * MS]
    assert (path.limit_bytes, path.dropped) == (5000, 2)


def test_a_restarted_trace_begins_anew_and_leaves_the_queue_alone() -> None:
    path = path_of(Direction(trace=trace_of((0, 0.0, 8e6), (1, 0.0, 1e6), period_s=10.0)), begin_ns=0)
    path.accept(FRAME, 1, 1000, 5000 * MS)
    path.restart(5000 * MS)
    path.accept(FRAME, 1, 1000, 5000 * MS)
    path.accept(FRAME, 1, 1000, 5020 * MS)
    assert dues(path) == [5008 * MS, 5008 * MS, 5021 * MS]


@pytest.mark.parametrize(("rates", "most_bps"), [((1e6, 1e9), 1e9), ((None, None), 10e9)])
def test_memory_is_bounded_under_any_trace(rates: tuple[float | None, ...], most_bps: float) -> None:
    path = path_of(Direction(trace=trace_of((0, 0.1, rates[0]), (1, 0.2, rates[1]), period_s=2.0)))
    assert path.limit_bytes == 2 * most_bps / 8 * 0.2 + (64 << 20)


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
    first, second = seeded(7), seeded(7)
    once = fates(first)
    assert 30 < sum(once) < 90
    assert fates(second) == once
    assert fates(second) != once  # the numbers go on
    second.seed(7, 0)
    assert fates(second) == once
    second.seed(8, 0)
    assert fates(second) != once


def test_a_full_queue_leaves_the_others_their_fates() -> None:
    """Two backends send at different paces, and lose the packets of the same numbers."""
    slow, fast = seeded(7), seeded(7)
    assert fates(slow) == fates(fast, gap_ns=0)
    assert fast.dropped > 100 > slow.dropped == 0


# Losses

COUNT = 40_000


def losses_of(**fields: Any) -> Losses:
    return Losses(Direction(delay_s=0.1, **fields), Random(7))  # noqa: S311


def within(share: float) -> Any:
    return pytest.approx(share, abs=4 * (share * (1 - share) / COUNT) ** 0.5)


def test_an_unimpaired_packet_passes_once() -> None:
    losses = losses_of()
    assert {losses.copies() for _ in range(100)} == {(1, 0)}
    assert not any(losses.strikes(losses.direction.corrupt) for _ in range(100))


def test_loss_is_independent_from_packet_to_packet() -> None:
    losses = losses_of(loss=0.1)
    lost = [losses.copies() == (0, 1) for _ in range(COUNT)]
    assert sum(lost) / COUNT == within(0.1)
    both = sum(a and b for a, b in pairwise(lost))
    assert both / COUNT == within(0.01)


def test_duplicates_and_losses_cancel_as_in_netem() -> None:
    """1 + duplicate - lost, and a copy that is made is a packet of its own."""
    losses = losses_of(loss=0.2, duplicate=0.3)
    outcomes = Counter(losses.copies() for _ in range(COUNT))
    assert {outcome: count / COUNT for outcome, count in outcomes.items()} == {
        (0, 1): within(0.7 * 0.2),
        (1, 0): within(0.7 * 0.8),
        (1, 1): within(0.3 * (0.2 + 0.8 * 0.2)),
        (2, 0): within(0.3 * 0.8 * 0.8),
    }


def test_corruption_and_reordering_have_their_own_probabilities() -> None:
    losses = losses_of(corrupt=0.05, reorder=0.25)
    for share in (losses.direction.corrupt, losses.direction.reorder):
        assert sum(losses.strikes(share) for _ in range(COUNT)) / COUNT == within(share)


def test_every_bit_can_be_the_damaged_one() -> None:
    losses = losses_of(corrupt=0.05)
    assert {losses.bit(4) for _ in range(1000)} == set(range(32))


def losses_in_bursts(model: Gilbert, count: int = 10 * COUNT) -> list[bool]:
    loses = Losses(Direction(loss=model), Random(5)).loses  # noqa: S311
    return [loses() for _ in range(count)]


def test_gilbert_loses_its_mean_in_bursts() -> None:
    model = Gilbert(good_to_bad=0.02, bad_to_good=0.25)
    lost = losses_in_bursts(model)
    assert sum(lost) / len(lost) == pytest.approx(model.mean, rel=0.05)
    runs = [(bad, len(list(run))) for bad, run in groupby(lost)]
    for which, mean in ((True, 1 / 0.25), (False, 1 / 0.02)):
        lengths = [length for bad, length in runs if bad is which]
        assert sum(lengths) / len(lengths) == pytest.approx(mean, rel=0.05)


def test_elliott_loses_in_both_states() -> None:
    model = Gilbert(0.02, 0.1, in_bad=0.5, in_good=0.01)
    assert sum(losses_in_bursts(model)) / (10 * COUNT) == pytest.approx(model.mean, rel=0.05)


def test_the_state_before_the_transition_decides() -> None:
    assert losses_in_bursts(Gilbert(1.0, 1.0), 6) == [False, True, False, True, False, True]
