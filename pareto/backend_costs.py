"""What each backend adds to a request on a link: a few payloads over it while nothing shapes it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from random import Random
from statistics import median

import numpy as np

from analysis.model_profile import BackendCost
from pareto.bench.run import Place, connected
from pareto.hosts.testbed import Link, Testbed
from pareto.link.probe import Reading

PAYLOADS, LEAST_BYTES, MOST_BYTES = 5, 1_000, 16_000_000
USUAL_BYTES = 1_000_000
"""The largest payload that is probed is at least as large."""
MOST_LINK_S = 1.0
"""A payload that takes the link longer is not probed."""
ROUNDS, SAMPLE_S, MOST_TRIPS = 9, 0.02, 200
QUIET = 0.25
"""The quantile of a payload's rounds that counts: what else runs on a host can only make a round trip longer."""


def added(
    bed: Testbed, link: Link, reading: Reading | None, backends: Sequence[str], largest_bytes: int
) -> Iterator[BackendCost]:
    """What each backend takes for a few payloads over a link that nothing shapes. reading: of a link that is real.

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
    trips: dict[tuple[str, int], list[float]] = {(way, size): [] for way in backends for size in sizes}
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
            for way, size in order.sample(list(trips), len(trips)):
                trips[way, size].append(median(ends[way].trips(way, size, counts[way, size])))
    of_link = np.array([link_s(reading, size) for size in sizes])
    for way in backends:
        quiet = np.array([np.quantile(trips[way, size], QUIET) for size in sizes])
        yield BackendCost(link.name, way, np.array(sizes, dtype=np.float64), quiet, of_link)


def link_s(reading: Reading | None, nbytes: int) -> float:
    """What a real link takes for a payload and its short answer, as it was probed; 0 where there is no reading."""
    if reading is None:
        return 0.0
    return (reading.rtt_s or 0.0) + (8 * nbytes / reading.rate_bps if reading.rate_bps else 0.0)


def _count(trip_s: float) -> int:
    """How many trips make a sample."""
    return min(max(math.ceil(SAMPLE_S / trip_s), 1), MOST_TRIPS)
