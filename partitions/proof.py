"""The proof that a split model computes what the whole model computes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import registry
from .graph import tensors_in
from .model import PartitionedModel
from .stage import Payload, Stage
from .tracing import normalized

RELATIVE_TOLERANCE = 1e-4

CHAINS = 5  # at so many points, spread over a model, a chain of three stages is tried too


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


def reference(model: PartitionedModel, inputs: Tensor) -> Payload:
    """The whole model's outputs for `inputs`, shape (batch, *model.input_shape), in its input dtype.

    The module itself computes them, on the same weights, because the graph is part of what is to be proved. The
    tensors come in the order of `Outline.results`.
    """
    entry = registry.entry(model.name)
    with torch.inference_mode():
        # A model may work in place, but not on what is the caller's.
        images = normalized(inputs, entry.mean, entry.std) if inputs.dtype == torch.uint8 else inputs.clone()
        return tuple(tensors_in(model.eager(images)))


def prove(model: PartitionedModel, inputs: Tensor) -> Iterator[PointProof]:
    """The proof of each point: the model is cut there, at some points into three, and compared with the whole.

    inputs: as for `reference`. No more than two stages and one copy of their weights are in memory at a time.
    """
    expected = reference(model, inputs)
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


def _tried(model: PartitionedModel, chain: Sequence[int], inputs: Tensor, expected: Payload) -> PointProof:
    """The proof of a split at the inner points of `chain`, whose first and last are those of the model."""
    payload: Payload = (inputs,)
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
    tensors = (*stage.named_parameters(remove_duplicate=False), *stage.named_buffers(remove_duplicate=False))
    return sorted(tensor.data_ptr() for _, tensor in tensors)


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
