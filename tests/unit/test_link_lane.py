"""The relay's timing without its sockets: times are made up, in nanoseconds."""

from __future__ import annotations

import pytest

from pareto.link.lane import NEVER, Lane
from pareto.link.packets import VNET_HEADER, on_wire
from pareto.link.profile import Direction

MS = 1_000_000
FRAME = memoryview(b"frame")


def lane_of(direction: Direction) -> Lane:
    lane = Lane()
    lane.shape(direction)
    return lane


def dues(lane: Lane) -> list[int]:
    return [due for due, *_ in lane.queue]


def test_an_unshaped_lane_is_straight() -> None:
    lane = Lane()
    assert lane.straight
    assert lane.next_due_ns == NEVER


def test_delay_alone() -> None:
    lane = lane_of(Direction(delay_s=0.02))
    for now in (0, 5 * MS):
        lane.accept(FRAME, 1, 1000, now)
    assert dues(lane) == [20 * MS, 25 * MS]


def test_frames_queue_for_the_line_then_travel() -> None:
    lane = lane_of(Direction(0.1, 8e6))  # 1 byte a microsecond
    for _ in range(3):
        lane.accept(FRAME, 1, 1000, 0)
    assert dues(lane) == [101 * MS, 102 * MS, 103 * MS]


def test_an_idle_line_saves_up_no_credit() -> None:
    lane = lane_of(Direction(rate_bps=8e6))
    lane.accept(FRAME, 1, 1000, 0)
    lane.accept(FRAME, 1, 1000, 500 * MS)
    assert dues(lane) == [1 * MS, 501 * MS]


def test_a_shorter_delay_does_not_overtake() -> None:
    lane = lane_of(Direction(delay_s=0.3))
    lane.accept(FRAME, 1, 1000, 0)
    lane.shape(Direction())
    assert not lane.straight
    lane.accept(FRAME, 1, 1000, MS)
    assert dues(lane) == [300 * MS, 300 * MS]


def test_a_full_queue_drops_and_counts_packets() -> None:
    lane = lane_of(Direction(rate_bps=1e6))
    lane.accept(FRAME, 1, lane.limit_bytes, 0)
    lane.accept(FRAME, 3, 1, 0)
    assert (len(lane.queue), lane.dropped) == (1, 3)
    lane.left(9 * MS)
    lane.accept(FRAME, 1, 1, 0)
    assert (len(lane.queue), lane.dropped) == (1, 3)


def test_what_left_is_counted_with_its_lateness() -> None:
    lane = lane_of(Direction(delay_s=0.01))
    lane.accept(FRAME, 2, 3000, 0)
    lane.left(11 * MS)
    assert (lane.packets, lane.bytes, list(lane.late_ns)) == (2, 3000, [MS])


@pytest.mark.parametrize(("rate_bps", "delay_s"), [(5e6, 0.2), (1e9, 0.1), (None, 0.2)])
def test_the_queue_holds_what_is_in_flight_and_a_full_window(rate_bps: float | None, delay_s: float) -> None:
    in_flight = (rate_bps or 0) / 8 * delay_s
    assert lane_of(Direction(delay_s, rate_bps)).limit_bytes > in_flight + 32e6


def super_packet(
    gso_type: int, ethernet_to_transport: int, transport: bytes, payload: int, flags: int = 1
) -> memoryview:
    header = VNET_HEADER.pack(flags, gso_type, 0, 1448, ethernet_to_transport, 16)
    version = b"\x45" if ethernet_to_transport == 34 else b"\x60"
    ethertype = b"\x08\x00" if ethernet_to_transport == 34 else b"\x86\xdd"
    packet = bytes(12) + ethertype + version
    return memoryview(header + packet.ljust(ethernet_to_transport, b"\0") + transport + bytes(payload))


TCP_32 = bytes(12) + b"\x80" + bytes(19)  # with timestamps


@pytest.mark.parametrize("flags", [0, 1])
@pytest.mark.parametrize(("gso_type", "offset", "headers"), [(1, 34, 66), (4, 54, 86), (0x81, 34, 66)])
def test_a_super_packet_costs_each_segments_headers(
    gso_type: int, offset: int, headers: int, flags: int
) -> None:
    payload = 10 * 1448 + 1
    frame = super_packet(gso_type, offset, TCP_32, payload, flags)
    assert on_wire(frame) == (11, payload + 11 * headers)


def test_a_udp_super_packet() -> None:
    assert on_wire(super_packet(5, 34, bytes(8), 2 * 1448)) == (2, 2 * 1448 + 2 * 42)


def test_an_ordinary_frame_is_its_length() -> None:
    assert on_wire(memoryview(VNET_HEADER.pack(1, 0, 0, 0, 34, 16) + bytes(1514))) == (1, 1514)
