"""Each backend's costs, as it sends a few payloads: the time added to a request on a link, and processor time.

On a local testbed they cross twice: while nothing shapes the link, and while a usual network does. Where a host waits,
its processor has gone to sleep and its caches are cold: what a backend adds is several times as much there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from statistics import median

import numpy as np

from pareto.analysis.backend_cost import BackendCost
from pareto.hosts.host import TestbedError
from pareto.hosts.session import Session
from pareto.hosts.testbed import Link, Testbed
from pareto.protocol.profile_messages import MOST_TRIPS, Expect, GetTaken, Taken, Timed, TimePayloads
from pareto.remote.backends import registry
from pareto.remote.link.probe import GOODPUT, Reading
from pareto.remote.link.profile import Direction, Profile
from pareto.trial.workers import NOT_SHAPED, Workers

TIMEOUT_S = 120.0

LEAST_BYTES, MOST_BYTES = 1_000, 16_000_000
USUAL_BYTES = 1_000_000
"""The largest payload that is probed is at least as large."""
MOST_LINK_S, MOST_STREAM_S = 1.0, 0.1
"""A payload that takes the link longer is not probed, or not for its processor time."""
SAMPLE_S = 0.02
STREAM_S, LEAST_STREAMED, IN_FLIGHT = 0.05, 4, 4
"""Streams for the processor time: how long each lasts, or how many payloads; how many unanswered."""
QUIET = 0.25
"""The quantile of a payload's rounds that counts: what else runs on a host can only make a round trip longer."""
USUAL = Profile("usual", Direction(delay_s=0.005, rate_bps=100e6), Direction(delay_s=0.005, rate_bps=100e6))
OF_USUAL = Reading(0.01, GOODPUT * 100e6, GOODPUT * 100e6)
"""The network over which backends wait on a local testbed as they do in a trial; and what a probe would read of it."""


@dataclass(frozen=True)
class Care:
    """How much is measured for a model profile.

    runs, seconds: of each device and batch size at least so many runs with marks, and as many without, and so long.
    payloads, rounds, streams: of each backend on each link, how many sizes, rounds of round trips, and of streams.
    host_s, link_s: for the estimate, what a host takes besides those seconds, and a link.
    """

    runs: int
    seconds: float
    payloads: int
    rounds: int
    streams: int
    host_s: float
    link_s: float


THOROUGH, QUICK = Care(40, 3.0, 6, 9, 3, 3.0, 14.0), Care(15, 1.0, 4, 3, 1, 2.0, 3.0)
"""The care for `partitions --times`; and for a search, which needs the order of its cells, and bounds that hold."""


def on_links(
    bed: Testbed, workers: Workers, backends: Sequence[str], largest_bytes: int, care: Care
) -> list[BackendCost]:
    """The costs of each backend on each link: a local one without a profile and with `USUAL`; it is left without one.
    largest_bytes: of the payloads that requests may have. Raises FAULTS, TestbedError."""

    def crossed(readings: Mapping[str, Reading]) -> list[BackendCost]:
        costs = dict[tuple[str, str], BackendCost]()
        for group in _groups(backends):
            for link, (near, far) in zip(bed.links, workers.opened(group).values(), strict=True):
                ends, reading = Ends(near, far, link.near.interface), readings.get(link.name)
                made = added(ends, link, reading, group, largest_bytes, care)
                costs |= {(link.name, cost.backend): cost for cost in made}
        return [costs[link.name, backend] for link, backend in product(bed.links, backends)]

    def shape(profile: Profile) -> None:
        for link in bed.links:
            link.shaper.apply(profile)

    if not bed.is_local:
        return crossed(workers.bare_links())
    try:
        shape(Profile(NOT_SHAPED))
        bare = crossed({})
        shape(USUAL)
        slowed = crossed({link.name: OF_USUAL for link in bed.links})
    finally:
        shape(Profile(NOT_SHAPED))
    return [each.and_of(other) for each, other in zip(bare, slowed, strict=True)]


def _groups(backends: Sequence[str]) -> list[list[str]]:
    """Backends that are connected at the same time: a process has one agent, of rpc."""
    others = [backend for backend in backends if registry.parse(backend).agent][1:]
    return [[backend for backend in backends if backend not in others], *([each] for each in others)]


def added(
    ends: Ends, link: Link, reading: Reading | None, backends: Sequence[str], largest_bytes: int, care: Care
) -> Iterator[BackendCost]:
    """Each backend's costs for a few payloads. reading: of a link that something slows. Raises FAULTS, TestbedError."""
    most = min(max(largest_bytes, USUAL_BYTES), MOST_BYTES)
    sizes = [round(size) for size in np.geomspace(LEAST_BYTES, most, care.payloads)]
    sizes = [size for size in sizes if link_s(reading, size) <= MOST_LINK_S] or sizes[:1]
    cells = list(product(backends, sizes))
    streamed = [(way, size) for way, size in cells if link_s(reading, size) <= MOST_STREAM_S]
    trips: dict[tuple[str, int], list[float]] = {cell: [] for cell in cells}
    busy: dict[tuple[str, int], list[tuple[float, ...]]] = {cell: [] for cell in cells}
    counts = dict[tuple[str, int], int]()
    # Large first: what they do to a connection, its window above all, is done before anything is timed.
    for size, way in product(reversed(sizes), backends):
        once_s = ends.stream(way, size, 1, None, kept=True)[0].seconds[0]
        counts[way, size] = min(math.ceil(SAMPLE_S / once_s), MOST_TRIPS)
    order = Random(0)  # noqa: S311
    for _ in range(care.rounds):
        for way, size in order.sample(cells, len(cells)):
            trips[way, size].append(median(ends.stream(way, size, counts[way, size], None)[0].seconds))
    for _ in range(care.streams):
        for way, size in order.sample(streamed, len(streamed)):
            paced_s = min(trips[way, size]) / IN_FLIGHT
            count = min(max(math.ceil(STREAM_S / paced_s), LEAST_STREAMED), MOST_TRIPS)
            before_s = shaping_s(link)
            near, far = ends.stream(way, size, count, IN_FLIGHT)
            taken_s = near.cpu_s, far.cpu_s, shaping_s(link) - before_s
            busy[way, size].append(tuple(each_s / count for each_s in taken_s))
    of_link = np.array([link_s(reading, size) for size in sizes])
    for way in backends:
        quiet = np.array([np.quantile(trips[way, size], QUIET) for size in sizes])
        taken = np.array([np.median(busy[way, size] or [(math.nan,) * 3], axis=0) for size in sizes])
        yield BackendCost(link.name, way, np.array(sizes, dtype=np.float64), quiet, of_link, *taken.T)


def link_s(reading: Reading | None, nbytes: int) -> float:
    """A link's seconds for a payload and its short answer, as it was probed; 0 where there is no reading."""
    if reading is None:
        return 0.0
    return (reading.rtt_s or 0.0) + (8 * nbytes / reading.rate_bps if reading.rate_bps else 0.0)


def shaping_s(link: Link) -> float:
    """The processor time so far of the program that shapes a link; 0 where the kernel does, or nothing."""
    relay = link.shaper.facts().get("relay") or {}
    return float(relay.get("cpu_s") or 0.0)


class Ends:
    """The workers at both ends of a link, connected by some backends. Raises FAULTS, TestbedError."""

    def __init__(self, near: Session, far: Session, interface: str) -> None:
        self._near, self._far, self._interface = near, far, interface

    def stream(
        self, backend: str, nbytes: int, count: int, in_flight: int | None, *, kept: bool = False
    ) -> tuple[Timed, Taken]:
        """The reports of both ends on `count` payloads, at most `in_flight` of them unanswered; None: round trips.
        Raises TestbedError unless every payload came, over the interface."""
        self._far.ask(Expect(backend, nbytes, count, kept))
        near = self._near.ask(TimePayloads(backend, nbytes, count, self._interface, in_flight), TIMEOUT_S)
        taken, sent_bytes = self._far.ask(GetTaken()), near.sent_bytes
        if taken.count != count:
            raise TestbedError(f"{backend}: {taken.count} of {count} payloads came")
        if taken.same is False:
            raise TestbedError(f"{backend}: what came is not what was sent")
        if sent_bytes < nbytes * count:
            crossed = f"{sent_bytes} of {nbytes * count} bytes crossed {self._interface}"
            raise TestbedError(f"{backend}: only {crossed}")
        return near, taken
