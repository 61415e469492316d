"""Measuring the link as it is: round trip time by small messages, rate by a bulk transfer, one connection.

The edge asks, the server echoes and sinks. All durations are taken on one clock: round trips on the edge's, less what
the server says that it kept an echo waiting, by its own clock; the rate in each direction where the bytes arrive. Where
TCP cannot tell, `datagrams` measures, asked over this connection.
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
from typing import TypedDict

from pareto.backends import handshake
from pareto.backends.door import Door
from pareto.link.probe import GOODPUT
from pareto.worker import arrivals
from pareto.worker import datagrams as udp
from pareto.worker.arrivals import Arrival

PINGS = 5
PING_GAP_S = udp.PING_GAP_S
TIMEOUT_S = udp.TIMEOUT_S
CHUNK, POUR = 1 << 16, 1 << 20
"""Bytes that are received at once, and sent."""
TCP_PAYLOAD_SHARE = GOODPUT
UDP_PAYLOAD_SHARE = udp.TRAIN_BYTES / 1514
_ASK = struct.Struct("!cQQ")
"""what (p: echo, o: bulk edge to server, v: the same over a line whose rate varies, b: bulk server to edge, m: message,
d: datagrams), bytes that follow or are wanted, bytes of them that the rate leaves out; in an echo, the nanoseconds that
it was kept waiting"""
_TOLD = struct.Struct("!d")
"""the rate at which a bulk came in, bit/s"""
TCP_PING_BYTES = 66 + _ASK.size
"""On the wire: Ethernet, IPv4, TCP with timestamps, payload."""
_GOT_ALL = b"!"


class Reading(TypedDict):
    """One reading of the link. None: not asked, or nothing came."""

    rtt_s: float | None
    """median"""
    rtts_s: list[float]
    """of every ping that was answered"""
    rate_bps: float | None
    """payload, edge to server"""
    rate_back_bps: float | None
    payload_share: float
    """payload in each byte on the wire, for these two rates"""
    ping_bytes: int
    """of a ping on the wire"""
    sample: udp.Sample | None
    sample_back: udp.Sample | None
    message_s: float | None


class ProbeServer:
    """The answering end: a thread for each connection that knows the token, which sleeps between probes."""

    def __init__(self, address: str, token: str) -> None:
        self._door = Door(address, token, self._converse, "probe")
        self.port = self._door.port

    def close(self) -> None:
        self._door.close()

    def _converse(self, sock: socket.socket, _: handshake.Place) -> None:
        with sock:
            try:
                _answer(sock)
            except (OSError, EOFError, ValueError) as error:
                print(f"probe: {error}", file=sys.stderr)


def _answer(sock: socket.socket) -> None:
    arrivals.stamp(sock)
    while True:
        sock.settimeout(None)  # the next question may be an hour away; the rest of one may not
        if not sock.recv(1, socket.MSG_PEEK):
            return  # no more questions
        sock.settimeout(TIMEOUT_S)
        (what, nbytes, skip), came_ns = _receive(sock)
        if what == b"p":
            sock.sendall(_ASK.pack(b"p", nbytes, max(0, time.time_ns() - came_ns)))
        elif what in (b"o", b"v"):
            sock.sendall(_TOLD.pack(_rate_bps(_sink(sock, nbytes), skip, constant=what == b"o")))
        elif what == b"b":
            _pour(sock, nbytes)
        elif what == b"m":
            _sink(sock, nbytes)
            sock.sendall(_GOT_ALL)
        elif what == b"d":
            udp.answer(sock)
        else:
            raise OSError(f"unknown question {what!r}")


class ProbeClient:
    """The asking end, on the edge."""

    def __init__(self, address: str, port: int, token: str) -> None:
        self._sock = handshake.connected(address, port, token)
        arrivals.stamp(self._sock)
        self._sock.settimeout(TIMEOUT_S)

    def measure(
        self,
        bulk_out: int,
        bulk_back: int,
        *,
        skip_out: int = 0,
        skip_back: int = 0,
        pings: int = PINGS,
        ping_gap_s: float = PING_GAP_S,
        datagrams: bool = False,
        sample_out: int = 0,
        sample_back: int = 0,
        sample_gap_s: float = 0.002,
        train_gap_out_s: float = 0.0,
        train_gap_back_s: float = 0.0,
        wait_s: float = 1.0,
        message: int = 0,
        constant: bool = True,
    ) -> Reading:
        """Take one reading; what is 0 is not measured. Raises OSError, EOFError, ValueError.

        `bulk_*` bytes of which the first `skip_*` do not count in the rate; `datagrams`: pings and bulk by UDP;
        `sample_*` datagrams, one each `sample_gap_s`, those of bulk one each `train_gap_*_s`; a datagram or an echo is
        lost if it has not come `wait_s` after the last was sent; `message` bytes by TCP, timed until the answer that
        all came. `constant`: the line's rate is; else what a bulk took as a whole is its rate.
        """
        if (bulk_out and skip_out >= bulk_out) or (bulk_back and skip_back >= bulk_back):
            raise ValueError("nothing of the bulk is left to count")
        order = udp.Order(
            pings=pings if datagrams else 0,
            sample_out=sample_out,
            sample_back=sample_back,
            train_out=udp.train_datagrams(bulk_out) if datagrams else 0,
            train_back=udp.train_datagrams(bulk_back) if datagrams else 0,
            skip_out=skip_out // udp.TRAIN_BYTES,
            skip_back=skip_back // udp.TRAIN_BYTES,
            ping_gap_s=ping_gap_s,
            sample_gap_s=sample_gap_s,
            train_gap_out_s=train_gap_out_s,
            train_gap_back_s=train_gap_back_s,
            wait_s=wait_s,
            constant=constant,
        )
        by_tcp = (
            None
            if datagrams
            else self._by_tcp(pings, ping_gap_s, (bulk_out, skip_out), (bulk_back, skip_back), constant)
        )
        came = self._by_udp(order) if datagrams or sample_out or sample_back else udp.Readings()
        line = by_tcp or came.line
        return {
            "rtt_s": statistics.median(line.rtts_s) if line.rtts_s else None,
            "rtts_s": line.rtts_s,
            "rate_bps": line.rate_bps,
            "rate_back_bps": line.rate_back_bps,
            "payload_share": UDP_PAYLOAD_SHARE if datagrams else TCP_PAYLOAD_SHARE,
            "ping_bytes": udp.PING_WIRE_BYTES if datagrams else TCP_PING_BYTES,
            "sample": came.sample,
            "sample_back": came.sample_back,
            "message_s": self._time_message(message) if message else None,
        }

    def close(self) -> None:
        self._sock.close()

    def _by_tcp(
        self, pings: int, gap_s: float, out: tuple[int, int], back: tuple[int, int], constant: bool
    ) -> udp.Line:
        """`out` and `back`: bytes of bulk, and how many of them the rate leaves out."""
        # One thread asks while this one listens: an echo is timed when it comes, and the bulk follows on the heels
        # of the last ping, which it cannot delay. So one round trip serves both.
        sent_ns: list[int] = []
        asking = threading.Thread(target=self._ask, args=(sent_ns, pings, gap_s, *out, constant))
        asking.start()
        round_trips = []
        for number in range(pings + 1):
            (_, _, held_ns), came_ns = _receive(self._sock)
            round_trips.append((came_ns - sent_ns[number] - held_ns) / 1e9)
        asking.join()
        rate = self._told_rate() if out[0] else None
        rate_back = None
        if back[0]:
            self._sock.sendall(_ASK.pack(b"b", back[0], 0))
            rate_back = _rate_bps(_sink(self._sock, back[0]), back[1], constant=constant)
        return udp.Line(round_trips[1:], rate, rate_back)  # the first ping wakes both ends up

    def _told_rate(self) -> float:
        (rate,) = _TOLD.unpack(handshake.exactly(self._sock, _TOLD.size))
        if not rate > 0:  # a NaN is none either
            raise ValueError(f"the probe's other end says that a bulk came in at {rate:g} bit/s")
        return float(rate)

    def _ask(
        self, sent_ns: list[int], pings: int, gap_s: float, bulk_bytes: int, skip: int, constant: bool
    ) -> None:
        with contextlib.suppress(OSError):  # the listening thread will find the connection gone
            for number in range(pings + 1):
                sent_ns.append(time.time_ns())
                self._sock.sendall(_ASK.pack(b"p", number, 0))
                time.sleep(gap_s)
            if bulk_bytes:
                self._sock.sendall(
                    _ASK.pack(b"o" if constant else b"v", bulk_bytes, skip) + bytes(bulk_bytes)
                )

    def _by_udp(self, order: udp.Order) -> udp.Readings:
        self._sock.sendall(_ASK.pack(b"d", 0, 0))
        return udp.ask(self._sock, order)

    def _time_message(self, nbytes: int) -> float:
        """Seconds from the first byte sent until the answer that all came."""
        message = _ASK.pack(b"m", nbytes, 0) + bytes(nbytes)
        started = time.perf_counter()
        self._sock.sendall(message)
        handshake.exactly(self._sock, len(_GOT_ALL))
        return time.perf_counter() - started


def _receive(sock: socket.socket) -> tuple[tuple[bytes, int, int], int]:
    """The next question or echo, and when it came, in nanoseconds. Raises OSError, EOFError."""
    message = memoryview(bytearray(_ASK.size))
    have, came_ns = 0, 0
    while have < _ASK.size:
        size, came_ns = arrivals.receive(sock, message[have:])
        if not size:
            raise EOFError("the peer closed the probe's connection")
        have += size
    what, nbytes, more = _ASK.unpack(message)
    return (what, nbytes, more), came_ns


def _pour(sock: socket.socket, nbytes: int) -> None:
    """Send so many bytes; whoever asks for them decides nothing about memory."""
    scratch = memoryview(bytes(min(nbytes, POUR)))
    while nbytes:
        part = scratch[:nbytes]
        sock.sendall(part)
        nbytes -= len(part)


def _sink(sock: socket.socket, nbytes: int) -> list[Arrival]:
    """Receive `nbytes`: when they came. Raises OSError, EOFError."""
    scratch = memoryview(bytearray(CHUNK))
    came: list[Arrival] = []
    have = 0
    while have < nbytes:
        size, came_ns = arrivals.receive(sock, scratch[: min(nbytes - have, CHUNK)])
        if not size:
            raise EOFError("the peer closed the probe's connection")
        have += size
        came.append((came_ns / 1e9, have))
    return came


def _rate_bps(came: list[Arrival], skip: int, *, constant: bool) -> float:
    """Of a bulk whose bytes all came: infinite for what came in one piece."""
    rate = arrivals.line_rate_bps(came, skip) if constant else arrivals.mean_rate_bps(came, skip)
    return math.inf if rate is None else rate
