"""The memory that an edge needs for its part of a model, and which points do not fit into what it has."""

from __future__ import annotations

from pareto.protocol.errors import UserError
from pareto.remote.link.units import size_bytes

RUNTIME_BYTES, STAGE_BYTES = 303_000_000, 28_000_000
"""A worker with PyTorch that only sends, and what computing at all adds, on x86 with the CPU build of torch 2."""
WORK = 3.0
"""The memory of a stage in steady work, as a multiple of what its widest operator reads and makes of a request."""


def stated(text: str) -> str:
    """The text of `edge=512mib`. Raises UserError for one that is none."""
    of_text(text)
    return text


def of_text(text: str) -> int:
    """The bytes that a text gives the edge. Raises UserError."""
    role, _, size = text.partition("=")
    if role != "edge" or not size:
        raise UserError("say whose it is, as in edge=512mib")
    return size_bytes(size, "--memory")


def edge_bytes(units: tuple[tuple[int, int], ...], cut: int, batch_size: int) -> int:
    """The most memory of the edge's worker at a point, within 10 % on seven models (docs/load.md). units: bytes of each
    one's parameters, and of the tensors that its widest operator reads and makes of an image."""
    if not cut:
        return RUNTIME_BYTES
    held, widest = sum(weights for weights, _ in units[:cut]), max(wide for _, wide in units[:cut])
    return round(RUNTIME_BYTES + STAGE_BYTES + held + WORK * widest * batch_size)
