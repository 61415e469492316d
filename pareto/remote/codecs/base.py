"""The methods of a codec's step, and the check that all decoders share."""

from __future__ import annotations

import math
from typing import Protocol

import torch

from pareto.protocol.errors import BackendError
from pareto.remote.backends.base import BYTES, Layout, Tensors, layout


class Step(Protocol):
    """One thread uses a step at a time."""

    def encoded(self, layout: Layout, /) -> Layout:
        """The layout of what `encode` makes of tensors with this one."""

    def encode(self, tensors: Tensors) -> Tensors: ...

    def decode(self, tensors: Tensors, layout: Layout, /) -> Tensors:
        """Tensors of this layout. Raises BackendError for what `encode` does not make of it."""


def check(tensors: Tensors, expected: Layout) -> None:
    """Raises BackendError for tensors of another layout."""
    came = layout(tensors)
    if len(came) == len(expected) and all(map(_fits, came, expected)):
        return
    raise BackendError(f"encoded tensors came as {in_words(came)}, {in_words(expected)} were expected")


def _fits(came: tuple[str, tuple[int, ...]], expected: tuple[str, tuple[int, ...]]) -> bool:
    if expected[0] != BYTES:
        return came == expected
    return came[0] == "uint8" and len(came[1]) == 1 and came[1][0] <= expected[1][0]


def in_words(layout: Layout) -> str:
    """A layout for a message, such as `float32 1x24x48x48`; of many tensors the first four."""
    return ", ".join(f"{dtype} {'x'.join(map(str, shape))}".strip() for dtype, shape in layout[:4]) or "none"


def nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    """The bytes of a tensor."""
    return math.prod(shape) * int(getattr(torch, dtype).itemsize)
