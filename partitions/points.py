"""Partition points: the cuts of a traced model, numbered as the literature numbers its blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from .graph import TracedModel
from .torchvision_compat import models


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a payload. shape: at batch 1, the batch dimension included. dtype: as in 'float32'."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return math.prod(self.shape) * dtype.itemsize


@dataclass(frozen=True)
class Point:
    """One partition point.

    index: how many units run before the cut. name: the unit that ends there ('input', ..., 'output').
    after: the graph node that the cut comes after, '' for the input.
    payload: the tensors that cross the link, at batch 1; none at the last point.
    """

    index: int
    name: str
    after: str
    payload: tuple[TensorSpec, ...]

    @property
    def payload_bytes(self) -> int:
        """Size of the payload in bytes, at batch 1."""
        return sum(spec.nbytes for spec in self.payload)


@dataclass(frozen=True)
class _Unit:
    """Modules that run as one: the paths of a block, or of neighbouring layers."""

    name: str
    paths: tuple[str, ...]


# Containers of blocks that are not a plain nn.Sequential or nn.ModuleList.
_CONTAINERS = (
    models.vision_transformer.Encoder,
    models.regnet.AnyStage,
    models.maxvit.MaxVitBlock,
)


def block_points(traced: TracedModel) -> tuple[Point, ...]:
    """The points between the blocks of the model, in order, from 'input' to 'output'.

    A boundary at which more than one tensor is live is left out: its unit merges with the next.
    """
    return _points(traced, _boundaries(traced))


def op_points(traced: TracedModel) -> tuple[Point, ...]:
    """Every cut of the graph that leaves exactly one tensor live, in order, from 'input' to 'output'."""
    return _points(traced, ((index, node.name) for index, node in enumerate(traced.nodes)))


def _points(traced: TracedModel, boundaries: Iterator[tuple[int, str]]) -> tuple[Point, ...]:
    """Number those of `boundaries` (node index, unit name) that go forward and can be cut."""
    end = traced.nodes.index(traced.result)
    cuts = {0: "input"}
    for index, name in boundaries:
        if max(cuts) < index < end and traced.cuttable[index]:
            cuts[index] = name
    cuts[end] = "output"
    points = []
    for number, (index, name) in enumerate(cuts.items()):
        payload = () if index == end else tuple(_spec(traced, node) for node in traced.live[index])
        points.append(Point(number, name, traced.nodes[index].name if index else "", payload))
    return tuple(points)


def _spec(traced: TracedModel, node: fx.Node) -> TensorSpec:
    value: Tensor = traced.values[node]
    return TensorSpec(tuple(value.shape), str(value.dtype).removeprefix("torch."))


def _boundaries(traced: TracedModel) -> Iterator[tuple[int, str]]:
    """Last node (its index) and name of each unit but the last."""
    module, scopes = traced.module, [_scopes(node) for node in traced.nodes]
    used = {parent for scope in scopes for path in scope for parent in _with_parents(path)}
    children = [name for name, _ in module.named_children() if name in used]
    if len(children) < 2:
        return
    classifier = next(i for i, scope in enumerate(scopes) if children[-1] in scope)

    units = list(_units(module, "", {path for path in used if path.split(".")[0] != children[-1]}))
    if len(units[0].paths) > 1:
        units[0] = _Unit("stem", units[0].paths)
    ends = [_last(scopes, unit.paths) for unit in units]
    if _stem_joins_first_block(module):
        del units[0], ends[0]
    # What has no module of its own follows the last unit (flatten, functional pooling): it belongs to that
    # unit if it pools, else it is a unit.
    if ends[-1] < classifier - 1 and not _pools(module, units[-1]):
        units.append(_Unit("pool", ()))
        ends.append(classifier - 1)
    ends[-1] = classifier - 1
    yield from zip(ends, (unit.name for unit in units), strict=True)


def _scopes(node: fx.Node) -> set[str]:
    """Paths of the modules in whose forward the node runs."""
    return {path for path, _ in node.meta.get("nn_module_stack", {}).values()}


def _with_parents(path: str) -> Iterator[str]:
    """'a.b.c', 'a.b', 'a': a ModuleList is in no node's scope, since nobody calls it."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _last(scopes: list[set[str]], paths: tuple[str, ...]) -> int:
    return max(index for index, scope in enumerate(scopes) if not scope.isdisjoint(paths))


def _units(module: nn.Module, prefix: str, used: set[str]) -> Iterator[_Unit]:
    """The units within a container, in the order of its children; modules that no node uses are left out."""
    children = [(prefix + name, child) for name, child in module.named_children() if prefix + name in used]
    layered = prefix == "features." and all(_is_leaf(child) for _, child in children)
    for leaf, group in itertools.groupby(children, key=lambda item: _is_leaf(item[1])):
        paths = dict(group)
        if leaf and not layered:
            yield _Unit(next(iter(paths)), tuple(paths))
            continue
        for path, child in paths.items():
            if _is_container(path, child):
                yield from _units(child, f"{path}.", used)
            else:
                yield _Unit(path, (path,))


def _is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def _is_container(path: str, module: nn.Module) -> bool:
    """Whether the module merely holds blocks, rather than being one."""
    if isinstance(module, _CONTAINERS) or path == "features":
        return True
    plain = type(module) in (nn.Sequential, nn.ModuleList)
    return plain and not all(_is_leaf(child) for child in module.children())


def _stem_joins_first_block(module: nn.Module) -> bool:
    """ResNet18 and 34 are numbered by their BasicBlocks alone; deeper ResNets count the stem."""
    resnet = models.resnet
    return isinstance(module, resnet.ResNet) and isinstance(module.layer1[0], resnet.BasicBlock)


def _pools(module: nn.Module, unit: _Unit) -> bool:
    leaves = (module.get_submodule(path) for path in unit.paths)
    return any(_is_leaf(leaf) and "Pool" in type(leaf).__name__ for leaf in leaves)
