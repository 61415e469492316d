"""A model that can be cut at its points: graph and points from its name, tensors from a weights file."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from pareto.protocol.constants import MAX_TENSORS
from pareto.protocol.errors import UserError

from . import allocator, graph, points, registry, stage, weights
from .engines.base import Built, Run
from .graph import Input, TensorSpec, TracedModel
from .inputs import BYTES, Images, Taken
from .points import Point
from .recipe import Handmade, Recipe
from .stage import Mark, Stage
from .tracing import trace


@dataclass(frozen=True, eq=False)
class Outline:
    """A model without its weights: what it computes, and where it can be cut; `outline` makes one.

    inputs: what it takes; images may also come as bytes. graph_digest: SHA-256 of the operators, the points and the
    dtype of the images; it differs on hosts whose torch or torchvision makes another graph of the model. cuts: how many
    points it would have, but for the last, if each cut were one.
    """

    name: str
    inputs: tuple[Input, ...]
    points: tuple[Point, ...]
    graph_digest: str
    traced: TracedModel
    cuts: int

    @property
    def takes(self) -> Taken:
        """Images, or what its author makes."""
        return registry.entry(self.name).takes

    @property
    def last(self) -> int:
        """The last point, at which nothing is left to compute."""
        return len(self.points) - 1

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        """The tensors that the whole model returns, at batch 1."""
        return tuple(self.traced.specs[node] for node in self.traced.results)

    @property
    def unsendable(self) -> str:
        """The sentence about an answer that no link carries; else empty."""
        nodes = self.traced.results
        if len(nodes) > MAX_TENSORS:
            return f"{self.name} returns {len(nodes)} tensors: at most {MAX_TENSORS} cross a link"
        kinds = (graph.unsendable(self.traced.values[node]) for node in nodes)
        if what := next(filter(None, kinds), ""):
            return f"{self.name} returns {what}, which cannot be sent"
        return ""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The number of operators of the graph before each point."""
        operators = [node.name for node in self.traced.nodes if node.op.startswith("call_")]
        places = {name: place for place, name in enumerate(operators, start=1)}
        return (*(places.get(point.after, 0) for point in self.points[:-1]), len(operators))

    def paths(self, start: int, end: int) -> set[str]:
        """The parameters and buffers of the units from point `start` to point `end`. Raises ValueError as `cut`."""
        return stage.paths(self.traced, *self._nodes(start, end))

    def cut(
        self, start: int, end: int, state: Mapping[str, Tensor], mark: Mark | None = None, units: bool = False
    ) -> Stage:
        """The units from point `start` to point `end`, both indices into `points`.

        state: path -> parameter or buffer, at least for `paths(start, end)`; the stage shares their memory. mark: is
        called before its first unit and after its last; units: after each.
        Raises ValueError unless 0 <= start <= end <= the last point.
        """
        between = [point.after for point in self.points[start + 1 : end]] if units else []
        return stage.cut(self.traced, state, *self._nodes(start, end), mark, between)

    def _nodes(self, start: int, end: int) -> tuple[str, str]:
        if not 0 <= start <= end < len(self.points):
            raise ValueError(f"{self.name} has no stage {start} to {end}: its points are 0 to {self.last}")
        source = self.traced.inputs[-1].name
        return self.points[start].after or source, self.points[end].after or source


@dataclass(frozen=True, eq=False)
class PartitionedModel(Outline):
    """A model with all its weights in memory; `load` makes one. state: path -> parameter or buffer, only read."""

    state: Mapping[str, Tensor]

    def stage(self, start: int, end: int) -> Stage:
        """The units from point `start` to point `end`. Raises ValueError as `cut`."""
        return self.cut(start, end, self.state)

    @functools.cached_property
    def eager(self) -> nn.Module:
        """The module itself, never traced, on the same tensors."""
        module = registry.build_structure(self.name)
        stage.fill(module, self.state)
        return module


class ResidentStage:
    """The one stage of a model that a device has in memory; the weights of the others stay in the files.

    files: written by `weights.make`, or shards of that. device: where the weights go, as in 'cuda:0'. No weights are
    read before the first `change`, but a file that does not fit the model is refused at once. Raises UserError.
    """

    def __init__(self, outline: Outline, files: Iterable[Path], device: str = "cpu") -> None:
        self.stage = Stage(None)
        self._outline = outline
        self._reader = weights.Reader(files, outline.name)
        self._device = torch.device(device)
        self._state: dict[str, Tensor] = {}
        self._span = (0, 0)
        self._own_bytes: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the parameters and buffers in memory, or of an engine's own weights in their place."""
        held = sum(tensor.nbytes for tensor in self._state.values())
        return held if self._own_bytes is None else self._own_bytes

    def change(self, start: int, end: int) -> None:
        """Hold the units from point `start` to point `end` in place of those held so far.

        Tensors that both need are kept. Those no longer needed go before any is read, so that the most in memory is
        the larger of the two, not their sum. The `stage` of before loses its weights, whoever else holds it. After an
        error `stage` is empty. Raises ValueError as `Outline.cut`, UserError.
        """
        wanted, state = self._outline.paths(start, end), self._state
        # A graph and its module refer to each other: as garbage they would keep their weights for long.
        self.stage.to("meta")
        self.stage, self._span, self._own_bytes = Stage(None), (0, 0), None
        for path in state.keys() - wanted:
            del state[path]
        self._give_back_freed()
        saved = [path for path in self._reader.keys if path in wanted and path not in state]
        state.update((path, tensor.to(self._device)) for path, tensor in self._reader.read(saved))
        computed = self._outline.traced.computed
        for path in wanted - state.keys():
            if path not in computed:
                raise UserError(f"{self._outline.name}: {path} is in none of this host's weights files")
            state[path] = computed[path].to(self._device)
        self.stage, self._span = self._outline.cut(start, end, state), (start, end)

    def run_by(self, run: Run) -> None:
        """Have an engine compute the stage that is held, until the next `change`; weights that it does not read go."""
        if run.weights_bytes is not None:
            self.stage.to("meta")
            self._state.clear()
            self._give_back_freed()
        self._own_bytes = run.weights_bytes
        self.stage = Built(self.stage, run)

    def _give_back_freed(self) -> None:
        allocator.give_back_freed()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def units(self) -> Iterator[Stage]:
        """Yield each unit of the stage that is held, by itself, on the same tensors, until the next."""
        for start in range(*self._span):
            unit = self._outline.cut(start, start + 1, self._state)
            yield unit
            unit.to("meta")  # as in `marked`

    @contextmanager
    def marked(self, mark: Mark, *, units: bool) -> Iterator[Stage]:
        """The stage that is held once more, on the same tensors, with marks as `Outline.cut` sets them."""
        marked = self._outline.cut(*self._span, self._state, mark, units=units)
        try:
            yield marked
        finally:
            marked.to("meta")  # as garbage it would keep the weights for long


@functools.lru_cache(maxsize=4)  # tracing is most of what a sweep's start takes
def outline(recipe: Recipe) -> Outline:
    """The model without any weights. Raises UserError, UntraceableModel."""
    registry.adopt(recipe)
    name = registry.canonical(recipe.name)
    entry, handmade = registry.entry(name), recipe.handmade or Handmade()
    takes = entry.takes
    normalising = (takes.mean, takes.std) if isinstance(takes, Images) and recipe.input == BYTES else None
    with entry.blamed():
        traced = trace(registry.build_structure(name), entry.inputs, handmade.chain, normalising)
    cuts = points.find(traced, recipe.cuts, is_own=bool(recipe.file))
    every = points.find(traced, replace(recipe.cuts, granularity="op"))
    if handmade.points:
        try:
            cuts = every = points.named(traced, handmade.points)
        except UserError as error:
            raise UserError(f"{name}.yaml: {error}") from None
    return Outline(name, entry.inputs, cuts, _digest(traced, cuts), traced, len(every) - 1)


def load(recipe: Recipe, weights_path: Path) -> PartitionedModel:
    """The whole model with weights from a file that `weights.make` wrote, on the CPU; no tensor exists twice. Raises as
    `outline`, and UserError."""
    bare = outline(recipe)
    state = {**bare.traced.computed, **weights.read(weights_path, bare.name)}
    state |= {path: state[first] for path, first in bare.traced.first.items() if first in state}
    return PartitionedModel(**vars(bare), state=state)


@functools.lru_cache(maxsize=128)
def describe(recipe: Recipe) -> tuple[tuple[Point, ...], tuple[int, ...], str]:
    """Points, shape of the first input, and graph digest of a model that hosts are to run. Raises as `outline`, and
    UserError where its answer cannot be sent, or where a part of it cannot be made."""
    bare = outline(recipe)
    if why := bare.unsendable:
        raise UserError(why)
    with registry.entry(recipe.name).blamed():
        for unit in range(bare.last if recipe.file else 0):
            state = {path: torch.empty(0, device="meta") for path in bare.paths(unit, unit + 1)}
            bare.cut(unit, unit + 1, state)
    return bare.points, bare.inputs[0].shape, bare.graph_digest


def _digest(traced: TracedModel, points: tuple[Point, ...]) -> str:
    """SHA-256 of the graph and its points. Values are named by node, so equal graphs have equal text."""
    lines = []
    for node in traced.nodes:
        target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        value = traced.values[node]
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        lines.append(f"{node.name} {node.op} {target} {node.args} {node.kwargs} {shape}\n")
    return hashlib.sha256("".join([*lines, *(f"{point}\n" for point in points)]).encode()).hexdigest()
