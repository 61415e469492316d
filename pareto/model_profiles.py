"""Model profiles of a testbed: measured once, kept in a folder, and used again on the same devices."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live

from analysis.backend_cost import BackendCost
from analysis.escaping import short
from analysis.model_profile import CodecTimes, ModelProfile, Quartet, UnitTimes, read
from analysis.naming import file_stem
from analysis.statistics.samples import intervals
from pareto import PROFILES, codec_times, dataset_names, simulated
from pareto.backend_costs import added, reading_of
from pareto.checked_sweep import NOT_PROFILED
from pareto.console import duration
from pareto.devices import energy_per_image
from pareto.errors import UserError
from pareto.hosts.connection import FAULTS
from pareto.hosts.host import CPU, EDGE, TestbedError
from pareto.hosts.testbed import Testbed, require_testbed
from pareto.link.probe import Reading
from pareto.link.profile import Direction, Profile
from pareto.manifest import utc_now
from pareto.networks import links_of
from pareto.plain_files import written
from pareto.prepare import Prepared, canonical, prepare, recipe
from pareto.profile_messages import TimeCodecs, TimeUnits, UnitRuns
from pareto.sending import Meter
from pareto.starting import testbed_of
from pareto.sweep import Sweep
from pareto.workers import NOT_SHAPED, Workers
from partitions import costs, registry
from partitions import model as partitioned
from partitions.model import Outline
from partitions.weights import file_digest

FORM = 2
"""Of what a profile has: one of an older form is not used again."""
MOST_AGE = timedelta(days=1)
"""A machine's speed drifts: by half from one day to another on some."""
RUNS, SECONDS, MOST_S = 40, 3.0, 40.0
"""Of each device and batch size: at least so many runs with marks, and as many without, and so long; not longer."""
BEST_S, LINK_S, CODEC_S = 2.0, 20.0, 0.5
"""For the estimate: what a device reaches at best, the backends on a link, and a codec at all points."""
STEADY_S = 2.0
"""How long the whole runs without a pause where a sensor measures energy: some ten of its readings."""
LEAST_SHARE = 0.05
"""The quantile of a unit's times that a bound is made of."""
USUAL = Profile("usual", Direction(delay_s=0.005, rate_bps=100e6), Direction(delay_s=0.005, rate_bps=100e6))
"""The network over which backends are probed on a local testbed, where they wait as they do in a trial."""
MOST_WORDS = 60
"""Characters that are shown of what a profile says of a device: anybody may have written it."""
DECIDING = ("machine", "cpu", "cores", "device", "cuda", "threads", "torch", "governor")
"""What of a device decides how fast it is."""


@dataclass(frozen=True)
class Kept:
    """A model profile and its folder. is_new: made now, not before."""

    profile: ModelProfile
    folder: Path
    is_new: bool


def make_or_reuse(
    out: Console, sweep: Sweep, folder: Path = PROFILES, *, fresh: bool = False
) -> dict[str, Kept]:
    """The profile of each of a sweep's models on its testbed, by full name; `on_testbed` says which are made anew.

    Raises UserError, TestbedError.
    """
    sweep = canonical(sweep)
    if sweep.simulated:
        return _simulated(sweep, folder)
    if sweep.served:
        raise UserError(f"--testbed {sweep.testbed}: {NOT_PROFILED}: name SSH hosts in a file")
    require_testbed(sweep.testbed, sweep.edge_cpu)
    links_of(sweep)
    for name in _names(sweep):
        partitioned.describe(recipe(name, sweep))  # bad input must not cost a testbed
    prepared: dict[str, Prepared] = {}
    with closing(testbed_of(sweep, [])) as bed:
        sample_s = None if bed.is_local else sweep.sample
        with closing(Workers(bed, prepared, sweep.transports, sample_s, sweep.tcp)) as workers:
            try:
                workers.start()
            except FAULTS as fault:
                raise TestbedError(f"the workers did not start: {bed.lost() or fault}") from fault
            # A line on a terminal, drawn between measurements by this thread alone: the hosts may share this machine.
            with Live(console=out, auto_refresh=False, transient=True) as live:
                show = partial(live.update, refresh=True)
                return on_testbed(out, sweep, bed, workers, prepared, folder, fresh=fresh, show=show)


def on_testbed(
    out: Console,
    sweep: Sweep,
    bed: Testbed,
    workers: Workers,
    prepared: dict[str, Prepared],
    folder: Path = PROFILES,
    *,
    fresh: bool = False,
    show: Callable[[str], None],
) -> dict[str, Kept]:
    """The same on a testbed that is open, by workers that have started and have nothing to do.

    A profile that is kept beneath `folder` counts if it is of the same graph, devices and settings and not too old;
    why one does not is printed. fresh: none counts. prepared: of the workers; what it lacks is added. show: takes what
    is measured now, in words. The links are left without a profile. Raises UserError, TestbedError.
    """
    measuring = None
    profiles = {}
    try:
        facts = workers.facts()
        for name in _names(sweep):
            outline = partitioned.outline(recipe(name, sweep))
            place = folder_of(folder, sweep, outline)
            kept = None if fresh else _kept(out, place, name, facts)
            if kept is None:
                about = duration(estimate_s(sweep, bed))
                out.print(f"{name}: its model profile takes about {about}, on {', '.join(facts)}")
                if name not in prepared:
                    prepared[name] = _prepared(name, sweep)
                workers.send(Meter(out, show), [name], whole=True)
                measuring = measuring or _Measuring(show, sweep, bed, workers, facts)
                profiles[name] = Kept(measuring.profile(prepared[name], outline), place, is_new=True)
                _write(profiles[name])
            else:
                profiles[name] = Kept(kept, place, is_new=False)
    except FAULTS as fault:
        raise TestbedError(f"the profile broke off: {bed.lost() or fault}") from fault
    return profiles


def estimate_s(sweep: Sweep, bed: Testbed) -> float:
    """The seconds that the profile of a model of usual size takes."""
    of_codecs_s = CODEC_S * sum(bool(codec.names) for codec in sweep.coding)
    of_devices_s = len(bed.remotes) * (BEST_S + (SECONDS + of_codecs_s) * len(sweep.batch_sizes))
    return of_devices_s + LINK_S * len(bed.links)


def folder_of(folder: Path, sweep: Sweep, outline: Outline) -> Path:
    """Where the profile of a model is kept: a folder for each graph, testbed, and setting that changes a time."""
    where = simulated.load(sweep.testbed).record() if sweep.simulated else sweep.testbed
    links, tcp = links_of(sweep), asdict(sweep.tcp)
    settings = [FORM, sweep.batch_sizes, sweep.transports, sweep.edge_cpu, sweep.threads or 1, links, tcp]
    settings += [sweep.device] if sweep.device != CPU else []
    if any(codec.names for codec in sweep.coding):  # which take longer for some images than for others
        images = sweep.dataset, str(sweep.data_path), sweep.images, sweep.weights, sweep.seed
        files = [Path(codec.own.file) for codec in sweep.coding if codec.own is not None]
        files += [in_file.file] if (in_file := dataset_names.own(sweep.dataset)) else []
        own = [file_digest(file) for file in files]
        settings += [sorted(sweep.codecs), *own, *images]
    key = json.dumps([outline.graph_digest, where, *settings], sort_keys=True)
    return folder / f"{file_stem(outline.name)}-{hashlib.sha256(key.encode()).hexdigest()[:10]}"


def age(profile: ModelProfile) -> timedelta | None:
    """How long ago a profile was made; None where it does not say, or in the future."""
    try:
        since = datetime.now(timezone.utc) - datetime.fromisoformat(profile.made_at)
    except (ValueError, TypeError):
        return None
    return since if since >= timedelta(0) else None


def difference(then: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]) -> str:
    """The first thing in which hosts of a profile are others than those there are, in words; empty: there is none."""
    if list(then) != list(now):
        return f"its hosts are {', '.join(then) or 'none'}"
    for role, facts in now.items():
        for key in DECIDING:
            was, is_now = _deciding(then[role].get(key)), _deciding(facts.get(key))
            if was != is_now:
                return f"the {role}'s {key} was {short(str(was), MOST_WORDS)}, and is {is_now}"
    return ""


def _deciding(value: Any) -> Any:
    """Of a list of cores how many they are, of a GPU its name: which ones they are changes nothing."""
    if isinstance(value, list | tuple):
        return len(value)
    return value.get("name") if isinstance(value, Mapping) else value


def _kept(
    out: Console, folder: Path, name: str, facts: Mapping[str, Mapping[str, Any]]
) -> ModelProfile | None:
    """The profile that is kept in a folder, if it counts; says why it does not."""
    if not folder.exists():
        return None
    try:
        profile = read(folder)
        since = age(profile)
        why = difference(profile.hosts, facts)
        if since is None:
            why = why or f"it says that it was made at {profile.made_at}"
        elif since > MOST_AGE:
            why = why or f"it is {duration(since.total_seconds())} old, and speeds drift"
    except UserError as error:
        why, since = str(error), None
    if why:
        out.print(f"the model profile of {name} that was kept does not count: {why}", soft_wrap=True)
        return None
    assert since is not None  # noqa: S101
    ago = duration(since.total_seconds())
    out.print(f"{name}: its model profile of {ago} ago is used; `profile --fresh` makes it anew")
    return profile


def _write(kept: Kept) -> None:
    with written(kept.folder):
        kept.folder.parent.mkdir(parents=True, exist_ok=True)
    kept.profile.write(kept.folder, under=kept.folder.parent)


def _simulated(sweep: Sweep, folder: Path) -> dict[str, Kept]:
    """It takes no time, so none is used again."""
    from pareto.simulated.profiling import model_profile

    simulation = simulated.Simulation(simulated.load(sweep.testbed))
    profiles = {}
    for name in _names(sweep):
        outline = partitioned.outline(recipe(name, sweep))
        made = model_profile(simulation, name, sweep)
        profiles[name] = Kept(made, folder_of(folder, sweep, outline), is_new=True)
        _write(profiles[name])
    return profiles


def _names(sweep: Sweep) -> list[str]:
    return [registry.canonical(model) for model in sweep.models]


def _prepared(name: str, sweep: Sweep) -> Prepared:
    """What the hosts need of the model: its weights. Images are noise there, so one batch here is enough."""
    return prepare(name, sweep.model_copy(update={"images": max(sweep.batch_sizes)}))


class _Measuring:
    """Measures profiles on a testbed: what the devices reach at best once, and each model's units and backends."""

    def __init__(
        self,
        show: Callable[[str], None],
        sweep: Sweep,
        bed: Testbed,
        workers: Workers,
        facts: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self._show, self._sweep, self._bed, self._workers = show, sweep, bed, workers
        self._hosts: dict[str, dict[str, Any]] = {}
        for role, of_host in facts.items():
            self._show(f"what the {role} reaches at best")
            best = workers.roofline(role, self._cpu(role))
            self._hosts[role] = {**of_host, "peak_flops": best.flops, "peak_bytes_s": best.bytes_s}
            if bed.is_local and len(cores := of_host.get("cores") or []) == 1:
                self._hosts[role]["core"] = cores[0]

    def profile(self, prepared: Prepared, outline: Outline) -> ModelProfile:
        """Raises FAULTS, UserError."""
        sweep, name, times = self._sweep, outline.name, []
        for role in self._hosts:
            for batch_size in sweep.batch_sizes:
                self._show(f"{name} on the {role}, batch size {batch_size}")
                times.append(self._times(name, outline.last, role, batch_size))
        largest = max(sweep.batch_sizes) * max(point.payload_bytes for point in outline.points)
        codecs = list(self._codecs(prepared, outline))
        backends = self._backends(largest)
        return of_outline(outline, costs.of_units(outline), sweep, times, backends, self._hosts, codecs)

    def _codecs(self, prepared: Prepared, outline: Outline) -> Iterator[CodecTimes]:
        """What the sweep's codecs take on each host of what crosses at each point."""
        codecs = [codec for codec in self._sweep.coding if codec.names]
        coded = codec_times.coded(outline, codecs, prepared.facts.unfit) if codecs else []
        for batch_size in self._sweep.batch_sizes if coded else ():
            payloads, is_all = codec_times.examples(prepared.data[batch_size])
            for role in self._hosts:
                self._show(f"codecs of {outline.name} on the {role}, batch size {batch_size}")
                request = TimeCodecs(coded, "", role != EDGE, self._cpu(role))
                runs = self._workers.codec_runs(outline.name, role, request, payloads)
                if len(runs.encode_s) != len(coded):
                    raise TestbedError(
                        f"{role} reports {len(runs.encode_s)} of {len(coded)} points with codecs"
                    )
                yield from codec_times.times(outline, role, batch_size, coded, runs, is_all=is_all)

    def _times(self, name: str, units: int, role: str, batch_size: int) -> UnitTimes:
        facts = self._hosts[role]
        # Sensors of this machine cannot tell the hosts of a local testbed apart.
        has_sensor = not self._bed.is_local and "energy_j" in (facts.get("sensors") or {})
        cpu = self._cpu(role)
        request = TimeUnits(batch_size, cpu, RUNS, SECONDS, MOST_S, STEADY_S if has_sensor else 0.0)
        runs = self._workers.unit_runs(name, role, request)
        if len(runs.units_s[0]) != units:
            raise TestbedError(f"{role} reports {len(runs.units_s[0])} units of {name}, which has {units}")
        energy_j = None
        if runs.window is not None:
            series = self._workers.samples().get(role, {})
            energy_j = energy_per_image(series, runs.window, runs.window_runs)
        return unit_times(role, facts, batch_size, cpu, runs, energy_j)

    def _cpu(self, role: str) -> float:
        return self._sweep.edge_cpu if role == EDGE else 1.0

    def _backends(self, largest_bytes: int) -> Iterator[BackendCost]:
        """What the sweep's backends add on each link: a local one without a profile and with `USUAL`.

        A link that was shaped is left without a profile.
        """
        bed, backends = self._bed, self._sweep.transports
        readings: Mapping[str, Reading] = {} if bed.is_local else self._workers.bare_links()
        for link in bed.links:
            self._show(f"what {' and '.join(backends)} add on {link.name}")
            if bed.is_local:
                link.shaper.apply(Profile(NOT_SHAPED))
            costs = list(added(bed, link, readings.get(link.name), backends, largest_bytes))
            if bed.is_local:
                link.shaper.apply(USUAL)
                try:
                    slowed = added(bed, link, reading_of(USUAL), backends, largest_bytes)
                    costs = [bare.and_of(other) for bare, other in zip(costs, slowed, strict=True)]
                finally:
                    link.shaper.apply(Profile(NOT_SHAPED))
            yield from costs


def of_outline(
    outline: Outline,
    units: Sequence[costs.Cost],
    sweep: Sweep,
    times: Iterable[UnitTimes],
    backends: Iterable[BackendCost],
    hosts: Mapping[str, Mapping[str, Any]],
    codecs: Iterable[CodecTimes] = (),
) -> ModelProfile:
    """The profile, made now, of the model of an outline, with what it took and what its units cost."""
    flops, parameters, parameter_bytes = (
        np.array([getattr(cost, what) for cost in units], dtype=np.float64)
        for what in ("flops", "parameters", "parameter_bytes")
    )
    return ModelProfile(
        model=outline.name,
        graph_digest=outline.graph_digest,
        granularity=sweep.granularity,
        input=recipe(outline.name, sweep).input,
        points=tuple((point.name, point.payload_bytes) for point in outline.points),
        result_bytes=sum(spec.nbytes for spec in outline.results),
        flops=flops,
        parameters=parameters,
        parameter_bytes=parameter_bytes,
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
    energy_j: float | None = None,
) -> UnitTimes:
    """The times of a device's units from its runs: medians with their intervals, and a low quantile.

    Every run has some unit that was slow, so medians add up to less than a run takes: by 7 % on a busy machine. They
    and their intervals are made longer by one factor, so that they add up to the median run with marks.
    """
    units_s, whole_s = np.array(runs.units_s).T, np.array(runs.whole_s)
    sums_s, medians_s = units_s.sum(axis=0), np.median(units_s, axis=1)
    factor = float(np.median(sums_s) / medians_s.sum()) if medians_s.any() else 1.0
    low_s, high_s = intervals(units_s)
    (whole_low,), (whole_high,) = intervals(whole_s[None, :])
    whole: Quartet = (
        float(np.median(whole_s)),
        float(whole_low),
        float(whole_high),
        float(np.quantile(sums_s, LEAST_SHARE)),  # no wait that was taken off in one run too many is in it
    )
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
        whole_s=whole,
        outside_s=float(np.median(runs.outside_s)),
        peak_bytes=np.array(runs.peak_bytes or [], dtype=np.float64),
        energy_j=math.nan if energy_j is None else energy_j,
        after_pause_s=float(np.median(runs.paused_s) - np.median(whole_s)) if runs.paused_s else 0.0,
    )
