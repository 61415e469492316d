"""The times of a model on a testbed: of its units on each host, of codecs, and what backends add on each link."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.torch import save_file

from pareto.analysis.backend_cost import BackendCost
from pareto.analysis.model_profile import CodecTimes, ModelProfile, UnitTimes
from pareto.analysis.statistics.samples import Floats, intervals
from pareto.hosts.host import EDGE, TestbedError
from pareto.hosts.testbed import Testbed
from pareto.models.prepare import Artifact, Prepared, recipe
from pareto.partitions import costs, scratch
from pareto.partitions.model import Outline
from pareto.predict.backend_costs import QUICK, THOROUGH, Care, on_links
from pareto.protocol.profile_messages import CodecRuns, TimeCodecs, TimeUnits, UnitRuns
from pareto.remote.backends.base import BYTES
from pareto.remote.codecs import registry
from pareto.sweep.sweep import Sweep
from pareto.trial.devices import energy_per_image, long_enough_s
from pareto.trial.store import utc_now
from pareto.trial.workers import Workers

MOST_S = 40.0
"""How long the units of a device are timed at most, at a batch size."""
STEADY_S = 2.0
"""How long the whole runs without a pause where a sensor measures energy: some ten of its readings."""
UNITS_S = 60.0
"""How long units run by themselves at most, all together, for the energy of each."""
LEAST_SHARE = 0.05
"""The quantile of a unit's times that a bound is made of."""
BATCHES = 4
"""Batches whose payloads are encoded: as many as a run without images of its own has."""


@dataclass
class Timing:
    """Measures profiles on a testbed: each model's units and backends; with care, what devices reach at best, once."""

    show: Callable[[str], None]
    sweep: Sweep
    bed: Testbed
    workers: Workers
    facts: Mapping[str, Mapping[str, Any]]
    care: Care

    def __post_init__(self) -> None:
        self.hosts = {role: dict(of_host) for role, of_host in self.facts.items()}
        for role, of_host in self.hosts.items():
            if self.care is THOROUGH:
                self.show(f"what the {role} reaches at best")
                best = self.workers.roofline(role, self._cpu(role))
                of_host |= {"peak_flops": best.flops, "peak_bytes_s": best.bytes_s}
            if self.bed.is_local and len(cores := of_host.get("cores") or []) == 1:
                of_host["core"] = cores[0]

    def profile(
        self, prepared: Prepared, outline: Outline, costs_at: tuple[list[BackendCost], str] | None
    ) -> ModelProfile:
        """costs_at: what backends add, and when that was measured, where it is known. Raises FAULTS, UserError."""
        sweep = self.sweep
        times = [each for size in sweep.batch_sizes for each in self._times(outline.name, outline.last, size)]
        largest = max(sweep.batch_sizes) * max(point.payload_bytes for point in outline.points)
        codecs = list(self._codecs(prepared, outline))
        if costs_at is None:
            names = ", ".join(link.name for link in self.bed.links)
            self.show(f"what {' and '.join(sweep.transports)} add on {names}")
            # A search measures the same for each model: another one can use it.
            largest = largest if self.care is THOROUGH else 0
            costs_at = on_links(self.bed, self.workers, sweep.transports, largest, self.care), ""
        made = of_outline(outline, sweep, times, costs_at[0], self.hosts, codecs)
        return replace(made, backends_at=costs_at[1])

    def _codecs(self, prepared: Prepared, outline: Outline) -> Iterator[CodecTimes]:
        """Times of the sweep's codecs on each host, for the tensors that cross at each point."""
        codecs = [codec for codec in self.sweep.coding if codec.names]
        coded = coded_at(outline, codecs, prepared.facts.unfit) if codecs else []
        for batch_size in self.sweep.batch_sizes if coded else ():
            payloads, is_all = examples(prepared.data[batch_size])
            for role in self.hosts:
                self.show(f"codecs of {outline.name} on the {role}, batch size {batch_size}")
                request = TimeCodecs(coded, "", role != EDGE, self._cpu(role))
                runs = self.workers.codec_runs(outline.name, role, request, payloads)
                if (count := len(runs.encode_s)) != len(coded):
                    raise TestbedError(f"{role} reports {count} of {len(coded)} points with codecs")
                yield from codec_times(outline, role, batch_size, coded, runs, is_all=is_all)

    def _times(self, name: str, units: int, batch_size: int) -> Iterator[UnitTimes]:
        roles, care = list(self.hosts), self.care
        for group in [roles] if at_once(self.bed, care) else [[role] for role in roles]:
            self.show(f"{name} on the {' and the '.join(group)}, batch size {batch_size}")
            runs_s = care.runs, care.seconds, MOST_S
            requests = {
                role: TimeUnits(batch_size, self._cpu(role), *runs_s, *self._metered_s(role, units))
                for role in group
            }
            reports = self.workers.unit_runs(name, requests)
            series = self.workers.samples() if any(each.steady for each in reports.values()) else {}
            for role, runs in reports.items():
                if (count := len(runs.units_s[0])) != units:
                    raise TestbedError(f"{role} reports {count} units of {name}, which has {units}")
                read = series.get(role, {})
                energy_j = [energy_per_image(read, steady.window, steady.runs) for steady in runs.steady]
                yield unit_times(role, self.hosts[role], batch_size, self._cpu(role), runs, energy_j)

    def _metered_s(self, role: str, units: int) -> tuple[float, float]:
        """How long a host runs all units, and each by itself, without a pause for its energy; 0: it is not measured."""
        of_host = self.hosts[role]
        least_s = of_host.get("energy_least_s") or 0.0
        # Sensors of this machine cannot tell the hosts of a local testbed apart.
        if self.bed.is_local or "energy_j" not in (of_host.get("sensors") or {}) or least_s > STEADY_S:
            return 0.0, 0.0
        of_host["energy_unit_s"] = each_s = long_enough_s(least_s, self.sweep.sample or 0.0)
        wanted = self.care is THOROUGH and not no_unit_energy(of_host, units)
        return STEADY_S, each_s if wanted else 0.0

    def _cpu(self, role: str) -> float:
        return self.sweep.edge_cpu if role == EDGE else 1.0


def no_unit_energy(of_host: Mapping[str, Any], units: int) -> str:
    """Why no unit of a device has its energy; empty where each has."""
    if str(of_host.get("device")) != "cpu":
        return "its tensors would be copied to the GPU and back in each run"
    each_s = of_host.get("energy_unit_s") or 0.0
    told = f"{units} x {each_s:.2g} s, which its meter needs, are more than {UNITS_S:g} s"
    return told if units * each_s > UNITS_S else ""


def at_once(bed: Testbed, care: Care) -> bool:
    """Whether all hosts are timed at the same time. Those of a local testbed share its memory, which costs a unit a few
    percent: only a search does it there, and only where each has a core of its own."""
    return not bed.is_local or (care is QUICK and not bed.facts.get("on_one_core"))


def of_outline(
    outline: Outline,
    sweep: Sweep,
    times: Iterable[UnitTimes],
    backends: Iterable[BackendCost],
    hosts: Mapping[str, Mapping[str, Any]],
    codecs: Iterable[CodecTimes] = (),
) -> ModelProfile:
    """The profile, made now, of the model of an outline, with what it took and what its units cost."""
    of_units = np.array([astuple(cost) for cost in costs.of_units(outline)], dtype=np.float64)
    return ModelProfile(
        model=outline.name,
        graph_digest=outline.graph_digest,
        granularity=sweep.granularity,
        input=recipe(outline.name, sweep).input,
        points=tuple((point.name, point.payload_bytes) for point in outline.points),
        result_bytes=sum(spec.nbytes for spec in outline.results),
        flops=of_units[:, 0],
        parameters=of_units[:, 1],
        parameter_bytes=of_units[:, 2],
        activation_bytes=np.array(costs.activation_bytes(outline), dtype=np.float64),
        times=tuple(times),
        backends=tuple(backends),
        hosts=hosts,
        made_at=utc_now(),
        codecs=tuple(codecs),
    )


def unit_times(
    role: str,
    facts: Mapping[str, Any],
    batch_size: int,
    cpu: float,
    runs: UnitRuns,
    energy_j: Sequence[float | None] = (),
) -> UnitTimes:
    """The times of a device's units from its runs: medians with their intervals, and a low quantile. energy_j: of a run
    of the whole, then of each unit, where it was measured.

    Every run has some unit that was slow, so medians add up to less than a run takes: by 7 % on a busy machine. They
    and their intervals are made longer by one factor, so that they add up to the median run with marks.
    """
    units_s, whole_s = np.array(runs.units_s).T, np.array(runs.whole_s)
    sums_s, medians_s = units_s.sum(axis=0), np.median(units_s, axis=1)
    factor = float(np.median(sums_s) / medians_s.sum()) if medians_s.any() else 1.0
    low_s, high_s = intervals(units_s)
    (whole_low,), (whole_high,) = intervals(whole_s[None, :])
    least = np.quantile(sums_s, LEAST_SHARE)  # no wait that was taken off in one run too many is in it
    whole_j, *units_j = np.array(energy_j or [None], dtype=np.float64)
    return UnitTimes(
        role=role,
        device=str(facts.get("device", "")),
        batch_size=batch_size,
        threads=int(facts.get("threads", 1)),
        cpu=cpu,
        median_s=factor * medians_s,
        low_s=factor * low_s,
        high_s=factor * high_s,
        least_s=np.quantile(units_s, LEAST_SHARE, axis=1),
        whole_s=(float(np.median(whole_s)), float(whole_low), float(whole_high), float(least)),
        outside_s=float(np.median(runs.outside_s)),
        peak_bytes=np.array(runs.peak_bytes or [], dtype=np.float64),
        energy_j=float(whole_j),
        units_energy_j=np.array(units_j),
        after_pause_s=float(np.median(runs.paused_s) - np.median(whole_s)) if runs.paused_s else 0.0,
    )


def coded_at(
    outline: Outline, codecs: Sequence[registry.Codec], unfit: Mapping[str, Container[int]] | None = None
) -> list[tuple[int, str]]:
    """Every point where something crosses a link, with each of these codecs that takes it, and what that is there.
    unfit: by a user's own codec, the points that it is not for."""
    last, unfit = outline.last, unfit or {}
    made: dict[tuple[int, str], None] = {}
    for point, codec in itertools.product(range(last), codecs):
        dtypes = frozenset(spec.dtype for spec in outline.points[point].payload)
        if codec.fits((point,), last) and point not in unfit.get(codec.text, ()):
            made |= {(point, each.text): None for each in (codec, codec.at(dtypes)) if each.names}
    return list(made)


def examples(data: Artifact) -> tuple[Artifact, bool]:
    """A file with the inputs of a run's first batches alone, and whether it has no others."""
    with safe_open(data.path, framework="pt") as file:
        inputs = {key: file.get_slice(key) for key in file.keys() if key.startswith("input")}  # noqa: SIM118
        first = {key: tensor[:BATCHES].contiguous() for key, tensor in inputs.items()}
        count = inputs["input0"].get_shape()[0]
    with scratch.folder() as folder:
        save_file(first, folder / "examples.part")
        return Artifact.unlinked(folder / "examples.part"), count <= BATCHES


def codec_times(
    outline: Outline,
    role: str,
    batch_size: int,
    coded: Sequence[tuple[int, str]],
    runs: CodecRuns,
    *,
    is_all: bool,
) -> Iterator[CodecTimes]:
    """Each codec's times on a host, from its runs: the median after other work, and the least of all; NaN where there
    was none. is_all: they were of all the batches that the run has."""
    tables: dict[str, Floats] = {}
    for number, (point, text) in enumerate(coded):
        layout = tuple((each.dtype, each.at(batch_size)) for each in outline.points[point].payload)
        try:  # whether it makes as many bytes of whatever has this layout
            is_fixed = BYTES not in dict(registry.parse(text).encoded(layout))
        except ValueError:  # a user's own
            is_fixed = False
        sent = runs.wire_bytes[number]
        figures = [runs.payload_bytes[number], np.median(sent), min(sent) if is_all or is_fixed else np.nan]
        for after_work, again in ((runs.encode_s, runs.encode_again_s), (runs.decode_s, runs.decode_again_s)):
            each_s = after_work[number]
            figures += [np.median(each_s), min(*each_s, *again[number])] if each_s else [np.nan, np.nan]
        tables.setdefault(text, np.full((len(outline.points), 7), np.nan))[point] = figures
    for text, table in tables.items():
        yield CodecTimes(role, batch_size, text, *table.T)
