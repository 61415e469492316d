"""One direction of the relay without its sockets: times are made up, in nanoseconds; seeds are fixed.

Intervals of shares are four standard deviations wide.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from random import Random
from typing import Any

import pytest

from pareto.link.packets import VNET_HEADER
from pareto.link.profile import Bucket, Direction, Gilbert
from pareto.link.relay_path import NEVER, Losses, RelayPath
from pareto.link.trace import Step, Trace

MS = 1_000_000
FRAME = memoryview(b"frame")


def path_of(direction: Direction) -> RelayPath:
    path = RelayPath()
    path.shape(direction)
    return path


def dues(path: RelayPath) -> list[int]:
    return [due for due, *_ in path.queue]


def test_an_unshaped_path_is_straight() -> None:
    path = RelayPath()
    assert path.straight
    assert path.next_due_ns == NEVER


def test_delay_alone() -> None:
    path = path_of(Direction(delay_s=0.02))
    for now in (0, 5 * MS):
        path.accept(FRAME, 1, 1000, now)
    assert dues(path) == [20 * MS, 25 * MS]


def test_frames_queue_for_the_line_then_travel() -> None:
    path = path_of(Direction(0.1, 8e6))  # 1 byte a microsecond
    for _ in range(3):
        path.accept(FRAME, 1, 1000, 0)
    assert dues(path) == [101 * MS, 102 * MS, 103 * MS]


def test_an_idle_line_saves_up_no_credit() -> None:
    path = path_of(Direction(rate_bps=8e6))
    path.accept(FRAME, 1, 1000, 0)
    path.accept(FRAME, 1, 1000, 500 * MS)
    assert dues(path) == [1 * MS, 501 * MS]


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
    assert (len(path.queue), path.dropped) == (1, 3)
    path.left(9 * MS)
    path.accept(FRAME, 1, 1, 0)
    assert (len(path.queue), path.dropped) == (1, 3)


def test_what_left_is_counted_with_its_lateness() -> None:
    path = path_of(Direction(delay_s=0.01))
    path.accept(FRAME, 2, 3000, 0)
    path.left(11 * MS)
    assert (path.packets, path.bytes, list(path.late_ns)) == (2, 3000, [MS])


@pytest.mark.parametrize(("rate_bps", "delay_s"), [(5e6, 0.2), (1e9, 0.1), (None, 0.2)])
def test_the_queue_holds_what_is_in_flight_and_a_full_window(rate_bps: float | None, delay_s: float) -> None:
    in_flight = (rate_bps or 0) / 8 * delay_s
    assert path_of(Direction(delay_s, rate_bps)).limit_bytes > in_flight + 32e6


def impaired(count: int, **fields: Any) -> RelayPath:
    """A path that frames have come to, a millisecond apart; the number is in each frame's last four bytes."""
    path = RelayPath(Random(11))  # noqa: S311
    path.shape(Direction(**fields))
    for number in range(count):
        frame = bytes(VNET_HEADER.size + 60) + number.to_bytes(4, "big")
        path.accept(memoryview(frame), 1, 64, number * MS)
    return path


def numbers(path: RelayPath) -> list[int]:
    return [int.from_bytes(frame[-4:], "big") for _, frame, *_ in path.queue]


def test_lost_frames_are_counted_apart_from_dropped_ones() -> None:
    path = impaired(1000, loss=0.1)
    assert path.lost == 1000 - len(path.queue)
    assert 60 < path.lost < 140
    assert path.dropped == 0


def test_loss_alone_is_no_straight_path() -> None:
    assert not path_of(Direction(loss=0.1)).straight


def test_duplicates_follow_their_original() -> None:
    path = impaired(1000, duplicate=0.1, delay_s=0.1)
    sent = numbers(path)
    assert sent == sorted(sent)
    assert set(sent) == set(range(1000))
    assert path.duplicated == len(sent) - 1000
    assert 60 < path.duplicated < 140


def test_every_packet_is_accounted_for() -> None:
    path = impaired(1000, loss=0.3, duplicate=0.3)
    assert len(path.queue) == 1000 + path.duplicated - path.lost
    assert 200 < path.duplicated < 400


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
    path = impaired(1000, corrupt=0.1)
    clean = numbers(impaired(1000))
    assert clean == list(range(1000))
    originals = [bytes(VNET_HEADER.size + 60) + number.to_bytes(4, "big") for number in clean]
    flipped = [
        bin(int.from_bytes(frame, "big") ^ int.from_bytes(original, "big")).count("1")
        for (_, frame, *_), original in zip(path.queue, originals, strict=True)
    ]
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


def test_the_queue_limit_drops() -> None:
    path = path_of(Direction(0.1, 8e6, limit_bytes=3000))
    assert path.limit_bytes == 3000
    for _ in range(5):
        path.accept(FRAME, 1, 1000, 0)
    assert (dues(path), path.dropped) == ([101 * MS, 102 * MS, 103 * MS], 2)


def test_a_bucket_passes_its_burst() -> None:
    path = RelayPath()
    path.shape(Direction(rate_bps=8e6), Bucket(2000, latency_s=0.003))
    assert path.limit_bytes == 5000
    for _ in range(9):
        path.accept(FRAME, 1, 1000, 0)
    assert dues(path) == [0, 0, 1 * MS, 2 * MS, 3 * MS, 4 * MS, 5 * MS]
    assert path.dropped == 2


def test_a_restarted_trace_begins_anew_and_leaves_the_queue_alone() -> None:
    trace = Trace("test", 10.0, (Step(0, 0.0, 8e6), Step(1, 0.0, 1e6)))
    path = RelayPath()
    path.shape(Direction(trace=trace), begin_ns=0)
    path.accept(FRAME, 1, 1000, 5000 * MS)
    path.restart(5000 * MS)
    path.accept(FRAME, 1, 1000, 5000 * MS)
    path.accept(FRAME, 1, 1000, 5020 * MS)
    assert dues(path) == [5008 * MS, 5008 * MS, 5021 * MS]


@pytest.mark.parametrize("limited", [True, False])
def test_memory_is_bounded_under_any_trace(limited: bool) -> None:
    steps = Step(0, 0.1, 1e6 if limited else None), Step(1, 0.2, 1e9 if limited else None)
    path = path_of(Direction(trace=Trace("test", 2.0, steps)))
    in_flight = (1e9 if limited else 10e9) / 8 * 0.2
    assert path.limit_bytes == 2 * in_flight + (64 << 20)


def test_the_same_generator_gives_the_same_link() -> None:
    fields = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.1, "corrupt": 0.1, "delay_s": 0.1, "jitter_s": 0.1}
    assert impaired(500, **fields).queue == impaired(500, **fields).queue


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


def test_a_seed_decides_what_becomes_of_each_packet() -> None:
    first, second = path_of(LOSSY), path_of(LOSSY)
    for path in (first, second):
        path.seed(7, 0)
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
    slow, fast = path_of(LOSSY), path_of(LOSSY)
    for path in (slow, fast):
        path.seed(7, 0)
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
    assert not any(losses.damages() or losses.overtakes() for _ in range(100))


@pytest.mark.parametrize(("loss", "copies"), [(0.0, (1, 0)), (1.0, (0, 1))])
def test_certain_loss(loss: float, copies: tuple[int, int]) -> None:
    losses = losses_of(loss=loss)
    assert {losses.copies() for _ in range(100)} == {copies}


def test_loss_is_independent_from_packet_to_packet() -> None:
    losses = losses_of(loss=0.1)
    lost = [losses.copies() == (0, 1) for _ in range(COUNT)]
    assert sum(lost) / COUNT == within(0.1)
    both = sum(a and b for a, b in pairwise(lost))
    assert both / COUNT == within(0.01)


def test_duplicates_and_losses_cancel_as_in_netem() -> None:
    """1 + duplicate - lost, and a copy that is made is a packet of its own."""
    losses = losses_of(loss=0.2, duplicate=0.3)
    outcomes = [losses.copies() for _ in range(COUNT)]
    assert outcomes.count((0, 1)) / COUNT == within(0.7 * 0.2)
    assert outcomes.count((1, 0)) / COUNT == within(0.7 * 0.8)
    assert outcomes.count((1, 1)) / COUNT == within(0.3 * (0.2 + 0.8 * 0.2))
    assert outcomes.count((2, 0)) / COUNT == within(0.3 * 0.8 * 0.8)
    assert {copies for copies, _ in outcomes} == {0, 1, 2}


def test_corruption_and_reordering_have_their_own_probabilities() -> None:
    losses = losses_of(corrupt=0.05, reorder=0.25)
    assert sum(losses.damages() for _ in range(COUNT)) / COUNT == within(0.05)
    assert sum(losses.overtakes() for _ in range(COUNT)) / COUNT == within(0.25)


def test_every_bit_can_be_the_damaged_one() -> None:
    losses = losses_of(corrupt=0.05)
    assert {losses.bit(4) for _ in range(1000)} == set(range(32))


def test_gilbert_loses_its_mean_in_bursts() -> None:
    model = Gilbert(good_to_bad=0.02, bad_to_good=0.25)
    loses = Losses(Direction(loss=model), Random(5)).loses  # noqa: S311
    lost = [loses() for _ in range(10 * COUNT)]
    assert sum(lost) / len(lost) == pytest.approx(model.mean, rel=0.05)
    bursts = [len(list(run)) for bad, run in groupby(lost) if bad]
    assert sum(bursts) / len(bursts) == pytest.approx(1 / 0.25, rel=0.05)
    gaps = [len(list(run)) for bad, run in groupby(lost) if not bad]
    assert sum(gaps) / len(gaps) == pytest.approx(1 / 0.02, rel=0.05)


def test_elliott_loses_in_both_states() -> None:
    model = Gilbert(0.02, 0.1, in_bad=0.5, in_good=0.01)
    loses = Losses(Direction(loss=model), Random(5)).loses  # noqa: S311
    assert sum(loses() for _ in range(10 * COUNT)) / (10 * COUNT) == pytest.approx(model.mean, rel=0.05)


def test_the_state_before_the_transition_decides() -> None:
    loses = Losses(Direction(loss=Gilbert(1.0, 1.0)), Random(5)).loses  # noqa: S311
    assert [loses() for _ in range(6)] == [False, True, False, True, False, True]
