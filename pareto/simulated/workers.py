"""A simulated testbed: its models, its hosts, its links, and the workers that make up a trial's reports."""

from __future__ import annotations

import hashlib
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np

from pareto.hosts.connection import Unreachable
from pareto.hosts.host import EDGE, End, TestbedError, chain
from pareto.hosts.inventory import SIMULATED
from pareto.hosts.session import SessionLost
from pareto.hosts.shapers import LinkState, Shaper
from pareto.hosts.testbed import Link, Testbed
from pareto.models.prepare import recipe
from pareto.partitions import costs
from pareto.partitions import model as partitioned
from pareto.partitions.engines import registry as engines
from pareto.partitions.graph import TensorSpec
from pareto.partitions.model import Outline
from pareto.predict.model_times import coded_at
from pareto.protocol.trial_messages import Coded, Progress, TrialReport, Usage, WrongOutput
from pareto.remote.backends import registry
from pareto.remote.codecs import base
from pareto.remote.codecs import registry as codecs
from pareto.remote.link import probe
from pareto.remote.link.profile import Profile
from pareto.remote.worker import pace, phases, served
from pareto.remote.worker.open_loop import Offered
from pareto.remote.worker.trial import figures, pacing
from pareto.simulated.requests import RequestPath, Work
from pareto.simulated.world import World
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.sweep.foreseen import ModelFacts, crossings
from pareto.sweep.plan import OVERHEAD_S, Trial
from pareto.sweep.splits import fold_note
from pareto.sweep.sweep import AUTO, Sweep
from pareto.trial.any_workers import AnyWorkers
from pareto.trial.result import HostReport, TrialResult, of_edge

BACKEND_S = {"tcp": 0.0001, "rpc": 0.0007, "zmq": 0.0002, "gloo": 0.0004}
"""Seconds that a backend adds to a request that crosses a link: about what it takes on an unshaped one."""
_NOT_MEASURED: dict[str, Any] = dict.fromkeys(
    ("cpu_percent", "rss_bytes", "peak_rss_bytes", "gpu_s", "retransmits", "coded")
)
REFERENCE_GFLOPS = 100.0
"""The host whose rates of codecs a world states: a host of half as many GFLOP/s takes twice as long."""
WRONG, ALLOWED = 1.0, 1e-4
"""How far a wrong output is off, and how far one may be."""
NOTE = "nothing is computed or sent: weights, images, threads, allocators and TCP's settings change nothing"


class Clock:
    """A clock that jumps: what would take seconds takes none, or a share `real` of them. Calling it reads it."""

    def __init__(self, now_s: float = 0.0, real: float = 0.0) -> None:
        self._now_s = now_s
        self._real = real

    def __call__(self) -> float:
        return self._now_s

    def jump(self, seconds: float) -> None:
        self._now_s += seconds
        if self._real:
            time.sleep(self._real * seconds)


@dataclass(frozen=True)
class SimulatedModel:
    """A model as far as it is simulated. unit_flops: of each unit, one image."""

    facts: ModelFacts
    manifest: dict[str, Any]
    unit_flops: tuple[int, ...]


class SimulatedShaper(Shaper):
    """Shapes nothing; keeps the position of the link's traces."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._origin_s = clock()

    def apply(self, profile: Profile) -> dict[str, Any]:
        self.restart(profile.offset_s)
        return {"shaper": SIMULATED}

    def restart(self, position_s: float) -> None:
        self._origin_s = self._clock() - position_s

    def state(self) -> LinkState:
        return LinkState(None, self._clock() - self._origin_s)


class Simulation:
    """A world, its clock, and the models that are known there."""

    def __init__(self, world: World, began: float = 0.0) -> None:
        """`began`: what the clock shows at first."""
        self.world = world
        self.clock = Clock(began, world.real_time)
        self.models: dict[str, SimulatedModel] = {}

    def prepare(self, name: str, sweep: Sweep) -> None:
        """Get to know a model's points and its units' cost. Raises UserError, partitions.graph.UntraceableModel."""
        how = recipe(name, sweep)
        outline = partitioned.outline(how)
        flops = tuple(cost.flops for cost in costs.of_units(outline))
        points = tuple((point.name, point.payload_bytes) for point in outline.points)
        shares = wire_shares(self.world, outline, sweep.coding)
        facts = ModelFacts(
            points,
            sum(self.world.unit_times_s(EDGE, outline.name, flops)),
            sum(spec.nbytes for spec in outline.results),
            input=how.input,
            units=costs.held(outline),
            notes=(fold_note(outline.points, outline.cuts), f"{SIMULATED}: {NOTE}"),
            dtypes=tuple(tuple(spec.dtype for spec in point.payload) for point in outline.points),
            wire_shares=shares,
            codec_s={
                text: tuple(coding_s(self.world, EDGE, text, nbytes) for _, nbytes in points)
                for text in shares
            },
        )
        manifest = {
            "graph_digest": outline.graph_digest,
            "input": how.input,
            "input_shape": outline.inputs[0].shape,
            "points": [{"name": point, "payload_bytes": nbytes} for point, nbytes in points],
        }
        self.models[name] = SimulatedModel(facts, manifest, flops)

    def testbed(self, hosts: int) -> Testbed:
        """A chain of hosts that do not exist. Raises TestbedError for a host in the world that the chain lacks."""
        roles, world = chain(hosts), self.world
        for role in (*world.hosts, *world.loads, *filter(None, [world.faults.lost])):
            if role not in roles:
                there = ", ".join(roles)
                raise TestbedError(f"the simulated testbed has no host {role}: its hosts are {there}")
        ends = [End(role, SIMULATED, "") for role in roles]
        links = tuple(Link(near, far, SimulatedShaper(self.clock)) for near, far in pairwise(ends))
        facts = {"kind": SIMULATED, "shaper": SIMULATED}
        return Testbed({}, links, world.label(roles), facts, is_local=True, undo=ExitStack())


class SimulatedWorkers(AnyWorkers):
    """The workers of a simulated testbed. A world and a sweep give the same figures in whatever order trials come."""

    def __init__(
        self, simulation: Simulation, links: tuple[Link, ...], *, edge_cpu: float = 1.0, session: int = 0
    ) -> None:
        """`session`: how many the run had before; what failed in one may succeed in the next."""
        self._world, self._models, self._clock = simulation.world, simulation.models, simulation.clock
        self._edge_cpu, self._session, self._begun = edge_cpu, session, 0
        self._hosts = chain(len(links) + 1)
        self._network: Sequence[Profile] | None = None
        self.links = links
        self.shaped: dict[str, dict[str, Any]] = {}

    def facts(self) -> dict[str, Any]:
        packages = {name: version(name) for name in ("torch", "torchvision")}
        speeds = {role: f"{SIMULATED}, {self._world.speed(role).gflops:g} GFLOP/s" for role in self._hosts}
        return {role: {**packages, "cpu": speed, "threads": 1} for role, speed in speeds.items()}

    def ready(self, cell: Cell, network: Sequence[Profile]) -> None:
        """Put the network's profiles on the links. Raises SessionLost or Unreachable for a simulated fault."""
        self._begun += 1
        faults = self._world.faults
        if faults.lost is not None and self._begun > faults.after:
            raise Unreachable(f"{faults.lost}: does not answer ({SIMULATED})")
        if self._draws("failed", cell.id, self._session, self._begun).random() < faults.failed:
            raise SessionLost(f"{self._hosts[-1]} ended ({SIMULATED})")
        if network != self._network:
            pairs = list(zip(self.links, network, strict=True))
            self.shaped[cell.netem] = {link.name: link.shaper.apply(profile) for link, profile in pairs}
            self._network = network

    def probed(
        self, link: Link, profile: Profile, tolerance: probe.Tolerance
    ) -> tuple[probe.Probed, probe.Span]:
        """A probe's reading of the link, by arithmetic, with its fault; and the span of the traces that it saw."""
        truth, span = self._world.link, probe.STILL
        begun = _position_s(link)
        self._clock.jump(probe.duration_s(profile))
        if profile.period_s is not None:
            span = begun, _position_s(link)
        rtt_s = statistics.fmean(probe.rtt_range_s(profile, span)) + 2 * truth.delay
        out_bps, back_bps = (
            statistics.fmean(asked) * probe.GOODPUT * truth.rate if asked else None
            for asked in (probe.rate_range_bps(way, span) for way in profile.directions)
        )
        reading = probe.Reading(rtt_s, out_bps, back_bps)
        return probe.Probed(reading, probe.judge(profile, reading, tolerance, span)), span

    def crossings(
        self, cell: Cell, network: Sequence[Profile], seen: Sequence[probe.Span] | None = None
    ) -> list[Crossing]:
        names = [link.name for link in self.links]
        return crossings(cell, self._models[cell.model].facts, network, names, seen)

    def trial(
        self,
        trial: Trial,
        network: Sequence[Profile],
        sampled: Callable[[dict[str, Any], Progress | None], None] | None = None,
    ) -> TrialResult | WrongOutput:
        cell, world = trial.cell, self._world
        draws = self._draws("trial", cell.id, trial.round)
        if draws.random() < world.faults.invalid:
            return WrongOutput(WRONG, ALLOWED)
        requests, seconds = trial.effort.latency
        foreseen_s = seconds or requests * trial.latency_s
        seen = [
            (at, at + foreseen_s) if profile.period_s is not None else probe.STILL
            for profile, at in zip(network, map(_position_s, self.links), strict=True)
        ]
        crossed, began = self.crossings(cell, network, seen), self._clock()
        alone = self._works(trial, crossed, draws)
        loaded = [
            replace(work, compute_s=world.slowdown(role, trial.round) * work.compute_s)
            for role, work in zip(self._hosts, alone, strict=False)
        ]
        backend_s = BACKEND_S.get(registry.parse(cell.backend).name, 0.0)
        path = RequestPath(crossed, loaded, world, backend_s, draws)
        lone = path.alone(trial.effort.latency, began)
        self._clock.jump(lone.samples[-1].finished_s)
        asked = None if cell.in_flight == AUTO else int(cell.in_flight)
        slowest_s = max((way.busy_s for way in path.ways), default=0.0)
        depth, pace_s = pacing(lone, slowest_s, asked)
        many = path.in_flight(trial.effort.throughput, depth, pace_s, self._clock())
        self._clock.jump(many.samples[-1].finished_s)
        load = None
        if trial.arrivals is not None:
            load = path.arriving(trial.arrivals, depth, self._clock())
            self._clock.jump(max(trial.arrivals.at_s[-1], load.phase.samples[-1].finished_s))
        alone_s = [work.compute_s for work in alone]
        result = self._result(cell, path, lone, many, load, began, alone_s)
        self._clock.jump(pace.alone_s(alone_s) + OVERHEAD_S)
        return result

    def _result(
        self,
        cell: Cell,
        path: RequestPath,
        lone: phases.Phase,
        many: phases.Phase,
        load: Offered | None,
        began: float,
        alone_s: Sequence[float],
    ) -> TrialResult:
        """The hosts' reports on these phases of a trial that began at `began`. alone_s: of each stage by itself."""
        crossed = path.crossings
        arrived = len(load.phase.samples) if load is not None else 0
        requests, steady = len(lone.samples) + len(many.samples) + arrived, phases.steady(many)[1:]
        counted: list[dict[str, Any]] = [
            {
                **_NOT_MEASURED,
                "sent_bytes": requests * round(crossing.sent_bytes if crossing else 0),
                "received_bytes": requests * (crossing.result_bytes if crossing else 0),
            }
            for crossing, _ in zip_longest(crossed, self._hosts)
        ]
        if cell.codec != codecs.NONE:
            for of_host, coded_s, nbytes in zip(counted, path.coded, [*path.wire_bytes, 0], strict=False):
                of_host["coded"] = Coded(*coded_s, [nbytes] * requests)
        edge = TrialReport(
            **figures(lone, many, cell.batch_size, load),
            **counted[0],
            payload_bytes=crossed[0].payload_bytes if crossed else 0,
            result_bytes=crossed[0].result_bytes if crossed else 0,
            max_abs_error=0.0,
            tolerance=ALLOWED,
            trial_window=(began, self._clock()),
            measured_s=self._clock() - began,
            tcp=None,
        )
        later_usages = list[Usage]()
        for later, of_host in enumerate(counted[1:]):
            stages_s = [sample.stages_s[later] for sample in steady if later < len(sample.stages_s)]
            ends = list(itertools.accumulate(stages_s, initial=0.0))
            later_usages.append(
                Usage(
                    trial_window=None,
                    throughput_window=edge.throughput_window,
                    throughput_window_requests=edge.throughput_window_requests,
                    throughput_busy_s=ends[-1],
                    steady_s=served.steady_s(list(pairwise(ends)), len(stages_s)),
                    **of_host,
                )
            )
        edge = of_edge(edge, later_usages, cell.batch_size)
        reports = zip_longest(self._hosts, [edge, *later_usages], alone_s)
        return TrialResult(edge, {role: HostReport(usage, own_s or None) for role, usage, own_s in reports})

    def _works(self, trial: Trial, crossed: Sequence[Crossing], draws: np.random.Generator) -> list[Work]:
        """The work of each host that takes part, for a batch in this trial, without each request's noise."""
        cell, noise, shape = trial.cell, self._world.noise, (len(self._hosts),)
        of_round = noise.factors(self._draws("round", trial.round), noise.round, shape)
        factors = (noise.factors(draws, noise.trial, shape) * of_round).tolist()
        flops, engine = self._models[cell.model].unit_flops, engines.parse(cell.engine)
        ends, works = (0, *cell.cuts, len(flops)), list[Work]()
        for place, (role, factor) in enumerate(zip(self._hosts[: len(crossed) + 1], factors, strict=False)):
            share = self._edge_cpu if role == EDGE else 1.0
            units_s = self._world.unit_times_s(role, cell.model, flops)[ends[place] : ends[place + 1]]
            compute_s = cell.batch_size * sum(units_s) * self._world.engine_share(engine.of(role))
            coded_s = [coding_s(self._world, role, cell.codec, each.payload_bytes) for each in crossed]
            decode_s = coded_s[place - 1][1] if place else 0.0
            encode_s = coded_s[place][0] if place < len(crossed) else 0.0
            works.append(Work(*(factor * (each_s / share) for each_s in (compute_s, decode_s, encode_s))))
        return works

    def _draws(self, *key: object) -> np.random.Generator:
        """Random numbers of their own for each key, whatever was drawn before."""
        digest = hashlib.blake2b(repr((self._world.seed, *key)).encode(), digest_size=8).digest()
        return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def _position_s(link: Link) -> float:
    """The position of a link's traces now."""
    return link.shaper.state().position_s or 0.0


def wire_shares(world: World, outline: Outline, used: Sequence[codecs.Codec]) -> dict[str, tuple[float, ...]]:
    """By codec, also those that others come to somewhere, the share of each point's payload that it sends, or 1."""
    coded = coded_at(outline, used)
    shares = {text: [1.0] * len(outline.points) for _, text in coded}
    for at, text in coded:
        shares[text][at] = _share(world, codecs.parse(text), outline.points[at].payload)
    return {text: tuple(of_points) for text, of_points in shares.items()}


def coding_s(world: World, role: str, codec: str, payload_bytes: float) -> tuple[float, float]:
    """The seconds that a host takes to encode a payload, and to decode it: of each step its input over its rate."""
    faster = 1e6 * world.speed(role).gflops / REFERENCE_GFLOPS
    encode_s = decode_s = 0.0
    for name, _ in codecs.parse(codec).names:
        step = world.codec_step(name)
        encode_s += payload_bytes / (faster * step.encode)
        decode_s += payload_bytes / (faster * step.decode)
        payload_bytes *= step.share
    return encode_s, decode_s


def _share(world: World, codec: codecs.Codec, payload: Sequence[TensorSpec]) -> float:
    """The share of a payload that a codec sends. Steps that give numbers fewer bits make what their layout says; the
    bytes of compressors and pictures depend on a payload's content, which nothing computes: the world states them."""
    layout = tuple((spec.dtype, spec.at(1)) for spec in payload)
    share = 1.0
    for name, variant in codec.names:
        if name not in codecs.BITS:
            share *= world.codec_step(name).share
            continue
        coded = codecs.Codec(codecs.SEPARATOR.join(filter(None, (name, variant)))).encoded(layout)
        share *= sum(base.nbytes(*each) for each in coded) / sum(base.nbytes(*each) for each in layout)
    return share
