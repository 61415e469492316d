"""The arithmetic of a split over a chain of hosts, in which every link has one constant delay and rate each way.

    latency    = stages + over the links that are crossed: delays out and back + payload / rate out + result / rate back
                 + what the backend adds
    throughput = batch / max(each stage, on each crossed link: payload / rate out, result / rate back,
                             latency / requests in flight)

Rates are what TCP carries of them, 1448 bytes in 1514 (`pareto.protocol.constants.GOODPUT`). A link is crossed where a
payload has bytes. Stages that all run on the edge never wait for the network.

Arrays end in the axes cells x links; `conditions` broadcast against that. Seconds, bytes, bit/s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pareto.analysis.statistics.samples import Floats
from pareto.protocol.constants import GOODPUT

Values = float | Floats


@dataclass(frozen=True)
class Conditions:
    """Links' one-way delays (s) and rates on the wire (bit/s), out and back. They broadcast against cells x links."""

    delay_s: Values
    rate_bps: Values
    delay_back_s: Values = 0.0
    rate_back_bps: Values = np.inf


@dataclass(frozen=True)
class Payloads:
    """Bytes that a request of each cell puts on each link, out and back: cells x links. 0 out: it is not crossed."""

    out: Floats
    back: Floats

    @property
    def crossing(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Mask of the cells that cross a link at all."""
        return np.asarray((self.out > 0).any(axis=-1))


def carrying_s(payloads: Payloads, conditions: Conditions) -> Floats:
    """Seconds that the links add to the latency of a request: conditions x cells."""
    transfers_s = (
        8 / GOODPUT * (payloads.out / conditions.rate_bps + payloads.back / conditions.rate_back_bps)
    )
    each_s = conditions.delay_s + conditions.delay_back_s + transfers_s
    return np.asarray(np.where(payloads.out > 0, each_s, 0.0).sum(axis=-1))


def occupied_s(payloads: Payloads, conditions: Conditions) -> Floats:
    """Seconds that a request keeps the slowest direction of all links busy: conditions x cells."""
    slower = np.maximum(payloads.out / conditions.rate_bps, payloads.back / conditions.rate_back_bps)
    return np.asarray(np.where(payloads.out > 0, slower, 0.0).max(axis=-1) * 8 / GOODPUT)


def period_s(
    payloads: Payloads, stage_s: Values, occupied_s: Floats, latency_s: Floats, in_flight: int
) -> Floats:
    """Seconds from one batch to the next: conditions x cells. stage_s: of the slowest stage."""
    crossing_s = np.where(payloads.crossing, np.maximum(occupied_s, latency_s / in_flight), 0.0)
    return np.asarray(np.maximum(stage_s, crossing_s))
