"""What each host of the chain did in a trial: the rows of stages.csv, and each request's times."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pareto import devices
from pareto.bounds import Crossing
from pareto.hosts.host import EDGE
from pareto.store import Row
from pareto.sweep import Cell


def compute_s(told: Mapping[str, Any]) -> dict[str, float]:
    """By role, of the hosts that computed: the stage's median seconds in the latency phase."""
    report = told[EDGE]
    return dict(zip(told, (report["edge_s"], *report["stages_s"]), strict=False))


def best_s(told: Mapping[str, Any]) -> dict[str, float]:
    """By role, of the hosts that computed: the least that a run takes in steady work, alone or in the trial."""
    best = {}
    for role, median in compute_s(told).items():
        alone, steady = told[role].get("baseline_s"), told[role].get("steady_s")
        # Steady work includes the waits for a slower step: without a baseline it is no measure.
        best[role] = min(median if alone is None else alone, math.inf if steady is None else steady)
    return best


def slowdowns(told: Mapping[str, Any]) -> dict[str, float]:
    """By role, of the hosts that computed something: the stage's time in the trial over its baseline."""
    baselines = {role: told[role].get("baseline_s") for role in told}
    return {role: median / alone for role, median in compute_s(told).items() if (alone := baselines[role])}


def work_s(told: Mapping[str, Any]) -> float:
    """What all hosts compute for a request, for its bound: as in the trial, or as alone where that is less."""
    alone = [told[role].get("baseline_s") or median for role, median in compute_s(told).items()]
    return min(float(told[EDGE]["work_s"]), sum(alone))


def rows(
    cell: Cell,
    crossings: Sequence[Crossing],
    told: Mapping[str, Any],
    samples: Mapping[str, devices.Series],
) -> Iterator[Row]:
    """One row a host that took part, without what names the trial. `told`: the edge's report, the others' usage."""
    medians, bests, slower = compute_s(told), best_s(told), slowdowns(told)
    ends = (0, *cell.cuts)
    for position, role in enumerate(medians):
        usage, crossing = told[role], crossings[position] if position < len(crossings) else None
        found = devices.columns(role, samples.get(role), usage, cell.batch_size)
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
            "baseline_s": usage.get("baseline_s"),
            "slowdown": slower.get(role),
            **_use(usage),
            "payload_bytes": crossing.payload_bytes if crossing else None,
            "transfer_s": out_s,
            "return_s": back_s,
            "cpu_percent": usage.get("cpu_percent"),
            "rss_bytes": usage.get("rss_bytes"),
            "weights_bytes": usage.get("weights_bytes"),
            **{name: found.get(f"{role}_{name}") for name in kept},
        }


def requests(told: Mapping[str, Any]) -> dict[str, dict[str, list[Any]]]:
    """By phase, the columns of the requests' file: the server's seconds apart from those of the hosts before it."""
    later = len(told) - 1
    phases = {}
    for phase, columns in told[EDGE]["requests"].items():
        others = {name: values for name, values in columns.items() if name != "stages_s"}
        split = [
            (each[:-1], each[-1]) if len(each) == later else (each, None) for each in columns["stages_s"]
        ]
        phases[phase] = {
            **others,
            "middle_s": [list(middle) for middle, _ in split],
            "server_s": [server for _, server in split],
        }
    return phases


def shares(cell: Cell, crossings: Sequence[Crossing], told: Mapping[str, Any]) -> dict[str, float]:
    """By step, the share of the throughput phase's steady part in which it was busy; empty if a host's is not known.

    A host's as it measured it; a link's, each way, from what the profile's rate needs for a request.
    """
    hosts = {role: _use(told[role])["utilization"] for role in compute_s(told)}
    if None in hosts.values():
        return {}
    requests_per_s = told[EDGE]["throughput_ips"] / cell.batch_size
    links = {
        f"{crossing.link} {way}": occupied_s * requests_per_s
        for crossing in crossings
        for way, occupied_s in zip(("out", "back"), crossing.occupied_s, strict=True)
    }
    return hosts | links


def _use(usage: Mapping[str, Any]) -> Row:
    """The share of the steady window in which the host computed, and its idle time a request."""
    window, requests = usage.get("throughput_window"), usage.get("throughput_window_requests")
    busy_s = usage.get("throughput_busy_s")
    if window is None or not requests or busy_s is None:
        return {"utilization": None, "bubble_s": None}
    length_s = window[1] - window[0]
    return {
        "utilization": min(1.0, busy_s / length_s),
        "bubble_s": max(0.0, (length_s - busy_s) / requests),
    }
