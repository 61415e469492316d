"""How true the relay keeps a profile on this machine, and how fast it is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

import pytest

from pareto.remote.link.offload import SLOW_BPS
from pareto.remote.link.probe import GOODPUT
from pareto.remote.link.profile import Direction, Gilbert
from pareto.remote.link.trace import Step, Trace
from tests.integration.relay_net import (
    HEADERS,
    Arrival,
    Crossed,
    Net,
    Relay,
    datagrams,
    net_with_relay,
    prompt,
    transfer,
)
from tests.less_than_root import needs_networks
from tests.measure.conftest import Figures

pytestmark = needs_networks

Rate = tuple[str, float | None, float, int, float | None]
"""A name, a rate and a delay, the bytes to send, and how far off the rate may be."""


@pytest.fixture(scope="module")
def link() -> Iterator[tuple[Net, Relay]]:
    with net_with_relay() as (net, relay):
        net.large_windows()
        yield net, relay


def sent(net: Net, relay: Relay, count: int, gap_s: float = 0.0, **how: Any) -> Crossed:
    with prompt():
        return datagrams(net, relay, count, pause=lambda: time.sleep(gap_s) if gap_s else None, **how)


def median_ms(arrivals: Sequence[Arrival]) -> float:
    return 1e3 * statistics.median(arrival.delay_s for arrival in arrivals)


@pytest.mark.parametrize(
    ("name", "way", "size", "aim_ms"),
    [
        ("unshaped", {}, 64, 0.0),
        ("delay of 20 ms", {"delay_s": 0.02}, 64, 20.0),
        ("lone packet of 1042 bytes, 1 Mbit/s and 10 ms", {"delay_s": 0.01, "rate_bps": 1e6}, 1000, 18.336),
    ],
)
def test_delay(
    net: Net, relay: Relay, figures: Figures, name: str, way: dict[str, float], size: int, aim_ms: float
) -> None:
    for to in ("server", "edge"):
        relay.apply(way, way)
        crossed = sent(net, relay, 51, 0.02, size=size, to=to)
        took_ms = median_ms(crossed.arrivals)
        figures.state(f"relay: {name}, to the {to}", took_ms, "ms", least=aim_ms, most=aim_ms + 0.5)


@pytest.mark.parametrize(
    "case",
    [
        ("unshaped", None, 0.0, 400_000_000, None),
        ("100 ms", None, 0.1, 150_000_000, None),
        ("1 Gbit/s, 100 ms", 1e9, 0.1, 200_000_000, 0.05),
        ("100 Mbit/s in super-packets", 100e6, 0.0, 12_000_000, 0.03),
        ("100 Mbit/s, 10 ms", 100e6, 0.01, 12_000_000, 0.03),
        ("50 Mbit/s, 5 ms", 50e6, 0.005, 6_000_000, 0.03),
        ("5 Mbit/s, 5 ms", 5e6, 0.005, 1_000_000, 0.03),
    ],
)
def test_rate(net: Net, relay: Relay, figures: Figures, case: Rate) -> None:
    """Payload of one TCP connection once a quarter has come, and what the relay takes of a core meanwhile."""
    name, rate_bps, delay_s, size, within = case
    net.offloads(on=rate_bps is None or rate_bps >= SLOW_BPS or not delay_s)
    fields = {"delay_s": delay_s, "rate_bps": rate_bps}
    relay.apply({field: value for field, value in fields.items() if value})
    times: list[tuple[float, int, float]] = []

    def at(have: int) -> None:
        if have == size or (not times and have > size // 4):
            times.append((time.perf_counter(), have, relay.stats()["cpu_s"]))

    transfer(net, relay, bytes(size), at)
    late_p99_s = relay.stats()["late_p99_s"]
    net.offloads(on=False)
    (first_s, before, cpu_s), (last_s, after, then_cpu_s) = times
    bit_s, name = 8 * (after - before) / (last_s - first_s), f"relay: TCP over {name}"
    if rate_bps and within:
        aim = 100 * GOODPUT
        figures.about(f"{name}: share of the rate", 100 * bit_s / rate_bps, "%", aim=aim, within=aim * within)
    else:
        figures.state(name, bit_s / 1e6, "Mbit/s", least=500)
    figures.state(f"{name}: of a core", 100 * (then_cpu_s - cpu_s) / (last_s - first_s), "%")
    if late_p99_s is not None:
        figures.state(f"{name}: 99 of 100 late by at most", 1e3 * late_p99_s, "ms")


def test_idle(relay: Relay, figures: Figures) -> None:
    relay.apply({"delay_s": 0.02, "rate_bps": 5e6})
    before = relay.stats()["cpu_s"]
    time.sleep(0.5)
    figures.state("relay: idle, of a core", 200 * (relay.stats()["cpu_s"] - before), "%", most=5)


def test_chance(net: Net, relay: Relay, figures: Figures) -> None:
    """By its own seed, as of a run without one: within four standard deviations."""
    relay.apply({"delay_s": 0.01, "jitter_s": 0.008})
    delays_ms = sorted(1e3 * arrival.delay_s for arrival in sent(net, relay, 100, 0.018).arrivals)
    for place, most in ((0, 4.0), (50, 14.0), (99, 18.5)):
        least = {0: 2.0, 50: 6.0, 99: 16.0}[place]
        figures.state(f"relay: 10 ± 8 ms, {place} % below", delays_ms[place], "ms", least=least, most=most)
    relay.apply({"loss": 0.1})
    lost = 100 - len(sent(net, relay, 4000).arrivals) / 40
    figures.about("relay: loss of 10 %", lost, "%", aim=10, within=1.9)
    relay.apply(Direction(loss=Gilbert(good_to_bad=0.02, bad_to_good=0.25)).to_dict())
    came = set(sent(net, relay, 8000).numbers)
    bursts = [len(list(run)) for gone, run in groupby(n not in came for n in range(8000)) if gone]
    figures.about("relay: loss in bursts of 4", statistics.fmean(bursts), "packets", aim=4, within=1.2)


@pytest.mark.parametrize(
    "case",
    [
        ("20 packets at 5 Mbit/s, a bucket of 32 kB", True, 20, 0.0, 1.0),
        ("41 packets at 5 Mbit/s, a bucket of 32 kB", True, 41, 46.9, 2.0),
        ("20 packets at 5 Mbit/s", False, 20, 46.0, 1.0),
    ],
)
def test_bucket(net: Net, relay: Relay, figures: Figures, case: tuple[str, bool, int, float, float]) -> None:
    """From the first arrival to the last of full-size packets sent at once."""
    name, bucket, count, aim_ms, within_ms = case
    burst = {"bucket": {"burst_bytes": 32 << 10, "latency_s": 0.4}} if bucket else {}
    relay.apply({"delay_s": 0.01, "rate_bps": 5e6}, **burst)
    arrivals = sent(net, relay, count, size=1472).arrivals
    span_ms = (arrivals[-1].came_ns - arrivals[0].came_ns) / 1e6
    figures.about(f"relay: {name}", span_ms, "ms", aim=aim_ms, within=within_ms)


def test_short_queue(net: Net, relay: Relay, figures: Figures) -> None:
    """14 of 1042 bytes fit, and some leave while the others are being sent."""
    relay.apply({"delay_s": 0.02, "rate_bps": 5e6, "limit_bytes": 15_000})
    arrivals = sent(net, relay, 100, size=1000).arrivals
    delays_ms = sorted(1e3 * arrival.delay_s for arrival in arrivals)
    figures.state("relay: 15 kB queue at 5 Mbit/s, of 100 came", len(arrivals), least=14, most=20)
    name = "relay: 15 kB queue at 5 Mbit/s and 20 ms, longest"
    figures.state(name, delays_ms[-1], "ms", least=42, most=44.5)


def test_trace(net: Net, relay: Relay, figures: Figures) -> None:
    steps = Step(0, 0.01, 4e6), Step(0.1, 0.03, 0.0), Step(0.3, 0.03, 1e6)
    relay.apply(Direction(trace=Trace("walk", 5.0, steps)).to_dict())
    relay.result("restart", position_s=0.0)
    pairs = pairwise(sent(net, relay, 70, size=1000).arrivals)
    apart_ms = [(later.came_ns - earlier.came_ns) / 1e6 for earlier, later in pairs]
    takes_ms, outage = (1000 + HEADERS) * 8 / 4e3, apart_ms.index(max(apart_ms))
    for name, found, aim in (
        ("gaps at 4 Mbit/s", statistics.median(apart_ms[:outage]), takes_ms),
        ("an outage of 200 ms, and 20 ms more of delay", apart_ms[outage], 220.0 + takes_ms),
        ("gaps at 1 Mbit/s", statistics.median(apart_ms[outage + 1 :]), 4 * takes_ms),
    ):
        figures.about(f"relay: trace, {name}", found, "ms", aim=aim, within=0.05 * aim)


def test_trace_position(net: Net, relay: Relay, figures: Figures) -> None:
    stairs = Direction(trace=Trace("stairs", 100.0, (Step(0, 0.005, None), Step(50, 0.06, None)))).to_dict()
    begins: dict[str, tuple[Callable[[], object], float]] = {
        "applied": (lambda: None, 5),
        "restarted at 50.5 s": (lambda: relay.result("restart", position_s=50.5), 60),
        "applied 50 s in": (lambda: relay.apply(stairs, offset_s=50.0), 60),
    }
    for name, (begin, aim) in begins.items():
        relay.apply(stairs)
        begin()
        took_ms = median_ms(sent(net, relay, 5, 0.02).arrivals)
        figures.state(f"relay: delay in a trace, {name}", took_ms, "ms", least=aim, most=aim + 0.5)
