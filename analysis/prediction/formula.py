"""The arithmetic of a split over a chain of hosts, in which every link has one constant delay and rate each way.

    latency    = stages + over the links that are crossed: delays out and back + payload / rate out + result / rate back
                 + what the backend adds
    throughput = batch / max(each stage, on each crossed link: payload / rate out, result / rate back,
                             latency / requests in flight)

Rates are what TCP carries of them, 1448 bytes in 1514 (`pareto.protocol.constants.GOODPUT`). A link is crossed where a
payload has bytes. Stages that all run on the edge never wait for the network.

Seconds, bytes, bit/s. A `Chain` has the same by tables, for one set of conditions and any split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pareto.analysis.statistics.samples import Bools, Floats, Ints
from pareto.protocol.constants import GOODPUT

Values = float | Floats


@dataclass(frozen=True)
class Conditions:
    """Links' one-way delays (s) and rates on the wire (bit/s), out and back. They broadcast against payloads."""

    delay_s: Values
    rate_bps: Values
    delay_back_s: Values = 0.0
    rate_back_bps: Values = np.inf


def carrying_s(out_bytes: Floats, back_bytes: Floats, link: Conditions, reached: float = GOODPUT) -> Floats:
    """Seconds that a link adds to the latency of a request with these bytes. reached: the share of its rate."""
    transfers_s = 8 / reached * (out_bytes / link.rate_bps + back_bytes / link.rate_back_bps)
    return np.where(out_bytes > 0, link.delay_s + link.delay_back_s + transfers_s, 0.0)


def occupied_s(out_bytes: Floats, back_bytes: Floats, link: Conditions, reached: float = GOODPUT) -> Floats:
    """Seconds that such a request keeps the slower direction of a link busy."""
    slower = np.maximum(out_bytes / link.rate_bps, back_bytes / link.rate_back_bps)
    return np.where(out_bytes > 0, 8 / reached * slower, 0.0)


@dataclass(frozen=True, eq=False)
class Chain:
    """The seconds that a request takes of a chain of hosts, by where the model is cut, for one backend and batch size.

    segments_s: each host's stage by its first and its last point, hosts x points x points; inf where it goes back. All
    others are links x points: carried_s: what a link adds to the latency (inf: the codec cannot be used there).
    occupied_s: how long its slower direction is busy. sent_s: what a payload needs one way. near_s, far_s: what the
    hosts before it and behind it take besides their stages, where many requests are in flight. crosses: whether a
    point's payload crosses a link. core: of each host, where those with the same number share one; empty: none do.
    """

    segments_s: Floats
    carried_s: Floats
    occupied_s: Floats
    sent_s: Floats
    near_s: Floats
    far_s: Floats
    crosses: Bools
    batch_size: int = 1
    in_flight: int = 1
    core: tuple[int, ...] = ()

    @property
    def hosts(self) -> int:
        return len(self.segments_s)

    @property
    def last(self) -> int:
        """The last point: nothing crosses there."""
        return len(self.crosses) - 1

    def stages_s(self, splits: Ints) -> Floats:
        """Seconds of each stage: splits x hosts, of splits x links."""
        ends = np.pad(splits, ((0, 0), (1, 1)))
        ends[:, -1] = self.last
        return np.asarray(self.segments_s[np.arange(self.hosts), ends[:, :-1], ends[:, 1:]])

    def steps_s(self, splits: Ints) -> Floats:
        """Seconds that each host is busy with one of many requests, its codec and sending included: splits x hosts."""
        near_s, far_s = at(self.near_s, splits), at(self.far_s, splits)
        return self.stages_s(splits) + np.pad(near_s, ((0, 0), (0, 1))) + np.pad(far_s, ((0, 0), (1, 0)))

    def latency_s(self, splits: Ints) -> Floats:
        """Seconds with one request in flight, of each split."""
        return np.asarray(self.stages_s(splits).sum(axis=1) + at(self.carried_s, splits).sum(axis=1))

    def periods_s(self, splits: Ints) -> tuple[Floats, Floats, Floats]:
        """Seconds from one batch to the next, as far as hosts (with all that share a core), links, and answers that
        are waited for let it be: splits x hosts, links and 1."""
        hosts_s = self.steps_s(splits)
        if self.core:
            hosts_s = np.asarray(hosts_s @ np.equal.outer(self.core, self.core))
        waits_s = np.where(self.crosses[splits].any(axis=1), self.latency_s(splits) / self.in_flight, 0.0)
        return hosts_s, at(self.occupied_s, splits), waits_s[:, None]

    def throughput_ips(self, splits: Ints) -> Floats:
        """Images a second, of each split."""
        with np.errstate(divide="ignore"):  # nothing takes no time, but a file may say so
            return np.asarray(self.batch_size / np.hstack(self.periods_s(splits)).max(axis=1))


def at(table: Floats, splits: Ints) -> Floats:
    """The figures of a table (links x points) for each split: splits x links."""
    return np.asarray(table[np.arange(len(table)), splits])
