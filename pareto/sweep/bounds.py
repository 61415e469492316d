"""Bounds by physics: the least latency and the greatest throughput that links and devices can give.

    latency    >= sum of the stages + over each link: delay out + delay back + payload / rate out + result / rate back
    throughput <= batch / max(each stage, on each link: payload / rate out, result / rate back)

The rate is the profile's, on the wire: a bound that no protocol overhead loosens. Where the link varies, each term
is the least it can be: delay less jitter, less a token bucket's burst, at the best moment of the trace's part seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pareto.remote.link.probe import GOODPUT, OWN, STILL, Reading, Span, arriving_share, delay_range_s
from pareto.remote.link.profile import Bucket, Direction, Profile
from pareto.remote.link.trace import MAX_RATE_BPS


@dataclass(frozen=True)
class Crossing:
    """The load that a request and its result put on a link. wire_bytes: of what a codec makes of the payload; None
    without one. seen: the part of the link's traces that passed meanwhile. own: the profile is the link as it was
    measured, not one that was asked for. filled: TCP has its rate."""

    link: str
    profile: Profile
    payload_bytes: int
    result_bytes: int
    seen: Span = STILL
    own: bool = False
    filled: bool = True
    wire_bytes: float | None = None

    @property
    def sent_bytes(self) -> float:
        return self.payload_bytes if self.wire_bytes is None else self.wire_bytes

    def as_probed(self, readings: Sequence[Reading]) -> Crossing:
        """The same over a link as fast as its fastest reading; over the profile's where no reading says, or it changes.
        One that is not emulated may be faster and nearer in between than it was when it was probed."""
        if self.profile.bucket is not None:
            return self
        shares = [reading.payload_share for reading in readings]
        rates = [reading.rate_bps for reading in readings], [reading.rate_back_bps for reading in readings]
        faster, nearer = (1 + OWN.rate_fraction, 1 - OWN.rtt_fraction) if self.own else (1.0, 1.0)
        out, back = (
            replace(_at_rate(way, zip(read, shares, strict=True), faster), delay_s=nearer * way.delay_s)
            for way, read in zip(self.profile.directions, rates, strict=True)
        )
        return replace(self, profile=replace(self.profile, edge_to_server=out, server_to_edge=back))

    @property
    def least_s(self) -> float:
        """Seconds that one request spends on this link at the least, both ways."""
        return self.delays_s + sum(self._transfers_s(self.profile.bucket))

    @property
    def delays_s(self) -> float:
        return sum(delay_range_s(direction, self.seen)[0] for direction in self.profile.directions)

    @property
    def occupied_s(self) -> tuple[float, float]:
        """Seconds that one of many requests keeps the line busy at the least: out, back. A burst gains nothing here."""
        return self._transfers_s(None)

    @property
    def usual_ways_s(self) -> tuple[float, float]:
        """Seconds of a request out, and of its result back, at TCP's goodput: to foresee, not to bound."""
        out_bps, back_bps = (way.rate_bps or math.inf for way in self.profile.typical.directions)
        return 8 * self.sent_bytes / out_bps / GOODPUT, 8 * self.result_bytes / back_bps / GOODPUT

    @property
    def usual_s(self) -> float:
        """Seconds of the slower of these: the link's share of the pace of many requests."""
        return max(self.usual_ways_s)

    def _transfers_s(self, bucket: Bucket | None) -> tuple[float, float]:
        out, back = self.profile.directions
        out_s = _least_transfer_s(out, self.sent_bytes, self.seen, bucket)
        return out_s, _least_transfer_s(back, self.result_bytes, self.seen, bucket)


def latency_s(work_s: float, crossings: Sequence[Crossing]) -> float:
    """Seconds, for what all stages compute for a request, and the links that are crossed."""
    return work_s + sum(crossing.least_s for crossing in crossings)


def throughput_ips(
    batch_size: int, stages_s: Mapping[str, float], crossings: Sequence[Crossing]
) -> tuple[float, str]:
    """Images a second, and what bounds them: a stage's host, or a link and its direction ('edge-server out')."""
    steps_s = {**stages_s, **busy_s(crossings)}
    slowest = max(steps_s, key=steps_s.__getitem__)
    return batch_size / steps_s[slowest], slowest


def busy_s(crossings: Sequence[Crossing]) -> dict[str, float]:
    """By link and direction, the seconds that one of many requests keeps it busy at the least."""
    return {
        f"{crossing.link} {way}": seconds
        for crossing in crossings
        for way, seconds in zip(("out", "back"), crossing.occupied_s, strict=True)
    }


def _at_rate(way: Direction, readings: Iterable[tuple[float | None, float]], faster: float) -> Direction:
    """`readings`: payload in bit/s, and its share of the wire."""
    probed = [rate / arriving_share(way, share) for rate, share in readings if rate]
    if not probed or way.rate_bps is None:
        return way
    return replace(way, rate_bps=min(faster * max(probed), MAX_RATE_BPS))


def _least_transfer_s(direction: Direction, nbytes: float, seen: Span, bucket: Bucket | None) -> float:
    # A reordered packet passes by the line.
    queued = (1 - direction.reorder) * nbytes
    if direction.trace is not None:
        return direction.trace.least_transfer_s(queued, *seen)
    if direction.rate_bps is None:
        return 0.0
    return 8 * max(0.0, queued - (bucket.burst_bytes if bucket else 0)) / direction.rate_bps
