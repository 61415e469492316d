"""The proof that a split model computes what the whole one does."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .model import PartitionedModel

RELATIVE_TOLERANCE = 1e-4


def reference(model: PartitionedModel, inputs: Tensor) -> Tensor:
    """What the whole model yields for `inputs`, shape (batch, *model.input_shape), float32."""
    with torch.inference_mode():
        result: Tensor = model.whole((inputs,))[0]
    return result


def max_abs_error(output: Tensor, reference: Tensor) -> float:
    """Largest absolute difference; infinity where shapes or dtypes differ or a value is not finite."""
    if output.shape != reference.shape or output.dtype != reference.dtype:
        return math.inf
    output, reference = output.detach().cpu().double(), reference.detach().cpu().double()
    if not (output.isfinite().all() and reference.isfinite().all()):
        return math.inf
    return float((output - reference).abs().max()) if output.numel() else 0.0


def tolerance(reference: Tensor) -> float:
    """The largest error that is still equality: 1e-4 x max(1, max |reference|).

    On one kind of device a split model is equal to the last bit. Another kind of CPU or an accelerator
    takes other algorithms with other summation orders; over a deep network in float32 they differ by
    some 1e-6 of the largest value. A wrong cut or wrong weights are off by the order of the value itself.
    """
    largest = float(reference.detach().abs().max()) if reference.numel() else 0.0
    return RELATIVE_TOLERANCE * max(1.0, largest)
