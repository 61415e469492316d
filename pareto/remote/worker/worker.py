"""One device of a testbed: what it has loaded, what it is connected to, and how it answers each request."""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from pareto.partitions import model as partitioned
from pareto.partitions import weights
from pareto.partitions.engines import registry as engines
from pareto.partitions.engines.base import Builder, EngineError, Ranges, refusing
from pareto.partitions.graph import TensorSpec
from pareto.partitions.model import ResidentStage
from pareto.partitions.recipe import Recipe
from pareto.partitions.stage import Stage
from pareto.protocol import messages, profile_messages
from pareto.protocol.errors import BackendError
from pareto.protocol.jsonlines import Refused, send_so_far
from pareto.protocol.messages import Split
from pareto.protocol.trial_messages import GetUsage, RunTrial, TrialReport, Usage, WrongOutput
from pareto.protocol.validation import read
from pareto.remote.backends import base, registry, tls, wire
from pareto.remote.backends.base import Client, Layout, NoLink, Server, Tensors, batches, fingerprint
from pareto.remote.codecs import own
from pareto.remote.codecs import registry as codecs
from pareto.remote.link.probe import ConnectProbe, OpenProbe, Question
from pareto.remote.worker import codings, connections, host, payloads, trial, units
from pareto.remote.worker.device import Device, facts, refused_out_of_memory
from pareto.remote.worker.phases import Compute
from pareto.remote.worker.probe import Prober
from pareto.remote.worker.served import NO_REQUEST, Runs, ServedStage, baseline_s

if TYPE_CHECKING:
    from pareto.remote.codecs.camera import Camera


class Worker:
    """This device's model, data and connections; each public method answers one request."""

    def __init__(self, device: Device, congestion: str | None = None) -> None:
        """`congestion`: the congestion control of every connection; None: what the routes or this host say."""
        self._device, self._congestion = device, congestion
        self._threads = torch.get_num_threads()
        self._digest = ""
        self._own: dict[str, own.Received] = {}
        """By name, the user's own codecs."""
        self._file_bytes = 0
        self._model: tuple[partitioned.Outline, ResidentStage] | None = None
        self._staged: Split | None = None
        self._data: dict[int, trial.Data] = {}
        self._builders: dict[str, Builder] = {}
        """By engine, what builds this model's stages; none of `eager`."""
        self._servers: dict[str, Server] = {}
        self._runs = Runs()
        self._clients: dict[str, Client] = {}
        self.payloads = payloads.Ends(
            lambda backend: self._clients[backend],
            lambda backend: self._servers[registry.parse(backend).server],
        )
        self.prober = Prober()
        self._rendezvous: socket.socket | None = None
        self._joined = ""
        """The backend whose agent this host has joined to the others'."""
        self._since = (time.perf_counter(), time.process_time())
        self._peak = host.PeakMemory()
        self._before: host.Counters | None = None

    def facts(self, request: messages.GetFacts) -> messages.Facts:
        return facts(self._device, self._congestion)

    def load(self, request: messages.LoadModel) -> str:
        files = [Path(file) for file in request.weights]
        for file, digest in zip(files, request.weights.values(), strict=True):
            if weights.file_digest(file) != digest:
                file.unlink()  # else it would pass for sent for ever
                raise Refused(f"{file.name} arrived damaged")
        if self._model is not None:
            self._hold(self._model[1], 0, 0)  # let go of the old one first: a small device cannot hold two
            gc.unfreeze()
        self._model = None
        self.forget_engines()
        self._data.clear()
        gc.collect()  # graphs and their modules refer to each other
        recipe = read(Recipe, request.recipe)
        model = partitioned.outline(recipe)
        self._model = model, ResidentStage(model, files, self._device.name)
        self._digest = request.digest
        self._own = {each.own.name: own.Received(each, recipe.name) for each in request.codecs}
        self._file_bytes = request.file_bytes
        every = (trial.Data.of(_copied(path)) for path in request.data)
        self._data = {data.batch_size: data for data in every}
        gc.collect()
        gc.freeze()  # what the model consists of stays: it need not be looked through before each trial
        return model.graph_digest

    def listen(self, request: messages.Listen) -> dict[str, int]:
        probe = self.prober.listen(OpenProbe(request.address, request.token))
        base.load_own(request.own)
        self._servers = base.servers(request.address, request.token, request.keys, request.backends)
        self._set_congestion()
        ports = {name: server.port for name, server in self._servers.items() if server.port is not None}
        return {**ports, "probe": probe}

    def connect(self, request: messages.Connect) -> None:
        for client in self._clients.values():
            client.close()
        self._clients = {}
        base.load_own(request.own)
        seal = tls.Tls.of(request.keys)
        for text in request.backends:
            name = registry.parse(text)
            if not name.agent:
                to = request.address, request.ports[name.server], request.token, name.variant
                to_seal = (seal,) if name.seal else ()  # a user's own backend need not know of it
                self._clients[text] = base.backend(name.name).connect(*to, *to_seal)
        self.prober.connect(ConnectProbe(request.address, request.ports["probe"], request.token))
        self._set_congestion()

    def rendezvous(self, request: messages.OpenRendezvous) -> int:
        self._rendezvous = socket.create_server((request.address, 0))
        return int(self._rendezvous.getsockname()[1])

    def join(self, request: messages.JoinAgents) -> None:
        if self._joined:
            base.backend(self._joined).leave()
        name = registry.parse(request.backend).name
        client = base.backend(name).join(request, self._rendezvous)
        self._joined = name
        self._set_congestion()
        if client is not None:
            self._clients[request.backend] = client

    def warm(self, request: messages.WarmUp) -> float:
        started = time.perf_counter()
        self._clients[request.backend].warm(request.nbytes)
        took_s = time.perf_counter() - started
        self._set_congestion()  # rpc connects at its first request
        return took_s

    def stage(self, request: messages.LoadStage) -> messages.StageLoaded:
        split, position = request.split, request.position
        model, resident = self._loaded()
        start, end = split.units(position, model.last)
        codec, engine = self._codec(split.codec), _engine(split, position, self._device)
        self._hold(resident, start, end)
        if torch.get_num_threads() != self._threads:  # a model's own code may set it
            torch.set_num_threads(self._threads)
        takes = _layout(model.points[start].payload, split.batch_size)
        engine_s = self._build(engine, (start, end, takes), request.ranges) if start < end else None
        gc.collect()  # between trials: in a request it would be charged to that
        run_s = self._warm_up(resident.stage, self._example(takes)) if start < end else 0.0
        self._runs = Runs()
        if position > 0 and split.reaches(position, model.last):
            comes, coding = takes, list[Compute | None]()
            if codec is not None:
                sends_on = split.reaches(position + 1, model.last)
                comes_by = codec.for_cut(split.cuts[position - 1])
                goes_by = codec.for_cut(split.cuts[position]) if sends_on else codec.back
                coding = [partial(comes_by.decode, layout=takes), goes_by.encode if goes_by else None]
                comes = comes_by.encoded(takes)
                with suppress(BackendError):  # a user's own may not like zeros
                    # Its library is imported.
                    comes_by.decode(comes_by.encode(self._example(takes)), takes)
            name = self._fingerprint(split, position)
            served = ServedStage(self._device, resident, self._runs, name, comes, *coding)
            self._servers[registry.parse(split.backend).server].serve(served, self._onward(split, position))
        self._staged = split
        self._device.forget()
        self._peak.begin()
        self._before = host.counters(request.interface) if request.interface else None
        return messages.StageLoaded(resident.nbytes, run_s, engine_s)

    def baseline(self, request: messages.MeasureBaseline) -> float | None:
        model, resident = self._loaded()
        split = request.split
        start, end = split.units(request.position, model.last)
        if start == end:
            return None
        example = self._example(_layout(model.points[start].payload, split.batch_size))
        try:
            return baseline_s(lambda: self._device.run(resident.stage, example))
        finally:
            self._device.forget()

    def units(self, request: profile_messages.TimeUnits) -> profile_messages.UnitRuns:
        model, resident = self._loaded()
        self._hold(resident, 0, model.last)
        gc.collect()
        tensors = units.example(_layout(model.points[0].payload, request.batch_size))
        try:
            return units.timed(self._device, resident, tensors, request)
        finally:
            self._device.forget()
            gc.collect()  # the marked stages: graphs and their modules refer to each other

    def coded(self, request: profile_messages.TimeCodecs) -> profile_messages.CodecRuns:
        _, resident = self._loaded()
        known = {text: self._codec(text) for text in dict.fromkeys(text for _, text in request.coded)}
        self._hold(resident, 0, 0)
        gc.collect()
        inputs = batches(_copied(request.data), "input")
        try:
            return codings.timed(self._device, resident, inputs, request, known)
        finally:
            self._hold(resident, 0, 0)
            self._device.forget()
            gc.collect()

    def roofline(self, request: profile_messages.MeasureRoofline) -> profile_messages.Roofline:
        return units.roofline(self._device, request.cpu)

    def trial(self, request: RunTrial) -> TrialReport | WrongOutput:
        split = request.split
        model, resident = self._loaded()
        if self._staged != split:
            raise Refused(f"{split} is not what was staged")
        client = self._onward(split, 0) or NoLink()
        data, codec = self._data[split.batch_size], self._codec(split.codec)
        here = codec and codec.for_cut(split.cuts[0])
        eye = self._camera() if data.files else None
        by = engines.parse(split.engine).lossy(split.cuts, model.last)
        so_far = send_so_far if request.is_watched else None
        return trial.run(client, self._device, resident.stage, data, request, here, eye, by, so_far)

    def usage(self, request: GetUsage) -> Usage:
        clock, cpu = self._since
        self._since = (time.perf_counter(), time.process_time())
        last = self._runs.last(request.requests, request.steady)
        traffic: dict[str, Any] = dict.fromkeys(host.TRAFFIC)
        if self._before is not None:  # on the interface to the host behind, since `stage`
            traffic = host.counters(self._before.interface).traffic_since(self._before)
        return Usage(
            cpu_percent=100 * (self._since[1] - cpu) / (self._since[0] - clock),
            rss_bytes=host.resident_bytes(),
            peak_rss_bytes=self._peak.nbytes(),
            gpu_s=self._device.gpu_s(),
            trial_window=self._runs.trial_window(),
            throughput_window=(last[0][1], last[-1][1]) if last else None,
            throughput_window_requests=len(last) - 1 if last else None,
            throughput_busy_s=sum(ended - began for began, ended in last[1:]) if last else None,
            steady_s=self._runs.steady_s(max(0, request.steady - 1)),
            coded=self._runs.coded(request.coded),
            **traffic,
        )

    def _hold(self, resident: ResidentStage, start: int, end: int) -> None:
        """Hold another stage in memory, and serve none until that one is served, even if this fails."""
        self._staged = None
        for builder in self._builders.values():
            builder.release()
        for server in self._servers.values():
            server.serve(ServedStage(self._device, resident, Runs(), NO_REQUEST))
        resident.change(start, end)

    def _build(self, engine: str, key: tuple[int, int, Layout], ranges: Ranges) -> float | None:
        """Have an engine build the stage that is held; the seconds that it took. None for `eager`. Raises Refused."""
        if engine == engines.EAGER:
            return None
        _, resident = self._loaded()
        example = self._example(key[2])
        started, is_new, to = time.perf_counter(), engine not in self._builders, self._device.name
        try:
            if is_new:
                self._builders[engine] = engines.builder(engine, torch.get_num_threads())
            with refused_out_of_memory(), self._device.current(), refusing(engine):
                on_device = tuple(each.to(to) for each in example)
                resident.run_by(self._builders[engine].build(resident.stage, on_device, key, ranges))
        except EngineError as error:
            raise Refused(str(error)) from error
        took_s = time.perf_counter() - started
        if is_new:
            gc.collect()
            gc.freeze()  # what it has imported stays, too
        return took_s

    def forget_engines(self) -> None:
        """Let go of all that engines built, and remove their files."""
        while self._builders:
            self._builders.popitem()[1].close()

    def _onward(self, split: Split, position: int) -> Client | None:
        """The client that sends this host's outputs to the host behind; None where the result is complete here."""
        model, _ = self._loaded()
        if not split.reaches(position + 1, model.last):
            return None
        client, takes = self._clients[split.backend], _layout(model.results, split.batch_size)
        back = (codec := self._codec(split.codec)) and codec.back
        client.open(self._fingerprint(split, position + 1), back.encoded(takes) if back else takes)
        return client if position or not back else trial.Decoder(client, back, takes)

    def _set_congestion(self) -> None:
        if self._congestion is not None:
            connections.set_congestion(self._congestion)

    def _warm_up(self, stage: Stage, tensors: Tensors) -> float:
        """Run the stage until memory is allocated and kernels are chosen; the seconds of the last run."""
        for _ in range(self._device.warm_ups):
            started = time.perf_counter()
            self._device.run(stage, tensors)
        return time.perf_counter() - started

    def _example(self, takes: Layout) -> Tensors:
        """An input for a warm-up: on the edge one of the model's, elsewhere zeros."""
        data = self._data.get(takes[0][1][0])
        return data.inputs[0] if data else tuple(map(torch.zero_, wire.empty(wire.form(takes))))

    def _loaded(self) -> tuple[partitioned.Outline, ResidentStage]:
        if self._model is None:
            raise Refused("no model is loaded")
        return self._model

    def _fingerprint(self, split: Split, position: int) -> bytes:
        graph_digest = self._loaded()[0].graph_digest
        codec = " ".join([split.codec, *(each.digest for each in self._own.values())])
        stage = split.cuts, position, split.batch_size
        return fingerprint(self._digest, graph_digest, *stage, codec, split.engine)

    def _camera(self) -> Camera:
        from pareto.remote.codecs.camera import Camera, crop_for  # it takes a moment, and needs Pillow

        model, _ = self._loaded()
        channels, height, width = model.inputs[0].shape
        return Camera(crop_for(model.name, (channels, height, width)), self._file_bytes)

    def _codec(self, text: str) -> codecs.Codec | None:
        """The codec of this name; None where payloads are sent as they are. Raises Refused."""
        try:
            codec = codecs.parse(text, self._own)
        except ValueError as error:
            raise Refused(str(error)) from None
        if lacks := codec.missing:
            raise Refused(f"codec {codec.text} needs the package {lacks}, which this host lacks: install it")
        if codec.file:
            codec = codec.bound({0: self._camera()})
        if codec.own is not None:
            codec = codec.bound(self._own[codec.own.name])
        return codec if codec.names or codec.back else None


def _copied(path: str) -> dict[str, Tensor]:
    """The tensors of a file, copied out of its mapping, in which they lie at odd addresses."""
    return {key: tensor.clone() for key, tensor in load_file(path).items()}


def _layout(specs: Sequence[TensorSpec], batch_size: int) -> Layout:
    return tuple((spec.dtype, spec.at(batch_size)) for spec in specs)


def _engine(split: Split, position: int, device: Device) -> str:
    """The engine of the host at a position, which computes on that device. Raises Refused."""
    try:
        engine = engines.parse(split.engine).at(position, len(split.cuts) + 1)
    except ValueError as error:
        raise Refused(str(error)) from None
    if lacks := engines.missing(engine, device.name, device.capability()):
        raise Refused(f"this host has no {engine}: {lacks}")
    return engine


def answers(worker: Worker) -> messages.Answers:
    return {
        messages.GetFacts: worker.facts,
        messages.LoadModel: worker.load,
        messages.Listen: worker.listen,
        messages.Connect: worker.connect,
        messages.OpenRendezvous: worker.rendezvous,
        messages.JoinAgents: worker.join,
        messages.WarmUp: worker.warm,
        messages.LoadStage: worker.stage,
        messages.MeasureBaseline: worker.baseline,
        profile_messages.TimeUnits: worker.units,
        profile_messages.TimeCodecs: worker.coded,
        profile_messages.MeasureRoofline: worker.roofline,
        profile_messages.Expect: worker.payloads.expect,
        profile_messages.GetTaken: worker.payloads.taken,
        profile_messages.TimePayloads: worker.payloads.time,
        RunTrial: worker.trial,
        GetUsage: worker.usage,
        Question: worker.prober.probe,
    }
