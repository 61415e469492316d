"""Floats of half the bits: `fp16` (11 bits of mantissa, up to 65504) and `bf16` (8 bits, float32's range)."""

from __future__ import annotations

import torch

from pareto.remote.backends.base import Layout, Tensors
from pareto.remote.codecs.base import check

_DTYPES = {"fp16": "float16", "bf16": "bfloat16"}


class Narrowed:
    """Floats as this dtype; what is no float, or is as narrow already, is left as it is."""

    def __init__(self, dtype: str) -> None:
        self._name = dtype
        self._dtype: torch.dtype = getattr(torch, dtype)

    def encoded(self, layout: Layout) -> Layout:
        return tuple((self._name if self._narrows(dtype) else dtype, shape) for dtype, shape in layout)

    def encode(self, tensors: Tensors) -> Tensors:
        return tuple(
            tensor.to(self._dtype) if self._narrows(str(tensor.dtype).removeprefix("torch.")) else tensor
            for tensor in tensors
        )

    def decode(self, tensors: Tensors, layout: Layout) -> Tensors:
        check(tensors, self.encoded(layout))
        return tuple(
            tensor.to(getattr(torch, dtype)) for tensor, (dtype, _) in zip(tensors, layout, strict=True)
        )

    @staticmethod
    def _narrows(dtype: str) -> bool:
        return dtype in ("float32", "float64")


def step(name: str, variant: str) -> Narrowed:
    return Narrowed(_DTYPES[name])
