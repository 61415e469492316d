"""When bytes came in, by the kernel's own stamps, and the rate of the line that they came over.

A stamp is taken when a packet reaches this host, however long the process then waits for a core. All are of one clock
(CLOCK_REALTIME, which the kernel's stamps have); only differences are used.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import time
from collections.abc import Sequence

_SO_TIMESTAMPNS = 35  # linux/asm-generic/socket.h; the ancillary message has the same number
_STAMPS = {struct.calcsize(layout): struct.Struct(layout) for layout in ("=qq", "=ii")}
_ANCILLARY_BYTES = 64
_MOST_POINTS = 64
"""Of which all pairs are looked at: 2016 take 2 ms."""

Arrival = tuple[float, int]
"""When something came, in seconds, and how many bytes have come by then."""


def stamp(sock: socket.socket) -> None:
    """Have the kernel stamp what comes in. TCP has that since Linux 4.13; without it the moment of reading counts."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def receive(sock: socket.socket, buffer: memoryview | bytearray) -> tuple[int, int]:
    """Receive into a buffer: bytes, and when the last of them came, in nanoseconds. Raises OSError."""
    size, ancillary, _, _ = sock.recvmsg_into([buffer], _ANCILLARY_BYTES)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) in _STAMPS:
            seconds, nanoseconds = _STAMPS[len(data)].unpack(data)
            return size, seconds * 1_000_000_000 + nanoseconds
    return size, time.time_ns()


def line_rate_bps(arrivals: Sequence[Arrival], skip: int = 0) -> float | None:
    """Bit/s of a line of constant rate: the median slope over all pairs of arrivals beyond the first `skip` bytes.

    Theil and Sen's regression (P. K. Sen, JASA 63, 1968): up to 29 % of the arrivals may be late, by a machine's
    hiccup, without moving it. None if nothing came; infinite for what came in one piece.
    """
    counted = _beyond(arrivals, skip)
    if not counted:
        return None
    step = math.ceil(len(counted) / _MOST_POINTS)
    points = counted[::step]
    slopes = sorted(
        (then - now) / (more - less)
        for number, (now, less) in enumerate(points)
        for then, more in points[number + 1 :]
        if more > less
    )
    typical = slopes[len(slopes) // 2] if slopes else 0.0
    return 8 / typical if typical > 0 else math.inf


def mean_rate_bps(arrivals: Sequence[Arrival], skip: int = 0) -> float | None:
    """Bit/s from the first arrival beyond `skip` bytes to the last: of a line whose rate changes."""
    counted = _beyond(arrivals, skip)
    if not counted:
        return None
    seconds = counted[-1][0] - counted[0][0]
    return 8 * (counted[-1][1] - counted[0][1]) / seconds if seconds > 0 else math.inf


def _beyond(arrivals: Sequence[Arrival], skip: int) -> list[Arrival]:
    return [(at_s, nbytes) for at_s, nbytes in arrivals if nbytes > skip]
