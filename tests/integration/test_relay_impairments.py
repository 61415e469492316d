"""The relay's jitter, loss, damage, queue, bucket and traces for real: numbered datagrams, stamped by the kernel."""

from __future__ import annotations

import os
import socket
import statistics
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import pytest
from pyroute2 import netns

from pareto.link.profile import Direction, Gilbert
from pareto.link.trace import Step, Trace
from tests.integration.relay_net import SERVER, Net, Relay, prompt, settled
from tests.less_than_root import needs_networks
from tests.program import wait_until

pytestmark = [
    pytest.mark.integration,
    needs_networks,
]

_SO_NO_CHECK, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 11, 33, 35
HEADERS = 42  # Ethernet, IPv4 and UDP


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    net = Net()
    net.offloads(on=False)
    yield net
    net.close()
    assert not set(net.names.values()) & set(netns.listnetns())


@pytest.fixture(scope="module")
def relay(net: Net) -> Iterator[Relay]:
    relay = Relay(net)
    yield relay
    relay.close()


class Arrival(NamedTuple):
    number: int
    delay_s: float  # since it was sent
    at_s: float
    payload: bytes


def datagrams(
    net: Net, count: int, size: int = 64, gap_s: float = 0.0, quiet_s: float = 0.3, checksum: bool = True
) -> list[Arrival]:
    """Send numbered datagrams from the edge; what has arrived when nothing did for `quiet_s`, in that order.

    The kernel's time of arrival does not depend on when this process gets a core to read it.
    """
    server, edge = net.socket("server", socket.SOCK_DGRAM), net.socket("edge", socket.SOCK_DGRAM)
    with server, edge:
        server.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        server.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        edge.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, int(not checksum))
        server.bind((SERVER, 0))
        edge.connect(server.getsockname())
        sent_ns = []
        with prompt():
            for number in range(count):
                sent_ns.append(time.time_ns())
                edge.send(number.to_bytes(4, "big") + bytes(size - 4))
                if gap_s:
                    time.sleep(gap_s)
        server.settimeout(quiet_s)
        arrivals = []
        while True:
            try:
                payload, ancillary, _, _ = server.recvmsg(2048, 64)
            except TimeoutError:
                return arrivals
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
            at_ns = seconds * 10**9 + nanoseconds
            number = int.from_bytes(payload[:4], "big") % count
            arrivals.append(Arrival(number, (at_ns - sent_ns[number]) / 1e9, at_ns / 1e9, payload))


def counted(relay: Relay, name: str) -> int:
    return int(relay.stats()[name])


def interval(share: float, count: int) -> Any:
    """4.5 standard deviations of a binomial share: missed once in 150000 runs."""
    return pytest.approx(share, abs=4.5 * (share * (1 - share) / count) ** 0.5)


def test_jitter_spreads_delays_within_its_bounds(net: Net, relay: Relay) -> None:
    relay.apply({"delay_s": 0.01, "jitter_s": 0.008})
    delays = [arrival.delay_s for arrival in datagrams(net, 80, gap_s=0.018)]
    assert len(delays) == 80
    assert 0.002 <= min(delays) < 0.005
    assert statistics.median(delays) == pytest.approx(0.01, abs=0.004)
    assert max(delays) > 0.015
    assert sum(delay > 0.019 for delay in delays) <= 4  # but for a machine that stands still


def test_a_seed_loses_the_same_packets_again(net: Net, relay: Relay) -> None:
    """By their number, however fast they come."""
    relay.apply({"delay_s": 0.005, "loss": 0.2, "duplicate": 0.1})
    came = []
    for seed, gap_s in ((5, 0.0), (5, 0.001), (6, 0.0)):
        assert relay.result("seed", seed=seed) == {"seeded": True}
        came.append([arrival.number for arrival in datagrams(net, 200, gap_s=gap_s)])
    assert came[0] == came[1] != came[2]
    assert 120 < len(set(came[0])) < 200


def test_jitter_keeps_the_order(net: Net, relay: Relay) -> None:
    relay.apply({"delay_s": 0.02, "jitter_s": 0.02, "jitter_correlation": 0.3})
    assert [arrival.number for arrival in datagrams(net, 300, gap_s=0.0002)] == list(range(300))


def test_loss_is_as_asked_and_counted(net: Net, relay: Relay) -> None:
    relay.apply({"loss": 0.1})
    before = relay.stats()
    got = datagrams(net, 4000)
    after = relay.stats()
    assert 1 - len(got) / 4000 == interval(0.1, 4000)
    assert after["lost"] - before["lost"] == 4000 - len(got)
    assert after["dropped"] == before["dropped"]


def test_gilbert_loses_in_bursts(net: Net, relay: Relay) -> None:
    model = Gilbert(good_to_bad=0.02, bad_to_good=0.25)
    relay.apply(Direction(loss=model).to_dict())
    got = {arrival.number for arrival in datagrams(net, 8000)}
    lost = [number not in got for number in range(8000)]
    bursts = [len(list(run)) for missing, run in groupby(lost) if missing]
    assert statistics.fmean(bursts) == pytest.approx(4, abs=1.3)  # 4.5 standard errors
    assert sum(lost) / 8000 == pytest.approx(model.mean, abs=0.04)


def test_duplicates_arrive_twice(net: Net, relay: Relay) -> None:
    relay.apply({"duplicate": 0.2})
    before = counted(relay, "duplicated")
    times = Counter(arrival.number for arrival in datagrams(net, 2000))
    assert set(times) == set(range(2000))
    assert set(times.values()) == {1, 2}
    twice = sum(count == 2 for count in times.values())
    assert twice / 2000 == interval(0.2, 2000)
    assert counted(relay, "duplicated") - before == twice


def test_reordered_packets_overtake(net: Net, relay: Relay) -> None:
    relay.apply({"delay_s": 0.3, "reorder": 0.25})
    before = counted(relay, "reordered")
    got = datagrams(net, 800, quiet_s=0.5)
    early = [arrival.number for arrival in got if arrival.delay_s < 0.3]
    assert len(got) == 800
    assert len(early) / 800 == interval(0.25, 800)
    assert counted(relay, "reordered") - before == len(early)
    late = [arrival.number for arrival in got if arrival.delay_s >= 0.3]
    assert late == sorted(late)


def test_damage_is_found_by_checksums(net: Net, relay: Relay) -> None:
    """The sender leaves its checksum to the card: finished after the damage, it would call the damage good."""
    relay.apply({"corrupt": 1.0})
    before = counted(relay, "corrupted")
    got = datagrams(net, 500, size=1000)
    assert counted(relay, "corrupted") - before == 500
    assert not any(arrival.payload[4:].strip(b"\0") for arrival in got)
    assert len(got) < 25  # those whose sender's hardware address was hit, 6 bytes of 1042


def test_without_checksums_one_bit_is_flipped(net: Net, relay: Relay) -> None:
    relay.apply({"corrupt": 0.5})
    got = datagrams(net, 1000, size=1000, checksum=False)
    flipped = [bin(int.from_bytes(arrival.payload[4:], "big")).count("1") for arrival in got]
    assert set(flipped) == {0, 1}
    assert sum(flipped) / 1000 == interval(0.5 * 996 / 1042, 1000)


def test_tcp_gets_through_a_damaging_link_intact(net: Net, relay: Relay) -> None:
    relay.apply({"corrupt": 0.02, "delay_s": 0.002}, {"corrupt": 0.02, "delay_s": 0.002})
    before = counted(relay, "corrupted")
    data = os.urandom(1_000_000)
    server, edge = net.socket("server", socket.SOCK_STREAM), net.socket("edge", socket.SOCK_STREAM)
    with server, edge:
        server.bind((SERVER, 0))
        server.listen(1)
        edge.settimeout(20)
        edge.connect(server.getsockname())
        incoming, _ = server.accept()
        with incoming:
            incoming.settimeout(20)
            thread = threading.Thread(target=edge.sendall, args=(data,))
            thread.start()
            got = bytearray()
            while len(got) < len(data):
                got += incoming.recv(1 << 20)
            thread.join()
    assert got == data
    assert counted(relay, "corrupted") > before


def test_a_short_queue_drops_and_bounds_the_delay(net: Net, relay: Relay) -> None:
    reply = relay.apply({"delay_s": 0.02, "rate_bps": 5e6, "limit_bytes": 15_000})
    assert reply["edge_to_server"]["limit_bytes"] == 15_000
    before = relay.stats()
    got = datagrams(net, 100, size=1000)
    after = relay.stats()
    takes_s = (1000 + HEADERS) * 8 / 5e6
    assert 14 <= len(got) < 40  # 14 fit, and some leave while the others are being sent
    assert after["dropped"] - before["dropped"] == 100 - len(got)
    assert after["lost"] == before["lost"]
    delays = [arrival.delay_s for arrival in got]
    assert delays[0] >= 0.02 + takes_s
    assert statistics.quantiles(delays, n=10)[-1] < 0.02 + 15_000 * 8 / 5e6 + 0.005


def span(net: Net, count: int, expected: Any) -> float:
    """Seconds from the first to the last arrival of full-size packets sent at once."""

    def once() -> float:
        got = datagrams(net, count, size=1472, quiet_s=0.15)
        assert len(got) == count
        return got[-1].at_s - got[0].at_s

    return settled(once, expected, tries=10)


def test_a_bucket_passes_its_burst_and_netems_rate_does_not(net: Net, relay: Relay) -> None:
    """30 kB: what tbf lets through at once takes 48 ms at 5 Mbit/s, of which 2.4 ms pass before the first."""
    plain = {"delay_s": 0.01, "rate_bps": 5e6}
    reply = relay.apply(plain, bucket={"burst_bytes": 32 << 10, "latency_s": 0.4})
    assert reply["bucket"] == {"burst_bytes": 32 << 10, "latency_s": 0.4}
    assert reply["edge_to_server"]["limit_bytes"] == 250_000 + (32 << 10)
    at_once, paced = pytest.approx(0.0, abs=0.005), pytest.approx(0.0465, abs=0.0065)
    assert span(net, 20, at_once) == at_once
    assert span(net, 41, paced) == paced  # 20 more than the bucket holds
    assert relay.apply(plain)["bucket"] is None
    assert span(net, 20, paced) == paced


def played(period_s: float, *steps: tuple[float, float, float | None]) -> dict[str, Any]:
    trace = Trace("walk", period_s, tuple(Step(*step) for step in steps))
    return Direction(trace=trace).to_dict()


def test_a_traces_rates_and_outage_are_seen_in_arrivals(net: Net, relay: Relay) -> None:
    reply = relay.apply(played(5.0, (0, 0.01, 4e6), (0.1, 0.03, 0.0), (0.3, 0.03, 1e6)))
    assert reply["edge_to_server"]["trace"] == {"name": "walk", "period_s": 5.0}
    assert set(reply["edge_to_server"]) == {"trace", "limit_bytes"}
    takes_s = (1000 + HEADERS) * 8 / 4e6

    def gaps() -> tuple[float, float, float]:
        relay.ask("restart", position_s=0.0)
        got = datagrams(net, 70, size=1000)
        assert [arrival.number for arrival in got] == list(range(70))
        apart = [later.at_s - earlier.at_s for earlier, later in pairwise(got)]
        before = round(0.1 / takes_s)  # so many pass before the outage, or fewer where sending begins late
        outage = apart.index(max(apart))
        assert outage <= before
        return statistics.median(apart[:outage]), apart[outage], statistics.median(apart[outage + 1 :])

    # The delay grows by 20 ms during the outage.
    expected = pytest.approx((takes_s, 0.22, 4 * takes_s), rel=0.1)
    for _ in range(6):  # what else runs here spoils some
        if (found := gaps()) == expected:
            break
    assert found == expected


def test_a_trace_begins_anew_where_it_is_told(net: Net, relay: Relay) -> None:
    steps = played(100.0, (0, 0.005, None), (50, 0.06, None))

    def delay(expected: Any) -> float:
        return settled(
            lambda: statistics.median(arrival.delay_s for arrival in datagrams(net, 5, quiet_s=0.1)), expected
        )

    first, second = pytest.approx(0.005, abs=0.003), pytest.approx(0.06, abs=0.003)
    relay.apply(steps)
    assert delay(first) == first
    assert relay.ask("restart", position_s=50.5)["result"]["position_s"] == pytest.approx(50.5, abs=0.3)
    assert delay(second) == second
    assert 50.5 < relay.stats()["position_s"] < 60
    relay.ask("restart", position_s=0.0)
    assert delay(first) == first
    relay.apply(steps, offset_s=49.9)
    time.sleep(0.1)
    assert delay(second) == second
    relay.apply({})
    assert relay.stats()["position_s"] is None
    assert relay.ask("restart", position_s=1.0)["result"] == {"position_s": None}
    assert "not a time" in relay.ask("restart", position_s=-1)["error"]


def test_what_an_outage_holds_is_told(net: Net, relay: Relay) -> None:
    began = time.monotonic()
    relay.apply(played(10.0, (0, 0.0, 1e6), (1, 0.0, 0.0), (3, 0.0, 1e6)), offset_s=1.0)
    assert relay.stats()["draining_s"] == 0
    got = datagrams(net, 1, quiet_s=0.1)
    assert got == []
    assert 0.1 < relay.stats()["draining_s"] < 1.95
    relay.apply({})
    assert relay.stats()["draining_s"] > 0.05  # order is kept
    assert wait_until(lambda: relay.stats()["draining_s"] == 0)
    assert time.monotonic() - began > 1.9


def test_the_cpu_share_counts_from_apply(net: Net, relay: Relay) -> None:
    relay.apply({"delay_s": 0.01})
    datagrams(net, 5000)
    busy = relay.stats()["cpu_share"]
    assert 0.01 < busy < 2
    relay.apply({"delay_s": 0.01})
    time.sleep(0.3)
    assert relay.stats()["cpu_share"] < busy / 4
