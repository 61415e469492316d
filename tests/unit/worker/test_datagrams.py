"""The link probe by UDP: over loopback, with a line that misbehaves as told."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.protocol.jsonlines import plain
from pareto.remote.backends import handshake
from pareto.remote.link.probe import Question, Sample
from pareto.remote.worker import datagrams, probe
from pareto.remote.worker.datagrams import (
    PING,
    SAMPLE,
    TRAIN,
    TRAIN_BYTES,
    Arrival,
    Arrivals,
    End,
    rate_bps,
    receive,
    stamp,
)
from pareto.remote.worker.probe import ProbeClient, ProbeServer
from tests.program import wait_until

Send = Callable[[bytes], None]
Line = Callable[[int, int, bytes, Send], None]
"""kind, number, datagram, how to pass it on"""


@pytest.fixture
def server() -> Iterator[ProbeServer]:
    yield ProbeServer("127.0.0.1", "t")


@pytest.fixture
def client(server: ProbeServer) -> Iterator[ProbeClient]:
    client = ProbeClient("127.0.0.1", server.port, "t")
    yield client
    client.close()


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Line], None]]:
    """Puts a line between the ends: it gets every datagram of both."""
    # A socket of its own: what a line still carries arrives although the sender has closed.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as carrier:

        def put(behaviour: Line) -> None:
            def through(self: End, datagram: bytearray | memoryview) -> None:
                _, kind, number = datagrams._HEADER.unpack_from(datagram)
                behaviour(kind, number, bytes(datagram), lambda data: _carry(carrier, data, self._peer))

            monkeypatch.setattr(End, "_put", through)

        yield put


def _carry(carrier: socket.socket, datagram: bytes, to: tuple[str, int]) -> None:
    with contextlib.suppress(OSError):  # the test is over
        carrier.sendto(datagram, to)


def test_rtt_and_both_rates(client: ProbeClient) -> None:
    for _ in range(3):
        reading = client.measure(Question(1_000_000, 1_000_000, datagrams=True))
        assert len(reading.rtts_s) == Question().pings
        for figure in (*reading.rtts_s, reading.rate_bps, reading.rate_back_bps):
            assert figure is not None
            assert figure > 0


def test_a_clean_sample_comes_whole(client: ProbeClient) -> None:
    """And nothing waits for what has all come."""
    reading = client.measure(Question(sample_out=50, sample_back=30, sample_gap_s=0.002, wait_s=3600))
    assert reading.sample == Sample(50, 50, 0, 0)
    assert reading.sample_back == Sample(30, 30, 0, 0)


def test_one_direction_alone(client: ProbeClient) -> None:
    reading = client.measure(Question(0, 20_000, datagrams=True, sample_out=3))
    assert reading.rate_bps is None
    assert reading.rate_back_bps is not None
    assert reading.sample is not None
    assert reading.sample_back is None


def test_pings_by_tcp_go_with_a_sample_by_udp(client: ProbeClient, line: Callable[[Line], None]) -> None:
    kinds = set()

    def watch(kind: int, number: int, datagram: bytes, send: Send) -> None:
        kinds.add(kind)
        send(datagram)

    line(watch)
    reading = client.measure(Question(50_000, 0, sample_out=3))
    assert kinds == {SAMPLE}
    assert len(reading.rtts_s) == Question().pings
    assert reading.rate_bps is not None


def test_what_is_lost_repeated_or_reordered_is_counted(
    client: ProbeClient, line: Callable[[Line], None]
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
            late = kept.pop()
            send(late)
            send(late)

    line(behave)
    reading = client.measure(Question(sample_out=10, sample_back=10, sample_gap_s=0.001, wait_s=0.1))
    assert reading.sample == reading.sample_back == Sample(10, 8, 3, 1)


def test_a_copy_that_comes_after_all_is_still_counted(
    client: ProbeClient, line: Callable[[Line], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When each number is there and the server waits all the same."""
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
    assert sample is not None
    assert sample.duplicates == 2


def test_what_has_come_counts_also_where_this_host_had_no_core_to_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of the time to wait has passed when it comes to reading."""
    monkeypatch.setattr(datagrams, "_BATCH", 20)
    count, cookie = 100, bytes(16)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far,
    ):
        far.bind(("127.0.0.1", 0))
        far.setblocking(False)
        for number in range(count):
            near.sendto(datagrams._HEADER.pack(cookie, SAMPLE, number), far.getsockname())
        sample = Arrivals(count + 1)
        End(far, near.getsockname(), cookie, {SAMPLE: sample}).gather(0.0, SAMPLE)
    assert [*sample.at] == [*range(count)]


@pytest.mark.parametrize(
    ("late_s", "wait_s", "received"), [(0.05, 10.0, 5), (10.0, 0.02, 4)], ids=["in time", "too late"]
)
def test_stragglers_count_if_they_come_in_time(
    client: ProbeClient, line: Callable[[Line], None], late_s: float, wait_s: float, received: int
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
        assert sample is not None
        assert sample.received == received


def test_a_lost_ping_costs_neither_its_neighbours_nor_the_median(
    client: ProbeClient, line: Callable[[Line], None], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_where_no_datagram_gets_through_nothing_is_known(
    client: ProbeClient, line: Callable[[Line], None]
) -> None:
    line(lambda kind, number, datagram, send: None)
    reading = client.measure(
        Question(50_000, 50_000, datagrams=True, sample_out=5, sample_back=5, wait_s=0.1)
    )
    assert reading.rtt_s is None
    assert reading.rtts_s == ()
    assert reading.rate_bps is None
    assert reading.rate_back_bps is None
    assert reading.sample == Sample(5, 0, 0, 0)


def test_a_datagram_that_the_hosts_firewall_refuses_is_lost(
    client: ProbeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Walled(socket.socket):
        def sendto(self, *args: object) -> int:
            raise PermissionError("Operation not permitted")

    monkeypatch.setattr(socket, "socket", Walled)
    assert client.measure(Question(datagrams=True, wait_s=0.05)).rtt_s is None


def test_the_rate_is_that_of_a_line_that_loses_before_it_transmits() -> None:
    """40 Mbit/s of datagrams, every fifth lost, every tenth twice: the line is busy all the time."""
    train, now_s = Arrivals(400), 7.0
    for number in range(400):
        for _ in range(0 if number % 5 == 2 else 2 if number % 10 == 0 else 1):
            train.add(number, round(1e9 * now_s))
            now_s += 8 * TRAIN_BYTES / 40e6
    assert len(train.at) == 320
    assert train.rate_bps() == pytest.approx(40e6, rel=1e-5)


def test_the_sample_has_no_train_before_it(client: ProbeClient, line: Callable[[Line], None]) -> None:
    """Which would queue in front of it, and overflow a short queue."""
    kinds: list[int] = []

    def watch(kind: int, number: int, datagram: bytes, send: Send) -> None:
        kinds.append(kind)
        send(datagram)

    line(watch)
    client.measure(Question(1, 1, datagrams=True, pings=1, sample_out=2, sample_back=2))
    assert [kind for kind in kinds if kind != PING] == [SAMPLE, SAMPLE, TRAIN, TRAIN] * 2


def test_an_echo_is_awaited_before_anything_else_is_sent(
    client: ProbeClient, line: Callable[[Line], None]
) -> None:
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

    monkeypatch.setattr(
        datagrams,
        "time",
        SimpleNamespace(perf_counter=lambda: now_s, monotonic_ns=lambda: round(now_s * 1e9)),
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        sent = Slow(udp, ("127.0.0.1", 9), bytes(16), {}).send(SAMPLE, 51, 100, gap_s=1 / 512)
    assert sent == [number * 1_953_125 for number in range(51)]


def test_the_receive_buffer_is_as_large_as_the_kernel_allows(server: ProbeServer) -> None:
    with (
        socket.create_connection(("127.0.0.1", server.port)) as tcp,
        datagrams._datagram_socket(tcp) as udp,
        socket.socket(type=socket.SOCK_DGRAM) as greedy,
    ):
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)  # a container cannot read the limit
        allowed, got = (it.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for it in (greedy, udp))
        assert got == allowed


def test_trains_are_of_the_largest_datagrams_that_one_frame_carries(
    client: ProbeClient, line: Callable[[Line], None]
) -> None:
    sizes: dict[int, list[int]] = {PING: [], SAMPLE: [], TRAIN: []}

    def watch(kind: int, number: int, datagram: bytes, send: Send) -> None:
        sizes[kind].append(len(datagram))
        send(datagram)

    line(watch)
    client.measure(Question(10_000, 1, datagrams=True, sample_out=2, sample_back=1))
    assert sizes[TRAIN] == [1472] * (7 + 2)  # a rate needs two
    assert sizes[SAMPLE] == [100] * 3


def test_a_train_of_which_one_came_has_no_rate_and_one_that_came_at_once_is_too_fast() -> None:
    train = Arrivals(3)
    assert train.rate_bps() is None
    train.add(1, 5_000_000_000)
    assert train.rate_bps() is None
    train.add(2, 5_000_000_000)
    assert train.rate_bps() == math.inf


def test_a_train_over_a_line_that_changes_has_the_mean_of_its_time() -> None:
    """An outage, after which all is as before."""
    for constant, expected in ((True, 8 * TRAIN_BYTES / 1e-3), (False, 8 * TRAIN_BYTES * 39 / 0.139)):
        train = Arrivals(40, constant=constant)
        for number in range(40):
            train.add(number, 1_000_000 * (number + 100 * (number > 35)))
        assert train.rate_bps() == pytest.approx(expected)


def test_a_number_that_was_never_sent_is_ignored() -> None:
    """A flipped bit gets through where the hosts leave checksums to the interface."""
    sample = Arrivals(3)
    for number in (0, 1 << 30, 1, 2):
        sample.add(number, 1_000_000_000)
    assert sample.sample() == Sample(3, 3, 0, 0)


class Asked:
    """An exchange as far as the server's readiness, by hand."""

    def __init__(self, server: ProbeServer) -> None:
        self.tcp = handshake.connected("127.0.0.1", server.port, "t")
        self.tcp.settimeout(30)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.udp.settimeout(10)
        self.tcp.sendall(probe._ASK.pack(b"d", 0, 0))
        question = Question(sample_out=2, wait_s=0.1)
        datagrams.send_json(self.tcp, datagrams._Begin(self.udp.getsockname()[1], question))
        ready = datagrams.receive_json(self.tcp, datagrams._Ready)
        self.server = ("127.0.0.1", ready.port)
        self.cookie = bytes.fromhex(ready.cookie)

    def close(self) -> None:
        self.tcp.close()
        self.udp.close()


@pytest.fixture
def asked(server: ProbeServer) -> Iterator[Asked]:
    asked = Asked(server)
    yield asked
    asked.close()


def test_only_datagrams_with_the_cookie_are_answered_or_counted(asked: Asked) -> None:
    for cookie in (bytes(16), asked.cookie[:8], asked.cookie[::-1]):
        for kind in (PING, SAMPLE):
            asked.udp.sendto(datagrams._HEADER.pack(cookie, kind, 0), asked.server)
    asked.udp.sendto(asked.cookie, asked.server)
    ping = datagrams._HEADER.pack(asked.cookie, PING, 7)
    asked.udp.sendto(ping + bytes(8), asked.server)
    assert asked.udp.recv(100).startswith(ping)
    asked.udp.sendto(datagrams._HEADER.pack(asked.cookie, SAMPLE, 1), asked.server)
    datagrams.send_json(asked.tcp, "sent")
    counted = datagrams.receive_json(asked.tcp, datagrams._Counted)
    assert counted.sample is not None
    assert counted.sample.received == 1


def test_the_server_sends_to_the_one_who_asked_only(asked: Asked) -> None:
    """Whoever has seen a cookie cannot turn the server on somebody else."""
    ping = datagrams._HEADER.pack(asked.cookie, PING, 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.2", 0))
        other.setblocking(False)
        other.sendto(ping + bytes(8), asked.server)
        assert asked.udp.recv(100).startswith(ping)
        with pytest.raises(BlockingIOError):
            other.recv(100)


def test_each_exchange_has_its_own_cookie(server: ProbeServer) -> None:
    cookies = set()
    for _ in range(2):
        asked = Asked(server)
        cookies.add(asked.cookie)
        asked.close()
    assert len(cookies) == 2


def test_an_end_whose_peer_falls_silent_gives_up(
    server: ProbeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(datagrams, "TIMEOUT_S", 0.1)
        silent = Asked(server)
        assert silent.tcp.recv(1) == b""
        silent.close()
    client = ProbeClient("127.0.0.1", server.port, "t")
    assert client.measure(Question(datagrams=True)).rtt_s is not None


def test_an_end_that_cannot_send_gives_up(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(datagrams, "TIMEOUT_S", 0.1)

    class Full(socket.socket):
        def sendto(self, *args: object) -> int:
            raise BlockingIOError

    with Full(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        end = End(udp, ("127.0.0.1", 9), bytes(16), {})
        with pytest.raises(TimeoutError) as gave_up:
            end.send(TRAIN, 1, TRAIN_BYTES)
    assert str(gave_up.value) == snapshot


def test_one_that_overtakes_many_is_one_out_of_order() -> None:
    arrivals = Arrivals(10)
    for number in (7, 0, 1, 2, 9, 3, 4, 5, 6, 8):
        arrivals.add(number, 0.0)
    sample = arrivals.sample()
    assert sample is not None
    assert sample.reordered == 2


def test_the_first_of_a_train_may_be_left_out_of_its_rate() -> None:
    """A burst of four at once, then one a millisecond."""
    for skip, bit_s in ((0, 8 * 1472 * 9 / 0.006), (4, 8 * 1472 / 0.001)):
        train = Arrivals(10, skip, constant=False)
        for number in range(10):
            train.add(number, 1_000_000 * max(0, number - 3))
        assert train.rate_bps() == pytest.approx(bit_s)


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
}


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_an_exchange_that_begins_with_nonsense_is_let_go(server: ProbeServer, nonsense: str) -> None:
    with handshake.connected("127.0.0.1", server.port, "t") as tcp:
        tcp.settimeout(30)
        body = NONSENSE[nonsense]
        tcp.sendall(probe._ASK.pack(b"d", 0, 0) + len(body).to_bytes(4, "big") + body)
        assert tcp.recv(1) == b""


def test_a_length_from_the_other_end_never_decides_what_is_waited_for(server: ProbeServer) -> None:
    with handshake.connected("127.0.0.1", server.port, "t") as tcp:
        tcp.settimeout(30)
        tcp.sendall(probe._ASK.pack(b"d", 0, 0) + b"\xff" * 4)
        assert tcp.recv(1) == b""


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate_bps": math.nan, "sample": None},
        {"rate_bps": -1.0, "sample": None},
        {"rate_bps": "9", "sample": None},
        {"rate_bps": None, "sample": {"sent": 1}},
        {"rate_bps": None, "sample": {"sent": 1, "received": -1, "duplicates": 0, "reordered": 0}},
        {"rate_bps": None},
        None,
    ],
)
def test_nonsense_about_what_came_is_refused(
    client: ProbeClient, monkeypatch: pytest.MonkeyPatch, wrong: object
) -> None:
    send_json = datagrams.send_json

    def lie(tcp: socket.socket, message: object) -> None:
        send_json(tcp, wrong if isinstance(message, datagrams._Counted) else message)

    monkeypatch.setattr(datagrams, "send_json", lie)
    with pytest.raises(ValueError, match="nonsense"):
        client.measure(Question(datagrams=True))


# When bytes arrive, and the rate of the line that they came over

RATE_BPS = 8e6  # a byte a microsecond
PACKET = 1448


def mean_bps(came: list[Arrival], skip: int = 0) -> float | None:
    return rate_bps(came, skip, constant=False)


def arrivals(packets: int = 100, late_s: float = 0.0, late: range = range(0)) -> list[Arrival]:
    return [(n * PACKET / 1e6 + (late_s if n in late else 0.0), (n + 1) * PACKET) for n in range(packets)]


def test_the_rate_is_the_lines() -> None:
    assert rate_bps(arrivals()) == pytest.approx(RATE_BPS)
    assert mean_bps(arrivals()) == pytest.approx(RATE_BPS)


@pytest.mark.parametrize("late", [range(80, 100), range(20), range(40, 60), range(99, 100)])
def test_a_fifth_of_the_arrivals_may_be_late(late: range) -> None:
    """From first to last such a hiccup is the link's: 20 ms in 145 are 14 %."""
    assert rate_bps(arrivals(late_s=0.02, late=late)) == pytest.approx(RATE_BPS, rel=0.002)


def test_every_arrival_may_be_a_little_late() -> None:
    chance = random.Random(5)  # noqa: S311
    noisy = [(at_s + chance.expovariate(1 / 0.0003), nbytes) for at_s, nbytes in arrivals()]
    assert rate_bps(noisy) == pytest.approx(RATE_BPS, rel=0.005)


def test_what_is_skipped_counts_neither_in_bytes_nor_in_time() -> None:
    """A bucket's credit: the first 20 packets come at once."""
    credit = [(max(0.0, at_s - 20 * PACKET / 1e6), nbytes) for at_s, nbytes in arrivals()]
    assert rate_bps(credit, skip=20 * PACKET) == pytest.approx(RATE_BPS)
    assert mean_bps(credit, skip=20 * PACKET) == pytest.approx(RATE_BPS)
    assert (mean_bps(credit) or 0.0) > 1.2 * RATE_BPS


def test_a_line_that_changes_has_a_mean() -> None:
    """An outage of as long as the bulk itself halves what is carried, and is no hiccup."""
    outage = arrivals(late_s=100 * PACKET / 1e6, late=range(50, 100))
    assert mean_bps(outage) == pytest.approx(RATE_BPS / 2, rel=0.01)


def test_one_piece_and_nothing() -> None:
    for rate in (rate_bps, mean_bps):
        assert rate([(1.0, 62_500)]) == math.inf
        assert rate([(1.0, 31_250), (1.0, 62_500)]) == math.inf
        assert rate([]) is None
        assert rate(arrivals(), skip=100 * PACKET) is None


@pytest.mark.parametrize("layout", ["=qq", "=ii"])
@pytest.mark.parametrize(
    ("age_ns", "taken_ns"),
    [(0, 0), (50_000_000, 50_000_000), (999_999_999, 999_999_999), (2 * 10**9, 0), (-5, 0)],
)
def test_a_stamp_is_as_old_as_it_says_unless_somebody_set_the_clock(
    monkeypatch: pytest.MonkeyPatch, layout: str, age_ns: int, taken_ns: int
) -> None:
    real_ns, steady_ns = 1_700_000_000_500_000_000, 77 * 10**9
    clock = SimpleNamespace(time_ns=lambda: real_ns, monotonic_ns=lambda: steady_ns)
    monkeypatch.setattr(datagrams, "time", clock)
    told = struct.pack(layout, *divmod(real_ns - age_ns, 10**9))
    for ancillary, came_ns in (
        ([(socket.SOL_SOCKET, 35, told)], steady_ns - taken_ns),
        ([(socket.SOL_SOCKET, 99, told), (socket.SOL_SOCKET, 35, told + b"?")], steady_ns),
        ([], steady_ns),
    ):
        sock: Any = SimpleNamespace(recvmsg_into=lambda *_, said=ancillary: (8, said, 0, None))
        assert receive(sock, bytearray(8)) == (8, came_ns)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_what_waits_to_be_read_has_the_stamp_of_its_coming(kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as near, socket.socket(socket.AF_INET, kind) as far:
        far.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            far.listen()
        near.connect(far.getsockname())
        end = far.accept()[0] if kind == socket.SOCK_STREAM else far
        with end:
            stamp(end)

            def came_before_it_was_read() -> bool:
                near.send(b"x" * 8)
                select.select([end], [], [])
                reading_ns = time.monotonic_ns()
                size, came_ns = receive(end, bytearray(8))
                assert size == 8
                return came_ns <= reading_ns

            # A kernel begins to stamp a moment after the first socket asks for it.
            assert wait_until(came_before_it_was_read)
