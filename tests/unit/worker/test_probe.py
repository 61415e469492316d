"""The link probe's two ends, over loopback."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.remote.backends.handshake import Rejected, connected
from pareto.remote.link.probe import Question, Reading, judge
from pareto.remote.worker import datagrams as udp
from pareto.remote.worker import probe
from pareto.remote.worker.datagrams import Arrival
from pareto.remote.worker.probe import ProbeClient, ProbeServer, _rate_bps, _sink
from pareto.sweep.profile_files import load

EDGE_NS, SERVER_NS, HELD_NS, ROUND_TRIP_NS = 10**12, 7 * 10**15, 3 * 10**11, 20_000_000


@pytest.fixture
def server() -> Iterator[ProbeServer]:
    yield ProbeServer("127.0.0.1", "t")


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


def test_rtt_and_both_rates(server: ProbeServer) -> None:
    client = ProbeClient("127.0.0.1", server.port, "t")
    for _ in range(2):
        reading = client.measure(Question(4_000_000, 4_000_000))
        told = reading.rtt_s, reading.rate_bps, reading.rate_back_bps
        assert all(figure is not None and figure > 0 for figure in told)


@pytest.mark.parametrize("datagrams", [False, True])
def test_a_round_trip_is_by_the_stamps_less_what_the_server_kept_it_waiting(
    server: ProbeServer, made_up_times: None, datagrams: bool
) -> None:
    """However late either end gets to read: a host without a core to spare is no slow link."""
    question = Question(pings=3, datagrams=datagrams, wait_s=60.0)
    reading = ProbeClient("127.0.0.1", server.port, "t").measure(question)
    assert reading.rtts_s == (ROUND_TRIP_NS / 1e9,) * 3


def test_what_was_not_asked_is_not_measured(server: ProbeServer) -> None:
    reading = ProbeClient("127.0.0.1", server.port, "t").measure(Question())
    for field in ("rate_bps", "rate_back_bps", "sample", "sample_back", "message_s"):
        assert getattr(reading, field) is None


def test_a_new_connection_takes_over_from_a_closed_one(server: ProbeServer) -> None:
    ProbeClient("127.0.0.1", server.port, "t").close()
    assert ProbeClient("127.0.0.1", server.port, "t").measure(Question()).rtt_s is not None


def test_the_token_is_asked_for(server: ProbeServer) -> None:
    with pytest.raises(Rejected):
        ProbeClient("127.0.0.1", server.port, "x")


def test_what_comes_in_one_piece_is_too_fast_for_any_link() -> None:
    """Not unmeasured, which nobody would judge."""
    reading = Reading(0.2, _rate_bps([(1.0, 62_500)], 0, constant=True), None)
    assert "edge to server" in judge(load("200ms-5mbit"), reading)


def test_every_ping_is_told_and_their_median(server: ProbeServer) -> None:
    reading = ProbeClient("127.0.0.1", server.port, "t").measure(Question(pings=7))
    assert len(reading.rtts_s) == 7
    assert reading.rtt_s == sorted(reading.rtts_s)[3]


def test_the_share_of_payload_is_that_of_what_carried_the_bulk(server: ProbeServer) -> None:
    client = ProbeClient("127.0.0.1", server.port, "t")
    assert client.measure(Question()).payload_share == 1448 / 1514
    assert client.measure(Question(sample_out=1)).payload_share == 1448 / 1514
    assert client.measure(Question(datagrams=True)).payload_share == 1472 / 1514


def test_skipping_goes_for_the_direction_it_is_asked_for(
    server: ProbeServer, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    skipped = []

    def rate(came: list[Arrival], skip: int, *, constant: bool) -> float:
        skipped.append((came[-1][1], skip, constant))
        return _rate_bps(came, skip, constant=constant)

    monkeypatch.setattr(probe, "_rate_bps", rate)
    client = ProbeClient("127.0.0.1", server.port, "t")
    client.measure(Question(50_000, 60_000, skip_out=1000, skip_back=2000))
    assert skipped == [(50_000, 1000, True), (60_000, 2000, True)]
    client.measure(Question(50_000, 60_000, constant=False))
    assert skipped[2:] == [(50_000, 0, False), (60_000, 0, False)]
    with pytest.raises(ValueError) as refused:
        client.measure(Question(50_000, 60_000, skip_back=60_000))
    assert str(refused.value) == snapshot


def test_a_message_is_timed_until_the_server_has_it_all_and_answers(
    server: ProbeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, did = 100.0, []
    pour = probe._pour

    def slow(sock: socket.socket, nbytes: int) -> list[Arrival]:
        nonlocal now_s
        outcome = _sink(sock, nbytes)
        if threading.current_thread().name == "probe":
            now_s += 7.5
            did.append(("has", nbytes))
        return outcome

    def answering(sock: socket.socket, nbytes: int) -> None:
        did.append(("answers", nbytes))
        pour(sock, nbytes)

    clock(monkeypatch, perf_counter=lambda: now_s)
    monkeypatch.setattr(probe, "_sink", slow)
    monkeypatch.setattr(probe, "_pour", answering)
    client = ProbeClient("127.0.0.1", server.port, "t")
    assert client.measure(Question(message=1_000_000, answer=3)).message_s == 7.5
    assert did == [("has", 1_000_000), ("answers", 3)]


def test_a_message_has_an_answer_of_so_many_bytes(
    server: ProbeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sunk: list[int] = []

    def sink(sock: socket.socket, nbytes: int) -> list[Arrival]:
        sunk.append(nbytes)
        return _sink(sock, nbytes)

    monkeypatch.setattr(probe, "_sink", sink)
    client = ProbeClient("127.0.0.1", server.port, "t")
    assert client.measure(Question(message=300_000, answer=2_000_000)).message_s
    assert sorted(sunk) == [300_000, 2_000_000]


def test_a_peer_that_falls_silent_amid_a_question_is_let_go(
    server: ProbeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = ProbeClient("127.0.0.1", server.port, "t")
    with monkeypatch.context() as patch:
        patch.setattr(probe, "TIMEOUT_S", 0.1)
        silent._sock.sendall(probe._ASK.pack(b"m", 1000, 0))
        assert silent._sock.recv(1) == b""
    assert ProbeClient("127.0.0.1", server.port, "t").measure(Question()).rtt_s is not None


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


def test_a_size_from_the_other_end_never_decides_what_is_allocated(server: ProbeServer) -> None:
    """More than there is memory: it comes as long as somebody takes it."""
    with connected("127.0.0.1", server.port, "t") as sock:
        sock.sendall(probe._ASK.pack(b"b", 1 << 62, 0))
        sock.settimeout(30)
        for _ in range(100):
            assert sock.recv(1 << 16)


@pytest.mark.parametrize("rate", [math.nan, -1.0, 0.0])
def test_a_rate_that_cannot_be_is_refused(
    server: ProbeServer, monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    monkeypatch.setattr(probe, "_rate_bps", lambda *_, **__: rate)
    with pytest.raises(ValueError, match="bit/s"):
        ProbeClient("127.0.0.1", server.port, "t").measure(Question(100_000, 0))
