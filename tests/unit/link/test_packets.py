"""Frames on the wire: what a super-packet becomes, and damage that its receiver notices."""

from __future__ import annotations

import struct

import pytest

from pareto.remote.link.packets import VNET_HEADER, damaged, on_wire


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


# Damage

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
