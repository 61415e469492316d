"""The link probe's two ends, over loopback."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from pareto.remote.backends.handshake import Rejected, connected
from pareto.remote.link.probe import Question
from pareto.remote.worker import datagrams as udp
from pareto.remote.worker import probe
from pareto.remote.worker.datagrams import Arrival
from pareto.remote.worker.probe import ProbeClient, ProbeServer, _rate_bps, _sink
from tests.unit.backends.builders import refusal

EDGE_NS, SERVER_NS, HELD_NS, ROUND_TRIP_NS = 10**12, 7 * 10**15, 3 * 10**11, 20_000_000


@pytest.fixture
def server() -> Iterator[ProbeServer]:
    with closing(ProbeServer("127.0.0.1", "t")) as server:
        yield server


@pytest.fixture
def client(server: ProbeServer) -> Iterator[ProbeClient]:
    with closing(ProbeClient("127.0.0.1", server.port, "t")) as client:
        yield client


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


def test_rtt_and_both_rates_and_nothing_that_was_not_asked(client: ProbeClient) -> None:
    for _ in range(2):
        reading = client.measure(Question(4_000_000, 4_000_000))
        told = reading.rtt_s, reading.rate_bps, reading.rate_back_bps
        assert all(figure is not None and figure > 0 for figure in told)
    reading = client.measure(Question(pings=7))
    assert len(reading.rtts_s) == 7
    assert reading.rtt_s == sorted(reading.rtts_s)[3]
    for field in ("rate_bps", "rate_back_bps", "sample", "sample_back", "message_s"):
        assert getattr(reading, field) is None
    # The share of payload is that of what carried the bulk.
    for question, payload in (
        (Question(), 1448),
        (Question(sample_out=1), 1448),
        (Question(datagrams=True), 1472),
    ):
        assert client.measure(question).payload_share == payload / 1514


@pytest.mark.parametrize("datagrams", [False, True])
def test_a_round_trip_is_without_waits(client: ProbeClient, made_up_times: None, datagrams: bool) -> None:
    """However late either end gets to read: a host without a core to spare is no slow link."""
    reading = client.measure(Question(pings=3, datagrams=datagrams, wait_s=60.0))
    assert reading.rtts_s == (ROUND_TRIP_NS / 1e9,) * 3


def test_skipping_goes_for_the_direction_asked(client: ProbeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    skipped, impossible = [], list[float]()

    def rate(came: list[Arrival], skip: int, *, constant: bool) -> float:
        skipped.append((came[-1][1], skip, constant))
        return impossible.pop() if impossible else _rate_bps(came, skip, constant=constant)

    monkeypatch.setattr(probe, "_rate_bps", rate)
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


def test_a_peer_silent_in_a_question_is_let_go(server: ProbeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = ProbeClient("127.0.0.1", server.port, "t")
    with monkeypatch.context() as patch:
        patch.setattr(probe, "TIMEOUT_S", 0.1)
        silent._sock.sendall(probe._ASK.pack(b"m", 1000, 0))
        assert silent._sock.recv(1) == b""
    assert ProbeClient("127.0.0.1", server.port, "t").measure(Question()).rtt_s is not None
    # A new connection takes over from a closed one that knows the token.
    ProbeClient("127.0.0.1", server.port, "t").close()
    with pytest.raises(Rejected):
        ProbeClient("127.0.0.1", server.port, "x")
    assert ProbeClient("127.0.0.1", server.port, "t").measure(Question()).rtt_s is not None
    # A size from the other end never decides what is allocated. More than there is memory: it comes as long as
    # somebody takes it.
    with connected("127.0.0.1", server.port, "t") as sock:
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
