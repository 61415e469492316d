"""Whole Ethernet frames in and out of an interface, and how many bytes one costs on the wire.

PACKET_VNET_HDR puts ten bytes before each frame (linux/virtio_net.h) that say what the sender left for the card to do:
fill in a checksum, cut a GSO super-packet into segments. Sent on with the frame, they let both pass unopened.
"""

from __future__ import annotations

import socket
import struct

VNET_HEADER = struct.Struct("=BBHHHH")  # flags, gso_type, hdr_len, gso_size, csum_start, csum_offset
MAX_FRAME_BYTES = 1 << 20  # BIG TCP goes to half of this; ordinary GSO to 64 KiB

# linux/if_packet.h and asm/socket.h; Python's socket module lacks them.
_SOL_PACKET = 263
_ADD_MEMBERSHIP, _STATISTICS, _VNET_HDR, _QDISC_BYPASS, _IGNORE_OUTGOING = 1, 6, 15, 20, 23
_MR_PROMISC = 1
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_BUFFERS = (
    (_SO_RCVBUFFORCE, socket.SO_RCVBUF, 64 << 20),  # a burst waits in the kernel while the relay is busy
    (_SO_SNDBUFFORCE, socket.SO_SNDBUF, 8 << 20),
)
_ETH_P_ALL, _ETH_P_IPV6 = 0x0003, 0x86DD

_NEEDS_CSUM = 1
_GSO_NONE, _GSO_UDP_L4 = 0, 5
_ETHERNET_BYTES = 14


def open_interface(name: str) -> socket.socket:
    """A non-blocking socket on every frame that arrives at the interface, and none that leaves it. Needs CAP_NET_RAW
    and CAP_NET_ADMIN; raises OSError. Frames carry the header described above."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # protocol 0: nothing arrives before bind
    try:
        for option in (_VNET_HDR, _QDISC_BYPASS, _IGNORE_OUTGOING):
            raw.setsockopt(_SOL_PACKET, option, 1)
        for force, ask, size in _BUFFERS:
            try:
                raw.setsockopt(socket.SOL_SOCKET, force, size)
            except PermissionError:  # a user namespace's root may not exceed the system's limit
                raw.setsockopt(socket.SOL_SOCKET, ask, size)
        # Frames are addressed to the far end, not to this interface.
        promiscuous = struct.pack("iHH8x", socket.if_nametoindex(name), _MR_PROMISC, 0)
        raw.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, promiscuous)
        raw.bind((name, _ETH_P_ALL))
        raw.setblocking(False)
    except OSError:
        raw.close()
        raise
    return raw


def lost(raw: socket.socket) -> int:
    """How many frames the kernel dropped since the last call because the socket's buffer was full."""
    _, drops = struct.unpack("II", raw.getsockopt(_SOL_PACKET, _STATISTICS, 8))
    return int(drops)


def on_wire(frame: memoryview) -> tuple[int, int]:
    """Packets and bytes, Ethernet headers included, that a frame becomes once cut into its segments. As netem counts:
    without preamble, checksum and gap."""
    flags, gso_type, _, gso_size, csum_start, _ = VNET_HEADER.unpack_from(frame)
    length = len(frame) - VNET_HEADER.size
    if gso_type == _GSO_NONE or not gso_size:
        return 1, length
    packet = frame[VNET_HEADER.size :]
    transport = csum_start if flags & _NEEDS_CSUM else _transport_offset(packet)
    headers = transport + (8 if gso_type & 0x7F == _GSO_UDP_L4 else 4 * (packet[transport + 12] >> 4))
    segments = max(1, -(-(length - headers) // gso_size))
    return segments, length + (segments - 1) * headers


def damaged(frame: memoryview, bit: int) -> bytes:
    """A copy of a single packet with one bit flipped, counted from the first of its Ethernet header. A checksum that
    the sender left to the card is filled in before: done after, it would declare the damage good."""
    flags, _, _, _, start, offset = VNET_HEADER.unpack_from(frame)
    packet = bytearray(frame[VNET_HEADER.size :])
    if flags & _NEEDS_CSUM:
        # The field holds the pseudo-header's sum. Ones' complement addition is addition modulo 65535; the
        # result is never 0, which for UDP would mean "no checksum".
        padded = bytes(packet[start:]) + b"\0" * (len(packet) - start & 1)
        checksum = 0xFFFF - int.from_bytes(padded, "big") % 0xFFFF
        packet[start + offset : start + offset + 2] = checksum.to_bytes(2, "big")
    packet[bit >> 3] ^= 1 << (bit & 7)
    return bytes(VNET_HEADER.size) + packet


def _transport_offset(packet: memoryview) -> int:
    if packet[12] << 8 | packet[13] == _ETH_P_IPV6:
        return _ETHERNET_BYTES + 40
    return _ETHERNET_BYTES + 4 * (packet[_ETHERNET_BYTES] & 0x0F)
