"""The link probe's two ends, over loopback; when bytes arrive, and the rate of the line that they came over."""

from __future__ import annotations

import functools
import itertools
import math
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pareto.remote.backends.handshake import Rejected, connected
from pareto.remote.link.probe import Question, Sample
from pareto.remote.worker import datagrams, probe
from pareto.remote.worker import datagrams as udp
from pareto.remote.worker.datagrams import TRAIN_BYTES, Arrival, Arrivals, rate_bps
from pareto.remote.worker.probe import ProbeClient, ProbeServer, _sink
from tests.program import wait_until
from tests.unit.backends.builders import refusal

EDGE_NS, SERVER_NS, HELD_NS, ROUND_TRIP_NS = 10**12, 7 * 10**15, 3 * 10**11, 20_000_000


def clock(monkeypatch: pytest.MonkeyPatch, **changed: Callable[..., object]) -> None:
    """Both modules of the probe have another clock."""
    for module in (probe, udp):
        monkeypatch.setattr(module, "time", SimpleNamespace(**vars(time) | changed))


@pytest.fixture
def made_up_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end has a clock of its own, that stands still. By the stamps a ping is kept waiting for `HELD_NS`."""

    def here(edge: int, server: int) -> int:
        return server if threading.current_thread().name == "probe" else edge

    def stamped(sock: socket.socket, buffer: memoryview | bytearray) -> tuple[int, int]:
        size = sock.recv_into(buffer)
        return size, here(EDGE_NS + HELD_NS + ROUND_TRIP_NS, SERVER_NS - HELD_NS)

    clock(monkeypatch, monotonic_ns=lambda: here(EDGE_NS, SERVER_NS))
    monkeypatch.setattr(udp, "receive", stamped)


@pytest.mark.parametrize("datagrams", [False, True])
def test_rtt_and_both_rates_and_nothing_that_was_not_asked(client: ProbeClient, datagrams: bool) -> None:
    for _ in range(2):
        reading = client.measure(Question(2_000_000, 2_000_000, datagrams=datagrams))
        assert len(reading.rtts_s) == Question().pings
        told = reading.rtt_s, reading.rate_bps, reading.rate_back_bps
        assert all(figure is not None and figure > 0 for figure in told)
    reading = client.measure(Question(0, 20_000, datagrams=datagrams, pings=7))  # one direction alone
    assert (len(reading.rtts_s), reading.rtt_s) == (7, sorted(reading.rtts_s)[3])
    assert reading.rate_back_bps
    for field in ("rate_bps", "sample", "sample_back", "message_s"):
        assert getattr(reading, field) is None
    # A clean sample comes whole, and nothing waits for what has all come; the share of payload is the bulk's.
    asked = Question(sample_out=50, sample_back=30, sample_gap_s=0.002, wait_s=3600, datagrams=datagrams)
    reading = client.measure(asked)
    assert (reading.sample, reading.sample_back) == (Sample(50, 50, 0, 0), Sample(30, 30, 0, 0))
    assert reading.payload_share == (1472 if datagrams else 1448) / 1514


@pytest.mark.parametrize("datagrams", [False, True])
def test_a_round_trip_is_without_waits(client: ProbeClient, made_up_times: None, datagrams: bool) -> None:
    """However late either end gets to read: a host without a core to spare is no slow link."""
    reading = client.measure(Question(pings=3, datagrams=datagrams, wait_s=60.0))
    assert reading.rtts_s == (ROUND_TRIP_NS / 1e9,) * 3


def test_skipping_goes_for_the_direction_asked(client: ProbeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    skipped, impossible = [], list[float]()

    def rate(came: list[Arrival], skip: int, *, constant: bool) -> float:
        skipped.append((came[-1][1], skip, constant))
        return impossible.pop() if impossible else rate_bps(came, skip, constant=constant)

    monkeypatch.setattr(datagrams, "rate_bps", rate)
    client.measure(Question(50_000, 60_000, skip_out=1000, skip_back=2000))
    client.measure(Question(50_000, 60_000, constant=False))
    both = [(50_000, 1000, True), (60_000, 2000, True), (50_000, 0, False), (60_000, 0, False)]
    assert skipped == both
    words = refusal(Question, 50_000, 60_000, skip_back=60_000, by=ValueError)
    assert words == "nothing of the bulk is left to count"
    for nonsense in (math.nan, -1.0, 0.0):
        impossible.append(nonsense)
        assert "bit/s" in refusal(client.measure, Question(100_000, 0), by=ValueError)


def test_a_message_is_timed_until_its_answer(client: ProbeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, did = 100.0, []
    pour = probe._pour

    def slow(sock: socket.socket, nbytes: int) -> list[Arrival]:
        nonlocal now_s
        outcome = _sink(sock, nbytes)
        if is_server := threading.current_thread().name == "probe":
            now_s += 7.5
        did.append(("has" if is_server else "is answered", nbytes))
        return outcome

    def answering(sock: socket.socket, nbytes: int) -> None:
        did.append(("answers", nbytes))
        pour(sock, nbytes)

    clock(monkeypatch, perf_counter=lambda: now_s)
    monkeypatch.setattr(probe, "_sink", slow)
    monkeypatch.setattr(probe, "_pour", answering)
    for message, answer in ((1_000_000, 3), (300_000, 2_000_000)):
        did.clear()
        assert client.measure(Question(message=message, answer=answer)).message_s == 7.5
        assert did == [("has", message), ("answers", answer), ("is answered", answer)]


def test_a_peer_silent_in_a_question_is_let_go(probing: ProbeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = ProbeClient("127.0.0.1", probing.port, "t")
    with monkeypatch.context() as patch:
        patch.setattr(probe, "TIMEOUT_S", 0.1)
        silent._sock.sendall(probe._ASK.pack(b"m", 1000, 0))
        assert silent._sock.recv(1) == b""
    assert ProbeClient("127.0.0.1", probing.port, "t").measure(Question()).rtt_s is not None
    # A new connection takes over from a closed one that knows the token.
    ProbeClient("127.0.0.1", probing.port, "t").close()
    with pytest.raises(Rejected):
        ProbeClient("127.0.0.1", probing.port, "x")
    assert ProbeClient("127.0.0.1", probing.port, "t").measure(Question()).rtt_s is not None
    # A size from the other end never decides what is allocated. More than there is memory: it comes as long as
    # somebody takes it.
    with connected("127.0.0.1", probing.port, "t") as sock:
        sock.sendall(probe._ASK.pack(b"b", 1 << 62, 0))
        sock.settimeout(30)
        for _ in range(100):
            assert sock.recv(1 << 16)


def test_between_questions_a_peer_may_be_silent() -> None:
    """For ever, and within one not."""
    waits: list[float | None] = []

    class Watched(socket.socket):
        def recv(self, *arguments: int) -> bytes:
            waits.append(self.gettimeout())
            return super().recv(*arguments)

        def recvmsg_into(self, *arguments: Any) -> Any:
            waits.append(self.gettimeout())
            return super().recvmsg_into(*arguments)

    near, far = socket.socketpair()
    with near, Watched(fileno=far.detach()) as watched:
        near.sendall(2 * probe._ASK.pack(b"p", 1, 0))
        near.shutdown(socket.SHUT_WR)
        probe._answer(watched)
    assert waits == [None, probe.TIMEOUT_S] * 2 + [None]


# When bytes arrive, and the rate of the line that they came over.

RATE_BPS = 8e6  # a byte a microsecond


PACKET = 1448


def arrivals(late_s: float = 0.0, late: range = range(0)) -> list[Arrival]:
    return [(n * PACKET / 1e6 + (late_s if n in late else 0.0), (n + 1) * PACKET) for n in range(100)]


def train(at_ns: list[int], skip: int = 0, *, constant: bool = True) -> Arrivals:
    made = Arrivals(len(at_ns), skip, constant=constant)
    for number, now_ns in enumerate(at_ns):
        made.add(number, now_ns)
    return made


def test_a_train_over_a_line_that_changes_has_the_mean_of_its_time() -> None:
    """An outage, after which all is as before; and a burst of four at once, left out or not, then one a millisecond."""
    outage = [1_000_000 * (number + 100 * (number > 35)) for number in range(40)]
    burst = [1_000_000 * max(0, number - 3) for number in range(10)]
    for at_ns, skip, constant, expected in (
        (outage, 0, True, 8 * TRAIN_BYTES / 1e-3),
        (outage, 0, False, 8 * TRAIN_BYTES * 39 / 0.139),
        (burst, 0, False, 8 * 1472 * 9 / 0.006),
        (burst, 4, False, 8 * 1472 / 0.001),
    ):
        assert train(at_ns, skip, constant=constant).rate_bps() == pytest.approx(expected)
    # The rate of a train. 40 Mbit/s of datagrams, every fifth lost, every tenth twice: the line, which loses
    # before it transmits, is busy all the time. Of one that came there is none; one that came at once is too
    # fast.
    lossy, now_s = Arrivals(400), 7.0
    for number in range(400):
        for _ in range(0 if number % 5 == 2 else 2 if number % 10 == 0 else 1):
            lossy.add(number, round(1e9 * now_s))
            now_s += 8 * TRAIN_BYTES / 40e6
    assert len(lossy.at) == 320
    assert lossy.rate_bps() == pytest.approx(40e6, rel=1e-5)
    assert train([]).rate_bps() is train([5 * 10**9]).rate_bps() is None
    assert train([5 * 10**9] * 2).rate_bps() == math.inf
    # A sample counts by numbers. One that was never sent is ignored: a flipped bit gets through where the hosts
    # leave checksums to the interface. One that overtakes many is one out of order.
    for count, numbers, expected in (
        (3, (0, 1 << 30, 1, 2), Sample(3, 3, 0, 0)),
        (10, (7, 0, 1, 2, 9, 3, 4, 5, 6, 8), Sample(10, 10, 0, 2)),
    ):
        arrivals = Arrivals(count)
        for number in numbers:
            arrivals.add(number, 1_000_000_000)
        assert arrivals.sample() == expected


def test_the_rate_is_the_lines_though_some_arrivals_are_late() -> None:
    """From first to last such a hiccup is the link's: 20 ms in 145 are 14 %."""
    assert rate_bps(arrivals()) == pytest.approx(RATE_BPS)
    for late in (range(80, 100), range(20), range(40, 60), range(99, 100)):
        assert rate_bps(arrivals(0.02, late)) == pytest.approx(RATE_BPS, rel=0.002)
    chance = random.Random(5)  # noqa: S311
    noisy = [(at_s + chance.expovariate(1 / 0.0003), nbytes) for at_s, nbytes in arrivals()]
    assert rate_bps(noisy) == pytest.approx(RATE_BPS, rel=0.005)


@pytest.mark.parametrize("constant", [True, False])
def test_what_is_skipped_does_not_count_and_a_line_that_changes_has_a_mean(constant: bool) -> None:
    """A bucket's credit comes at once; an outage of as long as the bulk itself halves what is carried."""
    rate, skip = functools.partial(rate_bps, constant=constant), 20 * PACKET
    credit = [(max(0.0, at_s - skip / 1e6), nbytes) for at_s, nbytes in arrivals()]
    assert rate(credit, skip) == pytest.approx(RATE_BPS)
    if not constant:
        assert rate(arrivals()) == pytest.approx(RATE_BPS)
        assert rate(credit) > 1.2 * RATE_BPS
        outage = arrivals(late_s=100 * PACKET / 1e6, late=range(50, 100))
        assert rate(outage) == pytest.approx(RATE_BPS / 2, rel=0.01)
    assert rate([(1.0, 62_500)]) == rate([(1.0, 31_250), (1.0, 62_500)]) == math.inf
    assert rate([]) == rate(arrivals(), skip=100 * PACKET) == math.inf


AGES_NS = {0: 0, 50_000_000: 50_000_000, 999_999_999: 999_999_999, 2 * 10**9: 0, -5: 0}
"""Stamps, by their word; and how old each is taken for, as somebody may set the clock."""


@pytest.mark.parametrize(("layout", "age_ns"), [*itertools.product(["=qq", "=ii"], AGES_NS)])
def test_a_stamp_is_as_old_as_it_says(monkeypatch: pytest.MonkeyPatch, layout: str, age_ns: int) -> None:
    real_ns, steady_ns = 1_700_000_000_500_000_000, 77 * 10**9
    clock = SimpleNamespace(time_ns=lambda: real_ns, monotonic_ns=lambda: steady_ns)
    monkeypatch.setattr(datagrams, "time", clock)
    told = struct.pack(layout, *divmod(real_ns - age_ns, 10**9))
    for ancillary, came_ns in (
        ([(socket.SOL_SOCKET, 35, told)], steady_ns - AGES_NS[age_ns]),
        ([(socket.SOL_SOCKET, 99, told), (socket.SOL_SOCKET, 35, told + b"?")], steady_ns),
        ([], steady_ns),
    ):
        sock: Any = SimpleNamespace(recvmsg_into=lambda *_, said=ancillary: (8, said, 0, None))
        assert datagrams.receive(sock, bytearray(8)) == (8, came_ns)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_what_waits_to_be_read_has_the_stamp_of_its_coming(kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as near, socket.socket(socket.AF_INET, kind) as far:
        far.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            far.listen()
        near.connect(far.getsockname())
        end = far.accept()[0] if kind == socket.SOCK_STREAM else far
        with end:
            datagrams.stamp(end)

            def came_before_it_was_read() -> bool:
                near.send(b"x" * 8)
                select.select([end], [], [])
                reading_ns = time.monotonic_ns()
                size, came_ns = datagrams.receive(end, bytearray(8))
                return size == 8 and came_ns <= reading_ns

            # A kernel begins to stamp a moment after the first socket asks for it.
            assert wait_until(came_before_it_was_read)
