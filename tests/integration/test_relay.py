"""The relay for real: three namespaces, sockets in the outer two, the relay's process in the middle.

Nothing is early, lost or out of order, and what is counted is what crossed. Exactly when frames leave:
tests/unit/link/test_relay.py and test_relay_path.py; how exactly on this machine: tests/measure/test_relay.py.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import pytest

from pareto.remote.link.probe import GOODPUT
from tests import REPOSITORY
from tests.integration.relay_net import (
    HEADERS,
    LONG_S,
    SERVER,
    SLEW_S,
    Net,
    Relay,
    datagrams,
    net_with_relay,
    transfer,
)
from tests.less_than_root import needs_networks
from tests.program import wait_until

pytestmark = [
    pytest.mark.integration,
    needs_networks,
]


WAYS: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "unshaped": ({}, {}),
    "delay each way": ({"delay_s": 0.02}, {"delay_s": 0.03}),
    "delay one way": ({"delay_s": 0.03}, {}),
    "rates": ({"rate_bps": 5e6, "delay_s": 0.005}, {"rate_bps": 1e6}),
}


@pytest.mark.parametrize("ways", WAYS.values(), ids=WAYS)
def test_nothing_is_early_lost_or_out_of_order(
    net: Net, relay: Relay, ways: tuple[dict[str, float], dict[str, float]]
) -> None:
    """A link that was idle however long gives no credit: each packet pays for its transmission."""
    for to, way in zip(("server", "edge"), ways, strict=True):
        takes_s = (1000 + HEADERS) * 8 / way.get("rate_bps", float("inf"))
        least_s = way.get("delay_s", 0.0) + takes_s - SLEW_S
        for count, pause in ((5, relay.drained), (50, lambda: None)):
            relay.apply(*ways)
            crossed = datagrams(net, relay, count, 1000, to=to, pause=pause)
            assert crossed.numbers == list(range(count))
            assert min(arrival.delay_s for arrival in crossed.arrivals) >= least_s
            for place in range(count):
                assert crossed.since_first_s(place) >= least_s + place * takes_s
            assert not any(crossed.counted.values())
            assert (crossed.late_p99_s is None) == (not way), "the other way's delay is none of this one's"


TRANSFERS: dict[str, tuple[dict[str, float], dict[str, float], bool, int]] = {
    "unshaped": ({}, {}, True, 5_000_000),
    "rate and delay": ({"rate_bps": 20e6, "delay_s": 0.005}, {}, False, 500_000),
    "super-packets": ({"rate_bps": 100e6}, {}, True, 2_000_000),
    "damage": ({"corrupt": 0.02, "delay_s": 0.002}, {"corrupt": 0.02, "delay_s": 0.002}, False, 300_000),
}


@pytest.mark.parametrize(("out", "back", "offloads", "size"), TRANSFERS.values(), ids=TRANSFERS)
def test_tcp_crosses_whole_and_pays_for_each_segments_headers(
    net: Net, relay: Relay, out: dict[str, Any], back: dict[str, Any], offloads: bool, size: int
) -> None:
    data = random.Random(5).randbytes(size)  # noqa: S311
    net.offloads(on=offloads)
    relay.apply(out, back)
    relay.result("seed", seed=5)
    before, began_ns = relay.stats(), time.time_ns()
    assert transfer(net, relay, data) == data
    took_s, after = (time.time_ns() - began_ns) / 1e9, relay.stats()
    net.offloads(on=False)
    assert after["dropped"] == before["dropped"]
    crossed = {name: after["forwarded"]["edge_to_server"][name] for name in ("packets", "bytes")}
    for name, each in (("packets", 1 / 1448), ("bytes", 1 / GOODPUT)):
        assert crossed[name] - before["forwarded"]["edge_to_server"][name] >= size * each
    assert took_s >= 8 * size / GOODPUT / out.get("rate_bps", float("inf")) - SLEW_S
    assert (after["corrupted"] > before["corrupted"]) is ("corrupt" in out)


def test_a_changed_profile_neither_loses_nor_reorders_what_is_queued(net: Net, relay: Relay) -> None:
    server, edge = net.socket("server", socket.SOCK_DGRAM), net.socket("edge", socket.SOCK_DGRAM)
    with server, edge:
        server.bind((SERVER, 0))
        server.settimeout(LONG_S)
        edge.connect(server.getsockname())
        dropped = relay.stats()["dropped"]
        relay.apply({"delay_s": 0.3})
        for number in range(100):
            edge.send(bytes([number]))
        relay.apply({"delay_s": 0.01, "rate_bps": 10e6})
        for number in range(100, 200):
            edge.send(bytes([number]))
        assert [server.recv(16)[0] for _ in range(200)] == list(range(200))
    assert relay.stats()["dropped"] == dropped


def test_what_an_outage_holds_is_told_and_keeps_its_place() -> None:
    """On a link of its own, as it ends with it."""
    rates = ((0, 1e6), (1, 0), (300, 1e6))
    steps = [{"at_s": at_s, "delay_s": 0.0, "rate_bps": rate_bps} for at_s, rate_bps in rates]
    with net_with_relay() as (net, relay):
        server, edge = net.socket("server", socket.SOCK_DGRAM), net.socket("edge", socket.SOCK_DGRAM)
        with server, edge:
            server.bind((SERVER, 0))
            server.setblocking(False)
            edge.connect(server.getsockname())
            relay.apply({"trace": {"name": "out", "period_s": 400.0, "steps": steps}}, offset_s=1.0)
            assert relay.stats()["draining_s"] == 0
            edge.send(b"held")
            assert wait_until(lambda: relay.stats()["draining_s"] > 0, LONG_S)
            relay.apply({})
            edge.send(b"behind it")
            assert 0 < relay.stats()["draining_s"] < 299
            with pytest.raises(BlockingIOError):
                server.recv(16)


def test_it_ends_at_end_of_file_and_on_sigterm(net: Net) -> None:
    relay = Relay(net)
    assert relay.apply({"delay_s": 0.1})["scheduling"] in ("fifo", "other")
    assert relay.close() == 0
    relay = Relay(net)
    relay.apply({})
    relay.process.send_signal(signal.SIGTERM)
    assert relay.process.wait(LONG_S) == 0
    relay.close()


def test_a_missing_interface_is_one_clear_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pareto.remote.link.relay", "--edge", "nosuch0", "--server", "nosuch1"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot open nosuch0 and nosuch1" in done.stderr
    assert "Traceback" not in done.stderr
