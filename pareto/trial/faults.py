"""Why figures of a trial cannot be trusted, in words: of its latency, of its throughput, or of what both rest on.

The latency phase comes first, with one request in flight, the throughput phase after it: what went wrong in one of them
need not touch the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pareto.analysis.schema import ROUNDING, status_of
from pareto.hosts.host import EDGE
from pareto.protocol.trial_messages import TrialReport, WrongOutput
from pareto.remote.link.probe import GOODPUT, OWN, Probed, Reading, Tolerance, judge
from pareto.remote.link.units import rate
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.trial import devices
from pareto.trial.codec_work import too_many_bytes
from pareto.trial.result import TrialResult

CLOCK_GRAIN_S = 1e-6
"""Seconds by which sums of a request's times may be wrong."""
LONG_S = 0.02
"""Transfers from this length on tell a link's rate: what the hosts add to each is 1 to 2 ms."""
LOADED_SHARE, LOADED_S = 0.01, 0.004
"""The fastest transfer of a trial may be longer by this much than the probes of the link say, and by what a probe may
be off. Those of tcp were 0.8 to 1.5 ms longer at payloads from 73 to 727 ms."""
TCP = "tcp"
MATTERS, COLD_S = 0.05, 0.001
"""A slowed stage spoils a latency if what it takes longer makes up this share of it, and is longer than this; the rate
of a link on which nothing is emulated does if what it changes makes up that share. Stages of 0.5 to 2 ms take up to 2.3
times as long as alone in every request, without any fault: the core was idle and other data was in the caches."""
PASSING, OTHER_PROGRAMS, THE_LINK = "passing", "other programs", "the link"
"""Beside a trial's columns: who is to blame for all of its faults, where that may have passed."""
Probes = Mapping[str, tuple[Probed, Probed]]
"""Readings before and after the trial, by link."""
Samples = Mapping[str, devices.Series]
"""By role, of each host's sensors."""


@dataclass(frozen=True)
class Fault:
    """A trial's fault in words, and whether its latency and its throughput can be trusted all the same. passing: what
    is to blame, if that may have passed when the trial is measured again."""

    words: str
    spares_latency: bool = False
    spares_throughput: bool = False
    passing: str = ""


def verdict(faults: Sequence[Fault]) -> dict[str, str]:
    """The status of a trial with these faults, and the reason, as in trials.csv; and what may have passed of all."""
    status = status_of(
        latency=all(fault.spares_latency for fault in faults),
        throughput=all(fault.spares_throughput for fault in faults),
    )
    blamed = list(dict.fromkeys(fault.passing for fault in faults))
    passing = "" if "" in blamed else " and ".join(blamed)
    told = {"status": status, "reason": "; ".join(fault.words for fault in faults)}
    return told | ({PASSING: passing} if passing else {})


def of_trial(
    cell: Cell,
    crossings: Sequence[Crossing],
    result: TrialResult,
    probes: Probes,
    samples: Samples,
    slowed: float,
    others: float,
    tolerance: Tolerance,
    *,
    probed: Sequence[Crossing],
    bound_s: float,
    bound_ips: float,
    idle_s: float | None = None,
) -> Iterator[Fault]:
    """Every fault of a trial that measured something.

    crossings: with what a codec sends. probed: the same at the links' rates as probed. bound_s, bound_ips: the bounds,
    by the links' rates as asked for or as probed, whichever allow more. idle_s: where `crossed_late`, the seconds in
    which the same bytes cross the idle link. A latency below its bound spoils both figures: the link was not what it
    was asked to be.
    """
    report = result.edge
    for words in _link_faults(cell, crossings, report, probes, tolerance):
        yield Fault(words, passing=THE_LINK)
    yield from map(Fault, output_faults(report))
    yield from map(Fault, _bytes_faults(result, crossings))
    if report.latency_s < (1 - ROUNDING) * bound_s:
        yield Fault(f"latency {report.latency_s:.4g} s is under its physical bound {bound_s:.4g} s")
    yield from map(Fault, _parts_faults(result.networks_s))
    for words in _load_faults(cell, probed, result, tolerance, idle_s):
        yield Fault(words, passing=THE_LINK)
    if report.throughput_ips > (1 + ROUNDING) * bound_ips:
        over = f"throughput {report.throughput_ips:.4g} images/s is over its bound {bound_ips:.4g}"
        yield Fault(f"{over}: not a steady state", spares_latency=True)
    yield from _slow_stages(result, slowed)
    yield from _throttling(result, samples)
    yield from _foreign_load(result, samples, others)


def as_probed(crossings: Sequence[Crossing], probes: Probes) -> list[Crossing]:
    """The crossings over links as fast as their sound probes found them; every probe of a link of its own rate."""
    return [
        crossing.as_probed(
            [each.reading for each in probes.get(crossing.link, ()) if crossing.own or not each.fault]
        )
        for crossing in crossings
    ]


def crossed_late(
    cell: Cell, crossings: Sequence[Crossing], result: TrialResult, probes: Probes, tolerance: Tolerance
) -> bool:
    """Whether the trial's requests took longer to cross than the probes of the link say. The link need not be why: a
    large result that comes back, and a host that must wait for its share of a core before it sends, take time as well.
    `of_trial` tells them apart by how long the same bytes take over the idle link."""
    return _late_s(cell, as_probed(result.crossed(crossings), probes), result, tolerance) is not None


def loaded_rate_bps(crossings: Sequence[Crossing], result: TrialResult) -> float | None:
    """Payload, in bit/s, at which the trial's fastest request crossed: its own transfer as a probe of the one link;
    None where the transfer is too short to say, or there are several links."""
    if len(crossings) != 1 or not result.networks_s:
        return None
    (crossing,), networks_s = crossings, result.networks_s
    beside_s = _beside_s(crossing)
    if crossing.occupied_s[0] < LONG_S or min(networks_s) <= beside_s:
        return None
    sent = result.codecs.each_wire_bytes(EDGE) or [crossing.sent_bytes] * len(networks_s)
    return max(8 * nbytes / (each_s - beside_s) for nbytes, each_s in zip(sent, networks_s, strict=True))


def _link_faults(
    cell: Cell, crossings: Sequence[Crossing], report: TrialReport, probes: Probes, tolerance: Tolerance
) -> Iterator[str]:
    """Links that are off. A rate where nothing is emulated is nobody's promise: it may vary if figures hardly do."""
    crossed = {crossing.link: crossing for crossing in crossings}
    allowed_s = MATTERS * min(report.latency_s, cell.batch_size / report.throughput_ips)
    for name, before_after in probes.items():
        link, crossing = f"link {name}" if len(probes) > 1 else "link", crossed.get(name)
        for when, probed in zip(("before", "after"), before_after, strict=True):
            fault = probed.fault
            if fault and crossing and crossing.own and _varies_s(crossing, probed.reading) <= allowed_s:
                out, back = (replace(way, rate_bps=None) for way in crossing.profile.directions)
                promised = replace(crossing.profile, edge_to_server=out, server_to_edge=back)
                fault = judge(promised, probed.reading, tolerance.at_least(OWN))
            if fault:
                yield f"{link} off {when} the trial: {fault}"


def _varies_s(crossing: Crossing, reading: Reading) -> float:
    """By how much the time of a request and its result on a link differs between the profile's rates and those read."""
    varies_s, read = 0.0, (reading.rate_bps, reading.rate_back_bps)
    loads = crossing.sent_bytes, crossing.result_bytes
    for direction, measured, nbytes in zip(crossing.profile.directions, read, loads, strict=True):
        if direction.rate_bps:
            expected_s = 8 * nbytes / (direction.rate_bps * GOODPUT)
            varies_s += abs(8 * nbytes / measured - expected_s) if measured else math.inf
    return varies_s


def _load_faults(
    cell: Cell, crossings: Sequence[Crossing], result: TrialResult, tolerance: Tolerance, idle_s: float | None
) -> Iterator[str]:
    """A link that is right when it is probed and slower while the hosts compute."""
    late = _late_s(cell, crossings, result, tolerance)
    if late is None:
        return
    crossed_s, alone_s = late
    off = "link off during the trial:"
    if idle_s is None:
        bits = 8 * crossings[0].sent_bytes
        loaded, probed = (rate(bits / (seconds - _beside_s(crossings[0])), 3) for seconds in late)
        yield f"{off} at best {loaded} of payload, its probes found {probed}"
    elif crossed_s > _latest_s(max(idle_s, alone_s), tolerance):
        crossed = f"its fastest request crossed in {1e3 * crossed_s:.3g} ms"
        yield f"{off} {crossed}, the same bytes cross the idle link in {1e3 * idle_s:.3g} ms"


def _late_s(
    cell: Cell, crossings: Sequence[Crossing], result: TrialResult, tolerance: Tolerance
) -> tuple[float, float] | None:
    """Seconds in which the trial's fastest request and its result crossed, and in which they do by the link's probes;
    None where that is no longer than it may be, or does not tell: another backend than tcp, which puts a payload on the
    line as it is, may need the time for itself."""
    loaded = loaded_rate_bps(crossings, result)
    if loaded is None or cell.transport != TCP or not crossings[0].filled or crossings[0].own:
        return None
    (crossing,) = crossings
    expected_s = crossing.occupied_s[0] / GOODPUT
    took_s = 8 * crossing.sent_bytes / loaded
    if took_s <= _latest_s(expected_s, tolerance):
        return None
    return took_s + _beside_s(crossing), expected_s + _beside_s(crossing)


def _latest_s(expected_s: float, tolerance: Tolerance) -> float:
    return (1 + LOADED_SHARE + tolerance.rate_fraction) * expected_s + LOADED_S + tolerance.rtt_floor_s


def _beside_s(crossing: Crossing) -> float:
    """Seconds of a request's least time on the link that are not its payload's transfer."""
    return crossing.least_s - crossing.occupied_s[0]


def _bytes_faults(result: TrialResult, crossings: Sequence[Crossing]) -> Iterator[str]:
    """Each data interface must have carried what the requests claim to have sent and received."""
    requests = sum(map(len, result.edge.requests.all))
    _, results = result.codecs.results
    for (role, host), crossing in zip(result.hosts.items(), crossings, strict=False):
        usage, what = host.usage, f"{role}'s data interface"
        sent = usage.coded.wire_bytes if usage.coded else ()
        for verb, needed, counted in (
            ("sent", sum(sent) if usage.coded else requests * crossing.payload_bytes, usage.sent_bytes),
            ("received", sum(results) or requests * crossing.result_bytes, usage.received_bytes),
        ):
            if counted is None or counted < needed:
                yield f"the {what} {verb} {counted} bytes, {requests} requests need {needed}"
                break
        else:
            # Later hosts count from when they got their stage on, the first one after the warm-up.
            warm_ups = 0 if usage is result.edge else result.warm_ups
            yield from too_many_bytes(f"{what} sent", usage.sent_bytes, sent, warm_ups, usage.retransmits)
            yield from too_many_bytes(
                f"{what} received", usage.received_bytes, results, warm_ups, result.retransmits
            )


def output_faults(report: TrialReport | WrongOutput) -> Iterator[str]:
    """Results that are not the whole model's."""
    error, allowed = report.max_abs_error, report.tolerance
    if not error <= allowed:
        yield f"output differs from the whole model's by {error:.3g}, allowed {allowed:.3g}"


def _parts_faults(networks_s: Sequence[float]) -> Iterator[str]:
    """Hosts' times that do not fit, one after the other, into their request's latency."""
    if beyond := [-seconds for seconds in networks_s if seconds < -CLOCK_GRAIN_S]:
        yield (
            f"in {len(beyond)} of {len(networks_s)} requests the hosts' own times exceed the latency, by "
            f"{1e3 * max(beyond):.3g} ms: they were not taken one after the other, or a host's clock is off"
        )


def _slow_stages(result: TrialResult, slowed: float) -> Iterator[Fault]:
    """Stages that took much longer in the latency phase than alone. Where a stage was as fast as ever in the throughput
    phase, what slowed it had passed.

    A GPU is not judged: by itself it clocks down between requests that come one after another.
    """
    for role, slowdown in result.slowdowns.items():
        compute_s = result.compute_s[role]
        alone_s = compute_s / slowdown
        matters = compute_s - alone_s > max(MATTERS * result.edge.latency_s, COLD_S)
        if slowdown > slowed and matters and result.hosts[role].usage.gpu_s is None:
            later_s = result.compute_together_s.get(role)
            yield Fault(
                f"the {role}'s stage took {compute_s * 1e3:.3g} ms, {slowdown:.2g} times the {alone_s * 1e3:.3g} "
                "that it takes alone: something else ran there, or its clock changed",
                spares_throughput=later_s is not None and later_s <= max(slowed * alone_s, alone_s + COLD_S),
                passing=OTHER_PROGRAMS,
            )


def _throttling(result: TrialResult, samples: Samples) -> Iterator[Fault]:
    """Hosts that throttled. A latency stands that was measured before they did."""
    for role, host in result.hosts.items():
        series, window, steady = samples.get(role), host.usage.trial_window, host.usage.throughput_window
        if not series or window is None or not (words := devices.throttling(role, series, window)):
            continue
        # The first sample in or after the steady part says what came up since the one before.
        later = [at for at in series["at_s"] if steady is not None and at >= steady[0]]
        yield Fault(words, bool(later) and not devices.throttling(role, series, (window[0], later[0])))


def _foreign_load(result: TrialResult, samples: Samples, allowed: float) -> Iterator[Fault]:
    """Hosts that computed while other programs took more of their cores than this share; on a host of its own a figure
    stands if they took no more in its own phase."""
    if result.is_local:
        share = None if result.strangers_percent is None else result.strangers_percent / 100
        if share is not None and share > allowed:
            yield Fault(
                f"other programs than this run's used {share:.1%} of the hosts' cores, allowed {allowed:.0%}",
                passing=OTHER_PROGRAMS,
            )
        return
    for role in result.compute_s:
        series, usage = samples.get(role), result.hosts[role].usage
        share, steady = devices.others(series, usage.trial_window), usage.throughput_window
        if share is None or share <= allowed:
            continue
        before = (usage.trial_window[0], steady[0]) if usage.trial_window and steady else None
        before_steady, in_steady = (
            part is not None and part <= allowed
            for part in (devices.others(series, before), devices.others(series, steady))
        )
        if not (before_steady and in_steady):
            yield Fault(
                f"on the {role}, other programs used {share:.1%} of the cores that its worker may use, "
                f"allowed {allowed:.0%}",
                spares_latency=before_steady,
                spares_throughput=in_steady,
                passing=OTHER_PROGRAMS,
            )
