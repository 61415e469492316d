"""The link probe's two ends, over loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pareto.backends.handshake import Rejected
from pareto.link.probe import Reading, judge
from pareto.link.profile import load
from pareto.worker.probe import ProbeClient, ProbeServer, _goodput


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
    assert reading["rate_bps"] is None
    assert reading["rate_back_bps"] is None


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
