"""The relay's jitter, loss, damage, queue, bucket and traces for real: what its path says without sockets, exactly.

Chance is seeded, so that the path alone says what becomes of each packet, by its number. Distributions are those of
tests/unit/link/test_relay_path.py; what only a quiet machine shows is measured by tests/measure/test_relay.py.
"""

from __future__ import annotations

import time

import pytest

from pareto.remote.link.packets import VNET_HEADER
from pareto.remote.link.profile import Bucket, Direction, Gilbert, seed_of
from pareto.remote.link.relay_path import RelayPath
from pareto.remote.link.trace import Step, Trace
from tests.integration.relay_net import (
    HEADERS,
    SLEW_S,
    Net,
    Relay,
    datagrams,
    payload_of,
)
from tests.less_than_root import needs_networks

pytestmark = [
    pytest.mark.integration,
    needs_networks,
]

SEED, APART_NS = 5, 10**10
_ABOVE = VNET_HEADER.size + HEADERS


class Expected:
    """What a path does with datagrams that come far apart: which leave, how late at least, and what is counted."""

    def __init__(self, direction: Direction, count: int, size: int = 64) -> None:
        self.path = RelayPath()
        self.path.shape(direction)
        self.path.seed(seed_of(SEED, "edge_to_server"), 0)
        self.left: list[tuple[int, int, bytes]] = []
        """number, nanoseconds, payload"""
        self.in_headers: set[int] = set()
        for number in range(count):
            sent = bytes(_ABOVE) + payload_of(number, size)
            self.path.accept(memoryview(sent), 1, HEADERS + size, number * APART_NS)
            while self.path.queue:
                due_ns, frame, *_ = self.path.queue[0]
                self.left.append((number, due_ns - number * APART_NS, frame[_ABOVE:]))
                if any(frame[:_ABOVE]):
                    self.in_headers.add(number)
                self.path.left(due_ns)

    @property
    def numbers(self) -> list[int]:
        return [number for number, *_ in self.left]

    @property
    def counted(self) -> dict[str, int]:
        names = ("dropped", "lost", "duplicated", "reordered", "corrupted")
        return {name: getattr(self.path, name) for name in names}


def seeded(relay: Relay, direction: Direction) -> None:
    relay.apply(direction.to_dict())
    assert relay.result("seed", seed=SEED) == {"seeded": True}


CHANCE = {
    "loss": Direction(loss=0.1),
    "loss in bursts": Direction(loss=Gilbert(0.02, 0.25)),
    "copies": Direction(duplicate=0.2),
    "both": Direction(0.005, loss=0.2, duplicate=0.1),
    "jitter": Direction(0.02, jitter_s=0.02),
    "jitter of neighbours": Direction(0.02, jitter_s=0.02, jitter_correlation=0.3),
}


@pytest.mark.parametrize("direction", CHANCE.values(), ids=CHANCE)
def test_the_same_seed_does_the_same_to_each_packet(net: Net, relay: Relay, direction: Direction) -> None:
    """Each is lost, comes twice and is as late as the path says, in the order of sending, and is counted so."""
    expected = Expected(direction, 600)
    seeded(relay, direction)
    crossed = datagrams(net, relay, 600)
    assert crossed.numbers == expected.numbers
    for arrival, (_, least_ns, _) in zip(crossed.arrivals, expected.left, strict=True):
        assert arrival.delay_s >= least_ns / 1e9 - SLEW_S
    assert crossed.counted == expected.counted


def test_reordered_packets_overtake(net: Net, relay: Relay) -> None:
    direction = Direction(0.3, reorder=0.25)
    expected = Expected(direction, 400)
    overtake = {number for number, late_ns, _ in expected.left if not late_ns}
    seeded(relay, direction)
    crossed = datagrams(net, relay, 400)
    stayed = [arrival for arrival in crossed.arrivals if arrival.number not in overtake]
    assert sorted(crossed.numbers) == list(range(400)) != crossed.numbers
    assert [arrival.number for arrival in stayed] == sorted(set(range(400)) - overtake)
    assert min(arrival.delay_s for arrival in stayed) >= 0.3 - SLEW_S
    assert crossed.counted == expected.counted


def test_without_checksums_one_bit_is_flipped(net: Net, relay: Relay) -> None:
    direction = Direction(corrupt=0.5)
    expected = Expected(direction, 500, 1000)
    # Damaged headers reach another host or none.
    others = [payload_of(number, 1000) for number in expected.in_headers]
    seeded(relay, direction)
    crossed = datagrams(net, relay, 500, 1000, checksum=False)
    assert [arrival.payload for arrival in crossed.arrivals if arrival.payload not in others] == [
        payload for number, _, payload in expected.left if number not in expected.in_headers
    ]
    assert crossed.counted == expected.counted


def test_damage_is_found_by_checksums(net: Net, relay: Relay) -> None:
    """The sender leaves its checksum to the card: finished after the damage, it would call the damage good."""
    expected = Expected(Direction(corrupt=1.0), 500, 1000)
    seeded(relay, Direction(corrupt=1.0))
    crossed = datagrams(net, relay, 500, 1000)
    assert set(crossed.numbers) <= expected.in_headers  # whose sender's hardware address was hit
    assert all(arrival.payload == payload_of(arrival.number, 1000) for arrival in crossed.arrivals)
    assert crossed.counted["corrupted"] == 500


def test_a_short_queue_drops_what_finds_it_full(net: Net, relay: Relay) -> None:
    """Four fit; the others would take eight seconds."""
    takes_s = (1000 + HEADERS) * 8 / 1e5
    reply = relay.apply({"delay_s": 0.02, "rate_bps": 1e5, "limit_bytes": 5000})
    assert reply["edge_to_server"]["limit_bytes"] == 5000
    crossed = datagrams(net, relay, 100, 1000)
    assert crossed.numbers[:4] == [0, 1, 2, 3]
    assert crossed.numbers == sorted(set(crossed.numbers))
    assert crossed.counted["dropped"] == 100 - len(crossed.numbers) > 0
    assert crossed.counted["lost"] == 0
    for place in range(len(crossed.numbers)):
        assert crossed.since_first_s(place) >= 0.02 + (place + 1) * takes_s - SLEW_S


@pytest.mark.parametrize("bucket", [None, Bucket(32 << 10, 0.4)], ids=["line", "bucket"])
def test_what_exceeds_the_burst_waits_for_the_line(net: Net, relay: Relay, bucket: Bucket | None) -> None:
    plain = {"delay_s": 0.01, "rate_bps": 5e6}
    told = bucket and {"burst_bytes": 32 << 10, "latency_s": 0.4}
    reply = relay.apply(plain, **({"bucket": told} if told else {}))
    assert reply["bucket"] == told
    if bucket:
        assert reply["edge_to_server"]["limit_bytes"] == 250_000 + (32 << 10)
    crossed = datagrams(net, relay, 60, 1472)
    assert crossed.numbers == list(range(60))
    for place in range(60):
        over_bytes = (place + 1) * (1472 + HEADERS) - (bucket.burst_bytes if bucket else 0)
        assert crossed.since_first_s(place) >= 0.01 + max(0, over_bytes) * 8 / 5e6 - SLEW_S


WALK = Trace("walk", 500.0, (Step(0, 0.01, 4e6), Step(0.1, 0.03, 0.0), Step(0.3, 0.03, 1e6)))


@pytest.mark.parametrize("position_s", [0.0, 0.2])
def test_a_traces_rates_and_outage_are_seen_in_arrivals(net: Net, relay: Relay, position_s: float) -> None:
    """From wherever it begins: no packet comes before the trace has carried it, and its delay has passed."""
    reply = relay.apply(Direction(trace=WALK).to_dict())
    assert reply["edge_to_server"]["trace"] == {"name": "walk", "period_s": 500.0}
    assert set(reply["edge_to_server"]) == {"trace", "limit_bytes"}
    began_ns = time.time_ns()
    relay.result("restart", position_s=position_s)
    crossed = datagrams(net, relay, 60, 1000)
    assert crossed.numbers == list(range(60))
    for place, arrival in enumerate(crossed.arrivals, 1):
        bits = WALK.carried_bits(position_s) + place * (1000 + HEADERS) * 8
        least_s = WALK.when_carried(bits) - position_s + WALK.step(WALK.when_carried(bits)).delay_s
        assert (arrival.came_ns - began_ns) / 1e9 >= least_s - SLEW_S


@pytest.mark.parametrize(
    ("offset_s", "restart_s", "least_s"), [(0.0, 500.5, 0.06), (500.5, None, 0.06), (500.5, 0.0, 0.005)]
)
def test_a_trace_begins_where_it_is_told(
    net: Net, relay: Relay, offset_s: float, restart_s: float | None, least_s: float
) -> None:
    stairs = Trace("stairs", 1000.0, (Step(0, 0.005, None), Step(500, 0.06, None)))
    relay.apply(Direction(trace=stairs).to_dict(), offset_s=offset_s)
    assert offset_s <= relay.stats()["position_s"] < offset_s + 499
    if restart_s is not None:
        told = relay.result("restart", position_s=restart_s)["position_s"]
        assert restart_s <= told <= relay.stats()["position_s"] < restart_s + 499
    assert min(arrival.delay_s for arrival in datagrams(net, relay, 5).arrivals) >= least_s - SLEW_S
