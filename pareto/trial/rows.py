"""The rows of a trial: its figures and bounds with the verdict on them, each host's part, and each link's reading."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pareto.analysis.schema import TRIALS
from pareto.hosts.host import EDGE, ROLES, SERVER
from pareto.protocol.jsonlines import plain
from pareto.protocol.trial_messages import WrongOutput
from pareto.remote.link import probe
from pareto.remote.link.probe import Tolerance
from pareto.remote.link.profile import Profile
from pareto.sweep import bounds
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.sweep.load import Slo
from pareto.sweep.options import OTHERS, SLOWED
from pareto.trial import devices, faults
from pareto.trial.faults import Fault, Probes, Samples, as_probed, loaded_rate_bps, output_faults, verdict
from pareto.trial.load_figures import load_columns
from pareto.trial.result import TrialResult
from pareto.trial.store import Row

FULL, REACHED = 90.0, 0.9
"""A core is full from so many percent on; a throughput of so much of its bound was not held up by that."""
_USUAL = Tolerance()


def stage_rows(
    cell: Cell, crossings: Sequence[Crossing], result: TrialResult, samples: Samples
) -> Iterator[Row]:
    """One row for each host that took part, without what names the trial."""
    ends, crossings = (0, *cell.cuts), result.crossed(crossings)
    shares = ("steal_percent", "others_percent", "wait_percent", "core_percent")
    used = ("cpu_percent", "rss_bytes", "peak_rss_bytes")
    kept = (*used, *shares, "temperature_c", "throttled", "energy_j", "active_energy_j")
    for position, (role, compute_s) in enumerate(result.compute_s.items()):
        host, crossing = result.hosts[role], crossings[position] if position < len(crossings) else None
        sensed = devices.columns(samples.get(role), host, cell.batch_size)
        out_s, back_s = crossing.occupied_s if crossing else (None, None)
        utilization, bubble_s = host.utilization
        yield {
            "position": position,
            "host": role,
            "first_unit": ends[position],
            "last_unit": cell.cuts[position] if position < len(cell.cuts) else None,
            "compute_s": compute_s,
            "best_s": (best_s := result.best_s[role]),
            "host_ips": cell.batch_size / best_s if best_s else None,
            "baseline_s": host.baseline_s,
            "slowdown": result.slowdowns.get(role),
            "utilization": utilization,
            "bubble_s": bubble_s,
            "payload_bytes": crossing.payload_bytes if crossing else None,
            "transfer_s": out_s,
            "return_s": back_s,
            "weights_bytes": host.weights_bytes,
            **result.codecs.stage_columns(role, sends=crossing is not None),
            "engine_s": host.engine_s,
            **{name: sensed.get(name) for name in kept},
            **devices.energy_standing(samples.get(role), host),
        }


def trial_row(
    cell: Cell,
    crossings: Sequence[Crossing],
    result: TrialResult | WrongOutput,
    probes: Probes,
    samples: Samples | None = None,
    slowed: float = SLOWED,
    others: float = OTHERS,
    tolerance: Tolerance = _USUAL,
    idle_s: float | None = None,
    slo: Slo | None = None,
    confined: bool = False,
) -> Row:
    """The trial's row with its verdict, without what names the trial, and without times. slowed, others: as the options
    say. idle_s: as in `faults.of_trial`. slo, confined: as in `load_columns`."""
    if isinstance(result, WrongOutput):
        return verdict([*map(Fault, output_faults(result))]) | {"max_abs_error": result.max_abs_error}
    samples = samples or {}
    crossings = result.crossed(crossings)
    loads = {
        role: devices.columns(samples.get(role), host, cell.batch_size) for role, host in result.hosts.items()
    }
    bound_s = bounds.latency_s(result.work_s, crossings)
    bound_ips, bound_by = bounds.throughput_ips(cell.batch_size, result.best_s, crossings)
    probed = as_probed(crossings, probes)
    probed_bound_s = bounds.latency_s(result.work_s, probed)
    probed_bound_ips, _ = bounds.throughput_ips(cell.batch_size, result.best_s, probed)
    result = result.filled(cell.batch_size, min(bound_s, probed_bound_s), max(bound_ips, probed_bound_ips))
    report, shares = result.edge, result.busy_shares(cell, crossings)
    busiest = max(shares, key=shares.__getitem__, default=None)
    found = [*faults.of_trial(
        cell, crossings, result, probes, samples, slowed, others, tolerance,
        probed=probed, idle_s=idle_s,
        bound_s=min(bound_s, probed_bound_s), bound_ips=max(bound_ips, probed_bound_ips),
    )]  # fmt: skip
    told, load, (last, _) = verdict(found), report.requests.load, result.codecs.results
    readings = [[each.reading for each in before_after] for before_after in probes.values()]
    rtts = [_mean(reading.rtt_s for reading in of_link) for of_link in readings]
    rates = [_mean(reading.rate_bps for reading in of_link) for of_link in readings]
    return {
        # Whatever the report calls as a column is called.
        **{name: value for name, value in plain(report).items() if name in TRIALS.columns},
        **told,
        **(load_columns(load, cell.batch_size, slo, told["status"], confined=confined) if load else {}),
        "wire_bytes": report.payload_bytes if (sent := result.codecs.wire_bytes(EDGE)) is None else sent,
        "result_bytes": report.result_bytes
        if (back := result.codecs.wire_bytes(last)) is None
        else round(back),
        **({} if [*output_faults(report)] else result.quality),
        **result.codecs.trial_columns(),
        "serialize_s": report.serialize_s if crossings else None,
        "network_s": statistics.median(result.networks_s) if crossings else None,
        "middle_s": result.middle_s,
        "server_s": result.compute_s.get(SERVER),
        "latency_bound_s": bound_s,
        "edge_slowdown": result.slowdowns.get(EDGE),
        "server_slowdown": result.slowdowns.get(SERVER),
        "throughput_bound_ips": bound_ips,
        "probed_latency_bound_s": probed_bound_s,
        "probed_throughput_bound_ips": probed_bound_ips,
        "bound_by": bound_by,
        "busiest": busiest,
        "busiest_utilization": shares[busiest] if busiest else None,
        "pipeline_gain": report.throughput_ips / report.sequential_ips,
        "latency_requests": len(report.requests.latency),
        "throughput_requests": len(report.requests.throughput),
        "rtt_s": sum(rtt for rtt in rtts if rtt is not None) if any(rtts) else None,
        "rate_bps": min((rate for rate in rates if rate is not None), default=None),
        "loaded_rate_bps": loaded_rate_bps(probed, result),
        "retransmits": result.retransmits,
        **(plain(report.tcp) if report.tcp is not None else {}),
        **{f"{role}_{name}": value for role in ROLES for name, value in loads.get(role, {}).items()},
        "strangers_percent": result.strangers_percent,
        "full_cores": _full_cores(loads, report.throughput_ips / bound_ips),
    }


def link_row(profile: Profile, reading: probe.Reading, span: probe.Span) -> Row:
    """The columns of link.csv for what was asked of a link (the mean, where it changes) and measured."""
    out, back = profile.typical.directions
    samples = reading.sample, reading.sample_back
    return {
        "asked_rtt_s": profile.rtt_s,
        "asked_rate_bps": out.rate_bps,
        "asked_rate_back_bps": back.rate_bps,
        "rtt_s": reading.rtt_s,
        "rate_bps": reading.rate_bps,
        "rate_back_bps": reading.rate_back_bps,
        "asked_loss": probe.missing_share(out) if samples[0] else None,
        "asked_loss_back": probe.missing_share(back) if samples[1] else None,
        "datagrams": sum(sample.sent for sample in samples if sample) or None,
        "loss": samples[0].lost / samples[0].sent if samples[0] else None,
        "loss_back": samples[1].lost / samples[1].sent if samples[1] else None,
        "position_s": span[0] if profile.period_s is not None else None,
    }


def _mean(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None


def _full_cores(loads: Mapping[str, Row], efficiency: float) -> str | None:
    """The hosts whose cores had no time left although the throughput stayed below its bound; None: not measured."""
    percents = {role: load.get("core_percent") for role, load in loads.items()}
    if all(percent is None for percent in percents.values()):
        return None
    if efficiency >= REACHED:
        return ""
    return ", ".join(role for role, percent in percents.items() if percent is not None and percent >= FULL)
