"""How true the link probe reads: two workers, each in its namespace, and the relay between them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyroute2 import netns

from pareto.constants import GOODPUT
from pareto.jsonlines import plain
from pareto.link.probe import Question
from pareto.trial_messages import GetUsage
from pareto.worker.datagrams import PAYLOAD_SHARE
from tests.integration.relay_net import SERVER, Net, Relay, prompt, settled
from tests.less_than_root import needs_networks
from tests.program import Program

pytestmark = [
    pytest.mark.integration,
    needs_networks,
]

Probe = Callable[..., dict[str, Any]]
Link = Callable[[dict[str, Any], dict[str, Any]], Probe]

RUN = {"address": SERVER, "token": "t"}
CLEAN = {"duplicates": 0, "reordered": 0}


class Worker(Program):
    """A device's worker; never kept waiting for a core by whatever else runs here."""

    ask = Program.result

    def __init__(self, net: Net, role: str) -> None:
        netns.pushns(net.names[role])
        try:
            with prompt():
                super().__init__("pareto.worker")
        finally:
            netns.popns()


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    net = Net()
    net.offloads(on=False)
    yield net
    net.close()


@pytest.fixture
def relay(net: Net) -> Iterator[Relay]:
    relay = Relay(net)
    yield relay
    relay.close()


@pytest.fixture(scope="module")
def workers(net: Net) -> Iterator[tuple[Worker, Worker]]:
    edge, server = Worker(net, "edge"), Worker(net, "server")
    yield edge, server
    edge.close()
    server.close()


@pytest.fixture(scope="module")
def ports(workers: tuple[Worker, Worker]) -> dict[str, int]:
    result: dict[str, int] = workers[1].ask("listen", **RUN)
    return result


@pytest.fixture
def link(workers: tuple[Worker, Worker], ports: dict[str, int], relay: Relay) -> Link:
    """Shapes the link each way; what probes it, over new connections, as TCP's memory of another link misleads it."""
    edge, server = workers

    def probe(**fields: Any) -> dict[str, Any]:
        # A worker whose driver says nothing for 30 s ends, and TCP takes seconds where packets are lost.
        server.ask("usage", **plain(GetUsage()))
        reading: dict[str, Any] = edge.ask("probe", **plain(Question(**fields)))
        return reading

    def shape(out: dict[str, Any], back: dict[str, Any]) -> Probe:
        relay.apply(out, back)
        server.ask("usage", **plain(GetUsage()))
        edge.ask("connect", **RUN, ports=ports, backends=[])
        return probe

    return shape


def reading(probe: Probe, field: str, expected: Any, **asked: Any) -> float:
    return settled(lambda: float(probe(**asked)[field]), expected)


@pytest.mark.parametrize("datagrams", [False, True])
def test_the_rtt_is_right_to_a_millisecond(link: Link, datagrams: bool) -> None:
    probe = link({"delay_s": 0.02}, {"delay_s": 0.02})
    expected = pytest.approx(0.040, abs=0.001)
    assert reading(probe, "rtt_s", expected, bulk_out=0, bulk_back=0, datagrams=datagrams) == expected


@pytest.mark.parametrize("mbit", [5, 50])
def test_the_rate_by_datagrams_is_right_within_3_percent(link: Link, mbit: int) -> None:
    """A tenth of a second of bulk each way, the other way free."""
    slow, free = {"rate_bps": mbit * 1e6, "delay_s": 0.005}, {"delay_s": 0.005}
    asked = {"bulk_out": 12_500 * mbit, "bulk_back": 12_500 * mbit, "datagrams": True}
    expected = pytest.approx(mbit * 1e6 * PAYLOAD_SHARE, rel=0.03)
    assert reading(link(slow, free), "rate_bps", expected, **asked) == expected
    assert reading(link(free, slow), "rate_back_bps", expected, **asked) == expected


def test_what_else_is_asked_delays_no_echo(link: Link) -> None:
    probe = link({"rate_bps": 5e6, "delay_s": 0.02}, {"delay_s": 0.02})
    asked = {"bulk_out": 62_500, "bulk_back": 62_500, "sample_out": 50, "datagrams": True}
    expected = pytest.approx(0.040, abs=0.001)
    assert reading(probe, "rtt_s", expected, **asked) == expected


def test_a_clean_link_loses_repeats_and_overtakes_nothing(link: Link, relay: Relay) -> None:
    probe = link({"rate_bps": 50e6, "delay_s": 0.01}, {"delay_s": 0.01})
    got = probe(
        bulk_out=625_000, bulk_back=0, sample_out=500, sample_back=500, sample_gap_s=0.0005, datagrams=True
    )
    assert got["sample"] == got["sample_back"] == {"sent": 500, "received": 500, **CLEAN}
    assert relay.stats()["dropped"] == 0


def test_where_every_tenth_packet_is_lost(link: Link) -> None:
    """TCP has neither a round trip nor a rate to tell there."""
    way = {"rate_bps": 20e6, "delay_s": 0.02, "loss": 0.1}
    probe = link(way, way)
    asked = {"sample_out": 1000, "sample_back": 1000, "sample_gap_s": 0.0005, "wait_s": 0.15, "pings": 9}
    asked |= {"bulk_out": 250_000, "bulk_back": 250_000, "datagrams": True}
    readings = [probe(**asked) for _ in range(3)]
    for field in ("sample", "sample_back"):
        received = sum(it[field]["received"] for it in readings)
        assert received == pytest.approx(2700, abs=4 * 16.4)  # four standard deviations
        assert all(CLEAN.items() <= it[field].items() for it in readings)
    for field, expected in (
        ("rtt_s", pytest.approx(0.040, abs=0.001)),
        ("rate_bps", pytest.approx(20e6 * PAYLOAD_SHARE, rel=0.05)),
        ("rate_back_bps", pytest.approx(20e6 * PAYLOAD_SHARE, rel=0.05)),
    ):
        assert statistics.median(it[field] for it in readings) == expected or (
            reading(probe, field, expected, **asked) == expected
        ), field


def test_where_every_tenth_packet_comes_twice(link: Link) -> None:
    probe = link({"delay_s": 0.01, "duplicate": 0.1}, {"delay_s": 0.01})
    got = probe(bulk_out=0, bulk_back=0, sample_out=1000, sample_back=100, sample_gap_s=0.0005, wait_s=0.1)
    assert got["sample"] == {
        "sent": 1000,
        "received": 1000,
        "duplicates": pytest.approx(100, abs=4 * 9.5),  # four standard deviations
        "reordered": 0,
    }
    assert got["sample_back"] == {"sent": 100, "received": 100, **CLEAN}


def test_where_every_tenth_packet_overtakes(link: Link) -> None:
    """Those that overtake are counted, not the twenty that each leaves behind."""
    probe = link({"delay_s": 0.02, "reorder": 0.1}, {"delay_s": 0.01})
    got = probe(bulk_out=0, bulk_back=0, sample_out=500, sample_gap_s=0.001, wait_s=0.1)
    assert got["sample"]["received"] == 500
    assert got["sample"]["duplicates"] == 0
    assert got["sample"]["reordered"] == pytest.approx(50, abs=4 * 6.7)  # four standard deviations


def test_a_message_takes_its_transmission_and_a_round_trip(link: Link) -> None:
    probe = link({"rate_bps": 10e6, "delay_s": 0.01}, {"delay_s": 0.01})
    asked = {"bulk_out": 0, "bulk_back": 0, "message": 100_000}
    probe(**asked)  # opens the window
    expected = pytest.approx(0.020 + 100_000 * 8 / (10e6 * GOODPUT), rel=0.03)
    assert reading(probe, "message_s", expected, **asked) == expected


@pytest.mark.parametrize("skip", [0, 20_000])
def test_the_rate_by_tcp(link: Link, skip: int) -> None:
    way = {"rate_bps": 20e6, "delay_s": 0.005}
    probe = link(way, way)
    asked = {"bulk_out": 250_000, "skip_out": skip, "bulk_back": 250_000, "skip_back": skip}
    probe(**asked)  # opens the window
    expected = pytest.approx(20e6 * GOODPUT, rel=0.03)
    for field in ("rate_bps", "rate_back_bps"):
        assert reading(probe, field, expected, **asked) == expected
