"""Measuring the link as it is: round trip time by small messages, rate by a bulk transfer, one connection.

All durations are of one clock: round trips on the edge's, less what the server says that it kept an echo waiting; the
rate where the bytes arrive. Where TCP cannot tell, `datagrams` measures, asked over this connection. ``python -m
pareto.remote.worker.probe`` is the probe by itself, for the doctor, and needs no torch.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import sys
import threading
import time
from dataclasses import replace

from pareto.protocol.jsonlines import Refused, serve
from pareto.protocol.messages import handlers
from pareto.remote.backends import handshake
from pareto.remote.link.probe import ConnectProbe, OpenProbe, Question, Reach, Reading
from pareto.remote.worker import datagrams
from pareto.remote.worker.datagrams import Arrival

TIMEOUT_S = datagrams.TIMEOUT_S
REACH_S = 10.0
CHUNK, POUR = 1 << 16, 1 << 20
"""Bytes that are received at once, and sent."""
_ASK = struct.Struct("!cQQ")
"""what (p: echo, o: bulk edge to server, v: the same over a line whose rate varies, b: bulk server to edge, m: message,
d: datagrams), bytes that follow or are wanted, bytes of them that the rate leaves out; in a message, the bytes of its
answer; in an echo, the nanoseconds that it was kept waiting"""
_RATE = struct.Struct("!d")
"""the rate at which a bulk came in, bit/s"""
TCP_PING_BYTES = 66 + _ASK.size
"""On the wire: Ethernet, IPv4, TCP with timestamps, payload."""


class ProbeServer(handshake.Door):
    """The answering end: a thread for each connection that knows the token, which sleeps between probes."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__(address, token, self._converse, "probe")

    def _converse(self, sock: socket.socket, _: handshake.Place) -> None:
        with sock:
            try:
                _answer(sock)
            except (OSError, EOFError, ValueError) as error:
                print(f"probe: {error}", file=sys.stderr)


def _answer(sock: socket.socket) -> None:
    datagrams.stamp(sock)
    while True:
        sock.settimeout(None)  # the next question may be an hour away; the rest of one may not
        if not sock.recv(1, socket.MSG_PEEK):
            return  # no more questions
        sock.settimeout(TIMEOUT_S)
        (what, nbytes, skip), came_ns = _receive(sock)
        if what == b"p":
            sock.sendall(_ASK.pack(b"p", nbytes, max(0, time.monotonic_ns() - came_ns)))
        elif what in (b"o", b"v"):
            sock.sendall(_RATE.pack(datagrams.rate_bps(_sink(sock, nbytes), skip, constant=what == b"o")))
        elif what == b"b":
            _pour(sock, nbytes)
        elif what == b"m":
            _sink(sock, nbytes)
            _pour(sock, skip)
        elif what == b"d":
            datagrams.answer(sock)
        else:
            raise OSError(f"unknown question {what!r}")


class ProbeClient:
    """The asking end, on the edge."""

    def __init__(self, address: str, port: int, token: str) -> None:
        self._sock = handshake.connected(address, port, token)
        datagrams.stamp(self._sock)
        self._sock.settimeout(TIMEOUT_S)

    def measure(self, question: Question) -> Reading:
        """Take one reading. Raises OSError, EOFError, ValueError."""
        reading = Reading(None, None, None) if question.datagrams else self._by_tcp(question)
        if question.datagrams or question.sample_out or question.sample_back:
            self._sock.sendall(_ASK.pack(b"d", 0, 0))
            by_udp = datagrams.ask(self._sock, question)
            sampled = replace(reading, sample=by_udp.sample, sample_back=by_udp.sample_back)
            reading = by_udp if question.datagrams else sampled
        if question.message:
            reading = replace(reading, message_s=self._time_message(question.message, question.answer))
        return reading

    def close(self) -> None:
        self._sock.close()

    def _by_tcp(self, question: Question) -> Reading:
        # One thread asks while this one listens: an echo is timed when it comes, and the bulk follows on the heels
        # of the last ping, which it cannot delay. So one round trip serves both.
        sent_ns: list[int] = []
        asking = threading.Thread(target=self._ask, args=(sent_ns, question))
        asking.start()
        round_trips = []
        for number in range(question.pings + 1):
            (_, _, held_ns), came_ns = _receive(self._sock)
            round_trips.append((came_ns - sent_ns[number] - held_ns) / 1e9)
        asking.join()
        rate, rate_back = self._receive_rate() if question.bulk_out else None, None
        if question.bulk_back:
            self._sock.sendall(_ASK.pack(b"b", question.bulk_back, 0))
            came = _sink(self._sock, question.bulk_back)
            rate_back = datagrams.rate_bps(came, question.skip_back, constant=question.constant)
        rtts_s = tuple(round_trips[1:])  # the first ping wakes both ends up
        median_s = statistics.median(rtts_s) if rtts_s else None
        return Reading(median_s, rate, rate_back, rtts_s=rtts_s, ping_bytes=TCP_PING_BYTES)

    def _receive_rate(self) -> float:
        (rate,) = _RATE.unpack(handshake.exactly(self._sock, _RATE.size))
        if not rate > 0:  # a NaN is none either
            raise ValueError(f"the probe's other end says that a bulk came in at {rate:g} bit/s")
        return float(rate)

    def _ask(self, sent_ns: list[int], question: Question) -> None:
        with contextlib.suppress(OSError):  # the listening thread will find the connection gone
            for number in range(question.pings + 1):
                sent_ns.append(time.monotonic_ns())
                self._sock.sendall(_ASK.pack(b"p", number, 0))
                time.sleep(question.ping_gap_s)
            if question.bulk_out:
                kind = b"o" if question.constant else b"v"
                ask = _ASK.pack(kind, question.bulk_out, question.skip_out)
                self._sock.sendall(ask + bytes(question.bulk_out))

    def _time_message(self, nbytes: int, answer: int) -> float:
        """Seconds from the first byte sent until the last of the answer, which is sent when all of them came."""
        message = _ASK.pack(b"m", nbytes, answer) + bytes(nbytes)
        started = time.perf_counter()
        self._sock.sendall(message)
        _sink(self._sock, answer)
        return time.perf_counter() - started


def _receive(sock: socket.socket) -> tuple[tuple[bytes, int, int], int]:
    """The next question or echo, and when it came, in nanoseconds. Raises OSError, EOFError."""
    message = memoryview(bytearray(_ASK.size))
    have, came_ns = 0, 0
    while have < _ASK.size:
        size, came_ns = datagrams.receive(sock, message[have:])
        if not size:
            raise EOFError("the peer closed the probe's connection")
        have += size
    what, nbytes, more = _ASK.unpack(message)
    return (what, nbytes, more), came_ns


def _pour(sock: socket.socket, nbytes: int) -> None:
    """Send so many bytes, however many, from one small buffer."""
    scratch = memoryview(bytes(min(nbytes, POUR)))
    while nbytes:
        part = scratch[:nbytes]
        sock.sendall(part)
        nbytes -= len(part)


def _sink(sock: socket.socket, nbytes: int) -> list[Arrival]:
    """Receive `nbytes`; returns when they came. Raises OSError, EOFError."""
    scratch = memoryview(bytearray(CHUNK))
    came: list[Arrival] = []
    have = 0
    while have < nbytes:
        size, came_ns = datagrams.receive(sock, scratch[: min(nbytes - have, CHUNK)])
        if not size:
            raise EOFError("the peer closed the probe's connection")
        have += size
        came.append((came_ns / 1e9, have))
    return came


class Prober:
    """Answers the requests to a probe."""

    def __init__(self) -> None:
        self._client: ProbeClient | None = None

    def listen(self, request: OpenProbe) -> int:
        return ProbeServer(request.address, request.token).port

    def connect(self, request: ConnectProbe) -> None:
        if self._client is not None:
            self._client.close()
        self._client = ProbeClient(request.address, request.port, request.token)

    def probe(self, question: Question) -> Reading:
        if self._client is None:
            raise Refused("not connected")
        return self._client.measure(question)

    def reach(self, request: Reach) -> float:
        began = time.perf_counter()
        with socket.create_connection((request.address, request.port), REACH_S):
            return time.perf_counter() - began


def main() -> None:
    end = Prober()
    serve(handlers({OpenProbe: end.listen, ConnectProbe: end.connect, Question: end.probe, Reach: end.reach}))


if __name__ == "__main__":
    main()
