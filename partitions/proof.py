"""The proof that a split model computes what the whole model computes, and the words for it."""

from __future__ import annotations

import gc
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx

from pareto.errors import one_line

from . import allocator, points, registry, scratch, weights
from . import model as partitioned
from .graph import named_tensors, propagate, tensors_in
from .model import PartitionedModel
from .points import Point
from .recipe import Cuts, Recipe
from .stage import Payload, Stage
from .tracing import normalized

RELATIVE_TOLERANCE = 1e-4
CHAINS = 5  # at so many points, spread over a model, a chain of three stages is tried too
LIMIT_S = 1800.0
"""A proof that would take longer is left out where several models are proved."""
NO = "no"
Shape = tuple[int, ...]

_SIDES = (64, 96, 128)
_FAULTS = (RuntimeError, ValueError, TypeError, AssertionError)


@dataclass(frozen=True)
class PointProof:
    """The result of the proof at a point.

    error: the largest absolute difference between the outputs of the split and the whole model. bitwise: whether they
    are equal to the last bit. parted: whether each stage holds its own parameters and buffers and no others, and all
    stages together hold those of the whole model, each once.
    """

    point: int
    error: float
    bitwise: bool
    parted: bool


def reference(model: PartitionedModel, *inputs: Tensor) -> Payload:
    """The whole model's outputs for a batch of what it takes; images in its input dtype.

    The module itself computes them, on the same weights, because the graph is part of what is to be proved. The
    tensors come in the order of `Outline.results`.
    """
    entry = registry.entry(model.name)
    with torch.inference_mode():
        # A model may work in place, but not on what is the caller's.
        if entry.make_inputs is None and inputs[0].dtype == torch.uint8:
            own = [normalized(inputs[0], entry.mean, entry.std)]
        else:
            own = [one.clone() for one in inputs]
        return tuple(tensors_in(entry.call(model.eager, own)))


def prove(model: PartitionedModel, *inputs: Tensor) -> Iterator[PointProof]:
    """The proof of each point: the model is cut there, at some points into three, and compared with the whole.

    inputs: as for `reference`. No more than two stages and one copy of their weights are in memory at a time.
    """
    expected = reference(model, *inputs)
    last = len(model.points) - 1
    threes = {round(place * last / (CHAINS + 1)) for place in range(1, CHAINS + 1)} - {0, last}
    for point in range(last + 1):
        chains = [(0, point, last), *([(0, point, (point + last + 1) // 2, last)] if point in threes else [])]
        proofs = [_tried(model, chain, inputs, expected) for chain in chains]
        yield PointProof(
            point,
            max(proof.error for proof in proofs),
            all(proof.bitwise for proof in proofs),
            all(proof.parted for proof in proofs),
        )


def _tried(model: PartitionedModel, chain: Sequence[int], inputs: Payload, expected: Payload) -> PointProof:
    """The proof of a split at the inner points of `chain`, whose first and last are those of the model."""
    payload = inputs
    parted, held = True, list[int]()
    for start, end in itertools.pairwise(chain):
        stage = model.stage(start, end)
        own = _addresses(stage)
        parted = parted and own == sorted(model.state[path].data_ptr() for path in model.paths(start, end))
        held += own
        with torch.inference_mode():
            payload = stage(payload)
    whole = sorted(model.state[path].data_ptr() for path in model.paths(chain[0], chain[-1]))
    return PointProof(
        chain[1], max_abs_error(payload, expected), _same(payload, expected), parted and sorted(held) == whole
    )


def _addresses(stage: Stage) -> list[int]:
    return sorted(tensor.data_ptr() for _, tensor in named_tensors(stage))


def _same(outputs: Payload, references: Payload) -> bool:
    alike = len(outputs) == len(references)
    return alike and all(torch.equal(*pair) for pair in zip(outputs, references, strict=True))


def max_abs_error(outputs: Sequence[Tensor], references: Sequence[Tensor]) -> float:
    """Largest absolute difference; infinity where shapes or dtypes differ or a value is not finite."""
    if len(outputs) != len(references):
        return math.inf
    return max(itertools.starmap(_max_abs_error, zip(outputs, references, strict=True)), default=0.0)


def _max_abs_error(output: Tensor, reference: Tensor) -> float:
    if output.shape != reference.shape or output.dtype != reference.dtype:
        return math.inf
    output, reference = output.detach().cpu().double(), reference.detach().cpu().double()
    if not (output.isfinite().all() and reference.isfinite().all()):
        return math.inf
    return float((output - reference).abs().max()) if output.numel() else 0.0


def tolerance(references: Sequence[Tensor]) -> float:
    """The largest error that is still equality: 1e-4 x max(1, max |reference|).

    On one kind of device a split model is equal to the last bit. Another kind of CPU or an accelerator uses other
    algorithms with other summation orders; over a deep network in float32 they differ by some 1e-6 of the largest
    value. A wrong cut or wrong weights are off by the order of the value itself.
    """
    largest = max((float(one.detach().abs().max()) for one in references if one.numel()), default=0.0)
    return RELATIVE_TOLERANCE * max(1.0, largest)


# The proof of a whole model, in words: `bitwise`, `within 1e-6`, `no: ...`, `not proved: ...`


def each(recipe: Recipe) -> list[PointProof]:
    """The proof of each point of a model, with an image of the model's own size, or its author's inputs."""
    with _loaded(recipe) as model:
        return list(prove(model, *_inputs(model, model.input_shape)))


def all_at_once(recipe: Recipe) -> str:
    """The proof of all points between blocks and of all cuts with up to three tensors, in a few words.

    The images are as small as the model takes them, because the cuts do not depend on their size and most models would
    take hours with images of their own size.
    """
    with _loaded(replace(recipe, cuts=Cuts("op", 3))) as loaded:
        model = replace(loaded, points=_united(loaded))
        if registry.entry(model.name).make_inputs is not None:
            return _proved(model, model.input_shape)
        channels, *own = model.input_shape
        smaller = ((channels, side, side) for side in _SIDES if side < min(own))
        small = next((shape for shape in smaller if _fits(model, shape)), None)
        words = _proved(model, small) if small else ""
        return words if words and not words.startswith(f"{NO}:") else _proved(model, model.input_shape)


def _fits(model: PartitionedModel, shape: Shape) -> bool:
    """Whether the graph is also one for images of this size."""
    (images,) = model.traced.inputs
    graph = fx.GraphModule(model.traced.module, images.graph)
    example = torch.empty(1, *shape, dtype=model.traced.values[images].dtype, device="meta")
    try:
        for _ in propagate(graph, example):
            pass
    except _FAULTS:
        return False
    return True


def _proved(model: PartitionedModel, shape: Shape) -> str:
    """The proof of all points with one input, if it is an image of this size, in a few words."""
    try:
        inputs, worst, words = _inputs(model, shape), 0.0, "bitwise"
        began = time.perf_counter()
        reference(model, *inputs)
        expected_s = len(model.points) * (time.perf_counter() - began)
        if expected_s > LIMIT_S:
            return f"not proved: about {expected_s / 3600:.1f} h"
        for point in prove(model, *inputs):
            if word(point) == NO:
                return f"{NO}: {fault(model.points[point.point], point)}"
            if not point.bitwise and point.error >= worst:
                worst, words = point.error, word(point)
        return words if registry.entry(model.name).make_inputs else f"{words}, {shape[1]} px"
    except _FAULTS as error:
        return f"{NO}: {one_line(error)}"


def word(proven: PointProof) -> str:
    """Whether a point is proved, and how closely: `bitwise`, `within 1e-6`, `no`."""
    if not proven.parted or proven.error > RELATIVE_TOLERANCE:
        return NO
    if proven.bitwise:
        return "bitwise"
    return f"within 1e{math.ceil(math.log10(proven.error))}" if proven.error else "equal"


def fault(point: Point, proven: PointProof) -> str:
    """Why a point is not proved."""
    at = f"at point {point.index} ({point.name})"
    if not proven.parted:
        return f"{at} the stages do not part the parameters"
    return f"{at} the result is off by {proven.error:.2g}"


def _united(model: PartitionedModel) -> tuple[Point, ...]:
    """The points of the model and those between its blocks, each once and in order."""
    position = {node.name: index for index, node in enumerate(model.traced.nodes)}
    united = {point.after: point for point in (*points.find(model.traced, Cuts()), *model.points)}
    in_order = sorted(united.values(), key=lambda point: position.get(point.after, 0))
    return tuple(replace(point, index=index) for index, point in enumerate(in_order))


def _inputs(model: PartitionedModel, shape: Shape) -> Payload:
    entry = registry.entry(model.name)
    if entry.make_inputs is not None:
        return entry.example(1, 0)
    generator = torch.Generator().manual_seed(0)
    if model.points[0].payload[0].dtype == "uint8":
        return (torch.randint(256, (1, *shape), dtype=torch.uint8, generator=generator),)
    return (torch.randn(1, *shape, generator=generator),)


@contextmanager
def _loaded(recipe: Recipe) -> Iterator[PartitionedModel]:
    """The model with seeded weights, on one thread: with more, sums may take another order from run to run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with scratch.folder() as folder:
            made = weights.make(recipe.name, "seeded", 0, folder)
            model = partitioned.load(recipe, made.path)
        yield model
    finally:
        torch.set_num_threads(threads)
        gc.collect()  # graphs and their modules refer to each other
        allocator.give_back_freed()
