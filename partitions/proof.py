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
from torch import Tensor

from pareto.protocol.errors import one_line

from . import allocator, points, registry, scratch, weights
from . import model as partitioned
from .graph import named_tensors, propagate, tensors_in
from .inputs import Images, Taken, for_module
from .model import PartitionedModel
from .points import Point
from .purity import UnrepeatableModel
from .recipe import Cuts, Recipe
from .seeded import FAULTS
from .stage import Payload

TOLERANCE = 3e-4
"""The largest error, as `max_error` says it, that is still equality. On one kind of device a split model is equal to
the last bit. Another kind of CPU or an accelerator uses other algorithms with other summation orders; over a deep
network in float32 they differ by some 1e-6 of the largest value, of SSDlite with random weights by up to 7e-5. A wrong
cut or wrong weights are off by the order of the value itself."""
LEAST_SCALE, LEAST_SHARE = 1.0, 0.01
"""No scale is smaller than the first, nor than this share of the output's largest value: the rounding noise in small
values, as those of a class that is never seen, may be that of the large ones that they are made of."""
CHAINS = 5  # at so many points, spread over a model, a chain of three stages is tried too
LIMIT_S = 1800.0
"""A proof that would take longer is left out where several models are proved."""
NO = "no"


@dataclass(frozen=True)
class PointProof:
    """The result of the proof at a point.

    error: of the split's outputs against the whole model's, by `max_error`. bitwise: whether they are equal to the last
    bit. parted: whether each stage holds its own parameters and buffers and no others, and all stages together hold
    those of the whole model, each once.
    """

    point: int
    error: float
    bitwise: bool
    parted: bool


def reference(model: PartitionedModel, *inputs: Tensor) -> Payload:
    """The whole model's answers for a batch of what it takes; images in its input dtype.

    The module itself computes them, on the same weights, because the graph is part of what is to be proved. The
    tensors come in the order of `Outline.results`.
    """
    entry = registry.entry(model.name)
    with torch.inference_mode(), entry.blamed():
        return tuple(tensors_in(entry.call(model.eager, for_module(entry.takes, inputs))))


def check_again(model: PartitionedModel, inputs: Payload, answers: Payload) -> None:
    """Raises UnrepeatableModel where the whole model, after other inputs, gives other answers for the same inputs."""
    reference(model, *(one.flip(-1) for one in inputs))
    if (off := max_error(reference(model, *inputs), answers)) > TOLERANCE:
        raise UnrepeatableModel(
            f"{model.name}: two runs differ, by {off:.2g}: it draws random numbers, or keeps what it saw before"
        )


def prove(model: PartitionedModel, *inputs: Tensor) -> Iterator[PointProof]:
    """The proof of each point: the model is cut there, at some points into three, and compared with the whole. inputs:
    as for `reference`. No more than two stages and one copy of their weights are in memory at a time."""
    expected, last = reference(model, *inputs), model.last
    check_again(model, inputs, expected)
    threes = {round(place * last / (CHAINS + 1)) for place in range(1, CHAINS + 1)} - {0, last}
    for point in range(last + 1):
        chains = [(0, point, last), *([(0, point, (point + last + 1) // 2, last)] if point in threes else [])]
        tried = [_tried(model, chain, inputs, expected) for chain in chains]
        errors, bitwise, parted = zip(*tried, strict=True)
        yield PointProof(point, max(errors), all(bitwise), all(parted))


def _tried(
    model: PartitionedModel, chain: Sequence[int], inputs: Payload, expected: Payload
) -> tuple[float, bool, bool]:
    """Error, `bitwise` and `parted` of a split at the inner points of `chain`, from the model's first to its last."""
    payload = inputs
    parted, held = True, list[int]()
    for start, end in itertools.pairwise(chain):
        stage = model.stage(start, end)
        own = sorted({tensor.data_ptr() for _, tensor in named_tensors(stage)})
        parted = parted and own == sorted(model.state[path].data_ptr() for path in model.paths(start, end))
        held += own
        with torch.inference_mode():
            payload = stage(payload)
    whole = sorted(model.state[path].data_ptr() for path in model.paths(chain[0], chain[-1]))
    same = len(payload) == len(expected) and all(map(torch.equal, payload, expected))
    return max_error(payload, expected), same, parted and sorted(held) == whole


def max_error(outputs: Sequence[Tensor], references: Sequence[Tensor]) -> float:
    """The largest error of a value, as a share of its scale; infinity where shapes or dtypes differ, or a value is not
    finite and not the same in both. Both parts of complex numbers count.

    The scale is the largest value of the reference, at least 1: each output has its own, and so has each column of an
    output where there are more values in a column than columns, so that a score is not judged by the pixels of the box
    beside it. Columns lie along the second dimension or the last; those of small values have `LEAST_SHARE` of the
    output's scale. The scale of whole numbers is 1.
    """
    if len(outputs) != len(references):
        return math.inf
    return max(itertools.starmap(_max_error, zip(outputs, references, strict=True)), default=0.0)


def _max_error(output: Tensor, reference: Tensor) -> float:
    if output.shape != reference.shape or output.dtype != reference.dtype:
        return math.inf
    if reference.is_complex():
        output, reference = (torch.view_as_real(one.resolve_conj()) for one in (output, reference))
    is_whole = not reference.is_floating_point()
    output, reference = output.detach().cpu().double(), reference.detach().cpu().double()
    same = output == reference  # also infinities of one sign
    off = (output - reference).abs().masked_fill(same, 0.0).nan_to_num(math.inf, math.inf)
    if not off.isfinite().all():
        return math.inf
    size = reference.abs().nan_to_num(0.0, 0.0)
    if is_whole or not off.numel():
        return float(off.max()) if off.numel() else 0.0
    scale = max(LEAST_SCALE, float(size.max()))
    worst = float(off.max()) / scale
    for dim in {1, size.dim() - 1} if size.dim() > 2 else ():
        if size.shape[dim] > 1 and size.shape[dim] ** 2 <= size[0].numel():
            others = [other for other in range(size.dim()) if other != dim]
            scales = size.amax(others).clamp(min=max(LEAST_SCALE, LEAST_SHARE * scale))
            worst = max(worst, float((off.amax(others) / scales).max()))
    return worst


# The proof of a whole model, in words: `bitwise`, `within 1e-6`, `no: ...`, `not proved: ...`


def each(recipe: Recipe) -> list[PointProof]:
    """The proof of each point of a model, with an image of the model's own size, or its author's inputs."""
    with _loaded(recipe) as model:
        return list(prove(model, *_example(model, model.takes)))


def all_at_once(recipe: Recipe) -> str:
    """The proof of all points between blocks and of all cuts with up to three tensors, in a few words.

    The images are as small as the model takes them, because the cuts do not depend on their size and most models would
    take hours with images of their own size.
    """
    with _loaded(replace(recipe, cuts=Cuts("op", 3))) as loaded:
        model = replace(loaded, points=_united(loaded))
        smaller = model.takes.smaller() if isinstance(model.takes, Images) else iter(())
        small = next((images for images in smaller if _fits(model, images)), None)
        words = _proved(model, small) if small else ""
        return words if words and not words.startswith(f"{NO}:") else _proved(model, model.takes)


def _fits(model: PartitionedModel, takes: Taken) -> bool:
    """Whether the graph is also one for inputs of this size."""
    inputs = (one.to("meta") for one in _example(model, takes))
    try:
        list(propagate(model.traced.module, model.traced.nodes[0].graph, *inputs))
    except FAULTS:
        return False
    return True


def _proved(model: PartitionedModel, takes: Taken) -> str:
    """The proof of all points with one input of this size, in a few words."""
    try:
        inputs, worst, words = _example(model, takes), 0.0, "bitwise"
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
        return ", ".join(filter(None, (words, takes.size)))
    except FAULTS as error:
        return f"{NO}: {one_line(error)}"


def word(proven: PointProof) -> str:
    """The word for whether a point is proved, and how closely: `bitwise`, `within 1e-6`, `no`."""
    if not proven.parted or proven.error > TOLERANCE:
        return NO
    if proven.bitwise:
        return "bitwise"
    return f"within 1e{math.ceil(math.log10(proven.error))}" if proven.error else "equal"


def fault(point: Point, proven: PointProof) -> str:
    """The reason for which a point is not proved."""
    at = f"at point {point.index} ({point.name})"
    if not proven.parted:
        return f"{at} the stages do not part the parameters"
    return f"{at} the result is off by {proven.error:.2g}"


def _united(model: PartitionedModel) -> tuple[Point, ...]:
    """The points of the model and those between its blocks, each once and in order."""
    position = {node.name: index for index, node in enumerate(model.traced.nodes)}
    blocks = points.find(model.traced, Cuts(), is_own=registry.entry(model.name).file is not None)
    united = {point.after: point for point in (*blocks, *model.points)}
    in_order = sorted(united.values(), key=lambda point: position.get(point.after, 0))
    return tuple(replace(point, index=index) for index, point in enumerate(in_order))


def _example(model: PartitionedModel, takes: Taken) -> Payload:
    return next(takes.batches(1, 1, 0, model.points[0].payload[0].dtype))


@contextmanager
def _loaded(recipe: Recipe) -> Iterator[PartitionedModel]:
    """The model with seeded weights, on one thread: with more, sums may take another order from run to run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with scratch.folder() as folder:
            made = weights.make(recipe.name, "seeded", 0, folder)
            model = partitioned.load(recipe, made)
        yield model
    finally:
        torch.set_num_threads(threads)
        gc.collect()  # graphs and their modules refer to each other
        allocator.give_back_freed()
