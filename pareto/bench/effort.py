"""How much is measured of each payload on each link, so that slow links take minutes and not hours."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pareto.bench.asked import Asked
from pareto.link.probe import GOODPUT
from pareto.link.profile import Profile

SAMPLE_S, QUICK_SAMPLE_S = 0.05, 0.01
"""Spent on each sample, at least: many times what a scheduler's turn takes."""
MOST_TRIPS, MOST_PAYLOADS = 2000, 20_000
LONGEST_S = 2.0
"""A payload that takes a link longer is left out: so slow, all ways take what the link takes."""
LONGEST_STREAMED_S = 1.0
LONG_S = 0.1
"""Of a payload that takes longer, a stream is two, and `SLOW_ROUNDS` are enough: the link varies little."""
LEAST_PAYLOADS, LEAST_LONG_PAYLOADS = 8, 2
SLOW_ROUNDS = 7
IN_FLIGHT, MOST_IN_FLIGHT = 4, 64
OVERHEAD_S = 0.02
"""Of asking for one sample and getting it."""
BARE_BPS = 3e9
"""A guess at what a link that nobody shapes carries, over all ways: for the estimate alone."""
BUSY_LONGER = 5
"""Times as long is a sample beside a busy thread: many of its periods."""
BUSY_BYTES = 64_000
"""Larger payloads take longer than the interpreter's lock is waited for."""


@dataclass(frozen=True)
class Effort:
    """What is done of one size in one place."""

    nbytes: int
    link_s: float
    rounds: int
    streamed: bool
    in_flight: int
    sample_s: float

    def trips(self, trip_s: float) -> int:
        """How many trips are a sample, if one takes so long."""
        return _enough(self.sample_s / trip_s, 1, MOST_TRIPS)

    def busy_trips(self, trip_s: float) -> int:
        """As `trips`, beside a busy thread."""
        return self.trips(trip_s / BUSY_LONGER)

    def payloads(self, payload_s: float) -> int:
        """How many payloads are a stream, if one takes so long."""
        least = LEAST_LONG_PAYLOADS if payload_s > LONG_S else LEAST_PAYLOADS
        return _enough(self.sample_s / payload_s, least, MOST_PAYLOADS)

    def estimate_s(self, asked: Asked) -> float:
        """Of all its rounds, roughly."""
        alone_s = self.link_s or 8 * self.nbytes / BARE_BPS
        stream_s = self.payloads(alone_s) * alone_s if self.streamed else 0.0
        sample_s = max(self.sample_s, alone_s) + max(stream_s, self.sample_s) + OVERHEAD_S
        busy_s = (
            2 * (BUSY_LONGER * self.sample_s + OVERHEAD_S)
            if asked.busy and self.nbytes <= BUSY_BYTES
            else 0.0
        )
        return self.rounds * len(asked.ways) * (sample_s + busy_s)


def efforts(asked: Asked, profile: Profile | None) -> list[Effort]:
    """Of each size that the link can carry in a bearable time. None: nothing shapes it."""
    sample_s = QUICK_SAMPLE_S if asked.quick else SAMPLE_S
    chosen = []
    for nbytes in asked.sizes:
        link_s = needs_s(profile, nbytes)
        if link_s > LONGEST_S:
            continue
        rounds = min(asked.rounds, SLOW_ROUNDS) if link_s > LONG_S else asked.rounds
        streamed = link_s <= LONGEST_STREAMED_S
        chosen.append(Effort(nbytes, link_s, rounds, streamed, _in_flight(profile, nbytes), sample_s))
    return chosen


def needs_s(profile: Profile | None, nbytes: int) -> float:
    """The least that a round trip with such a payload takes; 0 where nothing shapes the link."""
    if profile is None:
        return 0.0
    rate_bps = profile.typical.edge_to_server.rate_bps
    return profile.rtt_s + (8 * nbytes / (rate_bps * GOODPUT) if rate_bps else 0.0)


def _in_flight(profile: Profile | None, nbytes: int) -> int:
    """Payloads of a stream under way: enough to keep the link busy for a round trip."""
    rate_bps = profile.typical.edge_to_server.rate_bps if profile else None
    if profile is None or not rate_bps:
        return IN_FLIGHT
    held = math.ceil(rate_bps / 8 * profile.rtt_s / nbytes)
    return min(IN_FLIGHT + held, MOST_IN_FLIGHT)


def _enough(count: float, least: int, most: int) -> int:
    return min(max(math.ceil(count), least), most)
