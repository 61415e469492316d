"""The link probe's two ends, over loopback."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from pareto.backends.handshake import Rejected
from pareto.link.library import load
from pareto.link.probe import Reading, judge
from pareto.worker import probe
from pareto.worker.probe import ProbeClient, ProbeServer, _goodput, _sink


@pytest.fixture
def server() -> Iterator[ProbeServer]:
    yield ProbeServer("127.0.0.1", "t")


def test_rtt_and_both_rates(server: ProbeServer) -> None:
    client = ProbeClient("127.0.0.1", server.port, "t")
    for _ in range(2):
        reading = client.measure(4_000_000, 4_000_000)
        assert reading["rtt_s"] is not None
        assert 0 < reading["rtt_s"] < 0.003  # an echo is not left lying until the other pings are sent
        for way in ("rate_bps", "rate_back_bps"):
            rate = reading[way]
            assert rate is not None
            assert 1e7 < rate < 1e12


def test_what_was_not_asked_is_not_measured(server: ProbeServer) -> None:
    reading = ProbeClient("127.0.0.1", server.port, "t").measure(0, 0)
    for field in ("rate_bps", "rate_back_bps", "sample", "sample_back", "message_s"):
        assert reading[field] is None


def test_a_new_connection_takes_over_from_a_closed_one(server: ProbeServer) -> None:
    ProbeClient("127.0.0.1", server.port, "t").close()
    assert ProbeClient("127.0.0.1", server.port, "t").measure(0, 0)["rtt_s"] is not None


def test_the_token_is_asked_for(server: ProbeServer) -> None:
    with pytest.raises(Rejected):
        ProbeClient("127.0.0.1", server.port, "x")


def test_what_comes_in_one_piece_is_too_fast_for_any_link() -> None:
    """Not unmeasured, which nobody would judge."""
    reading = Reading(0.2, _goodput((0.0, 0)), None)
    assert "rate edge to server" in judge(load("200ms-5mbit"), reading)


def test_every_ping_is_told_and_their_median(server: ProbeServer) -> None:
    reading = ProbeClient("127.0.0.1", server.port, "t").measure(0, 0, pings=7)
    assert len(reading["rtts_s"]) == 7
    assert reading["rtt_s"] == sorted(reading["rtts_s"])[3]


def test_the_share_of_payload_is_that_of_what_carried_the_bulk(server: ProbeServer) -> None:
    client = ProbeClient("127.0.0.1", server.port, "t")
    assert client.measure(0, 0)["payload_share"] == 1448 / 1514
    assert client.measure(0, 0, sample_out=1)["payload_share"] == 1448 / 1514
    assert client.measure(0, 0, datagrams=True)["payload_share"] == 1472 / 1514


def trickle(parts: list[int], gap_s: float) -> socket.socket:
    """Bytes that come in parts, with pauses between."""
    here, there = socket.socketpair()

    def send() -> None:
        for part in parts:
            there.sendall(bytes(part))
            time.sleep(gap_s)

    threading.Thread(target=send).start()
    return here


@pytest.mark.parametrize(
    ("skip", "counted", "gaps"), [(0, 5000, 3), (999, 5000, 3), (1000, 3000, 2), (2500, 3000, 2)]
)
def test_what_is_skipped_counts_neither_in_bytes_nor_in_time(skip: int, counted: int, gaps: int) -> None:
    """The clock starts with the first arrival beyond it, whose own bytes do not count either."""
    with trickle([1000, 2000, 1000, 2000], 0.05) as sock:
        seconds, nbytes = _sink(sock, 6000, skip)
    assert nbytes == counted
    assert seconds == pytest.approx(0.05 * gaps, abs=0.02)


def test_skipping_goes_for_the_direction_it_is_asked_for(
    server: ProbeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped = []

    def sink(sock: socket.socket, nbytes: int, skip: int = 0) -> tuple[float, int]:
        skipped.append((nbytes, skip))
        return _sink(sock, nbytes, skip)

    monkeypatch.setattr(probe, "_sink", sink)
    client = ProbeClient("127.0.0.1", server.port, "t")
    client.measure(50_000, 60_000, skip_out=1000, skip_back=2000)
    assert skipped == [(50_000, 1000), (60_000, 2000)]
    with pytest.raises(ValueError, match="nothing of the bulk is left"):
        client.measure(50_000, 60_000, skip_back=60_000)


def test_a_message_is_timed_until_the_server_has_it_all(
    server: ProbeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(sock: socket.socket, nbytes: int, skip: int = 0) -> tuple[float, int]:
        outcome = _sink(sock, nbytes, skip)
        time.sleep(0.05)
        return outcome

    client = ProbeClient("127.0.0.1", server.port, "t")
    quick = client.measure(0, 0, message=1_000_000)["message_s"]
    assert quick is not None
    assert 0 < quick < 0.05
    monkeypatch.setattr(probe, "_sink", slow)
    late = client.measure(0, 0, message=1)["message_s"]
    assert late is not None
    assert late > 0.05


def test_a_peer_that_falls_silent_amid_a_question_is_let_go(
    server: ProbeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "TIMEOUT_S", 0.1)
    silent = ProbeClient("127.0.0.1", server.port, "t")
    silent._sock.sendall(probe._ASK.pack(b"m", 1000, 0))
    assert ProbeClient("127.0.0.1", server.port, "t").measure(0, 0)["rtt_s"] is not None


def test_between_questions_a_peer_may_be_silent(server: ProbeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "TIMEOUT_S", 0.1)
    client = ProbeClient("127.0.0.1", server.port, "t")
    client.measure(0, 0)
    time.sleep(0.3)
    assert client.measure(0, 0)["rtt_s"] is not None
