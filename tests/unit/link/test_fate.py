"""What becomes of packets besides waiting, with fixed seeds; intervals are four standard deviations wide."""

from __future__ import annotations

import struct
from itertools import groupby, pairwise
from random import Random
from typing import Any

import pytest

from pareto.link.fate import Fate, GilbertLoss
from pareto.link.packets import VNET_HEADER, damaged
from pareto.link.profile import Direction, Gilbert

COUNT = 40_000


def fate_of(**fields: Any) -> Fate:
    return Fate(Direction(delay_s=0.1, **fields), Random(7))  # noqa: S311


def within(share: float) -> Any:
    return pytest.approx(share, abs=4 * (share * (1 - share) / COUNT) ** 0.5)


def test_an_unimpaired_packet_passes_once() -> None:
    fate = fate_of()
    assert {fate.copies() for _ in range(100)} == {(1, 0)}
    assert not any(fate.damages() or fate.overtakes() for _ in range(100))


@pytest.mark.parametrize(("loss", "copies"), [(0.0, (1, 0)), (1.0, (0, 1))])
def test_certain_loss(loss: float, copies: tuple[int, int]) -> None:
    fate = fate_of(loss=loss)
    assert {fate.copies() for _ in range(100)} == {copies}


def test_loss_is_independent_from_packet_to_packet() -> None:
    fate = fate_of(loss=0.1)
    lost = [fate.copies() == (0, 1) for _ in range(COUNT)]
    assert sum(lost) / COUNT == within(0.1)
    both = sum(a and b for a, b in pairwise(lost))
    assert both / COUNT == within(0.01)


def test_duplicates_and_losses_cancel_as_in_netem() -> None:
    """1 + duplicate - lost, and a copy that is made is a packet of its own."""
    fate = fate_of(loss=0.2, duplicate=0.3)
    outcomes = [fate.copies() for _ in range(COUNT)]
    assert outcomes.count((0, 1)) / COUNT == within(0.7 * 0.2)
    assert outcomes.count((1, 0)) / COUNT == within(0.7 * 0.8)
    assert outcomes.count((1, 1)) / COUNT == within(0.3 * (0.2 + 0.8 * 0.2))
    assert outcomes.count((2, 0)) / COUNT == within(0.3 * 0.8 * 0.8)
    assert {copies for copies, _ in outcomes} == {0, 1, 2}


def test_corruption_and_reordering_have_their_own_probabilities() -> None:
    fate = fate_of(corrupt=0.05, reorder=0.25)
    assert sum(fate.damages() for _ in range(COUNT)) / COUNT == within(0.05)
    assert sum(fate.overtakes() for _ in range(COUNT)) / COUNT == within(0.25)


def test_every_bit_can_be_the_damaged_one() -> None:
    fate = fate_of(corrupt=0.05)
    assert {fate.bit(4) for _ in range(1000)} == set(range(32))


def test_gilbert_loses_its_mean_in_bursts() -> None:
    model = Gilbert(good_to_bad=0.02, bad_to_good=0.25)
    loses = GilbertLoss(model, Random(5))  # noqa: S311
    lost = [loses() for _ in range(10 * COUNT)]
    assert sum(lost) / len(lost) == pytest.approx(model.mean, rel=0.05)
    bursts = [len(list(run)) for bad, run in groupby(lost) if bad]
    assert sum(bursts) / len(bursts) == pytest.approx(1 / 0.25, rel=0.05)
    gaps = [len(list(run)) for bad, run in groupby(lost) if not bad]
    assert sum(gaps) / len(gaps) == pytest.approx(1 / 0.02, rel=0.05)


def test_elliott_loses_in_both_states() -> None:
    model = Gilbert(0.02, 0.1, in_bad=0.5, in_good=0.01)
    loses = GilbertLoss(model, Random(5))  # noqa: S311
    assert sum(loses() for _ in range(10 * COUNT)) / (10 * COUNT) == pytest.approx(model.mean, rel=0.05)


def test_the_state_before_the_transition_decides() -> None:
    loses = GilbertLoss(Gilbert(good_to_bad=1.0, bad_to_good=1.0), Random(5))  # noqa: S311
    assert [loses() for _ in range(6)] == [False, True, False, True, False, True]


# Damage.

NEEDS_CSUM = 1
PSEUDO = bytes([10, 0, 0, 1, 10, 0, 0, 2, 0, 17])  # addresses, protocol; the length follows


def folded(data: bytes) -> int:
    """Ones' complement sum of 16-bit words, carry by carry."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def udp(payload: bytes) -> memoryview:
    """A frame whose checksum holds the pseudo-header's sum only, as a sender with checksum offload leaves it."""
    length = 8 + len(payload)
    partial = folded(PSEUDO + struct.pack(">H", length))
    datagram = struct.pack(">HHHH", 1234, 5678, length, partial) + payload
    return memoryview(VNET_HEADER.pack(NEEDS_CSUM, 0, 0, 0, 34, 6) + bytes(34) + datagram)


@pytest.mark.parametrize("payload", [b"even", b"odd", bytes(range(256)) * 5, b"\xff" * 1472])
def test_an_unfinished_checksum_is_finished_before_the_damage(payload: bytes) -> None:
    frame = udp(payload)
    length = struct.pack(">H", 8 + len(payload))
    bit = 8 * 42 + 3  # of the payload's first byte
    sent = damaged(frame, bit)
    assert sent[: VNET_HEADER.size] == bytes(VNET_HEADER.size)  # nothing is left to the card
    packet = bytearray(sent[VNET_HEADER.size :])
    padding = b"\0" * (len(payload) % 2)
    assert folded(PSEUDO + length + bytes(packet[34:]) + padding) != 0xFFFF
    packet[42] ^= 1 << 3
    assert folded(PSEUDO + length + bytes(packet[34:]) + padding) == 0xFFFF
    before = bytearray(frame[VNET_HEADER.size :])
    packet[40:42] = before[40:42]
    assert packet == before


def test_a_checksum_of_zero_is_sent_as_its_other_form() -> None:
    """In UDP zero means that there is none. A payload is made for which the sum is all ones."""
    start = udp(b"\0\0")
    rest = 0xFFFF - folded(bytes(start[VNET_HEADER.size + 34 :]))
    packet = damaged(udp(struct.pack(">H", rest)), 0)[VNET_HEADER.size :]
    assert packet[40:42] == b"\xff\xff"


@pytest.mark.parametrize("bit", [0, 7, 8 * 60 - 1])
def test_one_bit_is_flipped_and_no_other(bit: int) -> None:
    frame = VNET_HEADER.pack(0, 0, 0, 0, 0, 0) + bytes(range(60))
    sent = damaged(memoryview(frame), bit)
    difference = int.from_bytes(sent, "little") ^ int.from_bytes(frame, "little")
    assert difference == 1 << (8 * VNET_HEADER.size + bit)
