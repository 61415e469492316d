"""One trial on the first device: warm-up, its phases, and the proof that it was real."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from pareto.partitions import proof
from pareto.partitions.engines.registry import EXACT, Engine
from pareto.partitions.stage import Stage
from pareto.protocol.jsonlines import Refused
from pareto.protocol.trial_messages import (
    Coded,
    Length,
    Offered,
    Phases,
    Progress,
    Requests,
    RunTrial,
    Served,
    TrialReport,
    WrongOutput,
)
from pareto.remote.backends.base import Client, Layout, NoLink, Reply, Tensors, batches, nbytes
from pareto.remote.codecs.registry import NONE, Codec
from pareto.remote.worker import connections, host, open_loop, pace, phases
from pareto.remote.worker.device import Device
from pareto.remote.worker.phases import Phase, Sample
from pareto.remote.worker.served import steady_s

if TYPE_CHECKING:
    from pareto.remote.codecs.camera import Camera  # it needs Pillow

_Columns = TypeVar("_Columns", Coded, Requests, Served)
LEVELS_SHARE = 0.1
"""The share of a codec's change in the results that may differ between two kinds of processors."""
WATCHED_S = 2.0
"""A trial says nothing so long: most are over by then, and none of these is disturbed."""
PROGRESS_S = 1.0
"""Between two reports of how far a phase is."""


@dataclass(frozen=True)
class Data:
    """Inputs, each a batch of all tensors that the model takes, and what the whole model makes of them.

    coded: by `Codec.coded_name`, what the model makes of them in one process, cut there, with what loses something.
    files: what requests begin with in their place, files of these images; each one tensor of bytes.
    """

    inputs: Sequence[Tensors]
    references: Sequence[Tensors]
    coded: Mapping[str, Sequence[Tensors]] = field(default_factory=dict)
    files: Sequence[Tensors] = ()

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Data:
        """The data of a file: (n, batch, ...) of `input0`, ..., `reference0`, ..., `int8@7.reference0`, ..."""
        coded = dict.fromkeys(key.rpartition(".")[0] for key in tensors if "@" in key)
        through = {name: batches(tensors, f"{name}.reference") for name in coded}
        inputs = batches(tensors, "input")
        files = [(tensors[f"file{number}"],) for number in range(len(inputs)) if "file0" in tensors]
        return cls(inputs, batches(tensors, "reference"), through, files)

    @property
    def batch_size(self) -> int:
        return len(self.inputs[0][0])

    def expected(self, codec: Codec | None, cuts: Sequence[int], by: Engine = EXACT) -> Sequence[Tensors]:
        """The results that a split's must equal. by: what of the engine changes results. Raises Refused without."""
        codec = codec or Codec(NONE)
        if codec.lossless and by == EXACT:
            return self.references
        name = codec.coded_name(cuts, by.text)
        if name not in self.coded:
            raise Refused(f"there is no reference for {name}")
        return self.coded[name]

    def tolerance(self, expected: Sequence[Tensors], by: Engine = EXACT) -> float:
        """The largest error of a right result, as `proof.max_error` says it. On another kind of processor a value that
        lies between two levels of a quantiser may fall on the other one: a small share of what changes is allowed."""
        changed = self.changed(expected)
        levels = max(LEVELS_SHARE, by.differs) * changed
        return max(proof.TOLERANCE, levels) if math.isfinite(changed) else proof.TOLERANCE

    def changed(self, expected: Sequence[Tensors]) -> float:
        """The error that codec and engine make of the whole model's answers; where it is infinite, none is right."""
        if expected is self.references:
            return 0.0
        return max(itertools.starmap(proof.max_error, zip(self.references, expected, strict=True)))


class Decoder:
    """A client whose results come encoded, and leave it decoded, to this layout."""

    def __init__(self, client: Client, codec: Codec, takes: Layout) -> None:
        self._client, self._codec, self._takes, self.copies = client, codec, takes, client.copies
        self.open, self.send, self.warm, self.close = client.open, client.send, client.warm, client.close

    def receive(self) -> Reply:
        reply = self._client.receive()
        began = time.perf_counter()
        tensors = self._codec.decode(reply.tensors, self._takes)
        return reply._replace(tensors=tensors, decode_s=time.perf_counter() - began)


def run(
    client: Client,
    device: Device,
    stage: Stage,
    data: Data,
    request: RunTrial,
    codec: Codec | None = None,
    camera: Camera | None = None,
    by: Engine = EXACT,
    so_far: Callable[[Progress], None] | None = None,
) -> TrialReport | WrongOutput:
    """Run a trial's phases; nothing is timed if the warm-up's results are not the whole model's. camera: reads the
    data's files. by: what of the engines changes results. so_far: gets how far a trial is that takes long."""
    tells = functools.partial(_tells, so_far, time.perf_counter() + WATCHED_S)
    expected = data.expected(codec, request.split.cuts, by)
    compute = functools.partial(device.run, stage)
    peak = host.PeakMemory()
    peak.begin()
    alone = isinstance(client, NoLink)
    connected = connections.to(request.peer)
    payload = compute(data.inputs[0])
    tolerance = data.tolerance(expected, by)
    inputs, decode, encode = data.inputs, None, None
    sends_files = bool(data.files) and codec is not None and codec.file
    if data.files:
        assert camera is not None  # noqa: S101
        inputs = data.files
        decode = None if sends_files else functools.partial(camera.read, images=data.batch_size)
    if not alone and codec is not None and codec.names and not sends_files:
        encode = codec.encode
    elif not alone and (data.files or (codec is not None and codec.back)):
        encode = _as_it_is
    payload_bytes = 0 if alone else nbytes(payload)
    if encode is not None:
        encode(payload)
    edge = phases.Edge(client, compute, inputs, encode, decode)
    warm = phases.latency(edge, Length(request.warmup_requests, 0.0), tells("warming up"))
    error = max(_error([warm], expected), 0.0 if math.isfinite(data.changed(expected)) else math.inf)
    if not error <= tolerance:
        return WrongOutput(error, tolerance)
    device.forget()
    before = host.counters(request.interface)
    lone = phases.latency(edge, request.latency, tells("latency"))
    prefetch = request.prefetch if decode is not None else 0
    depth, pace_s = pacing(lone, request.transfer_s, request.in_flight, ahead=prefetch > 0)
    many = phases.throughput(edge, request.throughput, pace_s, depth, prefetch, tells("throughput"))
    load = None
    if request.arrivals is not None:
        load = open_loop.offered(edge, request.arrivals, depth, tells("load"))
    after = host.counters(request.interface)
    every = [*lone.samples, *many.samples, *(load.phase.samples if load else [])]
    # Looked at where nothing is timed: the retransmissions are those of the warm-up's few requests, too.
    tcp = None if alone else connections.carried(connected, connections.to(request.peer))
    return TrialReport(
        **figures(lone, many, data.batch_size, load),
        gpu_s=device.gpu_s(),
        payload_bytes=payload_bytes,
        result_bytes=0 if alone else nbytes(lone.outputs[0][1]),
        max_abs_error=_error([warm, lone, many, *([load.phase] if load else [])], expected),
        tolerance=tolerance,
        coded=_columns(Coded, every) if (encode or decode) is not None else None,
        **after.traffic_since(before),
        cpu_percent=100 * (after.cpu_s - before.cpu_s) / (after.clock_s - before.clock_s),
        rss_bytes=host.resident_bytes(),
        peak_rss_bytes=peak.nbytes(),
        trial_window=(before.clock_s, after.clock_s),
        measured_s=after.clock_s - before.clock_s,
        tcp=tcp,
    )


def _tells(so_far: Callable[[Progress], None] | None, from_s: float, phase: str) -> Callable[[int], None]:
    """The reporter of a phase's requests: its beginning, then once in `PROGRESS_S` at most; nothing before `from_s`."""
    if so_far is None:
        return lambda requests: None
    due_s = from_s

    def seen(requests: int) -> None:
        nonlocal due_s
        now = time.perf_counter()
        if now >= due_s:
            due_s = now + PROGRESS_S
            so_far(Progress(phase, requests))

    return seen


def pacing(
    lone: Phase, transfer_s: float, in_flight: int | None, *, ahead: bool = False
) -> tuple[int, float]:
    """How many requests to keep in flight, and the foreseen seconds from one completion to the next. lone: the latency
    phase. transfer_s, in_flight: as in `RunTrial`. ahead: whether inputs are decoded ahead."""
    decodes_s = [sample.decode_s if ahead else 0.0 for sample in lone.samples]
    each = list(zip(lone.samples, decodes_s, strict=True))
    busy_s = statistics.median(sample.busy_s - decode_s for sample, decode_s in each)
    latency_s = statistics.median(sample.latency_s - decode_s for sample, decode_s in each)
    slowest_s = max(statistics.median(decodes_s), busy_s, *_per_stage(lone), transfer_s)
    depth = in_flight or pace.in_flight(latency_s, slowest_s)
    return depth, max(slowest_s, latency_s / depth)


def figures(
    lone: Phase, many: Phase, batch_size: int, load: open_loop.Offered | None = None
) -> dict[str, Any]:
    """The latency and throughput of the two phases: the fields of a TrialReport that come from their times."""
    edge_s, *stages_s = _per_stage(lone)
    throughput_window, counted = phases.window(many)
    runs = phases.edge_runs(many)[-1]
    best_s = steady_s(runs, counted)
    span_s, rate_ips = runs[counted][1] - runs[0][1], phases.rate(many, batch_size)
    return {
        "latency_s": statistics.median(sample.latency_s for sample in lone.samples),
        "latency_p95_s": phases.p95_s(lone.samples),
        "loaded_latency_s": statistics.median(sample.latency_s for sample in phases.loaded(many)),
        "loaded_latency_p95_s": phases.p95_s(phases.loaded(many)),
        "edge_s": edge_s,
        "work_s": statistics.median(
            each.busy_s + each.result_s + sum(each.stages_s) for each in lone.samples
        ),
        "serialize_s": statistics.median(sample.serialize_s for sample in lone.samples),
        "stages_s": tuple(stages_s),
        "throughput_ips": pace.paced(rate_ips, batch_size, best_s, counted / span_s),
        "sequential_ips": len(lone.samples) * batch_size / sum(sample.latency_s for sample in lone.samples),
        "steady_s": best_s,
        "in_flight": many.depth,
        "prefetch": many.prefetch,
        "throughput_window": throughput_window,
        "throughput_window_requests": counted,
        "throughput_busy_s": phases.busy_s(many),
        "requests": Phases(
            _columns(Requests, lone.samples), _columns(Requests, many.samples), _offered(load)
        ),
    }


def _offered(load: open_loop.Offered | None) -> Offered | None:
    return Offered(_columns(Served, load.phase.samples), load.dropped_s, load.late_s) if load else None


def _per_stage(phase: Phase) -> list[float]:
    times = ((sample.edge_s, *sample.stages_s) for sample in phase.samples)
    return [statistics.median(column) for column in zip(*times, strict=True)]


def _error(measured: Sequence[Phase], expected: Sequence[Tensors]) -> float:
    """The largest error of any result of the trial against what it must be, as `proof.max_error` says it."""
    errors = (
        proof.max_error(output, expected[which]) for phase in measured for which, output in phase.outputs
    )
    return max(errors, default=0.0)


def _as_it_is(tensors: Tensors) -> Tensors:
    return tensors


def _columns(kind: type[_Columns], samples: Sequence[Sample]) -> _Columns:
    """The samples as columns of this kind: what it has fields for."""
    return kind(**{each.name: [getattr(sample, each.name) for sample in samples] for each in fields(kind)})
