"""Which images a sweep feeds a model with, and what is told of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pareto.datasets import cifar10, folder
from pareto.datasets.crop import evaluated
from pareto.datasets.dataset import Dataset
from pareto.datasets.feed import Feed, Noise, Pictures
from pareto.datasets.labels import match
from pareto.errors import UserError
from pareto.sweep import Sweep
from partitions import preprocess, registry
from partitions.graph import TensorSpec
from partitions.recipe import Recipe

IMAGES = 16
"""Of a data set, where the user does not say how many."""

_LOADERS: dict[str, Callable[[Path], Dataset]] = {"cifar10": cifar10.load, "folder": folder.load}


@dataclass(frozen=True)
class Feeding:
    """A feed for a model.

    facts: for the manifest. labelled: images asked for, if their labels are known. notes: for the user.
    """

    feed: Feed
    facts: dict[str, Any]
    labelled: int = 0
    notes: tuple[str, ...] = ()


def opened(sweep: Sweep) -> Dataset | None:
    """The sweep's data set, no image of it read yet; None for a synthetic one. Raises UserError."""
    if sweep.data_path is None:
        return None
    dataset = _LOADERS[sweep.dataset](sweep.data_path)
    for option, wanted in (("--images", sweep.images or 1), ("--batch-size", max(sweep.batch_sizes))):
        if wanted > len(dataset.samples):
            raise UserError(f"{option} {wanted}: {sweep.data_path} has {len(dataset.samples)} images")
    return dataset


def chosen(
    sweep: Sweep,
    dataset: Dataset | None,
    recipe: Recipe,
    shape: tuple[int, int, int],
    results: Sequence[TensorSpec],
) -> Feeding:
    """What the model is fed with. shape: (channels, height, width). results: what it yields at batch 1."""
    if dataset is None:
        dtype = torch.uint8 if recipe.input == "uint8" else torch.float32
        return Feeding(Noise(shape, dtype, sweep.images, sweep.seed), {"name": sweep.dataset})
    entry = registry.entry(recipe.name)
    outputs = results[0].shape[1] if len(results) == 1 and len(results[0].shape) == 2 else None
    labels = match(dataset.classes, outputs, entry.classes)
    images = sweep.images or min(IMAGES, len(dataset.samples))
    finish = (
        _as_they_are
        if recipe.input == "uint8"
        else partial(preprocess.normalized, mean=entry.mean, std=entry.std)
    )
    feed = Pictures(dataset.spread(sweep.seed), images, evaluated(recipe.name, shape), finish, labels.indices)
    facts = {
        "name": sweep.dataset,
        "images": images,
        "of": len(dataset.samples),
        "labels": labels.how,
        "classes": dict(zip(dataset.classes, labels.indices, strict=False)),
    }
    if not labels.indices:
        return Feeding(feed, facts, notes=(f"no accuracy for {recipe.name}: {labels.how}",))
    return Feeding(feed, facts, labelled=images)


def _as_they_are(pixels: Tensor) -> Tensor:
    return pixels
