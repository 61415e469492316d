"""What requests are fed with: batches of noise or of the user's images, as the model takes them, and their labels."""

from __future__ import annotations

import importlib
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from PIL.Image import Image
from torch import Tensor

from pareto import datasets
from pareto.datasets import Dataset, Labelled
from pareto.errors import UserError
from pareto.sweep import Sweep
from partitions import registry
from partitions.graph import TensorSpec
from partitions.recipe import Recipe
from partitions.torchvision_models import models
from partitions.tracing import normalized

# By name, after torchvision_models: beside a CPU-only torch nothing of torchvision can be imported before it.
_transforms: Any = importlib.import_module("torchvision.transforms.functional")

INPUTS = 4
"""Different inputs that requests take in turn, so that a stale result cannot pass for a fresh one."""
IMAGES = 16
"""How many images of a data set are used where the user does not say."""
THREADS = min(4, os.cpu_count() or 1)
"""Decoders release the interpreter's lock; more threads than these would wait for the disk, or for the model."""
AHEAD = 2 * THREADS
_MODES = {1: "L", 3: "RGB"}
_T = TypeVar("_T")


class Feed(Protocol):
    """Inputs for a model, the same each time."""

    def count(self, batch_size: int) -> int:
        """How many batches there are."""

    def batches(self, batch_size: int) -> Iterator[Tensor]:
        """Each of shape (batch_size, channels, height, width), in the model's input dtype. Raises UserError."""

    def labels(self, batch_size: int) -> Tensor | None:
        """The class of each image, int64 of shape (count, batch_size); None where they are not known."""


@dataclass(frozen=True)
class Noise:
    """Normal noise for a model that takes float32, random bytes for one that takes uint8; depends on the seed only.

    shape: (channels, height, width). images: None for `INPUTS` batches.
    """

    shape: tuple[int, int, int]
    dtype: torch.dtype
    images: int | None
    seed: int

    def count(self, batch_size: int) -> int:
        return INPUTS if self.images is None else math.ceil(self.images / batch_size)

    def batches(self, batch_size: int) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.count(batch_size)):
            if self.dtype == torch.uint8:
                yield torch.randint(256, (batch_size, *self.shape), generator=generator, dtype=torch.uint8)
            else:
                yield torch.randn(batch_size, *self.shape, generator=generator)

    def labels(self, batch_size: int) -> Tensor | None:
        return None


@dataclass(frozen=True)
class Pictures:
    """Images of a data set, each taken once; those left over that make no whole batch are not taken.

    samples: in the order of use. images: how many at least. fit: from an image to a uint8 tensor (channels, height,
    width). finish: from a batch of these to what the model takes. classes: of the model, for each of the data set;
    empty where they are not known.
    """

    samples: tuple[Labelled, ...]
    images: int
    fit: Callable[[Image], Tensor]
    finish: Callable[[Tensor], Tensor]
    classes: tuple[int, ...] = ()

    def count(self, batch_size: int) -> int:
        return min(len(self.samples) // batch_size, math.ceil(self.images / batch_size))

    def batches(self, batch_size: int) -> Iterator[Tensor]:
        fitted = ahead(partial(self._fitted, sample) for sample in self._taken(batch_size))
        for _ in range(self.count(batch_size)):
            yield self.finish(torch.stack([next(fitted) for _ in range(batch_size)]))

    def labels(self, batch_size: int) -> Tensor | None:
        if not self.classes:
            return None
        labels = [sample.label for sample in self._taken(batch_size)]
        return torch.tensor([self.classes[label] for label in labels if label is not None]).reshape(
            -1, batch_size
        )

    def _taken(self, batch_size: int) -> tuple[Labelled, ...]:
        return self.samples[: self.count(batch_size) * batch_size]

    def _fitted(self, sample: Labelled) -> Tensor:
        return self.fit(sample.read())


def ahead(jobs: Iterable[Callable[[], _T]]) -> Iterator[_T]:
    """The results of the jobs in their order, while threads work ahead; no more than `AHEAD` results lie ready.

    Raises what a job raises, when its turn comes; the jobs after it are dropped.
    """
    waiting: deque[Future[_T]] = deque()
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="decode")
    try:
        for job in jobs:
            waiting.append(pool.submit(job))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Crop:
    """Scales an image so that its shorter side has `resize` pixels, and cuts `shape` from its middle.

    shape: channels (1: grey, or 3), height, width.
    """

    shape: tuple[int, int, int]
    resize: int
    interpolation: Any = _transforms.InterpolationMode.BILINEAR

    def __call__(self, image: Image) -> Tensor:
        """The pixels as uint8, of this shape."""
        channels, height, width = self.shape
        scaled = _transforms.resize(image.convert(_MODES[channels]), [self.resize], self.interpolation)
        pixels: Tensor = _transforms.pil_to_tensor(_transforms.center_crop(scaled, [height, width]))
        return pixels


def crop_for(name: str, shape: tuple[int, int, int]) -> Crop:
    """The crop by which torchvision evaluates the model; for other models as much of an image as there is room for.

    Raises UserError for a model that does not take images.
    """
    if shape[0] not in _MODES:
        raise UserError(f"{name} takes {shape[0]} channels, and images have 3: leave out --dataset")
    preset: Any = (
        models.get_model_weights(name).DEFAULT.transforms() if name in models.list_models() else None
    )
    if not hasattr(preset, "resize_size"):  # its detectors take images as they are
        return Crop(shape, max(shape[1:]))
    return Crop(shape, preset.resize_size[0], preset.interpolation)


@dataclass(frozen=True)
class Feeding:
    """A feed for a model.

    facts: for the manifest. labelled: images wanted, if their labels are known. notes: for the user.
    """

    feed: Feed
    facts: dict[str, Any]
    labelled: int = 0
    notes: tuple[str, ...] = ()


def open_dataset(sweep: Sweep) -> Dataset | None:
    """The sweep's data set, no image of it read yet; None for a synthetic one. Raises UserError."""
    if sweep.data_path is None:
        return None
    dataset = {"cifar10": datasets.cifar10, "folder": datasets.folder}[sweep.dataset](sweep.data_path)
    for option, wanted in (("--images", sweep.images or 1), ("--batch-size", max(sweep.batch_sizes))):
        if wanted > len(dataset.samples):
            raise UserError(f"{option} {wanted}: {sweep.data_path} has {len(dataset.samples)} images")
    return dataset


def feed_for(
    sweep: Sweep,
    dataset: Dataset | None,
    recipe: Recipe,
    shape: tuple[int, int, int],
    results: Sequence[TensorSpec],
) -> Feeding:
    """The feed for a model. shape: (channels, height, width). results: what the model yields at batch 1."""
    if dataset is None:
        dtype = torch.uint8 if recipe.input == "uint8" else torch.float32
        return Feeding(Noise(shape, dtype, sweep.images, sweep.seed), {"name": sweep.dataset})
    entry = registry.entry(recipe.name)
    outputs = results[0].shape[1] if len(results) == 1 and len(results[0].shape) == 2 else None
    labels = datasets.match(dataset.classes, outputs, entry.classes)
    images = sweep.images or min(IMAGES, len(dataset.samples))
    finish = _unchanged if recipe.input == "uint8" else partial(normalized, mean=entry.mean, std=entry.std)
    feed = Pictures(dataset.spread(sweep.seed), images, crop_for(recipe.name, shape), finish, labels.indices)
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


def _unchanged(pixels: Tensor) -> Tensor:
    return pixels
