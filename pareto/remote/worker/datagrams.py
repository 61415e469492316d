"""Measuring a link by UDP: round trips, the rate, and what share of a sample is lost, repeated or reordered.

For links on which TCP cannot tell: what is lost holds up what follows, and it does not run at the link's rate. The
probe's TCP connection, which knows the run's token, carries the question, when all is sent, and what came; without the
cookie that it gives out, a datagram is neither counted nor answered.

All times are taken on one clock, as in `probe`. A time is the kernel's own stamp, taken when a packet comes, however
long the process then waits for a core. The stamp is of CLOCK_REALTIME; its age when it is read is taken from
CLOCK_MONOTONIC, so that nobody who sets the clock moves it.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import math
import secrets
import select
import socket
import statistics
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from pareto.protocol.jsonlines import plain
from pareto.protocol.messages import LineRate, Port
from pareto.protocol.validation import Bounds, read
from pareto.remote.backends import handshake
from pareto.remote.link.probe import Question, Reading, Sample

TIMEOUT_S = 60.0
TRAIN_BYTES = 1472
"""Payload of a train's datagram: the most that one frame of an MTU of 1500 carries over IPv4."""
PAYLOAD_SHARE = TRAIN_BYTES / 1514
SAMPLE_BYTES = 100
PING, SAMPLE, TRAIN = range(3)
_HEADER = struct.Struct("!16sBI")
"""cookie, kind, number"""
_HELD = struct.Struct("!Q")
"""nanoseconds that an echo was kept waiting"""
_PING_BYTES = _HEADER.size + _HELD.size
PING_WIRE_BYTES = 42 + _PING_BYTES
"""Ethernet, IPv4, UDP, payload."""
_LENGTH = struct.Struct("!I")
_MOST_BYTES = 1 << 16
"""The most bytes of a JSON value."""
_RECEIVE_BUFFER_BYTES = 4 << 20  # a whole train, where the kernel allows as much
_BATCH = 256  # datagrams read before looking whether time is up
_LAST_BATCHES = 64  # more than the receive buffer holds
_SO_TIMESTAMPNS = 35  # linux/asm-generic/socket.h; the ancillary message has the same number
_STAMPS = {struct.calcsize(layout): struct.Struct(layout) for layout in ("=qq", "=ii")}
_ANCILLARY_BYTES = 64
_MOST_AGE_NS = 1_000_000_000
"""Nothing waits longer to be read, unless somebody set the clock meanwhile."""
_MOST_POINTS = 64
"""The most points of which all pairs are looked at: 2016 take 2 ms."""

_Kind = TypeVar("_Kind")
Arrival = tuple[float, int]
"""When something came, in seconds, and how many bytes have come by then."""


def stamp(sock: socket.socket) -> None:
    """Have the kernel stamp what comes in (TCP since Linux 4.13; without stamps the moment of reading counts)."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def receive(sock: socket.socket, buffer: memoryview | bytearray) -> tuple[int, int]:
    """Receive into a buffer: bytes, and when the last came, in nanoseconds of CLOCK_MONOTONIC. Raises OSError."""
    size, ancillary, _, _ = sock.recvmsg_into([buffer], _ANCILLARY_BYTES)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) in _STAMPS:
            seconds, nanoseconds = _STAMPS[len(data)].unpack(data)
            age_ns = time.time_ns() - (seconds * 1_000_000_000 + nanoseconds)
            return size, time.monotonic_ns() - (age_ns if 0 < age_ns < _MOST_AGE_NS else 0)
    return size, time.monotonic_ns()


def rate_bps(arrivals: Sequence[Arrival], skip: int = 0, *, constant: bool = True) -> float:
    """The line's rate in bit/s, by what arrived beyond the first `skip` bytes; infinite: all in one piece. For a line
    of `constant` rate it is the median slope over all pairs of arrivals, Theil and Sen's regression (P. K. Sen, JASA
    63, 1968), which a hiccup of up to 29 % of them does not move; else the mean from first to last."""
    counted = [(at_s, nbytes) for at_s, nbytes in arrivals if nbytes > skip]
    if not counted:
        return math.inf
    if not constant:
        seconds = counted[-1][0] - counted[0][0]
        return 8 * (counted[-1][1] - counted[0][1]) / seconds if seconds > 0 else math.inf
    points = counted[:: math.ceil(len(counted) / _MOST_POINTS)]
    slopes = sorted(
        (then - now) / (more - less)
        for number, (now, less) in enumerate(points)
        for then, more in points[number + 1 :]
        if more > less
    )
    typical = slopes[len(slopes) // 2] if slopes else 0.0
    return 8 / typical if typical > 0 else math.inf


@dataclass
class Arrivals:
    """Datagrams of one kind as they come, numbered from 0. skip: how many of the first the rate leaves out. constant:
    whether the line's rate is. at: when each number came first, in the order of coming; times: when all did, copies
    included; held: how long each echo was kept waiting; all in nanoseconds."""

    expected: int
    skip: int = 0
    constant: bool = True
    at: dict[int, int] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)
    held: dict[int, int] = field(default_factory=dict)
    duplicates: int = 0

    def add(self, number: int, now_ns: int, held_ns: int = 0) -> None:
        if number >= self.expected:
            return  # damaged on a link that damages packets, where hosts leave checksums to the interface
        self.times.append(now_ns)
        if number in self.at:
            self.duplicates += 1
        else:
            self.at[number], self.held[number] = now_ns, held_ns

    @property
    def complete(self) -> bool:
        """Whether nothing more is to come. Where one came twice, another's copy may be under way."""
        return len(self.at) >= self.expected and not self.duplicates

    def sample(self) -> Sample | None:
        if not self.expected:
            return None
        reordered = len(self.at) - _longest_rising(self.at)
        return Sample(self.expected, len(self.at), self.duplicates, reordered)

    def rate_bps(self) -> float | None:
        """The rate of a train's payload in bit/s, beyond the datagrams that do not count; None: fewer than two came.
        Duplicates count, which took their time on the line."""
        if len(self.times) - self.skip < 2:
            return None
        came = [(at_ns / 1e9, TRAIN_BYTES * count) for count, at_ns in enumerate(self.times, 1)]
        return rate_bps(came, TRAIN_BYTES * self.skip, constant=self.constant)


class End:
    """One end of an exchange. Reads whenever it waits; raises OSError if that lasts longer than TIMEOUT_S."""

    def __init__(
        self, udp: socket.socket, peer: tuple[str, int], cookie: bytes, expected: dict[int, Arrivals]
    ) -> None:
        self.expected = expected
        self._udp, self._peer, self._cookie = udp, peer, cookie
        self._buffer = memoryview(bytearray(2048))
        self._end_s = time.perf_counter() + TIMEOUT_S

    def send(self, kind: int, count: int, size: int, gap_s: float = 0.0) -> list[int]:
        """Send `count` datagrams of `size` bytes, one each `gap_s` or back to back; when each was sent, nanoseconds."""
        datagram = bytearray(size)
        sent: list[int] = []
        started = time.perf_counter()
        for number in range(count):
            if gap_s:  # to a deadline: an oversleep does not add up
                self._read(until := started + number * gap_s)
                while time.perf_counter() < until:
                    self._read(until)
            _HEADER.pack_into(datagram, 0, self._cookie, kind, number)
            sent.append(time.monotonic_ns())
            self._put(datagram)
        return sent

    def gather(self, wait_s: float, *kinds: int) -> None:
        """Read until all of these kinds are complete, at most for `wait_s`; what has come by then counts."""
        until = time.perf_counter() + wait_s
        while not all(self.expected[kind].complete for kind in kinds) and time.perf_counter() < until:
            self._read(until)
        for _ in range(_LAST_BATCHES):  # this host may have had no core for it: nothing of that is lost
            if not self._take():
                return

    def wait_for(self, tcp: socket.socket) -> None:
        """Read until the other end says something over TCP."""
        while not self._read(self._end_s, tcp):
            if time.perf_counter() >= self._end_s:
                raise TimeoutError("the probe's other end fell silent")

    def _read(self, until: float, tcp: socket.socket | None = None) -> bool:
        """Sleep till something comes or it is `until`, take a batch; whether `tcp` has something to read."""
        watched = [self._udp] if tcp is None else [self._udp, tcp]
        ready = select.select(watched, [], [], max(0.0, until - time.perf_counter()))[0]
        if self._udp in ready:
            self._take()
        return tcp in ready

    def _take(self) -> bool:
        """Take a batch of what has come; whether there may be more."""
        for _ in range(_BATCH):
            try:
                size, now_ns = receive(self._udp, self._buffer)
            except BlockingIOError:
                return False
            if size < _HEADER.size:
                continue
            cookie, kind, number = _HEADER.unpack_from(self._buffer)
            if cookie != self._cookie:
                continue
            if kind in self.expected:
                held_ns = _HELD.unpack_from(self._buffer, _HEADER.size)[0] if size == _PING_BYTES else 0
                self.expected[kind].add(number, now_ns, held_ns)
            elif kind == PING and size == _PING_BYTES:  # who does not wait for echoes gives them
                _HELD.pack_into(self._buffer, _HEADER.size, max(0, time.monotonic_ns() - now_ns))
                self._put(self._buffer[:size])
        return True

    def _put(self, datagram: bytearray | memoryview) -> None:
        while True:
            try:
                self._udp.sendto(datagram, self._peer)
                return
            except BlockingIOError:  # this host's queue is full: the line sets the pace
                left = self._end_s - time.perf_counter()
                if left <= 0 or not select.select([], [self._udp], [], left)[1]:
                    raise TimeoutError("the link does not take the probe's datagrams") from None
            except PermissionError:
                return  # this host's firewall dropped it: lost, as if it were the next one's


# The exchange


@dataclass(frozen=True)
class _Begin:
    """The edge's port, and what is measured."""

    port: Port
    question: Question


@dataclass(frozen=True)
class _Ready:
    """The server's port, and the cookie of all datagrams."""

    port: Port
    cookie: Annotated[str, Bounds(32, 32)]


@dataclass(frozen=True)
class _Counted:
    """The server's measurements of what the edge sent."""

    rate_bps: LineRate | None
    sample: Sample | None


def ask(tcp: socket.socket, question: Question) -> Reading:
    """The reading of an exchange, at the edge's end. `tcp` has a timeout. Raises OSError, EOFError, ValueError."""
    with _datagram_socket(tcp) as udp:
        send_json(tcp, _Begin(udp.getsockname()[1], question))
        ready = receive_json(tcp, _Ready)
        pings = question.pings + 1 if question.datagrams else 0  # the first wakes both ends up
        echoes, sample = Arrivals(pings), Arrivals(question.sample_back)
        train_out, train_back = _trains(question)
        train = Arrivals(train_back, question.skip_back // TRAIN_BYTES, question.constant)
        peer, cookie = (tcp.getpeername()[0], ready.port), bytes.fromhex(ready.cookie)
        end = End(udp, peer, cookie, {PING: echoes, SAMPLE: sample, TRAIN: train})
        # In this order: an echo is timed while nothing else is being sent, the sample has no train before it.
        sent = end.send(PING, pings, _PING_BYTES, question.ping_gap_s)
        end.gather(question.wait_s, PING)
        end.send(SAMPLE, question.sample_out, SAMPLE_BYTES, question.sample_gap_s)
        end.send(TRAIN, train_out, TRAIN_BYTES, question.train_gap_out_s)
        send_json(tcp, "sent")
        end.wait_for(tcp)  # until the other end has sent all
        counted = receive_json(tcp, _Counted)
        end.gather(question.wait_s, SAMPLE, TRAIN)
    came = [number for number in range(1, pings) if number in echoes.at]
    rtts_s = tuple((echoes.at[number] - sent[number] - echoes.held[number]) / 1e9 for number in came)
    rtt_s, rates = statistics.median(rtts_s) if rtts_s else None, (counted.rate_bps, train.rate_bps())
    samples = counted.sample, sample.sample()
    return Reading(rtt_s, *rates, *samples, PAYLOAD_SHARE, rtts_s, ping_bytes=PING_WIRE_BYTES)


def answer(tcp: socket.socket) -> None:
    """The server's end of one exchange. `tcp` has a timeout. Raises OSError, EOFError, ValueError."""
    begin = receive_json(tcp, _Begin)
    question, cookie = begin.question, secrets.token_bytes(16)
    with _datagram_socket(tcp) as udp:
        train_out, train_back = _trains(question)
        sample = Arrivals(question.sample_out)
        train = Arrivals(train_out, question.skip_out // TRAIN_BYTES, question.constant)
        end = End(udp, (tcp.getpeername()[0], begin.port), cookie, {SAMPLE: sample, TRAIN: train})
        send_json(tcp, _Ready(udp.getsockname()[1], cookie.hex()))
        end.wait_for(tcp)
        receive_json(tcp, str)
        end.gather(question.wait_s, SAMPLE, TRAIN)
        end.send(SAMPLE, question.sample_back, SAMPLE_BYTES, question.sample_gap_s)
        end.send(TRAIN, train_back, TRAIN_BYTES, question.train_gap_back_s)
        send_json(tcp, _Counted(train.rate_bps(), sample.sample()))


def _trains(question: Question) -> tuple[int, int]:
    """The datagrams of the bulks out and back, where they go by UDP: a rate needs two."""
    out, back = (
        max(2, math.ceil(bulk / TRAIN_BYTES)) if bulk and question.datagrams else 0
        for bulk in (question.bulk_out, question.bulk_back)
    )
    return out, back


def _longest_rising(numbers: Iterable[int]) -> int:
    """Length of the longest rising subsequence, by patience sorting (D. E. Knuth, TAOCP 3, 5.1.4)."""
    tops: list[int] = []
    for number in numbers:
        place = bisect.bisect_left(tops, number)
        tops[place : place + 1] = [number]
    return len(tops)


def send_json(tcp: socket.socket, message: object) -> None:
    body = json.dumps(message, default=plain).encode()
    tcp.sendall(_LENGTH.pack(len(body)) + body)


def receive_json(tcp: socket.socket, kind: type[_Kind]) -> _Kind:
    """The next JSON value, as a `kind`. Raises OSError, EOFError, ValueError."""
    (length,) = _LENGTH.unpack(handshake.exactly(tcp, _LENGTH.size))
    if length > _MOST_BYTES:
        raise ValueError(f"the probe's other end sends {length} bytes where {_MOST_BYTES} are the most")
    try:
        value: _Kind = read(kind, json.loads(handshake.exactly(tcp, length)))
    except RecursionError:
        raise ValueError("the probe's other end sends values nested too deep") from None
    except ValueError as error:
        raise ValueError(f"the probe's other end sends nonsense: {error}") from None
    return value


def _datagram_socket(tcp: socket.socket) -> socket.socket:
    """A UDP socket on the address that `tcp` has here. Each exchange gets its own: no stragglers of the last one."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        udp.bind((tcp.getsockname()[0], 0))
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        stamp(udp)
        udp.setblocking(False)
    except OSError:
        udp.close()
        raise
    return udp
