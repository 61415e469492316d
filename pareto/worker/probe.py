"""Measuring the link as it is: round trip time by small messages, rate by a bulk transfer, one connection.

The edge asks, the server echoes and sinks. All durations are taken on one clock: round trips on the edge's, the
rate in each direction where the bytes arrive.
"""

from __future__ import annotations

import contextlib
import math
import socket
import statistics
import struct
import sys
import threading
import time

from pareto.backends import handshake

PINGS = 5
PING_GAP_S = 0.004
TIMEOUT_S = 60.0
CHUNK = 1 << 16
_ASK = struct.Struct("!cQ")
"""what (p: echo, o: bulk edge to server, b: bulk server to edge), bytes that follow or are wanted"""
_TOLD = struct.Struct("!dQ")
"""seconds from the first arrival to the last, bytes that arrived after the first"""


class ProbeServer:
    """The answering end, a thread that sleeps between probes. Takes one connection at a time, with the token."""

    def __init__(self, address: str, token: str) -> None:
        self._token = token
        self._listener = socket.create_server((address, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="probe", daemon=True).start()

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            with sock:
                try:
                    handshake.admit(sock, self._token)
                    _answer(sock)
                except (OSError, EOFError, handshake.Rejected) as error:
                    print(f"probe: {error}", file=sys.stderr)


def _answer(sock: socket.socket) -> None:
    while True:
        what, nbytes = _ASK.unpack(handshake.exactly(sock, _ASK.size))
        if what == b"p":
            sock.sendall(_ASK.pack(b"p", nbytes))
        elif what == b"o":
            sock.sendall(_TOLD.pack(*_sink(sock, nbytes)))
        elif what == b"b":
            sock.sendall(bytes(nbytes))
        else:
            raise OSError(f"unknown question {what!r}")


class ProbeClient:
    """The asking end, on the edge."""

    def __init__(self, address: str, port: int, token: str) -> None:
        self._sock = socket.create_connection((address, port), handshake.TIMEOUT_S)
        handshake.prove(self._sock, token)
        self._sock.settimeout(TIMEOUT_S)

    def measure(self, bulk_out: int, bulk_back: int) -> dict[str, float | None]:
        """Median RTT in seconds, goodput each way in bit/s (None where `bulk_*` is 0). Raises OSError, EOFError."""
        # One thread asks while this one listens: an echo is timed when it comes, and the bulk follows on the heels
        # of the last ping, which it cannot delay. So one round trip serves both.
        sent: list[float] = []
        asking = threading.Thread(target=self._ask, args=(sent, bulk_out))
        asking.start()
        round_trips = []
        for number in range(PINGS + 1):
            handshake.exactly(self._sock, _ASK.size)
            round_trips.append(time.perf_counter() - sent[number])
        asking.join()
        told = _TOLD.unpack(handshake.exactly(self._sock, _TOLD.size)) if bulk_out else None
        back = None
        if bulk_back:
            self._sock.sendall(_ASK.pack(b"b", bulk_back))
            back = _sink(self._sock, bulk_back)
        return {
            "rtt_s": statistics.median(round_trips[1:]),  # the first wakes both ends up
            "rate_bps": _goodput(told),
            "rate_back_bps": _goodput(back),
        }

    def close(self) -> None:
        self._sock.close()

    def _ask(self, sent: list[float], bulk_bytes: int) -> None:
        with contextlib.suppress(OSError):  # the listening thread will find the connection gone
            for number in range(PINGS + 1):
                sent.append(time.perf_counter())
                self._sock.sendall(_ASK.pack(b"p", number))
                time.sleep(PING_GAP_S)
            if bulk_bytes:
                self._sock.sendall(_ASK.pack(b"o", bulk_bytes) + bytes(bulk_bytes))


def _goodput(told: tuple[float, int] | None) -> float | None:
    """Bit/s; infinite for what came in one piece, as a super-packet does that a shaper let through whole."""
    if told is None:
        return None
    seconds, nbytes = told
    return 8 * nbytes / seconds if seconds > 0 else math.inf


def _sink(sock: socket.socket, nbytes: int) -> tuple[float, int]:
    """Receive `nbytes`; the seconds between the first and the last arrival, and the bytes of all but the first."""
    scratch = memoryview(bytearray(CHUNK))
    first = last = 0.0
    after_first = 0
    left = nbytes
    while left:
        count = sock.recv_into(scratch[: min(left, CHUNK)])
        last = time.perf_counter()
        if not count:
            raise EOFError("the peer closed the probe's connection")
        if left == nbytes:
            first = last
        else:
            after_first += count
        left -= count
    return last - first, after_first
