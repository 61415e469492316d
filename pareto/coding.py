"""What codecs make of a model's results and payloads, worked out by the driver in one process, before a run.

A codec that loses something changes the results. What a split through it must be equal to is the same split through the
same codec in one process: so a wrong split is still found.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from pareto.backends.base import Tensors, layout
from pareto.codecs.registry import Codec
from pareto.splits import Split
from partitions.model import PartitionedModel
from partitions.stage import Stage

SIZED = 4
"""Batches whose payloads tell beforehand how many bytes a codec makes of them. A trial counts its own."""


def lossy(model: PartitionedModel, split: Split, codecs: Sequence[Codec]) -> list[Codec]:
    """The codecs that change the results of a split, each once, without their steps that lose nothing."""
    last = len(model.points) - 1
    at_work = (_at_work(model, split, codec) for codec in codecs if codec.fits(split, last))
    return list(dict.fromkeys(codec.lossy for codec in at_work if not codec.lossless))


def _at_work(model: PartitionedModel, split: Split, codec: Codec) -> Codec:
    """What a codec comes to at a split."""
    crossing = (spec.dtype for cut in split for spec in model.points[cut].payload)
    return codec.at(frozenset(crossing))


def references(
    model: PartitionedModel, inputs: Tensor, splits: Sequence[Split], codecs: Sequence[Codec]
) -> dict[str, Tensor]:
    """The results of each split with each codec that loses something, as (n, batch, ...): `int8@7.reference0`.

    inputs: (n, batch, ...) in the model's input dtype.
    """
    cuts, last = _cuts(model, splits), len(model.points) - 1
    made: dict[str, Tensor] = {}
    through = [(split, codec) for split in splits for codec in lossy(model, split, codecs)]
    if not through:
        return made
    stages = _Stages(model)
    for index, batch in enumerate(inputs):
        payloads = dict(_payloads(stages, batch, cuts))
        for split, codec in through:
            tensors = payloads[split[0]]
            for cut, end in itertools.pairwise((*split, last)):
                if cut < last:
                    there = codec.for_cut(cut)
                    tensors = there.decode(there.encode(tensors), layout(tensors))
                    tensors = stages.run(cut, end, tensors)
            for number, tensor in enumerate(tensors):
                name = f"{codec.coded_name(split)}.reference{number}"
                if name not in made:
                    made[name] = torch.empty(len(inputs), *tensor.shape, dtype=tensor.dtype)
                made[name][index] = tensor
    return made


def wire_shares(
    model: PartitionedModel, inputs: Tensor, splits: Sequence[Split], codecs: Sequence[Codec]
) -> dict[str, tuple[float, ...]]:
    """By codec, the share of each point's payload that it sends; 1 where it is not used. inputs: as above.

    Codecs that others come to somewhere are among them.
    """
    cuts, stages, last = _cuts(model, splits), _Stages(model), len(model.points) - 1
    at_work = (_at_work(model, split, codec) for split in splits for codec in codecs)
    codecs = [codec for codec in dict.fromkeys((*codecs, *at_work)) if codec.names]
    raw = dict.fromkeys(cuts, 0)
    sent = {codec.text: dict.fromkeys(cuts, 0) for codec in codecs}
    for batch in inputs[:SIZED]:
        for cut, payload in _payloads(stages, batch, cuts):
            raw[cut] += _nbytes(payload)
            for codec in codecs:
                used = codec.fits((cut,), last)
                sent[codec.text][cut] += _nbytes(codec.for_cut(cut).encode(payload) if used else payload)
    return {
        text: tuple(each[cut] / raw[cut] if raw.get(cut) else 1.0 for cut in range(len(model.points)))
        for text, each in sent.items()
    }


class _Stages:
    """The stages of a model, each cut once."""

    def __init__(self, model: PartitionedModel) -> None:
        self._model = model
        self._made: dict[tuple[int, int], Stage] = {}

    def run(self, start: int, end: int, tensors: Tensors) -> Tensors:
        if (start, end) not in self._made:
            self._made[start, end] = self._model.stage(start, end)
        with torch.inference_mode():
            outputs: Tensors = self._made[start, end](tensors)
        return outputs


def _cuts(model: PartitionedModel, splits: Sequence[Split]) -> list[int]:
    """The points at which something crosses a link, in order."""
    return sorted({cut for split in splits for cut in split if cut < len(model.points) - 1})


def _payloads(stages: _Stages, batch: Tensor, cuts: Sequence[int]) -> Iterator[tuple[int, Tensors]]:
    """What crosses at each of these points, without a codec."""
    tensors: Tensors = (batch,)
    for start, end in itertools.pairwise((0, *cuts)):
        if start < end:
            tensors = stages.run(start, end, tensors)
        yield end, tensors


def _nbytes(tensors: Tensors) -> int:
    return sum(tensor.nbytes for tensor in tensors)
