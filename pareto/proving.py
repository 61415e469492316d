"""The proof of a model's points in words: `bitwise`, `within 1e-6`, `no: ...`, `not proved: ...`."""

from __future__ import annotations

import dataclasses
import gc
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, fx

from pareto.errors import one_line
from partitions import model as partitioned
from partitions import points, proof, scratch, weights
from partitions.graph import propagate
from partitions.model import PartitionedModel
from partitions.points import Point
from partitions.proof import PointProof
from partitions.recipe import Cuts, Recipe

LIMIT_S = 1800.0
"""A proof that would take longer is left out where several models are proved."""
NO = "no"
Shape = tuple[int, int, int]

_SIDES = (64, 96, 128)
_FAULTS = (RuntimeError, ValueError, TypeError, AssertionError)


def each(recipe: Recipe) -> list[PointProof]:
    """The proof of each point of a model, with an image of the model's own size."""
    with _loaded(recipe) as model:
        return list(proof.prove(model, _images(model, model.input_shape)))


def all_at_once(recipe: Recipe) -> str:
    """The proof of all points between blocks and of all cuts with up to three tensors, in a few words.

    The images are as small as the model takes them, because the cuts do not depend on their size and most models would
    take hours with images of their own size.
    """
    with _loaded(dataclasses.replace(recipe, cuts=Cuts("op", 3))) as loaded:
        model = dataclasses.replace(loaded, points=_united(loaded))
        channels, *own = model.input_shape
        smaller = ((channels, side, side) for side in _SIDES if side < min(own))
        small = next((shape for shape in smaller if _fits(model, shape)), None)
        words = _proved(model, small) if small else ""
        return words if words and not words.startswith(f"{NO}:") else _proved(model, model.input_shape)


def _fits(model: PartitionedModel, shape: Shape) -> bool:
    """Whether the graph is also one for images of this size."""
    images, graph = model.traced.nodes[0], fx.GraphModule(model.traced.module, model.traced.nodes[0].graph)
    example = torch.empty(1, *shape, dtype=model.traced.values[images].dtype, device="meta")
    try:
        for _ in propagate(graph, example):
            pass
    except _FAULTS:
        return False
    return True


def _proved(model: PartitionedModel, shape: Shape) -> str:
    """The proof of all points with one image of this size, in a few words."""
    try:
        images, worst, words = _images(model, shape), 0.0, "bitwise"
        began = time.perf_counter()
        proof.reference(model, images)
        expected_s = len(model.points) * (time.perf_counter() - began)
        if expected_s > LIMIT_S:
            return f"not proved: about {expected_s / 3600:.1f} h"
        for point in proof.prove(model, images):
            if word(point) == NO:
                return f"{NO}: {fault(model.points[point.point], point)}"
            if not point.bitwise and point.error >= worst:
                worst, words = point.error, word(point)
        return f"{words}, {shape[1]} px"
    except _FAULTS as error:
        return f"{NO}: {one_line(error)}"


def word(proven: PointProof) -> str:
    """Whether a point is proved, and how closely: `bitwise`, `within 1e-6`, `no`."""
    if not proven.parted or proven.error > proof.RELATIVE_TOLERANCE:
        return NO
    if proven.bitwise:
        return "bitwise"
    return f"within 1e{math.ceil(math.log10(proven.error))}" if proven.error else "equal"


def fault(point: Point, proven: PointProof) -> str:
    """Why a point is not proved."""
    at = f"at point {point.index} ({point.name})"
    if not proven.parted:
        return f"{at} the stages do not part the parameters"
    return f"{at} the result is off by {proven.error:.2g}"


def _united(model: PartitionedModel) -> tuple[Point, ...]:
    """The points of the model and those between its blocks, each once and in order."""
    position = {node.name: index for index, node in enumerate(model.traced.nodes)}
    united = {point.after: point for point in (*points.find(model.traced, Cuts()), *model.points)}
    in_order = sorted(united.values(), key=lambda point: position.get(point.after, 0))
    return tuple(dataclasses.replace(point, index=index) for index, point in enumerate(in_order))


def _images(model: PartitionedModel, shape: Shape) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if model.points[0].payload[0].dtype == "uint8":
        return torch.randint(256, (1, *shape), dtype=torch.uint8, generator=generator)
    return torch.randn(1, *shape, generator=generator)


@contextmanager
def _loaded(recipe: Recipe) -> Iterator[PartitionedModel]:
    """The model with seeded weights, on one thread: with more, sums may take another order from run to run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with scratch.folder() as folder:
            made = weights.make(recipe.name, "seeded", 0, folder)
            model = partitioned.load(recipe, made.path)
        yield model
    finally:
        torch.set_num_threads(threads)
        gc.collect()  # graphs and their modules refer to each other
        weights.give_back_freed()
