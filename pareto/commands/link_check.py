"""`doctor --link`: profiles on a testbed's links, asked against measured, quantity by quantity."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pareto.basics.console import table
from pareto.hosts.access import require_testbed
from pareto.hosts.connection import FAULTS
from pareto.hosts.host import TestbedError
from pareto.hosts.shapers import Shaper
from pareto.hosts.testbed import Link
from pareto.remote.link import probe
from pareto.remote.link.probe import Probed, Reading, Sample, Span, Tolerance
from pareto.remote.link.profile import Direction, Profile
from pareto.remote.link.units import duration
from pareto.sweep.networks import networks_to_check
from pareto.sweep.sweep import Sweep
from pareto.trial.probes import Probers, in_words
from pareto.trial.start import testbed_of

SAMPLE_S = 4.0
"""Spent on counting lost datagrams, each way, by the first probe of a check."""
LEAST_READINGS = 5
MESSAGE_BYTES = 30_000
"""A small activation: what a token bucket lets through at once."""
_SEGMENT_BYTES, _HEADER_BYTES = 1448, 66
_ENDS_S = 0.001  # what both ends take to hand a message to TCP and to be woken when it has come
_OFF_SHARE = 0.2  # of the readings of a link that changes
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 48
_UNITS = {"s": ("ms", 1e3), "bit/s": ("Mbit/s", 1e-6), "share": ("%", 100.0)}


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
class Judgement:
    """One quantity asked and measured, both in `unit`: `s`, `bit/s` or `share`. `fault` is empty where they agree.
    `spread` is the least and the greatest of the readings; for a share, the interval (99.9 %) of its sample."""

    quantity: str
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


def check(out: Console, sweep: Sweep, duration_s: float, figures: Path) -> bool:
    """Probe each network of a sweep for `duration_s` a link and show the results; whether all was as asked. The local
    testbed gets as many links as a network names. Raises TestbedError."""
    networks = networks_to_check(sweep)
    require_testbed(sweep.testbed)
    profiles = [profile for network in networks for profile in network]
    good = []
    try:
        chain = sweep.model_copy(update={"hosts": len(networks[0]) + 1})
        with closing(testbed_of(chain, profiles)) as bed, closing(Probers(bed)) as probers:
            for network in networks:
                pairs = list(zip(bed.links, network, strict=True))
                in_force = [probers.shape(link, profile) for link, profile in pairs]
                for (link, profile), state in zip(pairs, in_force, strict=True):
                    # What a testbed's kernels take and do not carry out, from what its shaper read back.
                    hosts = (report for report in state.values() if isinstance(report, Mapping))
                    without_effect = {name for report in hosts for name in report.get("without_effect", ())}
                    title, name = f"{profile.name} on {bed.label}", profile.name
                    if len(bed.links) > 1:
                        title, name = f"{link.name}: {title}", f"{name}-{link.name}"
                    if not bed.is_local and not profile.shaped:
                        words = in_words(probers.bare(link))
                        out.print(f"{title}: {words}; nothing is asked of it", soft_wrap=True)
                        continue
                    dropped = link.shaper.state().dropped
                    series = _observe(probers, link, profile, duration_s, sweep.link_tolerance)
                    judgements = judge(profile, series, sweep.link_tolerance)
                    good.append(not any(each.fault for each in judgements))
                    out.print(title, soft_wrap=True)
                    out.print(_table(judgements))
                    for line in (
                        *(f"off: {each.fault}" for each in judgements if each.fault),
                        *(f"{ignored} has no effect in netem" for ignored in sorted(without_effect)),
                        *_pictures(series),
                        _costs(link.shaper, dropped),
                        _figure(profile, title, series, figures / f"link-{name}.png"),
                    ):
                        out.print(line, soft_wrap=True)
    except FAULTS as fault:
        raise TestbedError(f"the link could not be probed: {fault}") from fault
    return all(good)


def _observe(
    probers: Probers, link: Link, profile: Profile, duration_s: float, tolerance: Tolerance
) -> list[Observed]:
    """Readings one after the other; the first has the large sample of datagrams."""
    if profile.period_s is not None:
        link.shaper.restart(profile.offset_s)
    began = time.monotonic()
    series: list[Observed] = []
    while len(series) < LEAST_READINGS or time.monotonic() - began < duration_s:
        at_s = time.monotonic() - began
        sample_s = probe.SAMPLE_S if series else SAMPLE_S
        question = probe.question(profile, sample_s, MESSAGE_BYTES if profile.tcp_fills else 0)
        probed, span = probers.probed(link, profile, tolerance, question)
        series.append(Observed(at_s, span, probed))
    return series


# What a series says of each quantity


def judge(profile: Profile, series: Sequence[Observed], tolerance: Tolerance) -> list[Judgement]:
    """Everything that the profile asks for, against a series of probes. Its means, where the link changes."""
    out, back = profile.directions
    readings = [each.reading for each in series]
    rtts_s = [value for reading in readings for value in reading.rtts_s]
    return [
        _rtt(profile, series, rtts_s, tolerance),
        *_jitter(profile, rtts_s),
        *_rate("out", out, series, "rate_bps", tolerance),
        *_rate("back", back, series, "rate_back_bps", tolerance),
        *_message(profile, [reading.message_s for reading in readings], tolerance),
        *_samples("out", out, [reading.sample for reading in readings]),
        *_samples("back", back, [reading.sample_back for reading in readings]),
    ]


def _rtt(
    profile: Profile, series: Sequence[Observed], rtts_s: Sequence[float], tolerance: Tolerance
) -> Judgement:
    typical, spread = _measured(rtts_s)
    ping_bytes = series[0].reading.ping_bytes
    if profile.period_s is not None:
        fault = _mostly(series, "RTT")
    else:
        fault = probe.judge_rtt(profile, typical, tolerance, ping_bytes=ping_bytes)
    asked = _middle([probe.rtt_range_s(profile, each.span) for each in series])
    asked += probe.on_line_s(profile, ping_bytes)
    return Judgement("RTT", "s", asked, typical, spread, fault)


def _jitter(profile: Profile, values: Sequence[float]) -> Iterator[Judgement]:
    # Of two independent uniform delays: the variances add.
    asked = math.sqrt(sum(direction.jitter_s**2 / 3 for direction in profile.directions))
    reordered = any(direction.reorder for direction in profile.directions)  # these have no delay at all
    if asked and len(values) > 2 and profile.period_s is None and not reordered:
        yield Judgement("RTT, std. dev.", "s", asked, statistics.stdev(values), None, "")


def _rate(
    name: str, direction: Direction, series: Sequence[Observed], field: str, tolerance: Tolerance
) -> Iterator[Judgement]:
    if not direction.limited:
        return
    share = series[0].reading.payload_share
    readings = (getattr(each.reading, field) for each in series)
    typical, spread = _measured([value for value in readings if value is not None])
    if direction.trace is not None:
        fault = _mostly(series, "rate")
    else:
        fault = probe.judge_rate(name, direction, typical, share, tolerance)
    asked = share * _middle([probe.rate_range_bps(direction, each.span) or (0.0, 0.0) for each in series])
    yield Judgement(f"rate {name}", "bit/s", asked, typical, spread, fault)


def _message(profile: Profile, readings: Sequence[float | None], tolerance: Tolerance) -> Iterator[Judgement]:
    values = [value for value in readings if value is not None]
    rate = profile.edge_to_server.rate_bps
    if not values or profile.period_s is not None or not profile.tcp_fills or not rate:
        return
    wire = MESSAGE_BYTES + -(-MESSAGE_BYTES // _SEGMENT_BYTES) * _HEADER_BYTES
    if profile.bucket:
        wire = max(0, wire - profile.bucket.burst_bytes)
    asked = profile.rtt_s + 8 * wire / rate
    typical, spread = statistics.median(values), (min(values), max(values))
    allowed = tolerance.rtt_s(asked) + _ENDS_S
    what, fault = f"{MESSAGE_BYTES // 1000} kB, answered", ""
    # Too slow in all: in single ones the ends waited for a core. Too fast in most: those bytes did not feel the rate.
    if spread[0] > asked + allowed or typical < asked - allowed:
        fault = f"{what}: {duration(typical)}, asked {duration(asked)} (tolerance {duration(allowed)})"
    yield Judgement(what, "s", asked, typical, spread, fault)


def _samples(name: str, direction: Direction, samples: Sequence[Sample | None]) -> Iterator[Judgement]:
    taken = [sample for sample in samples if sample is not None]
    sent = sum(sample.sent for sample in taken)
    for what, counted, asked, bursty in (
        ("lost", "lost", probe.missing_share(direction), probe.burstiness(direction)),
        ("repeated", "duplicates", direction.duplicate, 1.0),
        ("reordered", "reordered", direction.reorder, 1.0),
    ):
        count = sum(getattr(sample, counted) for sample in taken)
        if not taken or not (asked or count):
            continue
        spread = probe.interval(count, sent, bursty)
        # Whom a packet overtakes depends on what else is on its way: shown, not judged.
        off = what != "reordered" and not spread[0] <= asked <= spread[1]
        fault = f"{what} {name} {count} of {sent} datagrams, asked {asked:.2%}" if off else ""
        yield Judgement(f"{what} {name}", "share", asked, count / sent, spread, fault)


def _mostly(series: Sequence[Observed], what: str) -> str:
    """A link that changes is judged reading by reading: each within what the link was in that time."""
    off = sum(what in each.probed.fault for each in series)
    return f"{off} of {len(series)} readings are off" if off > _OFF_SHARE * len(series) else ""


def _middle(ranges: Sequence[tuple[float, float]]) -> float:
    """The figure asked for: the median of the ranges' middles (all the same on a link that does not change)."""
    return statistics.median(sum(pair) / 2 for pair in ranges)


def _measured(values: Sequence[float]) -> tuple[float | None, tuple[float, float] | None]:
    return (statistics.median(values), (min(values), max(values))) if values else (None, None)


# What is shown


def _table(judgements: Sequence[Judgement]) -> Table:
    heads = ("", "", "asked", "measured", "off", "from", "to", "verdict")
    made = table(heads, "<>>>>>>~", box=None, padding=(0, 1))
    for each in judgements:
        unit, scale = _UNITS[each.unit]
        numbers = [_number(value, scale) for value in (each.asked, each.measured)]
        off = "" if each.off is None or each.unit == "share" else f"{each.off:+.1%}"
        least, most = (_number(value, scale, "") for value in each.spread or (None, None))
        verdict = "off" if each.fault else "ok"
        made.add_row(each.quantity, unit, *numbers, off, least, most, verdict)
    return made


def _number(value: float | None, scale: float, missing: str = "none") -> str:
    """Four digits: what is looked for here is a deviation of a percent."""
    return missing if value is None else f"{value * scale:.4g}"


def _pictures(series: Sequence[Observed]) -> list[str]:
    """Round trip and rates over time, a line of bars each, from 0 to the largest."""
    lines = []
    for name, unit, values in (
        ("RTT", "s", [each.reading.rtt_s for each in series]),
        ("out", "bit/s", [each.reading.rate_bps for each in series]),
        ("back", "bit/s", [each.reading.rate_back_bps for each in series]),
    ):
        top = max((value for value in values if value is not None), default=0.0)
        if top:
            shown, scale = _UNITS[unit]
            lines.append(f"{name:>4} {_bars(values, top)} 0 to {_number(top, scale)} {shown}")
    return [*lines, f"     {len(series)} readings in {series[-1].at_s:.1f} s; out is away from the edge"]


def _bars(values: Sequence[float | None], top: float) -> str:
    step = max(1.0, len(values) / _WIDTH)
    picked = [values[int(i * step)] for i in range(int(len(values) / step))]
    return "".join(" " if value is None else _BARS[min(7, int(8 * value / top))] for value in picked)


def _costs(shaper: Shaper, before: int | None) -> str:
    relay, after = shaper.facts().get("relay"), shaper.state().dropped
    if before is None or after is None:
        return "     nothing shapes this link"
    dropped = after - before
    if relay:
        late = relay["late_p99_s"]
        lateness = "" if late is None else f"\n     99 % of the packets left at most {1e3 * late:.2f} ms late"
        real_time = "" if relay["real_time"] else ", without real-time scheduling"
        costs = f"{relay['cpu_share']:.0%} of a core{real_time}"
        return f"     relay: {costs}; full queues dropped {dropped} packets{lateness}"
    return f"     netem dropped {dropped} packets, those that it was asked to lose among them"


def _figure(profile: Profile, title: str, series: Sequence[Observed], path: Path) -> str:
    from pareto.analysis.figures.reading_figures import link_figure
    from pareto.basics import files

    out, back = profile.directions
    rows: dict[str, Sequence[float | None]] = {
        "at_s": [each.at_s for each in series],
        "rtt_s": [each.reading.rtt_s for each in series],
        "asked_rtt_least_s": [probe.rtt_range_s(profile, each.span)[0] for each in series],
        "asked_rtt_most_s": [probe.rtt_range_s(profile, each.span)[1] for each in series],
        "rate_bps": [each.reading.rate_bps for each in series],
        "asked_rate_bps": [_asked_bps(out, each) for each in series],
        "rate_back_bps": [each.reading.rate_back_bps for each in series],
        "asked_rate_back_bps": [_asked_bps(back, each) for each in series],
    }
    files.claim(path.parent.resolve(), path.name)
    link_figure(rows, title).savefig(path)
    return str(path)


def _asked_bps(direction: Direction, observed: Observed) -> float | None:
    """Payload that the link was to carry then: in the middle of what it was, where it changes."""
    rates = probe.rate_range_bps(direction, observed.span)
    return sum(rates) / 2 * observed.reading.payload_share if rates else None
