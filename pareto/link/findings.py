"""Asked against measured: what a series of probes says about a link, thing by thing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pareto.link import probe
from pareto.link.probe import Probed, Reading, Sample, Span, Tolerance
from pareto.link.profile import Direction, Profile
from pareto.link.units import show_delay

MESSAGE_BYTES = 30_000
"""A small activation: what a token bucket lets through at once."""
_SEGMENT_BYTES, _HEADER_BYTES = 1448, 66
_ENDS_S = 0.001  # what both ends take to hand a message to TCP and to be woken when it has come
_OFF_SHARE = 0.2  # of the readings of a link that changes


@dataclass(frozen=True)
class Observed:
    """One probe of a series: seconds since the series began, the part of the traces it saw, reading and verdict."""

    at_s: float
    span: Span
    probed: Probed

    @property
    def reading(self) -> Reading:
        return self.probed.reading


@dataclass(frozen=True)
class Finding:
    """One thing asked and measured, both in `unit`: `s`, `bit/s` or `share`. `fault` is empty where they agree.

    `spread` is the least and the greatest of the readings; for a share, the interval (99.9 %) of its sample.
    """

    what: str
    unit: str
    asked: float
    measured: float | None
    spread: tuple[float, float] | None
    fault: str

    @property
    def off(self) -> float | None:
        """Measured less asked, as a share of what was asked."""
        if self.measured is None or not self.asked:
            return None
        return self.measured / self.asked - 1


def findings(profile: Profile, series: Sequence[Observed], tolerance: Tolerance) -> list[Finding]:
    """Everything that the profile asks for, against a series of probes. Its means, where the link changes."""
    found = [_rtt(profile, series, tolerance)]
    found += _jitter(profile, series)
    names = ("out", "back")  # edge to server, server to edge
    rates = ("rate_bps", "rate_back_bps")
    for name, way, rate in zip(names, profile.directions, rates, strict=True):
        found += _rate(f"rate {name}", way, [(o, getattr(o.reading, rate)) for o in series], tolerance)
    found += _message(profile, series, tolerance)
    for name, way, which in zip(names, profile.directions, ("sample", "sample_back"), strict=True):
        found += _samples(name, way, [getattr(o.reading, which) for o in series])
    return found


def _rtt(profile: Profile, series: Sequence[Observed], tolerance: Tolerance) -> Finding:
    values = [value for o in series for value in o.reading.rtts_s]
    typical = statistics.median(values) if values else None
    changes = profile.period_s is not None
    ping_bytes = series[0].reading.ping_bytes
    fault = (
        _mostly(series, "RTT")
        if changes
        else probe.judge_rtt(profile, typical, tolerance, ping_bytes=ping_bytes)
    )
    asked = _middle([probe.rtt_range_s(profile, o.span) for o in series]) + probe.on_line_s(
        profile, ping_bytes
    )
    return Finding("RTT", "s", asked, typical, _range(values), fault)


def _jitter(profile: Profile, series: Sequence[Observed]) -> Iterator[Finding]:
    # Of two independent uniform delays: the variances add.
    asked = math.sqrt(sum(way.jitter_s**2 / 3 for way in profile.directions))
    values = [value for o in series for value in o.reading.rtts_s]
    reordered = any(way.reorder for way in profile.directions)  # these have no delay at all
    if asked and len(values) > 2 and profile.period_s is None and not reordered:
        yield Finding("RTT, std. dev.", "s", asked, statistics.stdev(values), None, "")


def _rate(
    what: str, way: Direction, readings: Sequence[tuple[Observed, float | None]], tolerance: Tolerance
) -> Iterator[Finding]:
    if not way.limited:
        return
    share = readings[0][0].reading.payload_share
    values = [rate for _, rate in readings if rate is not None]
    typical = statistics.median(values) if values else None
    if way.trace is None:
        fault = probe.judge_rate(what.removeprefix("rate "), way, typical, share, tolerance)
    else:
        fault = _mostly([o for o, _ in readings], "rate")
    asked = share * _middle([probe.rate_range_bps(way, o.span) or (0.0, 0.0) for o, _ in readings])
    yield Finding(what, "bit/s", asked, typical, _range(values), fault)


def _message(profile: Profile, series: Sequence[Observed], tolerance: Tolerance) -> Iterator[Finding]:
    values = [o.reading.message_s for o in series if o.reading.message_s is not None]
    if not values or profile.period_s is not None or not profile.tcp_fills:
        return
    rate = profile.edge_to_server.rate_bps
    if not rate:
        return
    wire = MESSAGE_BYTES + -(-MESSAGE_BYTES // _SEGMENT_BYTES) * _HEADER_BYTES
    if profile.bucket:
        wire = max(0, wire - profile.bucket.burst_bytes)
    asked, typical = profile.rtt_s + 8 * wire / rate, statistics.median(values)
    allowed = tolerance.rtt_s(asked) + _ENDS_S
    what = f"{MESSAGE_BYTES // 1000} kB, answered"
    # Too slow in all: in single ones the ends waited for a core. Too fast in most: those bytes did not feel the rate.
    off = min(values) > asked + allowed or typical < asked - allowed
    fault = (
        f"{what}: {show_delay(typical)}, asked {show_delay(asked)} (tolerance {show_delay(allowed)})"
        if off
        else ""
    )
    yield Finding(what, "s", asked, typical, _range(values), fault)


def _samples(name: str, way: Direction, samples: Sequence[Sample | None]) -> Iterator[Finding]:
    taken = [sample for sample in samples if sample is not None]
    if not taken:
        return
    every = Sample(
        sum(s.sent for s in taken),
        sum(s.received for s in taken),
        sum(s.duplicates for s in taken),
        sum(s.reordered for s in taken),
    )
    for what, count, asked, bursts in (
        ("lost", every.lost, probe.missing_share(way), probe.burstiness(way)),
        ("repeated", every.duplicates, way.duplicate, 1.0),
        ("reordered", every.reordered, way.reorder, 1.0),
    ):
        if not asked and not count:
            continue
        spread = probe.interval(count, every.sent, bursts)
        # Whom a packet overtakes depends on what else is on its way: told, not judged.
        off = what != "reordered" and not spread[0] <= asked <= spread[1]
        fault = f"{what} {name} {count} of {every.sent} datagrams, asked {asked:.2%}" if off else ""
        yield Finding(f"{what} {name}", "share", asked, count / every.sent, spread, fault)


def _mostly(series: Sequence[Observed], what: str) -> str:
    """A link that changes is judged reading by reading: each within what the link was in that time."""
    off = sum(what in o.probed.fault for o in series)
    return f"{off} of {len(series)} readings are off" if off > _OFF_SHARE * len(series) else ""


def _middle(ranges: Sequence[tuple[float, float]]) -> float:
    """What was asked, on the whole: the median of the ranges' middles (all the same on a link that stands still)."""
    return statistics.median(sum(pair) / 2 for pair in ranges)


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None
