"""From what a trial reported to its row: figures, bounds, and whether they can be trusted."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pareto import bounds, devices, stages
from pareto.hosts.host import EDGE, ROLES, SERVER
from pareto.jsonlines import plain
from pareto.link.probe import GOODPUT, Probed, Tolerance
from pareto.link.units import show_rate
from pareto.messages import Requests, TrialReport, Window, WrongOutput
from pareto.options import SLOWED
from pareto.stages import TrialResult
from pareto.store import Row
from pareto.sweep import Cell

TOO_FAST = 0.99
"""A latency below this share of its physical bound did not happen on the link that was asked for."""
CLOCK_GRAIN_S = 1e-6
"""What sums of a request's times may be wrong by."""
TOO_MANY, LATE_REPLY_S = 1.03, 0.02
"""A throughput above this multiple of its bound was not a steady state; the link as probed may be 2 % off by itself. In
a short phase one reply so late at its beginning excuses more: the bytes of the others came meanwhile."""
FULL, REACHED = 90.0, 0.9
"""A core is full from so many percent on; a throughput of so much of its bound was not held up by that."""
LONG_S = 0.02
"""Transfers from this length on tell a link's rate: what the hosts add to each is 1 to 2 ms."""
LOADED_SHARE, LOADED_S = 0.01, 0.004
"""By so much more than a reading of the link may be off, the fastest transfer of a trial may be longer than its probes
say. Those of tcp were 0.8 to 1.5 ms longer at payloads from 73 to 727 ms."""
TCP = "tcp"
_USUAL = Tolerance()
MATTERS = 0.05
"""A slowed stage makes a trial invalid if it makes up this share of the latency. Stages of 1 to 2 ms take up to 2.3
times as long as alone by themselves, for other data was in the caches."""


def row(
    cell: Cell,
    crossings: Sequence[bounds.Crossing],
    result: TrialResult | WrongOutput,
    probes: Mapping[str, tuple[Probed, Probed]],
    samples: Mapping[str, devices.Series] | None = None,
    slowed: float = SLOWED,
    tolerance: Tolerance = _USUAL,
) -> Row:
    """The trial's row, without what names the trial, and without times.

    probes: of each link by name, before and after. samples: by role, of each host's sensors. slowed: how many
    times as long as alone a stage may take. tolerance: how far a reading of a link may be off.
    """
    if isinstance(result, WrongOutput):
        return {"status": "invalid", "reason": _output_fault(result), "max_abs_error": result.max_abs_error}
    samples = samples or {}
    report, hosts = result.edge, result.hosts
    server = hosts[SERVER].usage
    latency = report.requests.latency
    latency_requests, throughput_requests = (
        len(phase.started_s) for phase in (latency, report.requests.throughput)
    )
    computed_s = stages.compute_s(result)
    slowdowns = stages.slowdowns(result)
    loads = {
        role: devices.columns(role, samples.get(role), host.usage, host.idle_power_w, cell.batch_size)
        for role, host in hosts.items()
    }
    bound_s = bounds.latency_s(stages.work_s(result), crossings)
    bound_ips, bound_by = bounds.throughput_ips(cell.batch_size, stages.best_s(result), crossings)
    probed = [_as_probed(crossing, probes) for crossing in crossings]
    probed_bound_s = bounds.latency_s(stages.work_s(result), probed)
    probed_bound_ips, _ = bounds.throughput_ips(cell.batch_size, stages.best_s(result), probed)
    networks_s = _networks_s(latency)
    shares = stages.shares(cell, crossings, result)
    busiest = max(shares, key=shares.__getitem__, default=None)
    faults = [
        *_link_faults(probes),
        _output_fault(report),
        *_bytes_faults(result, crossings, latency_requests + throughput_requests),
        _latency_fault(report.latency_s, probed_bound_s),
        _throughput_fault(report.throughput_ips, probed_bound_ips, report.throughput_window),
        _load_fault(cell, probed, networks_s, tolerance),
        _parts_fault(networks_s),
        *_slow_stages(result, slowdowns, slowed),
        *(devices.throttling(role, samples.get(role), host.usage) for role, host in hosts.items()),
    ]
    reason = "; ".join(fault for fault in faults if fault)
    readings = [[probed.reading for probed in before_after] for before_after in probes.values()]
    rtts = [_mean(reading.rtt_s for reading in of_link) for of_link in readings]
    rates = [_mean(reading.rate_bps for reading in of_link) for of_link in readings]
    return {
        "status": "invalid" if reason else "ok",
        "reason": reason,
        "latency_s": report.latency_s,
        "latency_p95_s": report.latency_p95_s,
        "edge_s": report.edge_s,
        "serialize_s": report.serialize_s if crossings else None,
        "network_s": statistics.median(networks_s) if crossings else None,
        "middle_s": _middle_s(list(computed_s), latency),
        "server_s": computed_s.get(SERVER),
        "latency_bound_s": bound_s,
        "edge_slowdown": slowdowns.get(EDGE),
        "server_slowdown": slowdowns.get(SERVER),
        "throughput_ips": report.throughput_ips,
        "throughput_bound_ips": bound_ips,
        "probed_latency_bound_s": probed_bound_s,
        "probed_throughput_bound_ips": probed_bound_ips,
        "bound_by": bound_by,
        "busiest": busiest,
        "busiest_utilization": shares[busiest] if busiest else None,
        "loaded_latency_s": report.loaded_latency_s,
        "loaded_latency_p95_s": report.loaded_latency_p95_s,
        "in_flight": report.in_flight,
        "sequential_ips": report.sequential_ips,
        "pipeline_gain": report.throughput_ips / report.sequential_ips,
        "payload_bytes": report.payload_bytes,
        "result_bytes": report.result_bytes,
        "latency_requests": latency_requests,
        "throughput_requests": throughput_requests,
        "max_abs_error": report.max_abs_error,
        "top1": report.top1,
        "top1_images": report.top1_images,
        "rtt_s": sum(rtt for rtt in rtts if rtt is not None) if any(rtts) else None,
        "rate_bps": min((rate for rate in rates if rate is not None), default=None),
        "loaded_rate_bps": _loaded_rate_bps(probed, networks_s),
        "retransmits": sum(host.usage.retransmits or 0 for host in hosts.values()),
        **(plain(report.tcp) if report.tcp is not None else {}),
        "edge_cpu_percent": report.cpu_percent,
        "server_cpu_percent": server.cpu_percent,
        "edge_rss_bytes": report.rss_bytes,
        "server_rss_bytes": server.rss_bytes,
        **loads[EDGE],
        **loads[SERVER],
        "strangers_percent": result.strangers_percent,
        "full_cores": _full_cores(loads, report.throughput_ips / bound_ips),
    }


def _link_faults(probes: Mapping[str, tuple[Probed, Probed]]) -> Iterator[str]:
    """With the link's name where there are several."""
    for name, before_after in probes.items():
        link = f"link {name}" if len(probes) > 1 else "link"
        for when, probed in zip(("before", "after"), before_after, strict=True):
            if probed.fault:
                yield f"{link} off {when} the trial: {probed.fault}"


def _as_probed(crossing: bounds.Crossing, probes: Mapping[str, tuple[Probed, Probed]]) -> bounds.Crossing:
    return crossing.as_probed([each.reading for each in probes.get(crossing.link, ()) if not each.fault])


def _loaded_rate_bps(crossings: Sequence[bounds.Crossing], networks_s: Sequence[float]) -> float | None:
    """Payload, in bit/s, at which the trial's fastest request crossed: its own transfer as a probe of the one link.

    None where the transfer is too short to tell, or there are several links.
    """
    if len(crossings) != 1 or not networks_s:
        return None
    out_s, _ = crossings[0].occupied_s
    if out_s < LONG_S:
        return None
    transfer_s = min(networks_s) - (crossings[0].least_s - out_s)
    return 8 * crossings[0].payload_bytes / transfer_s if transfer_s > 0 else None


def _load_fault(
    cell: Cell, crossings: Sequence[bounds.Crossing], networks_s: Sequence[float], tolerance: Tolerance
) -> str:
    """A link that is right when it is probed and slower while the hosts compute.

    By tcp alone, which puts a payload on the line as it is: another backend may need the time for itself.
    """
    loaded = _loaded_rate_bps(crossings, networks_s)
    if loaded is None or cell.transport != TCP or not crossings[0].filled or crossings[0].own:
        return ""
    (crossing,) = crossings
    expected_s = crossing.occupied_s[0] / GOODPUT
    took_s = 8 * crossing.payload_bytes / loaded
    allowed_s = (LOADED_SHARE + tolerance.rate_fraction) * expected_s + LOADED_S + tolerance.rtt_floor_s
    if took_s <= expected_s + allowed_s:
        return ""
    return (
        f"link off during the trial: at best {show_rate(loaded)} of payload, its probes found "
        f"{show_rate(8 * crossing.payload_bytes / expected_s)}"
    )


def _mean(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None


def _networks_s(latency: Requests) -> list[float]:
    """What remains of each request's latency without all hosts' work; no clock of one is compared with another's."""
    columns = (latency.started_s, latency.finished_s, latency.edge_s, latency.serialize_s, latency.stages_s)
    return [
        finished_s - started_s - edge_s - serialize_s - sum(stages_s)
        for started_s, finished_s, edge_s, serialize_s, stages_s in zip(*columns, strict=True)
    ]


def _parts_fault(networks_s: Sequence[float]) -> str:
    """What the hosts measured of a request lies one after the other within its latency."""
    beyond = [-seconds for seconds in networks_s if seconds < -CLOCK_GRAIN_S]
    if not beyond:
        return ""
    return (
        f"in {len(beyond)} of {len(networks_s)} requests the hosts' own times exceed the latency, by "
        f"{1e3 * max(beyond):.3g} ms: they were not taken one after the other, or a host's clock is off"
    )


def _middle_s(computed: Sequence[str], latency: Requests) -> float | None:
    """What the hosts between edge and server computed for a request, all together, its median; None where there are
    none, or none took part. `computed`: the roles that did, the edge's first.
    """
    between = [place for place, role in enumerate(computed[1:]) if role not in ROLES]
    if not between:
        return None
    each = [sum(stages_s[place] for place in between) for stages_s in latency.stages_s]
    return float(statistics.median(each))


def _output_fault(report: TrialReport | WrongOutput) -> str:
    error, allowed = report.max_abs_error, report.tolerance
    if error <= allowed:
        return ""
    return f"output differs from the whole model's by {error:.3g}, allowed {allowed:.3g}"


def _bytes_faults(result: TrialResult, crossings: Sequence[bounds.Crossing], requests: int) -> Iterator[str]:
    """Each data interface must have carried what the requests claim to have sent and received."""
    for (role, host), crossing in zip(result.hosts.items(), crossings, strict=False):
        for verb, nbytes, counted in (
            ("sent", crossing.payload_bytes, host.usage.sent_bytes),
            ("received", crossing.result_bytes, host.usage.received_bytes),
        ):
            needed = requests * nbytes
            if counted is None or counted < needed:
                yield f"the {role}'s data interface {verb} {counted} bytes, {requests} requests need {needed}"
                break


def _slow_stages(result: TrialResult, slowdowns: Mapping[str, float], slowed: float) -> Iterator[str]:
    """A GPU is not judged: by itself it clocks down between requests that come one after another."""
    medians = stages.compute_s(result)
    for role, slowdown in slowdowns.items():
        alone_s = medians[role] / slowdown
        matters = medians[role] - alone_s > MATTERS * result.edge.latency_s
        if slowdown > slowed and matters and result.hosts[role].usage.gpu_s is None:
            yield (
                f"the {role}'s stage took {medians[role] * 1e3:.3g} ms, {slowdown:.2g} times the {alone_s * 1e3:.3g} "
                "that it takes alone: something else ran there, or its clock changed"
            )


def _full_cores(loads: Mapping[str, Row], efficiency: float) -> str | None:
    """The hosts whose cores had no time left although the throughput stayed below its bound; None: not measured."""
    percents = {role: load.get(f"{role}_core_percent") for role, load in loads.items()}
    if all(percent is None for percent in percents.values()):
        return None
    if efficiency >= REACHED:
        return ""
    return ", ".join(role for role, percent in percents.items() if percent is not None and percent >= FULL)


def _throughput_fault(throughput_ips: float, bound_ips: float, window: Window) -> str:
    late = LATE_REPLY_S / (window[1] - window[0])
    if throughput_ips <= (TOO_MANY + late) * bound_ips:
        return ""
    return f"throughput {throughput_ips:.4g} images/s is over its bound {bound_ips:.4g}: not a steady state"


def _latency_fault(latency_s: float, bound_s: float) -> str:
    if latency_s >= TOO_FAST * bound_s:
        return ""
    return f"latency {latency_s:.4g} s is under its physical bound {bound_s:.4g} s"
