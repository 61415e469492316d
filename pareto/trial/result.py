"""The result of a trial: what its hosts report, and the figures that follow from all of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pareto.hosts.host import EDGE, ROLES
from pareto.protocol.jsonlines import plain
from pareto.protocol.trial_messages import TrialReport, Usage
from pareto.remote.worker import pace
from pareto.sweep import bounds
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.trial.codec_work import CodecWork, without_codecs


@dataclass(frozen=True)
class HostReport:
    """One host's work in a trial. baseline_s: of a run of its stage by itself. engine_s: until its stage was built.
    meter: as of `Devices.meter`."""

    usage: Usage
    baseline_s: float | None = None
    weights_bytes: int | None = None
    idle_power_w: float | None = None
    engine_s: float | None = None
    meter: tuple[str, float] = ("", 0.0)

    @property
    def utilization(self) -> tuple[float, float] | tuple[None, None]:
        """The share of the steady window in which the host computed, and its idle seconds per request there."""
        window, requests = self.usage.throughput_window, self.usage.throughput_window_requests
        busy_s = self.usage.throughput_busy_s
        if window is None or not requests or busy_s is None:
            return None, None
        length_s = window[1] - window[0]
        return min(1.0, busy_s / length_s), max(0.0, (length_s - busy_s) / requests)


def of_edge(report: TrialReport, later: Sequence[Usage], batch_size: int) -> TrialReport:
    """The edge's report, without the later hosts' codecs, and with no more images/s than a later host can do."""
    report = without_codecs(report, later)
    for usage in later:
        window, requests = usage.throughput_window, usage.throughput_window_requests
        if window is not None and requests == report.throughput_window_requests:
            span_s = max(window[1] - window[0], usage.throughput_busy_s or 0.0)
            ips = pace.paced(report.throughput_ips, batch_size, usage.steady_s, requests / span_s)
            report = replace(report, throughput_ips=ips)
    return report


@dataclass(frozen=True)
class TrialResult:
    """The hosts' reports on a trial that measured something.

    hosts: by role in the order of the chain, the edge first. strangers_percent: what other programs took of this
    machine's cores, where the hosts are on it. quality: the columns of what the codec costs at the split. is_local: the
    hosts are this machine, where others of each include the run's own. warm_ups: requests before the phases.
    """

    edge: TrialReport
    hosts: Mapping[str, HostReport]
    strangers_percent: float | None = None
    quality: Mapping[str, Any] = field(default_factory=dict)
    is_local: bool = False
    warm_ups: int = 0

    @cached_property
    def compute_s(self) -> dict[str, float]:
        """By role, of the hosts that computed: the stage's median seconds in the latency phase."""
        return dict(zip(self.hosts, (self.edge.edge_s, *self.edge.stages_s), strict=False))

    @cached_property
    def compute_together_s(self) -> dict[str, float]:
        """By role, of the hosts that computed: the stage's mean seconds in the throughput phase. Loss of the core holds
        up a few runs of a short stage, which a median does not see."""
        phase = self.edge.requests.throughput
        columns = (phase.edge_s, *zip(*phase.stages_s, strict=True))
        return {role: statistics.fmean(each) for role, each in zip(self.hosts, columns, strict=False) if each}

    @property
    def retransmits(self) -> int:
        return sum(host.usage.retransmits or 0 for host in self.hosts.values())

    @cached_property
    def codecs(self) -> CodecWork:
        coded = {role: host.usage.coded for role, host in self.hosts.items() if host.usage.coded is not None}
        first, second, *_ = map(len, self.edge.requests.all)
        return CodecWork(coded, first, first + second)

    def crossed(self, crossings: Sequence[Crossing]) -> list[Crossing]:
        """The crossings with what was sent over each link: the least that holds in both phases, for a bound."""
        sent = [self.codecs.least_wire_bytes(role) for role in self.hosts]
        crossed = [
            crossing if wire_bytes is None else replace(crossing, wire_bytes=wire_bytes)
            for crossing, wire_bytes in zip(crossings, sent, strict=False)
        ]
        least = self.codecs.least_wire_bytes(self.codecs.results[0])
        return crossed if least is None else [replace(each, result_bytes=int(least)) for each in crossed]

    @cached_property
    def best_s(self) -> dict[str, float]:
        """By role, of the hosts that computed: the least that a run takes in steady work, alone or in the trial; for a
        first host that decodes ahead that of its slower step: decoding, or what follows it."""
        best, first = {}, next(iter(self.hosts))
        for role, median in self.compute_s.items():
            alone, steady = self.hosts[role].baseline_s, self.hosts[role].usage.steady_s
            # Steady work includes the waits for a slower step: without a baseline it is no measure.
            once = median if alone is None else alone
            if role == first and self.edge.prefetch:
                decode_s, encode_s = self.codecs.least_apart_s(role)
                once = max(decode_s, once + encode_s)
            else:
                once += self.codecs.least_s.get(role, 0.0)
            if role == first:  # another thread decodes results
                once = max(once, self.codecs.least_result_s)
            best[role] = min(once, math.inf if steady is None else steady)
        return best

    @cached_property
    def slowdowns(self) -> dict[str, float]:
        """By role, of the hosts that computed something: the stage's time in the trial over its baseline."""
        medians = self.compute_s
        return {role: medians[role] / alone for role in medians if (alone := self.hosts[role].baseline_s)}

    @property
    def work_s(self) -> float:
        """Seconds that all hosts compute for a request, for its bound: as in the trial, or alone where that is less."""
        alone = [self.hosts[role].baseline_s or median for role, median in self.compute_s.items()]
        coding_s = sum(self.codecs.least_s.values()) + self.codecs.least_result_s
        return min(self.edge.work_s, sum(alone) + coding_s)

    @cached_property
    def networks_s(self) -> list[float]:
        """Seconds of each request's latency without all hosts' work; no two hosts' clocks are compared."""
        phase = self.edge.requests.latency
        columns = (phase.started_s, phase.finished_s, phase.edge_s, phase.serialize_s, phase.stages_s)
        rest = [
            finished_s - started_s - edge_s - serialize_s - sum(stages_s)
            for started_s, finished_s, edge_s, serialize_s, stages_s in zip(*columns, strict=True)
        ]
        return self.codecs.alone(rest)

    @property
    def middle_s(self) -> float | None:
        """The median of what the hosts between edge and server computed for a request; None where none took part."""
        between = [place for place, role in enumerate(list(self.compute_s)[1:]) if role not in ROLES]
        if not between:
            return None
        each = [sum(stages_s[place] for place in between) for stages_s in self.edge.requests.latency.stages_s]
        return float(statistics.median(each))

    def busy_shares(self, cell: Cell, crossings: Sequence[Crossing]) -> dict[str, float]:
        """By step, the share of the throughput phase's steady part in which it was busy; empty if a host's is unknown.
        A link's, in each direction, follows from what a request needs at the profile's rate."""
        hosts = {role: self.hosts[role].utilization[0] for role in self.compute_s}
        shares = {role: share for role, share in hosts.items() if share is not None}
        if len(shares) < len(hosts):
            return {}
        requests_per_s = self.edge.throughput_ips / cell.batch_size
        links_s = bounds.busy_s(crossings)
        return shares | {name: occupied_s * requests_per_s for name, occupied_s in links_s.items()}

    def filled(self, batch_size: int, bound_s: float, bound_ips: float) -> TrialResult:
        """The same, with a throughput by the whole phase but the first request's least time, where completions are more
        than a step can do: a first result that lost packets hold up makes the time of the others too short.

        Whatever is held up, no link carries its payloads in less than that time: so what is still over the bound says
        that the bound is wrong.
        """
        phase, counted = self.edge.requests.throughput, self.edge.throughput_window_requests
        if self.edge.throughput_ips <= bound_ips or not 0 < counted < len(phase.finished_s):
            return self
        filled_s = phase.finished_s[counted] - phase.started_s[0] - bound_s
        ips = counted * batch_size / filled_s if filled_s > 0 else math.inf
        return replace(self, edge=replace(self.edge, throughput_ips=min(self.edge.throughput_ips, ips)))

    def request_columns(self) -> dict[str, dict[str, list[Any]]]:
        """By phase, the columns of the requests' file: the server's seconds apart from those of the hosts before it."""
        later, first, closed = len(self.hosts) - 1, self.codecs.first, self.codecs.closed
        of_phases = {"latency": slice(first), "throughput": slice(first, closed), "load": slice(closed, None)}
        requests, phases = self.edge.requests, dict[str, dict[str, list[Any]]]()
        if requests.load is not None:
            phases["dropped"] = {"scheduled_s": requests.load.dropped_s}
        for phase, columns in zip(of_phases, requests.all, strict=False):
            stages_s = columns.stages_s
            phases[phase] = {
                **{name: values for name, values in plain(columns).items() if name != "stages_s"},
                "middle_s": [list(each[:-1] if len(each) == later else each) for each in stages_s],
                "server_s": [each[-1] if each and len(each) == later else None for each in stages_s],
                **self.codecs.request_columns(EDGE, of_phases[phase]),
            }
        return phases
