"""Measuring a link by UDP: round trips, the rate, and what share of a sample is lost, repeated or reordered.

For links on which TCP cannot tell: it neither echoes in time, since what is lost holds up what follows, nor runs
at the link's rate. The TCP connection of the probe, which has proved to know the run's token, carries what is
wanted, when all is sent, and what came; without the cookie it gives out, a datagram is neither counted nor answered.

All times are taken on one clock, as in `probe`: an echo carries how long it was kept waiting, by the clock of its host.
"""

from __future__ import annotations

import bisect
import json
import math
import secrets
import select
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypedDict

from pareto.backends import handshake
from pareto.worker import arrivals

TIMEOUT_S = 60.0
PING_GAP_S = 0.004
TRAIN_BYTES = 1472
"""Payload of a train's datagram: the most that one frame of an MTU of 1500 carries over IPv4."""
SAMPLE_BYTES = 100
PING, SAMPLE, TRAIN = range(3)
_HEADER = struct.Struct("!16sBI")
"""cookie, kind, number"""
_HELD = struct.Struct("!Q")
"""of an echo: nanoseconds that it was kept waiting"""
_PING_BYTES = _HEADER.size + _HELD.size
PING_WIRE_BYTES = 42 + _PING_BYTES
"""Ethernet, IPv4, UDP, payload."""
_LENGTH = struct.Struct("!I")
_MOST_BYTES = 1 << 16
"""Of a JSON value."""
_MOST_DATAGRAMS = 10_000_000
_MOST_WAIT_S = 3600.0
_RECEIVE_BUFFER_BYTES = 4 << 20  # a whole train, where the kernel allows as much
_BATCH = 256  # datagrams read before looking whether time is up


class Sample(TypedDict):
    """What became of a paced sample, in datagrams."""

    sent: int
    received: int
    """distinct"""
    duplicates: int
    """copies after the first"""
    reordered: int
    """the fewest that would have to be taken out for the rest to be in order, copies after the first left out"""


@dataclass(frozen=True)
class Order:
    """What one exchange is to measure, in datagrams: 0 is nothing.

    Pings go one each `ping_gap_s`, the sample one each `sample_gap_s`, a train one each `train_gap_*_s` (0: back to
    back). A train's first `skip_*` datagrams do not count in its rate, which is that of a `constant` line. What has not
    come `wait_s` after the other end has sent all is lost.
    """

    pings: int = 0
    sample_out: int = 0
    sample_back: int = 0
    train_out: int = 0
    train_back: int = 0
    skip_out: int = 0
    skip_back: int = 0
    ping_gap_s: float = PING_GAP_S
    sample_gap_s: float = 0.002
    train_gap_out_s: float = 0.0
    train_gap_back_s: float = 0.0
    wait_s: float = 1.0
    constant: bool = True

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            most = _MOST_WAIT_S if name.endswith("_s") else _MOST_DATAGRAMS
            whole = isinstance(value, int) or name.endswith("_s")
            if not (isinstance(value, int | float) and whole and 0 <= value <= most):
                raise ValueError(f"{name} of an exchange of datagrams cannot be {value!r:.40}")


class Line(NamedTuple):
    """Round trips in seconds of the pings that were answered, payload edge to server and back in bit/s.

    None: not asked, or not enough came.
    """

    rtts_s: list[float]
    rate_bps: float | None
    rate_back_bps: float | None


class Readings(NamedTuple):
    """What an exchange measured. None: not asked."""

    line: Line = Line([], None, None)
    sample: Sample | None = None
    sample_back: Sample | None = None


@dataclass
class Arrivals:
    """Datagrams of one kind as they come, numbered from 0."""

    expected: int
    skip: int = 0
    """how many of the first the rate leaves out"""
    constant: bool = True
    """whether the line's rate is"""
    at: dict[int, int] = field(default_factory=dict)
    """when each number came first, in nanoseconds, in the order of coming"""
    times: list[int] = field(default_factory=list)
    """of all, copies included"""
    held: dict[int, int] = field(default_factory=dict)
    """how many nanoseconds each echo was kept waiting"""
    duplicates: int = 0

    def add(self, number: int, now_ns: int, held_ns: int = 0) -> None:
        if number >= self.expected:
            return  # damaged on a link that damages packets, where hosts leave checksums to the interface
        self.times.append(now_ns)
        if number in self.at:
            self.duplicates += 1
            return
        self.at[number], self.held[number] = now_ns, held_ns

    @property
    def complete(self) -> bool:
        """Whether nothing more is to come. Where one came twice, another's copy may be under way."""
        return len(self.at) >= self.expected and not self.duplicates

    def sample(self) -> Sample | None:
        if not self.expected:
            return None
        return {
            "sent": self.expected,
            "received": len(self.at),
            "duplicates": self.duplicates,
            "reordered": len(self.at) - _longest_rising(self.at),
        }

    def rate_bps(self) -> float | None:
        """Payload of a train, beyond the datagrams that do not count.

        Duplicates count: they took their time on the line. What was lost does not: it is lost before the line.
        None if fewer than two came; infinite for what came all at once.
        """
        came = [(at_ns / 1e9, TRAIN_BYTES * count) for count, at_ns in enumerate(self.times, 1)]
        skip = TRAIN_BYTES * self.skip
        if len(self.times) - self.skip < 2:
            return None
        return (arrivals.line_rate_bps if self.constant else arrivals.mean_rate_bps)(came, skip)


class End:
    """One end of an exchange. Reads whenever it waits; raises OSError if that lasts longer than TIMEOUT_S."""

    def __init__(
        self, udp: socket.socket, peer: tuple[str, int], cookie: bytes, expected: dict[int, Arrivals]
    ) -> None:
        self.expected = expected
        self._udp = udp
        self._peer = peer
        self._cookie = cookie
        self._buffer = memoryview(bytearray(2048))
        self._end_s = time.perf_counter() + TIMEOUT_S

    def send(self, kind: int, count: int, size: int, gap_s: float = 0.0) -> list[int]:
        """Send `count` datagrams of `size` bytes, one each `gap_s` or back to back; when each was sent, nanoseconds."""
        datagram = bytearray(size)
        sent: list[int] = []
        started = time.perf_counter()
        for number in range(count):
            if gap_s:  # to a deadline: an oversleep does not add up
                self._listen(started + number * gap_s)
            _HEADER.pack_into(datagram, 0, self._cookie, kind, number)
            sent.append(time.time_ns())
            self._put(datagram)
        return sent

    def gather(self, wait_s: float, *kinds: int) -> None:
        """Read until all of these kinds are complete, at most for `wait_s`."""
        until = time.perf_counter() + wait_s
        while not all(self.expected[kind].complete for kind in kinds) and time.perf_counter() < until:
            self._read(until)

    def until_told(self, tcp: socket.socket) -> Any:
        """Read until the other end says something over TCP; what it says."""
        while not self._read(self._end_s, tcp):
            if time.perf_counter() >= self._end_s:
                raise TimeoutError("the probe's other end fell silent")
        return told(tcp)

    def _listen(self, until: float) -> None:
        self._read(until)
        while time.perf_counter() < until:
            self._read(until)

    def _read(self, until: float, tcp: socket.socket | None = None) -> bool:
        """Sleep till something comes or it is `until`, take a batch; whether `tcp` has something to read."""
        watched = [self._udp] if tcp is None else [self._udp, tcp]
        ready = select.select(watched, [], [], max(0.0, until - time.perf_counter()))[0]
        if self._udp in ready:
            self._take()
        return tcp in ready

    def _take(self) -> None:
        for _ in range(_BATCH):
            try:
                size, now_ns = arrivals.receive(self._udp, self._buffer)
            except BlockingIOError:
                return
            if size < _HEADER.size:
                continue
            cookie, kind, number = _HEADER.unpack_from(self._buffer)
            if cookie != self._cookie:
                continue
            if kind in self.expected:
                held_ns = _HELD.unpack_from(self._buffer, _HEADER.size)[0] if size == _PING_BYTES else 0
                self.expected[kind].add(number, now_ns, held_ns)
            elif kind == PING and size == _PING_BYTES:  # who does not wait for echoes gives them
                _HELD.pack_into(self._buffer, _HEADER.size, max(0, time.time_ns() - now_ns))
                self._put(self._buffer[:size])

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


def ask(tcp: socket.socket, order: Order) -> Readings:
    """The edge's end of an exchange. `tcp` has a timeout. Raises OSError, EOFError, ValueError."""
    with _datagram_socket(tcp) as udp:
        tell(tcp, {"port": udp.getsockname()[1], "order": asdict(order)})
        port, cookie = _readiness(told(tcp))
        pings = order.pings + 1 if order.pings else 0  # the first wakes both ends up
        echoes, sample, train = (
            Arrivals(pings),
            Arrivals(order.sample_back),
            Arrivals(order.train_back, order.skip_back, order.constant),
        )
        peer = (tcp.getpeername()[0], port)
        end = End(udp, peer, cookie, {PING: echoes, SAMPLE: sample, TRAIN: train})
        # In this order: an echo is timed while nothing else is being sent, the sample has no train before it.
        sent = end.send(PING, pings, _PING_BYTES, order.ping_gap_s)
        end.gather(order.wait_s, PING)
        end.send(SAMPLE, order.sample_out, SAMPLE_BYTES, order.sample_gap_s)
        end.send(TRAIN, order.train_out, TRAIN_BYTES, order.train_gap_out_s)
        tell(tcp, "sent")
        rate_bps, counted = _report(end.until_told(tcp))  # comes when the other end has sent all
        end.gather(order.wait_s, SAMPLE, TRAIN)
    rtts_s = [
        (echoes.at[number] - sent[number] - echoes.held[number]) / 1e9
        for number in range(1, pings)
        if number in echoes.at
    ]
    line = Line(rtts_s, rate_bps, train.rate_bps())
    return Readings(line, counted, sample.sample())


def answer(tcp: socket.socket) -> None:
    """The server's end of one exchange. `tcp` has a timeout. Raises OSError, EOFError, ValueError."""
    port, order = _request(told(tcp))
    cookie = secrets.token_bytes(16)
    with _datagram_socket(tcp) as udp:
        sample = Arrivals(order.sample_out)
        train = Arrivals(order.train_out, order.skip_out, order.constant)
        end = End(udp, (tcp.getpeername()[0], port), cookie, {SAMPLE: sample, TRAIN: train})
        tell(tcp, {"port": udp.getsockname()[1], "cookie": cookie.hex()})
        end.until_told(tcp)
        end.gather(order.wait_s, SAMPLE, TRAIN)
        end.send(SAMPLE, order.sample_back, SAMPLE_BYTES, order.sample_gap_s)
        end.send(TRAIN, order.train_back, TRAIN_BYTES, order.train_gap_back_s)
        tell(tcp, {"rate_bps": train.rate_bps(), "sample": sample.sample()})


def _longest_rising(numbers: Iterable[int]) -> int:
    """Length of the longest rising subsequence, by patience sorting (D. E. Knuth, TAOCP 3, 5.1.4)."""
    tops: list[int] = []
    for number in numbers:
        place = bisect.bisect_left(tops, number)
        tops[place : place + 1] = [number]
    return len(tops)


def train_datagrams(nbytes: int) -> int:
    """How many full datagrams carry `nbytes`: a rate needs two."""
    return max(2, math.ceil(nbytes / TRAIN_BYTES)) if nbytes else 0


def tell(tcp: socket.socket, message: Any) -> None:
    """Send a JSON value."""
    body = json.dumps(message).encode()
    tcp.sendall(_LENGTH.pack(len(body)) + body)


def told(tcp: socket.socket) -> Any:
    """The next JSON value. Raises OSError, EOFError, ValueError."""
    (length,) = _LENGTH.unpack(handshake.exactly(tcp, _LENGTH.size))
    if length > _MOST_BYTES:
        raise ValueError(f"the probe's other end sends {length} bytes where {_MOST_BYTES} are the most")
    try:
        return json.loads(handshake.exactly(tcp, length))
    except RecursionError:
        raise ValueError("the probe's other end sends values nested too deep") from None


def _request(value: Any) -> tuple[int, Order]:
    """The port and the order of who begins an exchange. Raises ValueError."""
    match value:
        case {"port": int(port), "order": dict(order)} if 0 < port < 1 << 16:
            try:
                return port, Order(**order)
            except TypeError:
                pass
    raise _nonsense(value)


def _readiness(value: Any) -> tuple[int, bytes]:
    """The other end's port and cookie. Raises ValueError."""
    match value:
        case {"port": int(port), "cookie": str(cookie)} if 0 < port < 1 << 16 and len(cookie) == 32:
            return port, bytes.fromhex(cookie)
    raise _nonsense(value)


def _report(value: Any) -> tuple[float | None, Sample | None]:
    """What the other end counted. Raises ValueError."""
    match value:
        case {"rate_bps": rate, "sample": sample}:
            is_rate = rate is None or (isinstance(rate, float) and rate > 0)
            counts = sample.values() if isinstance(sample, dict) and set(sample) == _COUNTS else [-1]
            if is_rate and (sample is None or all(isinstance(it, int) and it >= 0 for it in counts)):
                return rate, sample
    raise _nonsense(value)


_COUNTS = set(Sample.__annotations__)


def _nonsense(value: Any) -> ValueError:
    return ValueError(f"the probe's other end sends nonsense: {value!r:.100}")


def _datagram_socket(tcp: socket.socket) -> socket.socket:
    """On the address that `tcp` has here, any port. One an exchange: it begins with nobody's stragglers."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        udp.bind((tcp.getsockname()[0], 0))
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        arrivals.stamp(udp)
        udp.setblocking(False)
    except OSError:
        udp.close()
        raise
    return udp
