"""The relay for real: three namespaces, sockets in the outer two, the relay's process in the middle."""

from __future__ import annotations

import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyroute2 import netns

from pareto.link.probe import GOODPUT
from tests import REPOSITORY
from tests.integration.relay_net import SERVER, Net, Relay, prompt, settled
from tests.less_than_root import needs_networks

pytestmark = [
    pytest.mark.integration,
    needs_networks,
]


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    net = Net()
    yield net
    net.close()
    assert not set(net.names.values()) & set(netns.listnetns())


@pytest.fixture
def relay(net: Net) -> Iterator[Relay]:
    net.offloads(on=False)
    relay = Relay(net)
    relay.apply({})
    yield relay
    relay.close()


def echo_rtts(net: Net, count: int, size: int = 64, gap_s: float = 0.0) -> list[float]:
    """Round trips of UDP datagrams through an echo on the server, in seconds."""
    server, edge = net.socket("server", socket.SOCK_DGRAM), net.socket("edge", socket.SOCK_DGRAM)
    with server, edge:
        server.bind((SERVER, 0))
        server.settimeout(5)
        edge.settimeout(5)
        edge.connect(server.getsockname())

        def echo() -> None:
            for _ in range(count):
                data, peer = server.recvfrom(2048)
                server.sendto(data, peer)

        rtts = []
        with prompt():
            thread = threading.Thread(target=echo)
            thread.start()
            for number in range(count):
                sent = time.perf_counter()
                edge.send(number.to_bytes(4, "big") + bytes(size - 4))
                assert int.from_bytes(edge.recv(2048)[:4], "big") == number
                rtts.append(time.perf_counter() - sent)
                time.sleep(gap_s)
            thread.join()
    return rtts


def median_rtt(net: Net, count: int, expected: Any, size: int = 64, gap_s: float = 0.0) -> float:
    return settled(lambda: statistics.median(echo_rtts(net, count, size, gap_s)), expected)


def tcp_goodput(net: Net, size: int, skip: int = 0) -> float:
    """Payload bit/s of a TCP transfer edge to server, timed at the receiver after the first `skip` bytes."""
    server, edge = net.socket("server", socket.SOCK_STREAM), net.socket("edge", socket.SOCK_STREAM)
    with server, edge:
        server.bind((SERVER, 0))
        server.listen(1)
        edge.settimeout(20)
        edge.connect(server.getsockname())
        incoming, _ = server.accept()
        with incoming:
            incoming.settimeout(20)
            thread = threading.Thread(target=edge.sendall, args=(bytes(size),))
            thread.start()
            got, started, counted_from = 0, 0.0, 0
            while got < size:
                got += len(incoming.recv(1 << 20))
                if not started and got > skip:
                    started, counted_from = time.perf_counter(), got
            elapsed = time.perf_counter() - started
            thread.join()
    return (size - counted_from) * 8 / elapsed


def test_delay_is_added_in_each_direction(net: Net, relay: Relay) -> None:
    relay.apply({"delay_s": 0.02}, {"delay_s": 0.02})
    expected = pytest.approx(0.040, abs=0.002)
    assert median_rtt(net, 11, expected) == expected


def test_one_way_delay_leaves_the_way_back_alone(net: Net, relay: Relay) -> None:
    relay.apply({"delay_s": 0.03})
    expected = pytest.approx(0.030, abs=0.002)
    assert median_rtt(net, 11, expected) == expected


def test_an_unshaped_link_costs_less_than_half_a_millisecond(net: Net, relay: Relay) -> None:
    expected = pytest.approx(0.0, abs=0.001)
    assert median_rtt(net, 101, expected) == expected  # there and back
    assert relay.stats()["dropped"] == 0


def test_a_lone_packet_pays_for_its_transmission(net: Net, relay: Relay) -> None:
    """No burst credit: 1042 bytes on the wire at 1 Mbit/s take 8.3 ms however long the link was idle."""
    relay.apply({"rate_bps": 1e6, "delay_s": 0.01})
    expected = pytest.approx(0.01 + 1042 * 8 / 1e6, abs=0.002)
    assert median_rtt(net, 11, expected, size=1000, gap_s=0.02) == expected


@pytest.mark.parametrize(("rate_bps", "size"), [(5e6, 1_000_000), (50e6, 6_000_000)])
def test_tcp_gets_the_rate_less_its_headers(net: Net, relay: Relay, rate_bps: float, size: int) -> None:
    relay.apply({"rate_bps": rate_bps, "delay_s": 0.005})
    expected = pytest.approx(rate_bps * GOODPUT, rel=0.03)
    assert settled(lambda: tcp_goodput(net, size, skip=size // 5), expected) == expected
    assert relay.stats()["dropped"] == 0


def test_super_packets_pay_for_each_segments_headers(net: Net, relay: Relay) -> None:
    net.offloads(on=True)
    relay.apply({"rate_bps": 100e6})
    expected = pytest.approx(100e6 * GOODPUT, rel=0.05)
    assert settled(lambda: tcp_goodput(net, 6_000_000, skip=1_500_000), expected) == expected


def test_an_unshaped_link_drops_nothing(net: Net, relay: Relay) -> None:
    net.offloads(on=True)
    assert any(tcp_goodput(net, 50_000_000) > 500e6 for _ in range(6))
    stats = relay.stats()
    assert stats["dropped"] == 0
    assert stats["forwarded"]["edge_to_server"]["bytes"] > 50_000_000


def test_a_changed_profile_neither_loses_nor_reorders_what_is_queued(net: Net, relay: Relay) -> None:
    server, edge = net.socket("server", socket.SOCK_DGRAM), net.socket("edge", socket.SOCK_DGRAM)
    with server, edge:
        server.bind((SERVER, 0))
        server.settimeout(5)
        edge.connect(server.getsockname())
        relay.apply({"delay_s": 0.3})
        for number in range(100):
            edge.send(bytes([number]))
        relay.apply({"delay_s": 0.01, "rate_bps": 10e6})
        for number in range(100, 200):
            edge.send(bytes([number]))
        assert [server.recv(16)[0] for _ in range(200)] == list(range(200))
    assert relay.stats()["dropped"] == 0


def test_the_reply_says_what_is_in_force(relay: Relay) -> None:
    reply = relay.apply({"delay_s": 0.2, "rate_bps": 5e6})
    assert reply["shaper"] == "relay"
    assert reply["scheduling"] in ("fifo", "other")
    assert reply["edge_to_server"]["delay_s"] == 0.2
    assert reply["edge_to_server"]["rate_bps"] == 5e6
    assert list(reply["server_to_edge"]) == ["limit_bytes"]
    assert reply["bucket"] is None


def test_a_profile_that_cannot_be_is_refused(relay: Relay) -> None:
    reply = relay.ask("apply", edge_to_server={"delay_s": -1})
    assert not reply["ok"]
    assert "edge_to_server.delay_s is -1" in reply["error"]
    assert "edge_to_server.jitter is 1" in relay.ask("apply", edge_to_server={"jitter": 1})["error"]


def test_it_sleeps_when_idle(net: Net, relay: Relay) -> None:
    relay.apply({"delay_s": 0.02, "rate_bps": 5e6})
    before = relay.stats()["cpu_s"]
    time.sleep(0.5)
    assert relay.stats()["cpu_s"] - before < 0.05


def test_it_ends_at_end_of_file_and_on_sigterm(net: Net) -> None:
    relay = Relay(net)
    relay.apply({"delay_s": 0.1})
    relay.close()
    assert relay.process.returncode == 0
    relay = Relay(net)
    relay.apply({})
    relay.process.send_signal(signal.SIGTERM)
    assert relay.process.wait(5) == 0
    relay.close()


def test_a_missing_interface_is_one_clear_line(net: Net) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pareto.link.relay", "--edge", "nosuch0", "--server", "nosuch1"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot open nosuch0 and nosuch1" in done.stderr
    assert "Traceback" not in done.stderr
