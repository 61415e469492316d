"""The proof of a model's points in words: `bitwise`, `within 1e-6`, `no: ...`, `not proved: ...`."""

from __future__ import annotations

import dataclasses
import functools
import gc
import itertools
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, fx

from partitions import model as partitioned
from partitions import points, proof, scratch, weights
from partitions.graph import propagate
from partitions.model import PartitionedModel
from partitions.points import Point
from partitions.proof import PointProof
from partitions.recipe import Cuts, Recipe

LIMIT_S = 1800.0
"""A model whose proof would take longer is not proved along with others, and is said not to be."""
Shape = tuple[int, int, int]
NO = "no"
_SIDES = (64, 96, 128)
_FAULTS = (RuntimeError, ValueError, TypeError, AssertionError)


def each(recipe: Recipe) -> list[PointProof]:
    """The proof of each point of a model, with an image of the model's own size."""
    with _loaded(recipe) as model:
        return list(proof.prove(model, _images(model, model.input_shape)))


def all_at_once(recipe: Recipe) -> str:
    """What the proof of every point found, between blocks and of every cut with up to three tensors.

    The images are as small as the model takes them: what is cut does not depend on their size, and most models would
    take hours at their own.
    """
    with _loaded(dataclasses.replace(recipe, cuts=Cuts("op", 3))) as loaded:
        model = dataclasses.replace(loaded, points=_united(loaded))
        channels, *own = model.input_shape
        smaller = ((channels, side, side) for side in _SIDES if side < min(own))
        shapes = [*itertools.islice(filter(functools.partial(_fits, model), smaller), 1), model.input_shape]
        for shape in shapes:
            try:
                said = _proved(model, shape)
            except _FAULTS as error:
                said = f"{NO}: {' '.join(str(error).split())}"
            if not said.startswith(f"{NO}:"):
                break
        return said


def _fits(model: PartitionedModel, shape: Shape) -> bool:
    """Whether the graph is one for images of this size, too."""
    images, graph = model.traced.nodes[0], fx.GraphModule(model.traced.module, model.traced.nodes[0].graph)
    try:
        for _ in propagate(
            graph, torch.empty(1, *shape, dtype=model.traced.values[images].dtype, device="meta")
        ):
            pass
    except _FAULTS:
        return False
    return True


def _proved(model: PartitionedModel, shape: Shape) -> str:
    images, number = _images(model, shape), len(model.points)
    began = time.perf_counter()
    proof.reference(model, images)
    foreseen_s = number * (time.perf_counter() - began)
    if foreseen_s > LIMIT_S:
        return f"not proved: about {foreseen_s / 3600:.1f} h"
    said = "bitwise"
    worst = 0.0
    for found in proof.prove(model, images):
        if word(found) == NO:
            return f"{NO}: {fault(model.points[found.point], found)}"
        if not found.bitwise and found.error >= worst:
            worst, said = found.error, word(found)
    return f"{said}, {shape[1]} px"


def word(found: PointProof) -> str:
    """Whether a point is proved, and how closely."""
    if not found.parted or found.error > proof.RELATIVE_TOLERANCE:
        return NO
    if found.bitwise:
        return "bitwise"
    return f"within 1e{math.ceil(math.log10(found.error))}" if found.error else "equal"


def fault(point: Point, found: PointProof) -> str:
    """Why a point is not proved."""
    at = f"at point {point.index} ({point.name})"
    if not found.parted:
        return f"{at} the stages do not part the parameters"
    return f"{at} the result is off by {found.error:.2g}"


def _united(model: PartitionedModel) -> tuple[Point, ...]:
    """The points of the model, and those between its blocks, each once and in order."""
    position = {node.name: index for index, node in enumerate(model.traced.nodes)}
    found = {point.after: point for point in (*points.find(model.traced, Cuts()), *model.points)}
    in_order = sorted(found.values(), key=lambda point: position.get(point.after, 0))
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
