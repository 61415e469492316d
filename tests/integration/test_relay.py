"""The relay for real: three namespaces, sockets in the outer two, the relay's process in the middle.

Nothing is early, lost or out of order, and what is counted is what crossed. Chance is seeded, so that the path alone,
without sockets, says what becomes of each packet, by its number. Exactly when frames leave and their distributions:
tests/unit/link/test_relay.py and test_relay_path.py; what only a quiet machine shows: tests/measure/test_relay.py.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from pareto.protocol.constants import GOODPUT
from pareto.remote.link.packets import VNET_HEADER
from pareto.remote.link.profile import Direction, Gilbert, seed_of
from pareto.remote.link.relay_path import RelayPath
from pareto.remote.link.trace import Step, Trace
from pareto.remote.worker.datagrams import PAYLOAD_SHARE, PING_WIRE_BYTES
from pareto.remote.worker.probe import TCP_PING_BYTES
from tests import REPOSITORY
from tests.integration.relay_net import (
    COUNTED,
    HEADERS,
    LONG_S,
    SLEW_S,
    Net,
    Relay,
    datagrams,
    payload_of,
    probed_link,
    transfer,
)
from tests.less_than_root import needs_networks

pytestmark = [pytest.mark.integration, needs_networks]
SEED, APART_NS = 5, 10**10
_ABOVE = VNET_HEADER.size + HEADERS


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
    for name, each in (("packets", 1 / 1448), ("bytes", 1 / GOODPUT)):
        crossed = (told["forwarded"]["edge_to_server"][name] for told in (after, before))
        assert next(crossed) - next(crossed) >= size * each
    assert took_s >= 8 * size / GOODPUT / out.get("rate_bps", float("inf")) - SLEW_S
    assert (after["corrupted"] > before["corrupted"]) is ("corrupt" in out)


def test_it_ends_at_end_of_file_and_on_sigterm_and_without_its_interfaces(net: Net) -> None:
    relay = Relay(net)
    assert relay.apply({"delay_s": 0.1})["scheduling"] in ("fifo", "other")
    assert relay.close() == 0
    relay = Relay(net)
    relay.apply({})
    relay.process.send_signal(signal.SIGTERM)
    assert relay.process.wait(LONG_S) == 0
    relay.close()
    argv = [sys.executable, "-m", "pareto.remote.link.relay", "--edge", "nosuch0", "--server", "nosuch1"]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 1
    assert "cannot open nosuch0 and nosuch1" in done.stderr
    assert "Traceback" not in done.stderr


# Impairments


class Expected:
    """What a path does with datagrams that come far apart: which leave, how late at least, and what is counted."""

    def __init__(self, relay: Relay, direction: Direction, count: int, size: int = 64) -> None:
        """The relay is shaped so, and has the same seed."""
        path = RelayPath()
        path.shape(direction)
        path.seed(seed_of(SEED, "edge_to_server"), 0)
        self.left: list[tuple[int, int, bytes]] = []
        """number, nanoseconds, payload"""
        self.in_headers: set[int] = set()
        for number in range(count):
            sent = bytes(_ABOVE) + payload_of(number, size)
            path.accept(memoryview(sent), 1, HEADERS + size, number * APART_NS)
            while path.queue:
                due_ns, frame, *_ = path.queue[0]
                self.left.append((number, due_ns - number * APART_NS, frame[_ABOVE:]))
                if any(frame[:_ABOVE]):
                    self.in_headers.add(number)
                path.left(due_ns)
        self.counted = {name: getattr(path, name) for name in COUNTED}
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
    expected = Expected(relay, direction, 600)
    crossed = datagrams(net, relay, 600)
    assert crossed.numbers == [number for number, *_ in expected.left]
    for arrival, (_, least_ns, _) in zip(crossed.arrivals, expected.left, strict=True):
        assert arrival.delay_s >= least_ns / 1e9 - SLEW_S
    assert crossed.counted == expected.counted


def test_reordered_packets_overtake(net: Net, relay: Relay) -> None:
    expected = Expected(relay, Direction(0.3, reorder=0.25), 400)
    overtake = {number for number, late_ns, _ in expected.left if not late_ns}
    crossed = datagrams(net, relay, 400)
    stayed = [arrival for arrival in crossed.arrivals if arrival.number not in overtake]
    assert sorted(crossed.numbers) == list(range(400)) != crossed.numbers
    assert [arrival.number for arrival in stayed] == sorted(set(range(400)) - overtake)
    assert min(arrival.delay_s for arrival in stayed) >= 0.3 - SLEW_S
    assert crossed.counted == expected.counted


def test_one_bit_is_flipped_which_checksums_find(net: Net, relay: Relay) -> None:
    """The sender leaves its checksum to the card: finished after the damage, it would call the damage good."""
    expected = Expected(relay, Direction(corrupt=0.5), 500, 1000)
    # Damaged headers reach another host or none.
    others = [payload_of(number, 1000) for number in expected.in_headers]
    crossed = datagrams(net, relay, 500, 1000, checksum=False)
    assert [arrival.payload for arrival in crossed.arrivals if arrival.payload not in others] == [
        payload for number, _, payload in expected.left if number not in expected.in_headers
    ]
    assert crossed.counted == expected.counted
    expected = Expected(relay, Direction(corrupt=1.0), 500, 1000)
    crossed = datagrams(net, relay, 500, 1000)
    assert set(crossed.numbers) <= expected.in_headers  # whose sender's hardware address was hit
    assert all(arrival.payload == payload_of(arrival.number, 1000) for arrival in crossed.arrivals)
    assert crossed.counted["corrupted"] == 500


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


# The link probe: one at each end, the relay between. How true it reads: tests/measure/test_probe.py.

SAMPLE = {"sent": 200, "received": 200, "duplicates": 0, "reordered": 0}


def test_a_probe_tells_all_that_was_asked_and_is_never_early() -> None:
    asked: dict[str, Any] = {"bulk_out": 100_000, "bulk_back": 100_000, "message": 100_000, "pings": 7}
    asked |= {"sample_out": 200, "sample_back": 200, "sample_gap_s": 0.0005, "wait_s": 60.0}
    kinds = ((False, TCP_PING_BYTES, GOODPUT), (True, PING_WIRE_BYTES, PAYLOAD_SHARE))
    with probed_link() as (relay, shape):
        for by_datagrams, wire_bytes, share in kinds:
            probe = shape({"rate_bps": 10e6, "delay_s": 0.03}, {"rate_bps": 20e6, "delay_s": 0.02})
            told = probe(**asked, datagrams=by_datagrams)
            assert len(told["rtts_s"]) == 7
            assert min(told["rtts_s"]) >= 0.05 + 8 * wire_bytes / 10e6 + 8 * wire_bytes / 20e6 - SLEW_S
            assert told["rtt_s"] == sorted(told["rtts_s"])[3]
            assert (told["ping_bytes"], told["payload_share"]) == (wire_bytes, share)
            assert min(told["rate_bps"], told["rate_back_bps"]) > 0
            assert told["sample"] == told["sample_back"] == SAMPLE
            assert told["message_s"] >= 0.05 + 100_000 * 8 / (10e6 * GOODPUT) - SLEW_S
            assert relay.stats()["dropped"] == 0
