"""`netem check`: profiles on a testbed's links, asked against measured."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pareto.hosts import testbeds
from pareto.hosts.host import TestbedError
from pareto.hosts.shaping import Shaper
from pareto.hosts.testbed import Link, Testbed
from pareto.hosts.way import FAULTS
from pareto.link import probe
from pareto.link.findings import MESSAGE_BYTES, Finding, Observed, findings
from pareto.link.probe import Tolerance
from pareto.link.profile import Profile
from pareto.probing import Probers, in_words

SAMPLE_S = 4.0
"""Spent on counting lost datagrams, each way, by the first probe of a check."""
LEAST_READINGS = 5
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 48
_UNITS = {"s": ("ms", 1e3), "bit/s": ("Mbit/s", 1e-6), "share": ("%", 100.0)}


def check(
    out: Console,
    networks: Sequence[Sequence[Profile]],
    duration_s: float,
    tolerance: Tolerance,
    figures: Path,
    testbed: str,
    shape_at: str,
) -> bool:
    """Probe each network for `duration_s` a link, show what was found; whether all was as asked. Raises TestbedError.

    A network is a profile for each link; the local testbed gets as many links.
    """
    testbeds.require(testbed)
    profiles = [profile for network in networks for profile in network]
    try:
        opened = testbeds.open_testbed(testbed, profiles, hosts=len(networks[0]) + 1, shape_at=shape_at)
        with closing(opened) as bed, closing(Probers(bed)) as probers:
            good = []
            for network in networks:
                pairs = list(zip(bed.links, network, strict=True))
                in_force = [probers.shape(link, profile) for link, profile in pairs]
                for (link, profile), told in zip(pairs, in_force, strict=True):
                    asked = _Asked(profile, link, told, duration_s, tolerance)
                    good.append(_check(out, bed, probers, asked, figures))
    except FAULTS as fault:
        raise TestbedError(f"the link could not be probed: {fault}") from fault
    return all(good)


@dataclass(frozen=True)
class _Asked:
    """What is on a link, and how closely to look."""

    profile: Profile
    link: Link
    in_force: Mapping[str, Any]
    duration_s: float
    tolerance: Tolerance


def _check(out: Console, bed: Testbed, probers: Probers, asked: _Asked, figures: Path) -> bool:
    profile, shaper = asked.profile, asked.link.shaper
    title, name = f"{profile.name} on {bed.label}", profile.name
    if len(bed.links) > 1:
        title, name = f"{asked.link.name}: {title}", f"{name}-{asked.link.name}"
    if not bed.is_local and not profile.shaped:
        link = in_words(probers.bare(asked.link))
        out.print(f"{title}: {link}; nothing is asked of it", soft_wrap=True, markup=False)
        return True
    dropped = shaper.state().dropped
    series = _observe(probers, asked)
    found = findings(profile, series, asked.tolerance)
    out.print(title, soft_wrap=True, markup=False)
    out.print(_table(found))
    lines = [f"off: {one.fault}" for one in found if one.fault]
    lines += [f"{ignored} has no effect in netem" for ignored in sorted(without_effect(asked.in_force))]
    lines += [*_pictures(series), _costs(shaper, dropped)]
    lines += [_figure(profile, title, series, figures / f"netem-check-{name}.png")]
    for line in lines:
        out.print(line, soft_wrap=True, markup=False)
    return not any(one.fault for one in found)


def without_effect(in_force: Mapping[str, Any]) -> set[str]:
    """What the kernels of a testbed take and do not do, from what its shaper read back."""
    hosts = (told for told in in_force.values() if isinstance(told, Mapping))
    return {name for told in hosts for name in told.get("without_effect", ())}


def _observe(probers: Probers, asked: _Asked) -> list[Observed]:
    """Readings one after the other; the first has the large sample of datagrams."""
    profile = asked.profile
    if profile.period_s is not None:
        asked.link.shaper.restart(profile.offset_s)
    began = time.monotonic()
    series: list[Observed] = []
    while len(series) < LEAST_READINGS or time.monotonic() - began < asked.duration_s:
        at_s = time.monotonic() - began
        sample_s = probe.SAMPLE_S if series else SAMPLE_S
        question = probe.question(profile, sample_s, MESSAGE_BYTES if profile.tcp_fills else 0)
        probed, span = probers.probed(asked.link, profile, asked.tolerance, question)
        series.append(Observed(at_s, span, probed))
    return series


def _table(found: Sequence[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in ("", "asked", "measured", "off", "from", "to"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict")
    for one in found:
        unit, scale = _UNITS[one.unit]
        spread = one.spread or (None, None)
        numbers = [_number(value, scale) for value in (one.asked, one.measured)]
        off = "" if one.off is None or one.unit == "share" else f"{one.off:+.1%}"
        least, most = (_number(value, scale, "") for value in spread)
        table.add_row(one.what, unit, *numbers, off, least, most, "off" if one.fault else "ok")
    return table


def _number(value: float | None, scale: float, missing: str = "none") -> str:
    """Four digits: what is looked for here is a deviation of a percent."""
    return missing if value is None else f"{value * scale:.4g}"


def _pictures(series: Sequence[Observed]) -> list[str]:
    """Round trip and rates over time, a line of bars each, from 0 to the largest."""
    lines = []
    for name, unit, values in (
        ("RTT", "s", [o.reading.rtt_s for o in series]),
        ("out", "bit/s", [o.reading.rate_bps for o in series]),
        ("back", "bit/s", [o.reading.rate_back_bps for o in series]),
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
    from analysis.figures.link_figure import link_figure

    out, back = ([_asked_bps(profile, i, o) for o in series] for i in (0, 1))
    rows: dict[str, Sequence[float | None]] = {
        "at_s": [o.at_s for o in series],
        "rtt_s": [o.reading.rtt_s for o in series],
        "asked_rtt_least_s": [probe.rtt_range_s(profile, o.span)[0] for o in series],
        "asked_rtt_most_s": [probe.rtt_range_s(profile, o.span)[1] for o in series],
        "rate_bps": [o.reading.rate_bps for o in series],
        "asked_rate_bps": out,
        "rate_back_bps": [o.reading.rate_back_bps for o in series],
        "asked_rate_back_bps": back,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    link_figure(rows, title).savefig(path)
    return str(path)


def _asked_bps(profile: Profile, index: int, observed: Observed) -> float | None:
    """Payload that the link was to carry then: in the middle of what it was, where it changes."""
    rates = probe.rate_range_bps(profile.directions[index], observed.span)
    return sum(rates) / 2 * observed.reading.payload_share if rates else None
