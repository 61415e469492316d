"""The link probe by UDP: over loopback, with a line that misbehaves as told."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.protocol.jsonlines import plain
from pareto.remote.backends import handshake
from pareto.remote.link.probe import Question, Sample
from pareto.remote.worker import datagrams, probe
from pareto.remote.worker.datagrams import PING, SAMPLE, TRAIN, TRAIN_BYTES, Arrivals, End
from pareto.remote.worker.probe import ProbeClient, ProbeServer
from tests.unit.backends.builders import refusal

Send = Callable[[bytes], None]
Line = Callable[[int, int, bytes, Send], None]
"""kind, number, datagram, how to pass it on"""
Put = Callable[[Line], None]


LOCAL = "127.0.0.1"


def datagram_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """Puts a line between the ends: it gets every datagram of both."""
    # A socket of its own: what a line still carries arrives although the sender has closed.
    with datagram_socket() as carrier:

        def carry(datagram: bytes, to: tuple[str, int]) -> None:
            with contextlib.suppress(OSError):  # the test is over
                carrier.sendto(datagram, to)

        def put(behaviour: Line) -> None:
            def through(self: End, datagram: bytearray | memoryview) -> None:
                _, kind, number = datagrams._HEADER.unpack_from(datagram)
                behaviour(kind, number, bytes(datagram), lambda data: carry(data, self._peer))

            monkeypatch.setattr(End, "_put", through)

        yield put


Seen = list[tuple[int, int]]


@pytest.fixture
def seen(line: Put) -> Seen:
    """The kind and size of each datagram that crosses."""
    seen: Seen = []

    def watch(kind: int, number: int, datagram: bytes, send: Send) -> None:
        seen.append((kind, len(datagram)))
        send(datagram)

    line(watch)
    return seen


def test_what_is_lost_repeated_or_reordered_is_counted(
    client: ProbeClient, line: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten: 2 and the last are lost, 4 comes thrice, 6 late after 7 and 8, twice, and so out of order."""
    kept: list[bytes] = []

    def behave(kind: int, number: int, datagram: bytes, send: Send) -> None:
        if number == 6:
            kept.append(datagram)
        elif number not in (2, 9):
            for _ in range(3 if number == 4 else 1):
                send(datagram)
        if number == 8:
            for late in kept * 2:
                send(late)
            kept.clear()

    line(behave)
    reading = client.measure(Question(sample_out=10, sample_back=10, sample_gap_s=0.001, wait_s=0.1))
    assert reading.sample == reading.sample_back == Sample(10, 8, 3, 1)
    # A copy after all is counted. When each number is there and the server waits all the same.
    late: list[Callable[[], None]] = []
    read = End._read

    def reading(self: End, until: float, tcp: socket.socket | None = None) -> bool:
        if tcp is None and len(self.expected[SAMPLE].at) == 5 and late:
            late.pop()()
        return read(self, until, tcp)

    def behave(kind: int, number: int, datagram: bytes, send: Send) -> None:
        send(datagram)
        if number == 0:
            send(datagram)
            late.append(lambda: send(datagram))

    monkeypatch.setattr(End, "_read", reading)
    line(behave)
    sample = client.measure(Question(sample_out=5, sample_gap_s=0.001, wait_s=0.1)).sample
    assert sample == Sample(5, 5, 2, 0)


def test_what_has_come_counts_also_where_no_core_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the time to wait has passed when it comes to reading."""
    monkeypatch.setattr(datagrams, "_BATCH", 20)
    count, cookie = 100, bytes(16)
    with datagram_socket() as near, datagram_socket() as far:
        far.bind((LOCAL, 0))
        far.setblocking(False)
        for number in range(count):
            near.sendto(datagrams._HEADER.pack(cookie, SAMPLE, number), far.getsockname())
        sample = Arrivals(count + 1)
        End(far, near.getsockname(), cookie, {SAMPLE: sample}).gather(0.0, SAMPLE)
    assert [*sample.at] == [*range(count)]


@pytest.mark.parametrize(
    ("late_s", "wait_s", "received"), [(0.05, 10.0, 5), (10.0, 0.02, 4)], ids=["in time", "too late"]
)
def test_stragglers_count(
    client: ProbeClient, line: Put, late_s: float, wait_s: float, received: int
) -> None:
    timers: list[threading.Timer] = []

    def behave(kind: int, number: int, datagram: bytes, send: Send) -> None:
        if number == 3:
            timers.append(threading.Timer(late_s, send, (datagram,)))
            timers[-1].start()
        else:
            send(datagram)

    line(behave)
    reading = client.measure(Question(sample_out=5, sample_back=5, sample_gap_s=0.001, wait_s=wait_s))
    for timer in timers:
        timer.cancel()
    for sample in (reading.sample, reading.sample_back):
        assert sample is not None and sample.received == received


def test_a_lost_ping_costs_no_other(client: ProbeClient, line: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pings go at 0, 1, 2... s and their echoes come 20 ms later: each is matched with its own number."""
    sending_s, echoes, now_s = itertools.count(), 0, 0.0

    def behave(kind: int, number: int, datagram: bytes, send: Send) -> None:
        if number != 2:
            send(datagram)

    def stamped(sock: socket.socket, buffer: memoryview) -> tuple[int, int]:
        nonlocal echoes, now_s
        size = sock.recv_into(buffer)
        if threading.current_thread().name == "probe":
            return size, 0
        echoes += 1
        now_s = 31.0 if echoes == 5 else 0.0  # the others have all come: the wait is over
        return size, datagrams._HEADER.unpack_from(buffer)[2] * 10**9 + 20_000_000

    def clock() -> int:
        return 0 if threading.current_thread().name == "probe" else next(sending_s) * 10**9

    monkeypatch.setattr(datagrams, "time", SimpleNamespace(perf_counter=lambda: now_s, monotonic_ns=clock))
    monkeypatch.setattr(datagrams, "receive", stamped)
    line(behave)
    reading = client.measure(Question(datagrams=True, pings=5, ping_gap_s=0.0, wait_s=30.0))
    assert reading.rtts_s == (0.02,) * 4
    assert reading.rtt_s == 0.02


def test_where_all_is_lost_nothing_is_known(
    client: ProbeClient, line: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    line(lambda kind, number, datagram, send: None)
    question = Question(50_000, 50_000, datagrams=True, sample_out=5, sample_back=5, wait_s=0.1)
    reading = client.measure(question)
    assert reading.rtt_s is reading.rate_bps is reading.rate_back_bps is None
    assert (reading.rtts_s, reading.sample) == ((), Sample(5, 0, 0, 0))
    monkeypatch.undo()

    class Walled(socket.socket):
        def sendto(self, *args: object) -> int:
            raise PermissionError("Operation not permitted")

    monkeypatch.setattr(socket, "socket", Walled)  # what the host's own firewall refuses is lost, too
    assert client.measure(Question(datagrams=True, wait_s=0.05)).rtt_s is None


def test_what_crosses_and_in_which_order(client: ProbeClient, seen: Seen) -> None:
    """Pings by TCP go with a sample by UDP. No train goes before a sample: it would queue in front of it, and overflow
    a short queue. Trains are of the largest datagrams that one frame carries."""
    reading = client.measure(Question(50_000, 0, sample_out=3))
    assert {kind for kind, _ in seen} == {SAMPLE}
    assert len(reading.rtts_s) == Question().pings
    assert reading.rate_bps is not None
    seen.clear()
    client.measure(Question(1, 1, datagrams=True, pings=1, sample_out=2, sample_back=2))
    assert [kind for kind, _ in seen if kind != PING] == [SAMPLE, SAMPLE, TRAIN, TRAIN] * 2
    seen.clear()
    client.measure(Question(10_000, 1, datagrams=True, sample_out=2, sample_back=1))
    assert [size for kind, size in seen if kind == TRAIN] == [1472] * (7 + 2)  # a rate needs two
    assert [size for kind, size in seen if kind == SAMPLE] == [100] * 3


def test_an_echo_is_awaited_before_anything_else_is_sent(client: ProbeClient, line: Put) -> None:
    kinds: list[int] = []

    def watch(kind: int, number: int, datagram: bytes, send: Send) -> None:
        kinds.append(kind)
        threading.Timer(0.02, send, (datagram,)).start()

    line(watch)
    client.measure(Question(1, 0, datagrams=True, pings=1))
    assert kinds == [PING] * 4 + [TRAIN] * 2  # two, and their echoes


def test_what_sending_takes_is_no_part_of_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    class Slow(End):
        """Sending takes half of the gap, and waiting as long as it should."""

        def _read(self, until: float, tcp: socket.socket | None = None) -> bool:
            nonlocal now_s
            now_s = max(now_s, until)
            return False

        def _put(self, datagram: bytearray | memoryview) -> None:
            nonlocal now_s
            now_s += 1 / 1024

    clock = SimpleNamespace(perf_counter=lambda: now_s, monotonic_ns=lambda: round(now_s * 1e9))
    monkeypatch.setattr(datagrams, "time", clock)
    with datagram_socket() as udp:
        sent = Slow(udp, (LOCAL, 9), bytes(16), {}).send(SAMPLE, 51, 100, gap_s=1 / 512)
    assert sent == [number * 1_953_125 for number in range(51)]


def test_the_receive_buffer_is_as_large_as_the_kernel_allows(probing: ProbeServer) -> None:
    with socket.create_connection((LOCAL, probing.port)) as tcp, datagrams._datagram_socket(tcp) as udp:
        with datagram_socket() as greedy:  # a container cannot read the limit
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            allowed, got = (it.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for it in (greedy, udp))
        assert got == allowed


class Asked:
    """An exchange as far as the server's readiness, by hand."""

    def __init__(self, probing: ProbeServer) -> None:
        self.tcp = handshake.connected(LOCAL, probing.port, "t")
        self.tcp.settimeout(30)
        self.udp = datagram_socket()
        self.udp.bind((LOCAL, 0))
        self.udp.settimeout(10)
        self.tcp.sendall(probe._ASK.pack(b"d", 0, 0))
        question = Question(sample_out=2, wait_s=0.1)
        datagrams.send_json(self.tcp, datagrams._Begin(self.udp.getsockname()[1], question))
        ready = datagrams.receive_json(self.tcp, datagrams._Ready)
        self.server = (LOCAL, ready.port)
        self.cookie = bytes.fromhex(ready.cookie)

    def close(self) -> None:
        self.tcp.close()
        self.udp.close()

    def datagram(self, kind: int, number: int, cookie: bytes | None = None) -> bytes:
        return datagrams._HEADER.pack(self.cookie if cookie is None else cookie, kind, number)


@pytest.fixture
def asked(probing: ProbeServer) -> Iterator[Asked]:
    with contextlib.closing(Asked(probing)) as asked:
        yield asked


def test_only_datagrams_with_the_cookie_are_answered_or_counted(probing: ProbeServer, asked: Asked) -> None:
    with contextlib.closing(Asked(probing)) as another:
        cookies = (bytes(16), asked.cookie[:8], asked.cookie[::-1], another.cookie)
    for cookie, kind in itertools.product(cookies, (PING, SAMPLE)):
        asked.udp.sendto(asked.datagram(kind, 0, cookie), asked.server)
    asked.udp.sendto(asked.cookie, asked.server)
    ping = asked.datagram(PING, 7)
    asked.udp.sendto(ping + bytes(8), asked.server)
    assert asked.udp.recv(100).startswith(ping)
    with datagram_socket() as other:  # whoever has seen a cookie cannot turn the server on somebody else
        other.bind(("127.0.0.2", 0))
        other.setblocking(False)
        other.sendto(asked.datagram(PING, 0) + bytes(8), asked.server)
        assert asked.udp.recv(100).startswith(asked.datagram(PING, 0))
        with pytest.raises(BlockingIOError):
            other.recv(100)
    asked.udp.sendto(asked.datagram(SAMPLE, 1), asked.server)
    datagrams.send_json(asked.tcp, "sent")
    counted = datagrams.receive_json(asked.tcp, datagrams._Counted)
    assert counted.sample is not None and counted.sample.received == 1


def test_an_end_without_a_peer_gives_up(
    probing: ProbeServer, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    class Full(socket.socket):
        def sendto(self, *args: object) -> int:
            raise BlockingIOError

    with monkeypatch.context() as patch:
        patch.setattr(datagrams, "TIMEOUT_S", 0.1)
        with contextlib.closing(Asked(probing)) as silent:
            assert silent.tcp.recv(1) == b""
        with Full(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            end = End(udp, (LOCAL, 9), bytes(16), {})
            assert refusal(end.send, TRAIN, 1, TRAIN_BYTES, by=TimeoutError) == snapshot
    client = ProbeClient(LOCAL, probing.port, "t")
    assert client.measure(Question(datagrams=True)).rtt_s is not None


def _begin(port: int | None = 9, **changed: object) -> bytes:
    return json.dumps({"port": port, "question": plain(Question()) | changed}).encode()


NONSENSE = {
    "no JSON": b"{",
    "no UTF-8": b"\xff",
    "deep": b"[" * 60_000,
    "no object": b"[]",
    "no question": b'{"port": 9}',
    "no port": _begin(port=None),
    "a port that is none": _begin(port=70000),
    "something that nobody asks": _begin(more=1),
    "NaN seconds": _begin(wait_s=math.nan),
    "endless": _begin(wait_s=math.inf),
    "more datagrams than there is time for": _begin(bulk_back=10**15),
    "less than none": _begin(sample_out=-1),
    "half of one": _begin(sample_out=0.5),
    "a text": _begin(pings="5"),
    "too long ever to be waited for": b"",
}


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_an_exchange_that_begins_with_nonsense_is_let_go(probing: ProbeServer, nonsense: str) -> None:
    with handshake.connected(LOCAL, probing.port, "t") as tcp:
        tcp.settimeout(30)
        body = NONSENSE[nonsense]
        size = len(body) or 2**32 - 1
        tcp.sendall(probe._ASK.pack(b"d", 0, 0) + size.to_bytes(4, "big") + body)
        assert tcp.recv(1) == b""


WHOLE = {"sent": 1, "received": 1, "duplicates": 0, "reordered": 0}


def test_nonsense_of_what_came_is_refused(probing: ProbeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    send_json, lies = datagrams.send_json, list[object]()

    def lie(tcp: socket.socket, message: object) -> None:
        send_json(tcp, lies[-1] if isinstance(message, datagrams._Counted) else message)

    monkeypatch.setattr(datagrams, "send_json", lie)
    for wrong in (
        *({"rate_bps": rate, "sample": None} for rate in (math.nan, -1.0, "9")),
        *({"rate_bps": None, "sample": sample} for sample in ({"sent": 1}, WHOLE | {"received": -1})),
        *({"rate_bps": None}, None),
    ):
        lies.append(wrong)
        with contextlib.closing(ProbeClient(LOCAL, probing.port, "t")) as client:
            assert "nonsense" in refusal(client.measure, Question(datagrams=True), by=ValueError)
