"""From what a trial reported to its row: figures, bounds, and whether they can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pareto import bounds, devices
from pareto.hosts.host import EDGE, SERVER
from pareto.link.probe import STILL, Probed, Span
from pareto.link.profile import Profile
from pareto.spec import Cell
from pareto.store import Row

P95_REQUESTS = 130
"""Samples needed before a 95th percentile may be stated at 99 % confidence."""
TOO_FAST = 0.99
"""A latency below this share of its physical bound did not happen on the link that was asked for."""
TOO_MANY = 1.10
"""A throughput above this multiple of its bound was not a steady state: in a short phase one late reply can do it."""


def row(
    cell: Cell,
    profile: Profile,
    report: dict[str, Any],
    server_usage: dict[str, Any],
    before_after: tuple[Probed, Probed],
    seen: Span = STILL,
    samples: Mapping[str, devices.Series] | None = None,
) -> Row:
    """The trial's row, without run, round and times. `report` is what `pareto.worker.trial.run` returned; `seen` the
    part of the link's traces that passed meanwhile; `samples` what each host's sensors told.
    """
    samples = samples or {}
    told = {EDGE: report, SERVER: server_usage}
    if "latency_s" not in report:
        return {
            "status": "invalid",
            "reason": _output_fault(report),
            "max_abs_error": report["max_abs_error"],
        }
    latency, throughput = report["requests"]["latency"], report["requests"]["throughput"]
    requests = len(latency["started_s"]) + len(throughput["started_s"])
    sizes = report["payload_bytes"], report["result_bytes"]
    bound_s = bounds.latency_s(profile, report["edge_s"], report["server_s"], *sizes, seen)
    bound_ips = bounds.throughput_ips(
        profile, cell.batch_size, report["edge_best_s"], report["server_best_s"], *sizes, seen
    )
    faults = [
        *_link_faults(before_after),
        _output_fault(report),
        _bytes_fault(report, requests),
        _latency_fault(report["latency_s"], bound_s),
        _throughput_fault(report["throughput_ips"], bound_ips),
        *(devices.throttling(role, samples.get(role), told[role]) for role in told),
    ]
    reason = "; ".join(fault for fault in faults if fault)
    crosses = report["server_s"] is not None
    readings = [probed.reading for probed in before_after]
    return {
        "status": "invalid" if reason else "ok",
        "reason": reason,
        "latency_s": report["latency_s"],
        "latency_p95_s": _p95(latency),
        "edge_s": report["edge_s"],
        "serialize_s": report["serialize_s"] if crosses else None,
        "network_s": _network_s(report) if crosses else None,
        "server_s": report["server_s"],
        "latency_bound_s": bound_s,
        "throughput_ips": report["throughput_ips"],
        "throughput_bound_ips": bound_ips,
        "in_flight": report["in_flight"],
        "payload_bytes": report["payload_bytes"],
        "result_bytes": report["result_bytes"],
        "latency_requests": len(latency["started_s"]),
        "throughput_requests": len(throughput["started_s"]),
        "max_abs_error": report["max_abs_error"],
        "rtt_s": _mean(reading.rtt_s for reading in readings),
        "rate_bps": _mean(reading.rate_bps for reading in readings),
        "retransmits": report["retransmits"],
        "edge_cpu_percent": report["cpu_percent"],
        "server_cpu_percent": server_usage["cpu_percent"],
        "edge_rss_bytes": report["rss_bytes"],
        "server_rss_bytes": server_usage["rss_bytes"],
        **devices.columns(EDGE, samples.get(EDGE), report, cell.batch_size),
        **devices.columns(SERVER, samples.get(SERVER), server_usage, cell.batch_size),
    }


def _link_faults(before_after: tuple[Probed, Probed]) -> list[str]:
    judged = zip(("before", "after"), before_after, strict=True)
    return [f"link off {when} the trial: {probed.fault}" for when, probed in judged if probed.fault]


def _mean(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None


def _network_s(report: dict[str, Any]) -> float:
    """What remains of the latency without both devices' work; no clock of one is compared with the other's."""
    return float(report["latency_s"] - report["edge_s"] - report["serialize_s"] - report["server_s"])


def _output_fault(report: dict[str, Any]) -> str:
    error, allowed = report["max_abs_error"], report["tolerance"]
    if error <= allowed:
        return ""
    return f"output differs from the whole model's by {error:.3g}, allowed {allowed:.3g}"


def _bytes_fault(report: dict[str, Any], requests: int) -> str:
    """The data interface must have carried what the requests claim to have sent and received."""
    for way, size in (("sent", "payload_bytes"), ("received", "result_bytes")):
        needed, counted = requests * report[size], report[f"{way}_bytes"]
        if counted < needed:
            return f"the edge's data interface {way} {counted} bytes, {requests} requests need {needed}"
    return ""


def _throughput_fault(throughput_ips: float, bound_ips: float) -> str:
    if throughput_ips <= TOO_MANY * bound_ips:
        return ""
    return f"throughput {throughput_ips:.4g} images/s is over its bound {bound_ips:.4g}: not a steady state"


def _latency_fault(latency_s: float, bound_s: float) -> str:
    if latency_s >= TOO_FAST * bound_s:
        return ""
    return f"latency {latency_s:.4g} s is under its physical bound {bound_s:.4g} s"


def _p95(latency: dict[str, list[float]]) -> float | None:
    values = sorted(
        finished - started
        for started, finished in zip(latency["started_s"], latency["finished_s"], strict=True)
    )
    return values[int(0.95 * len(values))] if len(values) >= P95_REQUESTS else None
