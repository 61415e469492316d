"""The methods of a codec's step, and what decoders share: checks, and the frame of several parts.

A frame has the length of each part but the last, u32 little endian, and then the parts.
"""

from __future__ import annotations

import math
import struct
from itertools import accumulate, pairwise
from typing import Protocol

import torch

from pareto.protocol.errors import BackendError, one_line
from pareto.remote.backends.base import BYTES, Layout, Tensors, layout


class Step(Protocol):
    """One thread uses a step at a time."""

    def encoded(self, layout: Layout, /) -> Layout:
        """The layout of what `encode` makes of tensors with this one."""

    def encode(self, tensors: Tensors) -> Tensors: ...

    def decode(self, tensors: Tensors, layout: Layout, /) -> Tensors:
        """Tensors of this layout, from those of its encoded one. Raises BackendError for what `encode` never makes."""


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
    return math.prod(shape) * int(getattr(torch, dtype).itemsize)


def lengths(parts: list[int]) -> bytes:
    """The beginning of a frame whose parts have these lengths."""
    return struct.pack(f"<{len(parts) - 1}I", *parts[:-1])


def parted(frame: memoryview, count: int, name: str) -> list[memoryview]:
    """The parts of a frame, so many; each encoder makes some bytes at least. Raises BackendError."""
    at = 4 * (count - 1)
    told = struct.unpack_from(f"<{count - 1}I", frame) if len(frame) >= at else ()
    ends = (*accumulate(told, initial=at), len(frame))
    if ends[-2] >= ends[-1]:
        raise BackendError(f"{len(frame)} bytes of {name} came: its parts are longer")
    return [frame[begin:end] for begin, end in pairwise(ends)]


def unreadable(data: memoryview, name: str, error: Exception) -> BackendError:
    """The fault for bytes of which a library says so, whatever it raises."""
    return BackendError(f"{len(data)} bytes that are no whole {name} came: {one_line(error)[:200]}")
