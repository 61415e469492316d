"""Was the link what the profile says? What to ask of a probe, and the verdict on its reading.

`pareto.remote.worker.probe` has the sockets and takes the reading.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pareto.protocol.constants import GOODPUT as GOODPUT
from pareto.protocol.messages import MAX_REQUESTS, Count, LineRate, Port, Positive, Request, Seconds
from pareto.protocol.validation import Bounds
from pareto.remote.link import units
from pareto.remote.link.profile import Direction, Gilbert, Profile

Span = tuple[float, float]
"""From and to: positions of a link that changes, in seconds since its trace's beginning."""
STILL: Span = (0.0, 0.0)

_BULK_S = 0.1
_MIN_BULK_BYTES, _MAX_BULK_BYTES = 48_000, 12_500_000
SAMPLE_S = 0.1
_LEAST_SAMPLE, _MOST_SAMPLE = 20, 20_000
_SAMPLE_WIRE_BYTES = 142
_SAMPLE_GAP_S = 0.0005
_STRAGGLER_S = 0.1
_LEAST_PINGS, _MOST_PINGS, _PING_GAP_S = 21, 100, 0.002
"""The median of so many is free of a machine's hiccup; no ping waits for another at these gaps."""
_PING_WIRE_BYTES = 83
_TRAIN_PACE, _PACED_BPS, _TRAIN_WIRE_BYTES = 1.25, 200e6, 1514
"""Datagrams of bulk go a quarter faster than the line, which so is never idle and whose queue need not hold them all;
over this rate a sender would be held up by its own pace: they go back to back."""
_Bytes = Annotated[int, Bounds(0, 15_000_000_000)]
_Number = Annotated[int, Bounds(0, 10_000_000)]
_Wait = Annotated[float, Bounds(0, 3600)]
_Z = 3.29  # 99.9 %, two-sided: a sweep takes hundreds of samples


@dataclass(frozen=True)
class Sample:
    """Datagrams one way: how many were sent, came at all, came again, came out of order."""

    sent: Positive
    received: Count
    duplicates: Count
    reordered: Count

    def __post_init__(self) -> None:
        if self.received > self.sent or self.reordered > self.received:
            raise ValueError("more datagrams arrived than were sent")

    @property
    def lost(self) -> int:
        return self.sent - self.received


@dataclass(frozen=True)
class Reading:
    """A probe's measurements: round trip in seconds, payload edge to server and back in bit/s, samples of datagrams.
    None: not measured. payload_share: in each byte on the wire, by the protocol that was used. ping_bytes: there."""

    rtt_s: Seconds | None
    rate_bps: LineRate | None
    rate_back_bps: LineRate | None
    sample: Sample | None = None
    sample_back: Sample | None = None
    payload_share: Annotated[float, Bounds(1e-3, 1)] = GOODPUT
    rtts_s: Annotated[tuple[Seconds, ...], Bounds(0, MAX_REQUESTS)] = ()
    message_s: Seconds | None = None
    ping_bytes: Count = 0


@dataclass(frozen=True)
class Question(Request[Reading], op="probe"):
    """The measurements to make in one probe of a link, out and back; what is 0 is not measured.

    bulk_*: bytes, of which the first skip_* do not count in the rate. datagrams: whether pings and bulk go by UDP.
    sample_*: datagrams, one each sample_gap_s; those of a bulk go one each train_gap_*_s (0: back to back). A datagram
    or an echo is lost if it has not come wait_s after the last was sent. message: bytes by TCP, timed until all of an
    answer of so many bytes came, which is sent when they did. constant: whether the line's rate is; else what a bulk
    took as a whole is its rate.
    """

    bulk_out: _Bytes = 0
    bulk_back: _Bytes = 0
    skip_out: _Bytes = 0
    skip_back: _Bytes = 0
    pings: _Number = 5
    ping_gap_s: _Wait = 0.004
    datagrams: bool = False
    sample_out: _Number = 0
    sample_back: _Number = 0
    sample_gap_s: _Wait = 0.002
    train_gap_out_s: _Wait = 0.0
    train_gap_back_s: _Wait = 0.0
    wait_s: _Wait = 1.0
    message: _Bytes = 0
    answer: Annotated[int, Bounds(1, 15_000_000_000)] = 1
    constant: bool = True

    def __post_init__(self) -> None:
        for bulk, skip in ((self.bulk_out, self.skip_out), (self.bulk_back, self.skip_back)):
            if bulk and skip >= bulk:
                raise ValueError("nothing of the bulk is left to count")


@dataclass(frozen=True)
class OpenProbe(Request[Port], op="listen"):
    """Open a probe on a link's far host; the report is the port on which it answers."""

    address: str
    token: str


@dataclass(frozen=True)
class ConnectProbe(Request[None], op="connect"):
    """Connect the near host's probe anew to the far host's."""

    address: str
    port: Port
    token: str


@dataclass(frozen=True)
class Reach(Request[Seconds], op="reach"):
    """Try to connect to any host's probe; the report is the seconds that took."""

    address: str
    port: Port


@dataclass(frozen=True)
class Tolerance:
    """How far a reading may be off: fractions of what was asked, and at least `rtt_floor_s` for the RTT. than: what a
    reading is held against, in words."""

    rtt_fraction: float = 0.01
    rtt_floor_s: float = 0.0003
    rate_fraction: float = 0.02
    than: str = "asked"

    def at_least(self, other: Tolerance) -> Tolerance:
        """The wider of both tolerances, with the other's words."""
        return Tolerance(
            max(self.rtt_fraction, other.rtt_fraction),
            max(self.rtt_floor_s, other.rtt_floor_s),
            max(self.rate_fraction, other.rate_fraction),
            other.than,
        )

    def rtt_s(self, asked_s: float) -> float:
        """Seconds by which a round trip may be off."""
        return max(self.rtt_fraction * asked_s, self.rtt_floor_s)


OWN = Tolerance(0.25, 0.002, 0.25, than="measured before the run")
"""The tolerance of a real link without emulation, against its own reading before the run: others use it too."""


@dataclass(frozen=True)
class Probed:
    """A reading and its fault: what was off, or empty."""

    reading: Reading
    fault: str


def question(
    profile: Profile, sample_s: float = SAMPLE_S, message_bytes: int = 0, *, by_tcp: bool = True
) -> Question:
    """The question to ask about this link; `sample_s` is spent on counting losses. Datagrams are used where packets are
    lost or the queue is short, so that TCP does not fill it, or TCP's own settings do not let it (not `by_tcp`)."""
    out, back = profile.directions
    slowest_bps = min(direction.typical.rate_bps or math.inf for direction in profile.directions)
    bulk_out, skip_out, gap_out_s = _bulk(profile, out)
    bulk_back, skip_back, gap_back_s = _bulk(profile, back)
    # A packet that comes late, or is long on the line, holds up those close behind it.
    jitter_s = sum(direction.jitter_s for direction in profile.directions)
    sample_gap_s = max(_SAMPLE_GAP_S, 2 * 8 * _SAMPLE_WIRE_BYTES / slowest_bps)
    sample = max(_LEAST_SAMPLE, min(_MOST_SAMPLE, int(sample_s / sample_gap_s)))
    return Question(
        bulk_out=bulk_out,
        bulk_back=bulk_back,
        skip_out=skip_out,
        skip_back=skip_back,
        pings=_pings(profile),
        ping_gap_s=max(_PING_GAP_S, 2 * jitter_s, 2 * 8 * _PING_WIRE_BYTES / slowest_bps),
        datagrams=not (by_tcp and profile.tcp_fills),
        sample_out=sample if out.impaired else 0,
        sample_back=sample if back.impaired else 0,
        sample_gap_s=sample_gap_s,
        train_gap_out_s=gap_out_s,
        train_gap_back_s=gap_back_s,
        wait_s=_wait_s(profile),
        message=message_bytes,
        constant=profile.period_s is None,
    )


def _bulk(profile: Profile, direction: Direction) -> tuple[int, int, float]:
    """The bytes of a bulk, how many of them come before the line is their only limit, and the seconds from one datagram
    to the next. Before that: a bucket's burst, and what comes in while jitter can leave the line without work."""
    rate_bps = direction.typical.rate_bps
    if not rate_bps:
        return 0, 0, 0.0
    burst = profile.bucket.burst_bytes if profile.bucket else 0
    skip = int(1.25 * (burst + 2 * direction.jitter_s * rate_bps / 8))
    paced = profile.period_s is None and rate_bps <= _PACED_BPS
    gap_s = 8 * _TRAIN_WIRE_BYTES / rate_bps / _TRAIN_PACE if paced else 0.0
    return bulk_bytes(rate_bps) + skip, skip, gap_s


def judge(profile: Profile, reading: Reading, tolerance: Tolerance | None = None, span: Span = STILL) -> str:
    """Empty if the reading is within tolerance, else one line with each thing that is not. Too fast is as wrong as too
    slow: those bytes did not cross the link. span: seen of a link that changes, which bounds the reading."""
    tolerance = tolerance or Tolerance()
    faults = [judge_rtt(profile, reading.rtt_s, tolerance, span, reading.ping_bytes)]
    ways = (
        ("edge to server", profile.edge_to_server, reading.rate_bps, reading.sample),
        ("server to edge", profile.server_to_edge, reading.rate_back_bps, reading.sample_back),
    )
    for name, direction, rate, sample in ways:
        faults.append(judge_rate(name, direction, rate, reading.payload_share, tolerance, span))
        if sample is not None:
            least, most = interval(sample.lost, sample.sent, burstiness(direction))
            asked = missing_share(direction)
            if not least <= asked <= most:
                faults.append(f"lost {name} {sample.lost} of {sample.sent} datagrams, asked {asked:.2%}")
    return "; ".join(fault for fault in faults if fault)


def bulk_bytes(rate_bps: float) -> int:
    """Bytes that a rate probe sends: what the link carries in 100 ms, within 48 kB and 12.5 MB."""
    return min(max(int(rate_bps / 8 * _BULK_S), _MIN_BULK_BYTES), _MAX_BULK_BYTES)


def duration_s(profile: Profile) -> float:
    """About how many seconds one probe of the link takes."""
    planned, (out, back) = question(profile), profile.typical.directions
    bulks = [(planned.bulk_out, out.rate_bps), (planned.bulk_back, back.rate_bps)]
    bulks_s = sum(8 * nbytes / rate_bps for nbytes, rate_bps in bulks if rate_bps)
    samples_s = (planned.sample_out + planned.sample_back) * planned.sample_gap_s
    exchanges = 1 + planned.datagrams * (2 + bool(planned.sample_out) + bool(planned.sample_back))
    pings_s = planned.pings * planned.ping_gap_s
    return profile.typical.rtt_s * exchanges + pings_s + bulks_s + samples_s + 0.03


def interval(lost: int, sent: int, burstiness: float = 1.0) -> tuple[float, float]:
    """Wilson's score interval (99.9 %; JASA 22, 1927) for a share of packets, of a sample that `burstiness` divides."""
    n, share = sent / burstiness, lost / sent
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def burstiness(direction: Direction) -> float:
    """The factor by which bursts inflate the variance of a sample: (1 + r) / (1 - r), with r between neighbours."""
    if not isinstance(direction.loss, Gilbert):
        return 1.0
    stays = max(0.0, 1 - direction.loss.good_to_bad - direction.loss.bad_to_good)
    return (1 + stays) / (1 - stays)


def missing_share(direction: Direction) -> float:
    """The share of datagrams that do not arrive: lost, or damaged and refused for their checksum."""
    return 1 - (1 - direction.mean_loss) * (1 - direction.corrupt)


def rtt_range_s(profile: Profile, span: Span = STILL) -> tuple[float, float]:
    """The least and the greatest round trip that the profile allows."""
    delays = [delay_range_s(direction, span) for direction in profile.directions]
    return sum(least for least, _ in delays), sum(most for _, most in delays)


def delay_range_s(direction: Direction, span: Span = STILL) -> tuple[float, float]:
    """The least and the greatest delay of a small packet; an outage delays too."""
    if direction.trace is None:
        return direction.delay_s - direction.jitter_s, direction.delay_s + direction.jitter_s
    delays = [direction.trace.step(at_s).delay_s for at_s in direction.trace.edges(*span)]
    held_s = direction.trace.most_transfer_s(_SAMPLE_WIRE_BYTES, *span)
    return max(0.0, min(delays) - direction.jitter_s), max(delays) + held_s + direction.jitter_s


def rate_range_bps(direction: Direction, span: Span = STILL) -> tuple[float, float] | None:
    """The least and the greatest rate on the wire at which a probe's bulk may cross; None: not limited."""
    trace, rate_bps = direction.trace, direction.typical.rate_bps
    if trace is None or rate_bps is None:
        return None if rate_bps is None else (rate_bps, rate_bps)
    nbytes = bulk_bytes(rate_bps)
    slowest_s, fastest_s = trace.most_transfer_s(nbytes, *span), trace.least_transfer_s(nbytes, *span)
    return 8 * nbytes / slowest_s, 8 * nbytes / fastest_s


def judge_rtt(
    profile: Profile, rtt_s: float | None, tolerance: Tolerance, span: Span = STILL, ping_bytes: int = 0
) -> str:
    """As `judge`, of the round trip alone; `ping_bytes` is what a ping takes on the wire."""
    if rtt_s is None:
        return "no echo came back"
    least, most = (each + on_line_s(profile, ping_bytes) for each in rtt_range_s(profile, span))
    allowed = tolerance.rtt_s(profile.rtt_s)
    if least - allowed <= rtt_s <= most + allowed:  # a NaN is a fault too
        return ""
    asked = units.duration(most) if least == most else f"{units.duration(least)} to {units.duration(most)}"
    return f"RTT {units.duration(rtt_s)}, {tolerance.than} {asked} (tolerance {units.duration(allowed)})"


def on_line_s(profile: Profile, nbytes: int) -> float:
    """Seconds that an idle link takes to put a packet of so many bytes on the line, out and back."""
    if profile.bucket or profile.period_s is not None:
        return 0.0  # a full bucket lets it through; what changes has a range
    return sum(8 * way.on_line(nbytes) / way.line_bps for way in profile.directions if way.line_bps)


def judge_rate(
    name: str,
    direction: Direction,
    measured: float | None,
    share: float,
    tolerance: Tolerance,
    span: Span = STILL,
) -> str:
    """As `judge`, of one direction's rate alone: `measured` is payload, which is `share` of the bytes on the wire."""
    asked = rate_range_bps(direction, span)
    if asked is None:
        return ""
    least, most = (rate * arriving_share(direction, share) for rate in asked)
    shown = units.rate(most, 3) if least == most else f"{units.rate(least, 3)} to {units.rate(most, 3)}"
    if measured is None:
        return f"rate {name} could not be measured, {tolerance.than} {shown} of payload"
    if least * (1 - tolerance.rate_fraction) <= measured <= most * (1 + tolerance.rate_fraction):
        return ""
    of = f"(tolerance {tolerance.rate_fraction:.0%})"
    return f"rate {name} {units.rate(measured, 3)}, {tolerance.than} {shown} of payload {of}"


def arriving_share(direction: Direction, payload_share: float) -> float:
    """The payload that arrives for each byte that the line has time for. Damaged packets take it and are refused."""
    return payload_share * (1 - direction.corrupt) / max(1 - direction.reorder, 1e-9)


def _pings(profile: Profile) -> int:
    """The number of pings of which all are lost only once in ten thousand probes."""
    lost = 1 - math.prod(1 - missing_share(direction) for direction in profile.directions)
    wanted = math.ceil(math.log(1e-4) / math.log(lost)) if 0 < lost < 1 else 0
    return max(_LEAST_PINGS, min(_MOST_PINGS, wanted))


def _wait_s(profile: Profile) -> float:
    """Seconds that an echo may take: the longest round trip, a full queue each way, and a moment."""
    waits = [
        8 * (direction.waiting_bytes or 0) / direction.typical.rate_bps
        for direction in profile.directions
        if direction.typical.rate_bps
    ]
    return rtt_range_s(profile, (0.0, profile.period_s or 0.0))[1] + sum(waits) + _STRAGGLER_S
