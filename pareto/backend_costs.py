"""What each backend adds to a request on a link, and what processor time it takes: a few payloads over the link.

On a local testbed they cross twice: while nothing shapes the link, and while a usual network does. For where a host
waits, its processor has gone to sleep and its caches are cold: what a backend adds is several times as much there.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from random import Random
from statistics import median

import numpy as np

from analysis.backend_cost import BackendCost
from pareto.backends import registry
from pareto.hosts.host import TestbedError
from pareto.hosts.session import Programs
from pareto.hosts.testbed import Link, Testbed
from pareto.link.probe import GOODPUT, Reading
from pareto.link.profile import Profile
from pareto.messages import Connect, JoinAgents, OpenRendezvous
from pareto.run_keys import run_keys
from pareto.worker.payloads import Expect, GetTaken, ListenFor, Taken, Timed, TimePayloads

PROGRAM = "pareto.worker.payloads"
TIMEOUT_S = 120.0

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
    most = min(max(largest_bytes, USUAL_BYTES), MOST_BYTES)
    sizes = [round(size) for size in np.geomspace(LEAST_BYTES, most, PAYLOADS)]
    sizes = [size for size in sizes if link_s(reading, size) <= MOST_LINK_S] or sizes[:1]
    cells = [(way, size) for way in backends for size in sizes]
    streamed = [(way, size) for way, size in cells if link_s(reading, size) <= MOST_STREAM_S]
    trips: dict[tuple[str, int], list[float]] = {cell: [] for cell in cells}
    busy: dict[tuple[str, int], list[tuple[float, ...]]] = {cell: [] for cell in cells}
    with ExitStack() as undo:
        ends = connected(undo, bed, link, backends)
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


class Ends:
    """Both ends of some backends on a link, connected, in one program each. Raises FAULTS, TestbedError."""

    def __init__(self, bed: Testbed, link: Link, backends: Sequence[str]) -> None:
        self._interface = link.near.interface
        self._ends = Programs(bed.heartbeat)
        with ExitStack() as undo:
            undo.callback(self.close)
            self._near = self._ends["near"] = bed.remotes[link.near.role].start(PROGRAM)
            self._far = self._ends["far"] = bed.remotes[link.far.role].start(PROGRAM)
            self._connect(link, backends)
            undo.pop_all()

    def trips(self, backend: str, nbytes: int, count: int, *, kept: bool = False) -> list[float]:
        """The seconds of `count` round trips. kept: also compare the last payload with what was sent."""
        self._far.ask(Expect(backend, nbytes, count, kept))
        trips = self._near.ask(TimePayloads(backend, nbytes, count, self._interface), TIMEOUT_S)
        self._arrived(backend, nbytes, count, trips.sent_bytes)
        return trips.seconds

    def stream(self, backend: str, nbytes: int, count: int, in_flight: int) -> tuple[Timed, Taken]:
        """The reports of both ends on `count` payloads one after another."""
        self._far.ask(Expect(backend, nbytes, count))
        stream = self._near.ask(TimePayloads(backend, nbytes, count, self._interface, in_flight), TIMEOUT_S)
        return stream, self._arrived(backend, nbytes, count, stream.sent_bytes)

    def close(self) -> None:
        self._ends.close()

    def _arrived(self, backend: str, nbytes: int, count: int, sent_bytes: int) -> Taken:
        """What came at the far end. Raises TestbedError unless it is every payload, over the interface."""
        taken = self._far.ask(GetTaken())
        if taken.count != count:
            raise TestbedError(f"{backend}: {taken.count} of {count} payloads came")
        if taken.same is False:
            raise TestbedError(f"{backend}: what came is not what was sent")
        if sent_bytes < nbytes * count:
            raise TestbedError(
                f"{backend}: only {sent_bytes} of {nbytes * count} bytes crossed {self._interface}"
            )
        return taken

    def _connect(self, link: Link, backends: Sequence[str]) -> None:
        address = link.far.address
        to, keys = (address, secrets.token_hex(16)), run_keys(backends)
        ports = self._far.ask(ListenFor(*to, list(backends), keys), TIMEOUT_S)
        self._near.ask(Connect(*to, ports, list(backends), keys), TIMEOUT_S)
        interfaces = {"near": link.near.interface, "far": link.far.interface}
        for backend in filter(_needs_agent, backends):
            port = self._far.ask(OpenRendezvous(address))
            joining = {
                end: JoinAgents(backend, end, list(interfaces), address, port, interface)
                for end, interface in interfaces.items()
            }
            self._ends.ask_all(joining, TIMEOUT_S)


def connected(undo: ExitStack, bed: Testbed, link: Link, backends: Sequence[str]) -> dict[str, Ends]:
    """By backend, the two ends that have it, connected until `undo` ends."""
    # A process has one agent, of rpc: the other backends that need one have two programs of their own.
    others = list(filter(_needs_agent, backends))[1:]
    ends: dict[str, Ends] = {}
    for group in ([backend for backend in backends if backend not in others], *([each] for each in others)):
        both = Ends(bed, link, group)
        undo.callback(both.close)
        ends |= dict.fromkeys(group, both)
    return ends


def _needs_agent(backend: str) -> bool:
    return bool(registry.parse(backend).agent)
