"""What each backend adds to a request on a link, and what processor time it takes: a few payloads over the link.

On a local testbed they cross twice: while nothing shapes the link, and while a usual network does. For where a host
waits, its processor has gone to sleep and its caches are cold: what a backend adds is several times as much there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from random import Random
from statistics import median

import numpy as np

from analysis.backend_cost import BackendCost
from pareto.bench.run import Place, connected
from pareto.hosts.testbed import Link, Testbed
from pareto.link.probe import GOODPUT, Reading
from pareto.link.profile import Profile

PAYLOADS, LEAST_BYTES, MOST_BYTES = 6, 1_000, 16_000_000
USUAL_BYTES = 1_000_000
"""The largest payload that is probed is at least as large."""
MOST_LINK_S, MOST_STREAM_S = 1.0, 0.25
"""A payload that takes the link longer is not probed, or not for its processor time."""
NOT_STREAMED = (math.nan,) * 3
ROUNDS, SAMPLE_S, MOST_TRIPS = 9, 0.02, 200
STREAM_ROUNDS, STREAM_S, LEAST_STREAMED, IN_FLIGHT = 3, 0.05, 4, 4
"""Streams for the processor time: how many rounds; how long each lasts, or how many payloads; how many unanswered."""
QUIET = 0.25
"""The quantile of a payload's rounds that counts: what else runs on a host can only make a round trip longer."""


def added(
    bed: Testbed, link: Link, reading: Reading | None, backends: Sequence[str], largest_bytes: int
) -> Iterator[BackendCost]:
    """What each backend takes for a few payloads over a link. reading: of the link; None: nothing shapes it, or slows.

    largest_bytes: of the payloads that requests may have. Raises FAULTS, TestbedError.
    """
    place = Place(
        link.name,
        "",
        bed.remotes[link.near.role],
        bed.remotes[link.far.role],
        link.far.address,
        link.near.interface,
        link.far.interface,
        bed.heartbeat,
    )
    most = min(max(largest_bytes, USUAL_BYTES), MOST_BYTES)
    sizes = [round(size) for size in np.geomspace(LEAST_BYTES, most, PAYLOADS)]
    sizes = [size for size in sizes if link_s(reading, size) <= MOST_LINK_S] or sizes[:1]
    cells = [(way, size) for way in backends for size in sizes]
    streamed = [(way, size) for way, size in cells if link_s(reading, size) <= MOST_STREAM_S]
    trips: dict[tuple[str, int], list[float]] = {cell: [] for cell in cells}
    busy: dict[tuple[str, int], list[tuple[float, ...]]] = {cell: [] for cell in cells}
    with ExitStack() as undo:
        ends = connected(undo, place, backends)
        # Large first: what they do to a connection, its window above all, is done before anything is timed.
        counts = {
            (way, size): _count(ends[way].trips(way, size, 1, kept=True)[0])
            for size in reversed(sizes)
            for way in backends
        }
        order = Random(0)  # noqa: S311
        for _ in range(ROUNDS):
            for way, size in order.sample(cells, len(cells)):
                trips[way, size].append(median(ends[way].trips(way, size, counts[way, size])))
        for _ in range(STREAM_ROUNDS):
            for way, size in order.sample(streamed, len(streamed)):
                paced_s = min(trips[way, size]) / IN_FLIGHT
                count = min(max(math.ceil(STREAM_S / paced_s), LEAST_STREAMED), MOST_TRIPS)
                before_s = shaping_s(link)
                near, far = ends[way].stream(way, size, count, IN_FLIGHT)
                taken_s = near.cpu_s, far.cpu_s, shaping_s(link) - before_s
                busy[way, size].append(tuple(each_s / count for each_s in taken_s))
    of_link = np.array([link_s(reading, size) for size in sizes])
    for way in backends:
        quiet = np.array([np.quantile(trips[way, size], QUIET) for size in sizes])
        taken = np.array([np.median(busy[way, size] or [NOT_STREAMED], axis=0) for size in sizes])
        yield BackendCost(link.name, way, np.array(sizes, dtype=np.float64), quiet, of_link, *taken.T)


def reading_of(profile: Profile) -> Reading:
    """What a probe finds on a link with this profile, which has one delay and rate each way."""
    out, back = profile.directions
    out_bps, back_bps = (GOODPUT * way.rate_bps if way.rate_bps else None for way in (out, back))
    return Reading(profile.rtt_s, out_bps, back_bps)


def link_s(reading: Reading | None, nbytes: int) -> float:
    """What a link takes for a payload and its short answer, as it was probed; 0 where there is no reading."""
    if reading is None:
        return 0.0
    return (reading.rtt_s or 0.0) + (8 * nbytes / reading.rate_bps if reading.rate_bps else 0.0)


def shaping_s(link: Link) -> float:
    """The processor time so far of the program that shapes a link; 0 where the kernel does, or nothing."""
    relay = link.shaper.facts().get("relay") or {}
    return float(relay.get("cpu_s") or 0.0)


def _count(trip_s: float) -> int:
    """How many trips make a sample."""
    return min(max(math.ceil(SAMPLE_S / trip_s), 1), MOST_TRIPS)
