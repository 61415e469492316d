"""A model that can be cut at its points: graph and points from its name, tensors from a weights file."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from . import registry, stage, weights
from .graph import TracedModel, trace
from .points import Point, block_points, op_points
from .stage import Stage

GRANULARITIES: dict[str, Callable[[TracedModel], tuple[Point, ...]]] = {
    "block": block_points,
    "op": op_points,
}


@dataclass(frozen=True, eq=False)
class Outline:
    """A model without its weights: what it computes, and where it can be cut; `outline` makes one.

    input_shape: of one image, without the batch dimension. graph_digest: SHA-256 of the operators and
    points; hosts whose torch or torchvision make other graphs of the model have another digest.
    """

    name: str
    input_shape: tuple[int, int, int]
    points: tuple[Point, ...]
    graph_digest: str
    traced: TracedModel

    def paths(self, start: int, end: int) -> set[str]:
        """The parameters and buffers of the units from point `start` to point `end`. Raises ValueError as `cut`."""
        return stage.paths(self.traced, *self._nodes(start, end))

    def cut(self, start: int, end: int, state: Mapping[str, Tensor]) -> Stage:
        """The units from point `start` to point `end`, both indices into `points`.

        state: path -> parameter or buffer, at least for `paths(start, end)`; the stage shares their memory.
        Raises ValueError unless 0 <= start <= end <= the last point.
        """
        return stage.cut(self.traced, state, *self._nodes(start, end))

    def _nodes(self, start: int, end: int) -> tuple[str, str]:
        if not 0 <= start <= end < len(self.points):
            raise ValueError(
                f"{self.name} has no stage {start} to {end}: its points are 0 to {len(self.points) - 1}"
            )
        source = self.traced.nodes[0].name
        return self.points[start].after or source, self.points[end].after or source


@dataclass(frozen=True, eq=False)
class PartitionedModel(Outline):
    """A model with all its weights in memory; `load` makes one.

    state: path -> parameter or buffer, read-only by convention.
    """

    state: Mapping[str, Tensor]

    def stage(self, start: int, end: int) -> Stage:
        """The units from point `start` to point `end`. Raises ValueError as `cut`."""
        return self.cut(start, end, self.state)

    @functools.cached_property
    def whole(self) -> Stage:
        """The model in one piece: (images,) -> (logits,)."""
        return self.stage(0, len(self.points) - 1)


def outline(name: str, granularity: str = "block") -> Outline:
    """The model without any weights. Raises UnknownModel.

    granularity: 'block', the blocks that papers count, or 'op', every cut of the graph.
    """
    name = registry.canonical(name)
    return _outline(name, registry.build_structure(name), granularity)


def load(name: str, weights_path: Path, granularity: str = "block") -> PartitionedModel:
    """The whole model with weights from a file that `weights.make` wrote, on the CPU.

    Nothing is initialized at random and no tensor exists twice. Raises UnknownModel, WeightsError.
    """
    name = registry.canonical(name)
    structure = registry.build_structure(name)
    state = {**unsaved_buffers(structure), **weights.read(weights_path, name)}
    return PartitionedModel(**vars(_outline(name, structure, granularity)), state=state)


@functools.lru_cache(maxsize=128)
def describe(name: str, granularity: str = "block") -> tuple[tuple[Point, ...], tuple[int, int, int], str]:
    """Points, input shape and graph digest of a model. Raises UnknownModel."""
    it = outline(name, granularity)
    return it.points, it.input_shape, it.graph_digest


def _outline(name: str, structure: nn.Module, granularity: str) -> Outline:
    shape = registry.input_shape(name)
    traced = trace(structure.to("meta"), shape)
    points = GRANULARITIES[granularity](traced)
    return Outline(name, shape, points, _digest(traced, points), traced)


def unsaved_buffers(structure: nn.Module) -> dict[str, Tensor]:
    """Buffers that are in no weights file, because the constructor computes them."""
    saved = structure.state_dict().keys()
    return {path: buffer for path, buffer in structure.named_buffers() if path not in saved}


def _digest(traced: TracedModel, points: tuple[Point, ...]) -> str:
    """SHA-256 of the graph and its points. Values are named by node, so equal graphs have equal text."""
    digest = hashlib.sha256()
    for node in traced.nodes:
        target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        value = traced.values[node]
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        digest.update(f"{node.name} {node.op} {target} {node.args} {node.kwargs} {shape}\n".encode())
    for point in points:
        digest.update(f"{point}\n".encode())
    return digest.hexdigest()
