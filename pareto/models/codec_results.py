"""A model's results and payloads through codecs and engines, worked out by the driver before a run.

A codec that loses something changes the results, as does an engine that computes with fewer digits. A split through it
must equal the same split in one process: so a wrong split is still found. The cost in quality belongs to split, codec
and engines, not to a trial, so that is worked out here too, over all images of the run.
"""

from __future__ import annotations

import gc
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pareto.partitions.engines import registry
from pareto.partitions.engines.base import Builder, Calibrator, Ranges, refusing
from pareto.partitions.engines.base import Built as BuiltStage
from pareto.partitions.engines.registry import EAGER, EXACT, Engine
from pareto.partitions.entry import Placing
from pareto.partitions.model import PartitionedModel
from pareto.partitions.quality import Answers, Comparison, Quality
from pareto.partitions.stage import Stage
from pareto.remote.backends.base import Tensors, batches, layout, nbytes
from pareto.remote.codecs.registry import NONE, Codec
from pareto.sweep.splits import Split

SIZED = 4
"""Batches whose payloads tell beforehand how many bytes a codec makes of them. A trial counts its own."""
CALIBRATED = 32
"""Inputs whose values tell the ranges by which an engine quantises; all of a run that has fewer."""
Coded = tuple[Split, Codec, Engine]
Built = tuple[str, int, int]
"""An engine, and the points where a stage begins and ends."""


@dataclass(frozen=True)
class Expected:
    """The facts known before a run about a model's results at each split with each codec.

    references: the results with each codec or engine that loses something, as (n, batch, ...): `int8@7.reference0`.
    qualities: of these by `Codec.coded_name`; those of the whole model, and so of all that lose nothing, by `none`.
    wire_shares, codec_s: as `ModelFacts` has them, also of codecs that others come to somewhere. ranges: by which
    stages are quantised.
    """

    references: Mapping[str, Tensor]
    qualities: Mapping[str, Quality]
    wire_shares: Mapping[str, tuple[float, ...]]
    codec_s: Mapping[str, tuple[tuple[float, float], ...]]
    ranges: Mapping[Built, Ranges] = field(default_factory=dict)


def quality_name(codec: Codec, split: Split, by: Engine = EXACT) -> str:
    """Under which name the quality of a cell is. codec: what is at work there. by: as `Engine.lossy` has it."""
    return NONE if codec.lossless and by == EXACT else codec.coded_name(split, by.text)


def accuracies(
    qualities: Mapping[str, Quality],
    model: PartitionedModel,
    splits: Sequence[Split],
    codecs: Sequence[Codec],
    engines: Sequence[Engine] = (EXACT,),
) -> dict[tuple[str, str, Split], float]:
    """The accuracy at each split with what each codec comes to there, and with none, by each engine, if it is known."""
    known = {}
    for split, codec, engine in itertools.product(splits, (Codec(NONE), *codecs), engines):
        there = _at_work(model, split, codec)
        quality = qualities.get(quality_name(there, split, engine.lossy(split, model.last)))
        if quality is not None and quality.accuracy is not None:
            known[there.text, engine.text, split] = quality.accuracy
    return known


def lossy(
    model: PartitionedModel,
    splits: Sequence[Split],
    codecs: Sequence[Codec],
    engines: Sequence[Engine] = (EXACT,),
) -> list[Coded]:
    """Each split with each codec and engine that change its results, without what loses nothing."""
    through: dict[Coded, None] = {}
    for engine, split, codec in itertools.product(engines, splits, codecs):
        there, by = _at_work(model, split, codec), engine.lossy(split, model.last)
        if codec.fits(split, model.last) and (not there.lossless or by != EXACT):
            through[split, there.lossy, by] = None
    return list(through)


def expected(
    model: PartitionedModel,
    data: Mapping[str, Tensor],
    splits: Sequence[Split],
    codecs: Sequence[Codec],
    task: str = "",
    places: Placing | None = None,
    engines: Sequence[Engine] = (EXACT,),
    show: Callable[[str], None] = lambda words: None,
) -> Expected:
    """The results expected of a model at these splits with these codecs and engines, computed a batch at a time.

    data: the inputs as `input0`, `input1`, ... (n, batch, ...), the whole model's answers as `reference0`, ..., and
    `labels` (n, batch) where they are known. task, places: of the model's entry. show: gets words for what takes long.
    Raises EngineError.
    """
    last, through, inputs = model.last, lossy(model, splits, codecs, engines), batches(data, "input")
    eager = [coded for coded in through if coded[2] == EXACT]
    built = sorted((coded for coded in through if coded[2] != EXACT), key=lambda coded: coded[0])
    is_coded = bool(eager) or any(codec.names for codec in codecs)
    cuts = sorted({cut for split in splits for cut in split if cut < last}) if is_coded else []
    references: dict[str, Tensor] = {}
    names = NONE, *(codec.coded_name(split, by.text) for split, codec, by in through)
    compared = {name: Comparison(task) for name in names}
    sizes = _Sizes(model, splits, codecs, cuts)
    whole = [Answers.of(tensors, task, places) for tensors in batches(data, "reference")]
    labels: Sequence[Tensor | None] = list(data["labels"]) if "labels" in data else [None] * len(inputs)
    with ExitStack() as held:
        stages = _Stages(model, inputs, held, show)
        stages.expect(through)

        def keep(coded: Coded, index: int, tensors: Tensors) -> None:
            """Take down what a batch comes to. tensors: behind the first stage."""
            split, codec, by = coded
            results = _rest(stages, tensors, coded, last)
            name = codec.coded_name(split, by.text)
            compared[name].add(Answers.of(results, task, places), whole[index], labels[index])
            for number, tensor in enumerate(results):
                put(references, f"{name}.reference{number}", index, tensor, len(inputs))

        for index, batch in enumerate(inputs):
            compared[NONE].add(whole[index], whole[index], labels[index])
            if not eager and index >= SIZED:
                continue
            payloads: dict[int, Tensors] = {}  # as they cross without a codec
            for start, end in itertools.pairwise((0, *cuts)):
                payloads[end] = stages.run(start, end, payloads.get(start, batch))
            if index < SIZED:
                sizes.add(payloads, len(batch[0]))
            for coded in eager:
                keep(coded, index, payloads[coded[0][0]])
        # Split by split: built stages have weights of their own, which are not to be in memory for all splits at once.
        for coded in built:
            split, _, by = coded
            for index, batch in enumerate(inputs):
                keep(coded, index, stages.run(0, split[0], batch, by.at(0, len(split) + 1)))
            stages.let_go(coded)
    qualities = {name: comparison.quality() for name, comparison in compared.items()}
    return Expected(references, qualities, sizes.shares(), sizes.seconds(), stages.ranges)


def of_split(
    model: PartitionedModel, inputs: Sequence[Tensors], coded: Coded, count: int
) -> tuple[list[Tensors], Codec]:
    """The results of the first batches from the stages of one split, built by its engines, and the codec at work
    between them, through which all went. inputs: more may calibrate. Raises BackendError, EngineError."""
    split, codec, by = coded[0], _at_work(model, *coded[:2]), coded[2]
    codec = Codec(NONE) if codec.file else codec  # the inputs are what is in such files
    with ExitStack() as held:
        stages = _Stages(model, inputs, held, lambda words: None)
        first = [stages.run(0, split[0], batch, by.at(0, len(split) + 1)) for batch in inputs[:count]]
        return [_rest(stages, each, (split, codec, by), model.last) for each in first], codec


def put(batches: dict[str, Tensor], name: str, index: int, batch: Tensor, count: int) -> None:
    """Put a batch in its place among so many, which are one tensor."""
    if name not in batches:
        batches[name] = torch.empty(count, *batch.shape, dtype=batch.dtype)
    batches[name][index] = batch


def _rest(stages: _Stages, tensors: Tensors, coded: Coded, last: int) -> Tensors:
    """The results of a split from what its first stage comes to."""
    split, codec, by = coded
    for position, (cut, end) in enumerate(itertools.pairwise((*split, last)), start=1):
        if cut < last:
            there = codec.for_cut(cut)
            tensors = there.decode(there.encode(tensors), layout(tensors)) if codec.names else tensors
            tensors = stages.run(cut, end, tensors, by.at(position, len(split) + 1))
    return tensors


class _Sizes:
    """How many bytes each codec sends at each point, and how long it takes for that in this process."""

    def __init__(
        self, model: PartitionedModel, splits: Sequence[Split], codecs: Sequence[Codec], cuts: Sequence[int]
    ) -> None:
        at_work = (_at_work(model, split, codec) for split in splits for codec in codecs)
        self._codecs = [codec for codec in dict.fromkeys((*codecs, *at_work)) if codec.names]
        self._points = len(model.points)
        self._raw = dict.fromkeys(cuts, 0)
        self._sent = {codec.text: dict.fromkeys(cuts, 0) for codec in self._codecs}
        self._took_s: dict[str, dict[int, tuple[float, float]]] = {codec.text: {} for codec in self._codecs}

    def add(self, payloads: Mapping[int, Tensors], images: int) -> None:
        for cut, payload in payloads.items():
            self._raw[cut] += nbytes(payload)
            for codec in self._codecs:
                if not codec.fits((cut,), self._points - 1):
                    self._sent[codec.text][cut] += nbytes(payload)
                    continue
                there, began = codec.for_cut(cut), time.perf_counter()
                encoded = there.encode(payload)
                encoded_at = time.perf_counter()
                there.decode(encoded, layout(payload))
                took_s = encoded_at - began, time.perf_counter() - encoded_at
                self._sent[codec.text][cut] += nbytes(encoded)
                encode_s, decode_s = self._took_s[codec.text].get(cut, (math.inf, math.inf))
                least_s = min(encode_s, took_s[0] / images), min(decode_s, took_s[1] / images)
                self._took_s[codec.text][cut] = least_s

    def seconds(self) -> dict[str, tuple[tuple[float, float], ...]]:
        every = range(self._points)
        return {
            text: tuple(took.get(cut, (0.0, 0.0)) for cut in every) for text, took in self._took_s.items()
        }

    def shares(self) -> dict[str, tuple[float, ...]]:
        raw, every = self._raw, range(self._points)
        return {
            text: tuple(sent[cut] / raw[cut] if raw.get(cut) else 1.0 for cut in every)
            for text, sent in self._sent.items()
        }


class _Stages:
    """The stages of a model, each cut once, and built once by each engine. inputs: of the model, in batches."""

    def __init__(
        self, model: PartitionedModel, inputs: Sequence[Tensors], held: ExitStack, show: Callable[[str], None]
    ) -> None:
        self._model, self._held, self._show = model, held, show
        self._inputs = inputs[: math.ceil(CALIBRATED / len(inputs[0][0]))]
        """Those that calibrate."""
        self._known = 0, self._inputs
        """A point, and what crosses there of these inputs."""
        self._awaited: Counter[Built] = Counter()
        """Stages that are built, and by how many splits, codecs and engines they are still needed."""
        self._number = 0
        self._made: dict[Built, Stage] = {}
        self._builders: dict[str, Builder] = {}
        self.ranges: dict[Built, Ranges] = {}

    def run(self, start: int, end: int, tensors: Tensors, engine: str = EAGER) -> Tensors:
        if start == end:
            return tensors
        with torch.inference_mode():
            key = engine, start, end
            if key not in self._made:
                is_eager = engine == EAGER
                self._made[key] = self._model.stage(start, end) if is_eager else self._built(*key, tensors)
            outputs: Tensors = self._made[key](tensors)
        return outputs

    def expect(self, through: Sequence[Coded]) -> None:
        """Take in with what splits, codecs and engines the stages will be run."""
        self._awaited = Counter(stage for coded in through for stage in self._built_for(coded))

    def let_go(self, coded: Coded) -> None:
        """Give back the memory of what was built for it, but for what others still need."""
        for stage in self._built_for(coded):
            self._awaited[stage] -= 1
            if not self._awaited[stage]:
                del self._made[stage]
        gc.collect()  # modules refer to themselves

    def _built_for(self, coded: Coded) -> list[Built]:
        split, _, by = coded
        ends = itertools.pairwise((0, *split, self._model.last))
        at = ((by.at(position, len(split) + 1), *between) for position, between in enumerate(ends))
        return [(engine, start, end) for engine, start, end in at if start < end and engine != EAGER]

    def _built(self, engine: str, start: int, end: int, example: Tensors) -> Stage:
        """The stage as an engine builds it, and quantises it by the ranges that its tensors have in eager."""
        self._number += 1
        which = f"stage {self._number} of {len(self._awaited)}"
        self._show(f"{self._model.name}: building {which} here, by {engine}")
        if engine not in self._builders:
            self._builders[engine] = registry.builder(engine, torch.get_num_threads())
            self._held.callback(self._builders[engine].close)
        builder, stage, key = self._builders[engine], self._model.stage(start, end), (start, end)
        ranges: Ranges = {}
        if isinstance(builder, Calibrator):
            ranges = builder.calibrated(stage, self._calibrating(start), key)
            self.ranges[engine, start, end] = ranges
        with refusing(engine):
            return BuiltStage(stage, builder.build(stage, example, key, ranges))

    def _calibrating(self, start: int) -> Sequence[Tensors]:
        """The calibrating inputs' tensors at a point, from those known at the point asked for before."""
        if start == 0:
            return self._inputs
        since, known = self._known if self._known[0] <= start else (0, self._inputs)
        self._known = start, [self.run(since, start, tensors) for tensors in known]
        return self._known[1]


def _at_work(model: PartitionedModel, split: Split, codec: Codec) -> Codec:
    """The codec that this one comes to at a split."""
    crossing = (spec.dtype for cut in split for spec in model.points[cut].payload)
    return codec.at(frozenset(crossing))
