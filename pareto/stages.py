"""What each host of the chain did in a trial: the rows of stages.csv, and each request's times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pareto import devices
from pareto.bounds import Crossing
from pareto.jsonlines import plain
from pareto.messages import TrialReport, Usage
from pareto.store import Row
from pareto.sweep import Cell


@dataclass(frozen=True)
class HostReport:
    """What one host did in a trial. baseline_s: what a run of its stage takes when the host has nothing else to do."""

    usage: Usage
    baseline_s: float | None = None
    weights_bytes: int | None = None
    idle_power_w: float | None = None


@dataclass(frozen=True)
class TrialResult:
    """What the hosts report of a trial that measured something.

    hosts: by role in the order of the chain, the edge first. strangers_percent: what other programs took of this
    machine's cores, where the hosts are on it.
    """

    edge: TrialReport
    hosts: Mapping[str, HostReport]
    strangers_percent: float | None = None


def compute_s(result: TrialResult) -> dict[str, float]:
    """By role, of the hosts that computed: the stage's median seconds in the latency phase."""
    return dict(zip(result.hosts, (result.edge.edge_s, *result.edge.stages_s), strict=False))


def best_s(result: TrialResult) -> dict[str, float]:
    """By role, of the hosts that computed: the least that a run takes in steady work, alone or in the trial."""
    best = {}
    for role, median in compute_s(result).items():
        host = result.hosts[role]
        alone, steady = host.baseline_s, host.usage.steady_s
        # Steady work includes the waits for a slower step: without a baseline it is no measure.
        best[role] = min(median if alone is None else alone, math.inf if steady is None else steady)
    return best


def slowdowns(result: TrialResult) -> dict[str, float]:
    """By role, of the hosts that computed something: the stage's time in the trial over its baseline."""
    medians = compute_s(result)
    return {role: medians[role] / alone for role in medians if (alone := result.hosts[role].baseline_s)}


def work_s(result: TrialResult) -> float:
    """What all hosts compute for a request, for its bound: as in the trial, or as alone where that is less."""
    alone = [result.hosts[role].baseline_s or median for role, median in compute_s(result).items()]
    return min(result.edge.work_s, sum(alone))


def rows(
    cell: Cell,
    crossings: Sequence[Crossing],
    result: TrialResult,
    samples: Mapping[str, devices.Series],
) -> Iterator[Row]:
    """One row for each host that took part, without what names the trial."""
    medians, bests, slower = compute_s(result), best_s(result), slowdowns(result)
    ends = (0, *cell.cuts)
    for position, role in enumerate(medians):
        host, crossing = result.hosts[role], crossings[position] if position < len(crossings) else None
        usage = host.usage
        sensed = devices.columns(role, samples.get(role), usage, host.idle_power_w, cell.batch_size)
        shares = ("steal_percent", "others_percent", "wait_percent", "core_percent")
        kept = ("peak_rss_bytes", *shares, "temperature_c", "throttled", "energy_j", "active_energy_j")
        out_s, back_s = crossing.occupied_s if crossing else (None, None)
        yield {
            "position": position,
            "host": role,
            "first_unit": ends[position],
            "last_unit": cell.cuts[position] if position < len(cell.cuts) else None,
            "compute_s": medians[role],
            "best_s": bests[role],
            "baseline_s": host.baseline_s,
            "slowdown": slower.get(role),
            **_use(usage),
            "payload_bytes": crossing.payload_bytes if crossing else None,
            "transfer_s": out_s,
            "return_s": back_s,
            "cpu_percent": usage.cpu_percent,
            "rss_bytes": usage.rss_bytes,
            "weights_bytes": host.weights_bytes,
            **{name: sensed.get(f"{role}_{name}") for name in kept},
        }


def requests(result: TrialResult) -> dict[str, dict[str, list[Any]]]:
    """By phase, the columns of the requests' file: the server's seconds apart from those of the hosts before it."""
    later = len(result.hosts) - 1
    phases = {}
    for phase, columns in plain(result.edge.requests).items():
        others = {name: values for name, values in plain(columns).items() if name != "stages_s"}
        split = [(each[:-1], each[-1]) if len(each) == later else (each, None) for each in columns.stages_s]
        phases[phase] = {
            **others,
            "middle_s": [list(middle) for middle, _ in split],
            "server_s": [server for _, server in split],
        }
    return phases


def shares(cell: Cell, crossings: Sequence[Crossing], result: TrialResult) -> dict[str, float]:
    """By step, the share of the throughput phase's steady part in which it was busy; empty if a host's is not known.

    A host's as it measured it; a link's, each way, from what the profile's rate needs for a request.
    """
    hosts = {role: _use(result.hosts[role].usage)["utilization"] for role in compute_s(result)}
    if None in hosts.values():
        return {}
    requests_per_s = result.edge.throughput_ips / cell.batch_size
    links = {
        f"{crossing.link} {way}": occupied_s * requests_per_s
        for crossing in crossings
        for way, occupied_s in zip(("out", "back"), crossing.occupied_s, strict=True)
    }
    return hosts | links


def _use(usage: Usage) -> Row:
    """The share of the steady window in which the host computed, and its idle time per request."""
    window, requests, busy_s = (
        usage.throughput_window,
        usage.throughput_window_requests,
        usage.throughput_busy_s,
    )
    if window is None or not requests or busy_s is None:
        return {"utilization": None, "bubble_s": None}
    length_s = window[1] - window[0]
    return {
        "utilization": min(1.0, busy_s / length_s),
        "bubble_s": max(0.0, (length_s - busy_s) / requests),
    }
