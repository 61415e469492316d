"""The workers of a run, with a monitor beside each: started once, kept across cells, started again when one is lost."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pareto.hosts.host import SERVER, TcpSettings, TestbedError
from pareto.hosts.session import Programs, Session, SessionError
from pareto.hosts.testbed import Link, Testbed, on_each
from pareto.hosts.warm_up import warm
from pareto.partitions.allocator import TUNED, Allocator
from pareto.partitions.engines.registry import EAGER
from pareto.protocol import messages, profile_messages, trial_messages
from pareto.protocol.jsonlines import plain
from pareto.protocol.messages import Split
from pareto.protocol.own import Own
from pareto.protocol.trial_messages import Progress
from pareto.remote.backends import registry
from pareto.remote.link import probe
from pareto.remote.link.profile import Profile
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.sweep.foreseen import crossings
from pareto.sweep.plan import Trial
from pareto.sweep.sweep import AUTO
from pareto.trial.any_workers import RECENT_S, AnyWorkers
from pareto.trial.devices import Devices, Series
from pareto.trial.model_upload import Loading, Meter, Sender
from pareto.trial.probes import bare, carries, crossing_s, probed, promised, settle
from pareto.trial.result import HostReport, TrialResult, of_edge
from pareto.trial.run_keys import run_keys

if TYPE_CHECKING:
    from pareto.models.prepare import Artifact, Prepared

START_TIMEOUT_S = LOAD_TIMEOUT_S = 300.0
CODED_TIMEOUT_S = 10.0
"""More for each point and codec that is timed."""
BUILD_TIMEOUT_S = 1800.0
"""Until an engine has built a stage: a small board compiles for a minute where a computer takes seconds."""
ANSWER_TIMEOUT_S = 5.0
"""A worker that lives, and has nothing to do, answers within this."""
MOST_REQUESTS = 60
"""A trial whose requests take long makes fewer, unless more are asked for."""
NOT_SHAPED = "none"
OVERDRAWN_S = 0.004
"""Seconds of a core that a stage may use beyond its host's share, until the kernel looks (every 1/250 s). The host
waits until that is paid back, and what follows the stage is late."""


class Workers(AnyWorkers):
    """A worker on each host of the chain. After any method has raised, `close`: the next `ready` starts all again, on
    hosts logged in to anew if they were lost."""

    def __init__(
        self,
        testbed: Testbed,
        prepared: dict[str, Prepared],
        backends: tuple[str, ...],
        sample_s: float | None = None,
        tcp: TcpSettings | None = None,
        allocator: str = TUNED,
        own: Sequence[Own] = (),
    ) -> None:
        """sample_s: as of `Devices`. allocator: until a cell says otherwise. own: a user's own among the backends."""
        self._testbed, self._prepared, self._backends = testbed, prepared, backends
        self._tcp, self.allocator = tcp or TcpSettings(), allocator
        self._sessions, self._own_backends = Programs(), own
        self._own: dict[str, list[Own]] = {}
        """By role, the user's own backends, as the host has them."""
        self._loaded: Loading | None = None
        self._sender, self._devices = Sender(testbed), Devices(testbed, sample_s)
        self._proven: set[Cell] = set()
        self._network: Sequence[Profile] | None = None
        self._agents = [backend for backend in backends if registry.parse(backend).agent]
        self._agent = ""
        """The one of these rpc agents that the hosts have joined."""
        self._ports: dict[str, dict[str, int]] = {}
        self._facts: Mapping[str, messages.Facts] = {}
        self._bare: dict[str, probe.Reading] = {}
        self._token, self._keys = "", messages.NO_KEYS
        self._alone: tuple[float, tuple[object, ...], dict[str, float | None]] | None = None
        """The baselines after the last trial: when they were taken, and of what."""
        self.links = testbed.links
        self.shaped: dict[str, dict[str, Any]] = {}

    def lost(self) -> str:
        return self._testbed.lost()

    def launch(self) -> None:
        """Begin to start the workers: `start` waits for them, which import torch meanwhile."""
        if self._token:  # a new testbed is whole, and to look takes half a second a host
            self._testbed.revive()
        self.links = self._testbed.links  # it may have been built anew
        self._loaded = self._network = self._alone = None
        self._proven.clear()
        self._sender.forget()
        self._token, self._keys = secrets.token_hex(16), run_keys(self._backends)
        on_each({role: remote.bring_code for role, remote in self._testbed.remotes.items()})
        for name, remote in self._testbed.remotes.items():
            options = ["--threads", str(remote.host.threads), "--device", remote.host.device]
            if (kept := Allocator.parse(self.allocator).of(name)) != TUNED:
                options += ["--allocator", kept]
            if self._tcp.congestion is not None and not self._testbed.is_local:  # there the routes say it
                options += ["--congestion", self._tcp.congestion]
            self._sessions[name] = remote.start("pareto.remote.worker", *options)

    def start(self) -> None:
        if not self._sessions:
            self.launch()
        asked = dict.fromkeys(self._sessions, messages.GetFacts())
        self._facts = self._sessions.ask_all(asked, START_TIMEOUT_S)
        for role, facts in self._facts.items():
            if facts.allocator != (wanted := Allocator.parse(self.allocator).of(role)):
                has = f"the {role} has {facts.allocator}"
                raise TestbedError(f"--allocator {wanted}: {has}: does its C library have mallopt?")
        self._devices.start(self._facts)
        self._own = {
            role: [each.shipped(remote.ship) for each in self._own_backends]
            for role, remote in self._testbed.remotes.items()
        }
        by = list(self._backends), self._keys
        listening = {
            end.role: messages.Listen(end.address, self._token, *by, self._own[end.role])
            for end in (link.far for link in self.links)
        }
        self._ports = self._sessions.ask_all(listening, START_TIMEOUT_S)

    def send(self, meter: Meter, models: Iterable[str] = (), *, whole: bool = False) -> None:
        """Send the hosts what they need of these models, or of all. whole: to run any of their units."""
        self._sender.send([self._prepared[name] for name in models or self._prepared], meter, whole=whole)

    def sending(self) -> dict[str, Any] | None:
        return {"bytes": self._sender.sent_bytes, "seconds": round(self._sender.took_s, 3)}

    def close(self) -> None:
        self._devices.close()
        self._sessions.close()

    def facts(self) -> dict[str, Any]:
        """By role, the host's facts and its sensors. The hosts must be idle: their idle power is measured."""
        devices = self._devices.facts()
        return {
            name: {**plain(facts), "cuda": facts.cuda and plain(facts.cuda), **devices.get(name, {})}
            for name, facts in self._facts.items()
        }

    def ready(self, cell: Cell, network: Sequence[Profile]) -> None:
        self.loaded(cell)
        if network != self._network or cell.agent not in ("", self._agent):
            self._join(cell, network)

    def loaded(self, cell: Cell) -> None:
        """Load the cell's model on all hosts. The workers start again where the cell has other allocators."""
        if cell.allocator != self.allocator:
            self.close()
            self.allocator = cell.allocator
        if not self._sessions:
            self.start()
        self._load(cell.model)

    def probed(
        self, link: Link, profile: Profile, tolerance: probe.Tolerance
    ) -> tuple[probe.Probed, probe.Span]:
        near, held_to = self._sessions[link.near.role], promised(profile, self._bare.get(link.name))
        if held_to is not profile:
            tolerance = tolerance.at_least(probe.OWN)
        asked, is_local = self._question(held_to), self._testbed.is_local
        return probed(link.shaper, near, held_to, tolerance, asked, is_local=is_local)

    def idle_crossing_s(self, link: Link, crossing: Crossing) -> float:
        """As of all workers: a near host with a share of a core may have to wait for that before it sends."""
        near = link.near.role
        share: float = self._testbed.facts.get("hosts", {}).get(near, {}).get("cpu_share", 1.0)
        takes_s = crossing_s(self._sessions[near], round(crossing.sent_bytes), crossing.result_bytes)
        return takes_s + OVERDRAWN_S * (1 / share - 1)

    def bare_links(self) -> dict[str, probe.Reading]:
        """Readings of the links between real hosts before anything is emulated on them, by name; measured once."""
        self._network = None
        for link in self.links:
            link.shaper.apply(Profile(NOT_SHAPED))
        if not self._bare:
            self._bare = {name: bare(near) for name, (near, _) in self.opened(()).items()}
        return self._bare

    def crossings(
        self, cell: Cell, network: Sequence[Profile], seen: Sequence[probe.Span] | None = None
    ) -> list[Crossing]:
        names = [link.name for link in self.links]
        held_to = [promised(each, self._bare.get(name)) for name, each in zip(names, network, strict=True)]
        crossed = crossings(cell, self._prepared[cell.model].facts, held_to, names, seen)
        return [
            replace(crossing, own=crossing.profile is not profile, filled=crossing.filled and self._tcp.fills)
            for crossing, profile in zip(crossed, network, strict=False)
        ]

    def trial(
        self,
        trial: Trial,
        network: Sequence[Profile],
        sampled: Callable[[dict[str, Any], Progress | None], None] | None = None,
    ) -> TrialResult | trial_messages.WrongOutput:
        cell = trial.cell
        split, staged = self._stage(cell)
        compute_s = sum(stage.run_s for stage in staged.values())  # there; the plan's is the driver's own
        edge, *others = self._sessions
        alone = self._recent(cell) or self._baselines(split)
        self._sessions.ask_all(dict.fromkeys(others, trial_messages.GetUsage()), LOAD_TIMEOUT_S)
        self._testbed.watch()
        watch = self._testbed.watch_strangers
        strangers = watch() if watch is not None else None
        own = self._testbed.remotes[edge].host
        requests, seconds = trial.effort.throughput
        warm_ups = trial.warmup_requests(cell in self._proven, compute_s)
        pending = self._sessions[edge].post(
            trial_messages.RunTrial(
                split=split,
                interface=self.links[0].near.interface if self.links else own.data_interface,
                peer=self.links[0].far.address if self.links else own.data_address,
                warmup_requests=warm_ups,
                latency=trial_messages.Length(*trial.effort.latency),
                throughput=trial_messages.Length(requests, max(seconds, self._devices.least_window_s)),
                transfer_s=max((crossing.usual_s for crossing in self.crossings(cell, network)), default=0.0),
                in_flight=None if cell.in_flight == AUTO else int(cell.in_flight),
                prefetch=cell.prefetch,
                is_watched=sampled is not None,
                arrivals=trial.arrivals,
            )
        )

        def meanwhile() -> None:
            for role in others:
                self._sessions[role].check()
            self._testbed.check()
            if sampled is not None:
                sampled(self._devices.latest(), self._sessions[edge].progress)

        timeout_s = 60.0 + 10.0 * trial.estimate_s + (MOST_REQUESTS + 4 * requests) * compute_s
        try:
            report = self._sessions[edge].report(pending, timeout_s, meanwhile)
        except SessionError:
            for role in others:  # the edge knows only that a peer is gone
                self._sessions[role].ask(trial_messages.GetUsage(), ANSWER_TIMEOUT_S)
            raise
        self._testbed.check(every_s=0.0)
        if isinstance(report, trial_messages.WrongOutput):
            return report
        self._proven.add(cell)
        made = sum(map(len, report.requests.all[1:]))
        coded = 0 if report.coded is None else len(report.requests.latency) + made
        served = trial_messages.GetUsage(made, 1 + report.throughput_window_requests, coded)
        usages = self._sessions.ask_all(dict.fromkeys(others, served), LOAD_TIMEOUT_S)
        report = of_edge(report, [*usages.values()], cell.batch_size)
        percent = strangers() if strangers is not None else None
        again = self._baselines(split)
        self._alone = time.monotonic(), _stages(cell), again
        hosts = {
            role: HostReport(
                usage,
                min((each for each in (alone[role], again[role]) if each is not None), default=None),
                staged[role].weights_bytes,
                self._devices.idle_power_w.get(role),
                staged[role].engine_s,
                self._devices.meter(role),
            )
            for role, usage in {edge: report, **usages}.items()
        }
        quality = self._prepared[cell.model].quality(cell)
        return TrialResult(report, hosts, percent, quality, self._testbed.is_local, warm_ups)

    def alone(self, cell: Cell) -> dict[str, float | None]:
        """By role, seconds that a run of the cell's stage takes by itself, on hosts that are ready for it."""
        return self._baselines(self._stage(cell)[0])

    def unit_runs(
        self, model: str, requests: Mapping[str, profile_messages.TimeUnits]
    ) -> dict[str, profile_messages.UnitRuns]:
        """Runs of a model's units on these hosts, by role, at the same time."""
        self._load(model, whole=True)
        longest_s = max(each.most_s + each.steady_s for each in requests.values())
        return self._sessions.ask_all(requests, LOAD_TIMEOUT_S + longest_s)

    def opened(self, backends: Sequence[str]) -> dict[str, tuple[Session, Session]]:
        """By link, the workers at its two ends, with connections of these backends and no others, opened anew; of the
        rpc agents, which exclude each other, one at most."""
        self._network, sessions = None, self._sessions
        self._connect(backends)
        return {link.name: (sessions[link.near.role], sessions[link.far.role]) for link in self.links}

    def codec_runs(
        self, model: str, role: str, request: profile_messages.TimeCodecs, examples: Artifact
    ) -> profile_messages.CodecRuns:
        """Runs of codecs on one host, with payloads that it makes of the inputs in `examples`."""
        self._load(model, whole=True)
        data = self._testbed.remotes[role].ship(examples.path, f"{examples.digest}.safetensors")
        timeout_s = LOAD_TIMEOUT_S + CODED_TIMEOUT_S * len(request.coded)
        return self._sessions[role].ask(replace(request, data=data), timeout_s)

    def roofline(self, role: str, cpu: float) -> profile_messages.Roofline:
        """The best rates of a host's device. cpu: the share of a core that it gets."""
        return self._sessions[role].ask(profile_messages.MeasureRoofline(cpu), LOAD_TIMEOUT_S)

    def samples(self) -> dict[str, Series]:
        return self._devices.collect()

    def sampling(self) -> dict[str, Any] | None:
        return self._devices.cost() or None

    def _stage(self, cell: Cell) -> tuple[Split, dict[str, messages.StageLoaded]]:
        split = Split(cell.cuts, cell.batch_size, cell.transport, cell.codec, cell.engine)
        interfaces = {link.near.role: link.near.interface for link in self.links}
        ranges = self._prepared[cell.model].ranges
        loading = {
            role: messages.LoadStage(split, position, interfaces.get(role), dict(ranges(cell, position)))
            for position, role in enumerate(self._sessions)
        }
        timeout_s = LOAD_TIMEOUT_S if cell.engine == EAGER else BUILD_TIMEOUT_S
        return split, self._sessions.ask_all(loading, timeout_s)

    def _recent(self, cell: Cell) -> dict[str, float | None] | None:
        """The baselines after the last trial, if recent and of a cell's stages; once: no fault, no trial between."""
        (taken_s, of, baselines), self._alone = self._alone or (-math.inf, (), None), None
        is_recent = time.monotonic() - taken_s < RECENT_S * max(1, len(self.links))
        return baselines if is_recent and of == _stages(cell) else None

    def _baselines(self, split: Split) -> dict[str, float | None]:
        """By role, seconds that a run of its stage takes by itself: one host after the other, nothing in flight."""
        return {
            role: session.ask(messages.MeasureBaseline(split, position), LOAD_TIMEOUT_S)
            for position, (role, session) in enumerate(self._sessions.items())
        }

    def _join(self, cell: Cell, network: Sequence[Profile]) -> None:
        """Put a profile on each link, unless it is there, and open every connection over them: all are opened anew for
        another rpc agent too, as backends are compared at the same age."""
        is_new, self._network = network != self._network, None
        pairs = list(zip(self.links, network, strict=True))
        if is_new:
            self.shaped[cell.netem] = {link.name: link.shaper.apply(profile) for link, profile in pairs}
        self._agent = cell.agent or next(iter(self._agents), "")
        opened = [each for each in self._backends if each == self._agent or each not in self._agents]
        self._connect(opened)
        for link, profile in pairs:
            near, beneath = self._sessions[link.near.role], self._bare.get(link.name)
            held_to, (rate_bps, rtt_s) = promised(profile, beneath), carries(profile, beneath)
            if is_new:
                settle(link.shaper, near, held_to, self._question(held_to), is_local=self._testbed.is_local)
            for backend in opened:
                warm(near, backend, rate_bps, rtt_s, settles=profile.tcp_fills)
        self._network = network

    def _connect(self, backends: Sequence[str]) -> None:
        """Open these backends' connections and the probe's anew, and no others: TCP's memory of another link (least
        RTT, time-out) would mislead it here."""
        token, ports, by = self._token, self._ports, (list(backends), self._keys)
        far = {link.near.role: link.far for link in self.links}
        to = {
            near: messages.Connect(end.address, token, ports[end.role], *by, self._own[near])
            for near, end in far.items()
        }
        self._sessions.ask_all(to, START_TIMEOUT_S)
        remotes = self._testbed.remotes
        for agent in (backend for backend in backends if backend in self._agents):
            address = remotes[SERVER].host.data_address
            at = list(self._sessions), address, self._sessions[SERVER].ask(messages.OpenRendezvous(address))
            ends = {
                role: messages.JoinAgents(agent, role, *at, remote.host.data_interface)
                for role, remote in remotes.items()
            }
            self._sessions.ask_all(ends, START_TIMEOUT_S)

    def _question(self, profile: Profile) -> probe.Question:
        """The question that judges the link, and not TCP: where that is to be slow, datagrams tell the rate."""
        return probe.question(profile, by_tcp=self._tcp.fills)

    def _load(self, model: str, *, whole: bool = False) -> None:
        """Have all hosts load a model, unless they have it. whole: with the units that no cell has them run."""
        prepared = self._prepared[model]
        loading = self._sender.loading(prepared, whole=whole)
        if loading is self._loaded:
            return
        self._loaded = None
        for role, graph_digest in self._sessions.ask_all(loading.requests, LOAD_TIMEOUT_S).items():
            if graph_digest != prepared.graph_digest:
                than = f"{role} traces another graph of {model} than the driver"
                raise TestbedError(f"{than}: its torch or torchvision is another version")
        self._loaded = loading


def _stages(cell: Cell) -> tuple[object, ...]:
    """The values that each host's stage and its input follow from: cells with the same ones have the same baseline."""
    return cell.model, cell.cuts, cell.batch_size, cell.codec, cell.engine
