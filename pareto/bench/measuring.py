"""The rounds of one place: every size, every way, in an order shuffled from the seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

from pareto.bench.asked import Asked, Way
from pareto.bench.effort import BUSY_BYTES, Effort
from pareto.bench.ends import Ends
from pareto.bench.place import Place

ALONE, HALF, ALWAYS = SHARES = (0.0, 0.5, 1.0)
"""Of the time, for which a thread beside the transport holds the interpreter's lock."""
FIRST_TRIPS, QUICK_S = 5, 0.1


@dataclass(frozen=True)
class Sample:
    """One way, once: a round trip's median over `trips`, and a stream of `payloads` if there was one.

    busy: the share of the time in which a thread of each end held the interpreter's lock. Processor time is of the
    stream, sent_bytes what the near end's interface sent meanwhile.
    """

    place: str
    nbytes: int
    way: str
    round: int
    started_s: float
    busy: float
    trips: int
    trip_s: float
    trip_mean_s: float
    payloads: int | None = None
    stream_s: float | None = None
    near_cpu_s: float | None = None
    far_cpu_s: float | None = None
    sent_bytes: int | None = None


@dataclass(frozen=True)
class _Counts:
    """How many of each make a sample long enough."""

    trips: dict[float, int]
    payloads: int


class Stay:
    """The programs of all ways in one place, started, connected and warm."""

    def __init__(self, place: Place, asked: Asked, efforts: Sequence[Effort]) -> None:
        self._place = place
        self._asked = asked
        self._efforts = efforts
        self._undo = ExitStack()
        self._ends: dict[Way, Ends] = {}
        try:
            for ways in _groups(asked.ways):
                ends = Ends(place.spot, place.heartbeat, ways)
                self._undo.callback(ends.close)
                self._ends |= dict.fromkeys(ways, ends)
        except BaseException:
            self.close()
            raise

    def facts(self) -> dict[str, Any]:
        """What the first two programs say of the host that each is on."""
        return next(iter(self._ends.values())).facts

    def samples(self, told: Callable[[int, int], None]) -> Iterator[Sample]:
        """`told`: called between samples with the round that runs, and how many there are."""
        # Large first: what they do to a connection, its window above all, is done before anything is timed.
        counts = {
            (effort.nbytes, way): self._first(effort, way)
            for effort in reversed(self._efforts)
            for way in self._asked.ways
        }
        order = Random(f"{self._asked.seed} {self._place.name}")  # noqa: S311
        began = time.monotonic()
        rounds = max((effort.rounds for effort in self._efforts), default=0)
        for number in range(1, rounds + 1):
            efforts = [effort for effort in self._efforts if number <= effort.rounds]
            for effort in order.sample(efforts, len(efforts)):
                shares = self._shares(effort)
                turns = [(way, share) for way in self._asked.ways for share in shares]
                for way, share in order.sample(turns, len(turns)):
                    told(number, rounds)
                    at_s = time.monotonic() - began
                    yield self._sample(effort, way, share, counts[effort.nbytes, way], number, at_s)

    def close(self) -> None:
        self._undo.close()

    def _shares(self, effort: Effort) -> tuple[float, ...]:
        small = effort.nbytes <= BUSY_BYTES and self._place.profile is None
        return SHARES if self._asked.busy and small else (ALONE,)

    def _first(self, effort: Effort, way: Way) -> _Counts:
        """First calls, which count for nothing, and from the last of them how long the way takes."""
        ends = self._ends[way]
        trip_s = ends.trips(way, effort.nbytes, 1, kept=True)["median_s"]
        if trip_s < QUICK_S:
            trip_s = ends.trips(way, effort.nbytes, FIRST_TRIPS)["median_s"]
        trips = {ALONE: effort.trips(trip_s)}
        for share in self._shares(effort)[1:]:
            ends.busy(share)
            some = effort.trips(ends.trips(way, effort.nbytes, FIRST_TRIPS)["mean_s"])  # a few may be lucky
            trips[share] = effort.busy_trips(ends.trips(way, effort.nbytes, some)["mean_s"])
            ends.busy(ALONE)
        payloads = 0
        if effort.streamed:
            few = effort.payloads(trip_s)
            told = ends.stream(way, effort.nbytes, few, effort.in_flight)
            payloads = effort.payloads(told["seconds"] / few)
        return _Counts(trips, payloads)

    def _sample(
        self, effort: Effort, way: Way, share: float, counts: _Counts, number: int, at_s: float
    ) -> Sample:
        ends, trips = self._ends[way], counts.trips[share]
        if share:
            ends.busy(share)
        trip = ends.trips(way, effort.nbytes, trips)
        if share:
            ends.busy(ALONE)
        streamed: dict[str, Any] = {}
        if counts.payloads and not share:
            told = ends.stream(way, effort.nbytes, counts.payloads, effort.in_flight)
            streamed = {"payloads": counts.payloads, "stream_s": told.pop("seconds"), **told}
        return Sample(
            self._place.name,
            effort.nbytes,
            way.label,
            number,
            round(at_s, 3),
            share,
            trips,
            trip["median_s"],
            trip["mean_s"],
            **streamed,
        )


def _groups(ways: Sequence[Way]) -> list[list[Way]]:
    """Ways that share two programs. rpc has one agent in a process: every other one needs two of its own."""
    groups: list[list[Way]] = [[way for way in ways if way.family != "rpc"]]
    for number, way in enumerate(way for way in ways if way.family == "rpc"):
        if number == 0:
            groups[0].append(way)
        else:
            groups.append([way])
    return groups
