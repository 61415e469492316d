"""What requests are fed with: batches of noise or of the user's images, as the model takes them, and their labels."""

from __future__ import annotations

import importlib
import math
import os
import random
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from PIL import Image
from torch import Tensor

from pareto.backends.base import Tensors
from pareto.errors import UserError, one_line
from pareto.sweep import Sweep
from partitions import registry
from partitions.graph import TensorSpec
from partitions.recipe import Recipe
from partitions.torchvision_models import models
from partitions.tracing import normalized

# By name, after torchvision_models: beside a CPU-only torch nothing of torchvision can be imported before it.
_transforms: Any = importlib.import_module("torchvision.transforms.functional")

OWN = "own"
"""What a manifest calls inputs that the model's author makes."""
INPUTS = 4
"""Different inputs that requests take in turn, so that a stale result cannot pass for a fresh one."""
IMAGES = 16
"""How many images of a data set are used where the user does not say."""
THREADS = min(4, os.cpu_count() or 1)
"""Decoders release the interpreter's lock; more threads than these would wait for the disk, or for the model."""
AHEAD = 2 * THREADS
_MODES = {1: "L", 3: "RGB"}
_T = TypeVar("_T")


# Images that the user has: what is in a data set, and what its classes are to a model

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")


@dataclass(frozen=True)
class Labelled:
    """One image. label: index into its data set's classes; None where it has none. read: raises UserError."""

    label: int | None
    read: Callable[[], Image.Image]


@dataclass(frozen=True)
class Dataset:
    """Images and the names of their classes, which are empty where nobody said what the images show."""

    path: Path
    samples: tuple[Labelled, ...]
    classes: tuple[str, ...] = ()

    def spread(self, seed: int) -> tuple[Labelled, ...]:
        """All samples in an order of which each beginning is spread as evenly over the classes as it can be.

        The order depends on nothing but the seed and the set's content.
        """
        # Not cryptography: a choice that anybody can make again from the manifest.
        shuffled = random.Random(f"{seed}/images")  # noqa: S311
        by_class: dict[int | None, list[Labelled]] = {}
        for sample in self.samples:
            by_class.setdefault(sample.label, []).append(sample)
        kinds = list(by_class.values())
        for kind in kinds:
            shuffled.shuffle(kind)
        shuffled.shuffle(kinds)
        turns = range(max(map(len, kinds), default=0))
        return tuple(kind[turn] for turn in turns for kind in kinds if turn < len(kind))


def folder(path: Path) -> Dataset:
    """The images in `path`, sorted by name: one folder a class, as for torchvision's ImageFolder, or without labels.

    No image is read yet. Raises UserError.
    """
    if not path.is_dir():
        raise UserError(f"no folder {path}: --data-path is the one with the images, or with a folder a class")
    try:
        folders = sorted(
            child for child in path.iterdir() if child.is_dir() and not child.name.startswith(".")
        )
        loose = _images(path.iterdir())
        inside = [_images(folder.rglob("*")) for folder in folders]
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if loose and any(inside):
        raise UserError(
            f"{path} has images ({loose[0].name}, ...) beside folders of images ({folders[0].name}, ...): keep either"
        )
    if not loose and not any(inside):
        raise UserError(f"no images in {path}: it looks for {' '.join(SUFFIXES)}")
    if loose:
        return Dataset(path, tuple(Labelled(None, partial(_read, file)) for file in loose))
    samples = (Labelled(label, partial(_read, file)) for label, files in enumerate(inside) for file in files)
    return Dataset(path, tuple(samples), tuple(folder.name for folder in folders))


def _images(files: Iterable[Path]) -> list[Path]:
    return sorted(file for file in files if file.suffix.lower() in SUFFIXES and file.is_file())


def _read(file: Path) -> Image.Image:
    try:
        with Image.open(file) as image:
            colour: Image.Image = image.convert("RGB")
    except Exception as error:  # Pillow's decoders raise OSError, ValueError, SyntaxError, TypeError
        raise UserError(f"cannot read image {file}: {one_line(error)}") from error
    return colour


def cifar10(path: Path) -> Dataset:
    """CIFAR-10's test images in `path`, which holds the folder cifar-10-batches-py or is it; never downloaded.

    The files' digests are checked before anything is unpickled. Raises UserError.
    """
    published = importlib.import_module("torchvision.datasets").CIFAR10
    root = path.parent if path.name == published.base_folder else path
    try:
        images = published(root, train=False, download=False)
    except RuntimeError as error:
        raise UserError(
            f"no whole CIFAR-10 in {path}: unpack {published.filename} there ({published.url}), "
            f"so that it has {published.base_folder}/"
        ) from error
    samples = tuple(
        Labelled(label, partial(Image.fromarray, pixels))
        for label, pixels in zip(images.targets, images.data, strict=True)
    )
    return Dataset(path, samples, tuple(images.classes))


@dataclass(frozen=True)
class Labels:
    """indices: for each class of a data set, the model's output that stands for it; empty where there is none.

    how: by what they are matched, or why they cannot be.
    """

    indices: tuple[int, ...]
    how: str


def match(classes: Sequence[str], outputs: int | None, categories: Sequence[str]) -> Labels:
    """The model's outputs for the `classes` of a data set, by names, numbers or order.

    outputs: how many classes the model tells apart, None where it is no classifier. categories: their names, where
    the model's author gives them.
    """
    if not classes:
        return Labels((), "the images are in no class folders")
    if outputs is None:
        return Labels((), "the model is no classifier")
    known = {_plain(name): index for index, name in enumerate(categories)}
    if all(_plain(name) in known for name in classes):
        return Labels(tuple(known[_plain(name)] for name in classes), "names")
    if all(name.isdecimal() and int(name) < outputs for name in classes):
        return Labels(tuple(map(int, classes)), "numbers")
    if len(classes) == outputs:
        return Labels(tuple(range(outputs)), "order")
    strange = next(name for name in classes if _plain(name) not in known)
    return Labels(
        (),
        f"the data set has {len(classes)} classes and the model {outputs}, and {strange!r} is neither the name nor the "
        "number of one of them",
    )


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", " ", name).strip().casefold()


# Batches of them, or of noise


def _count(images: int | None, batch_size: int) -> int:
    """How many batches have so many images; None: `INPUTS`."""
    return INPUTS if images is None else math.ceil(images / batch_size)


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
        """How many batches there are."""
        return _count(self.images, batch_size)

    def batches(self, batch_size: int) -> Iterator[Tensors]:
        """Each one tensor (batch_size, channels, height, width), in the model's input dtype; the same each time."""
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.count(batch_size)):
            if self.dtype == torch.uint8:
                yield (torch.randint(256, (batch_size, *self.shape), generator=generator, dtype=torch.uint8),)
            else:
                yield (torch.randn(batch_size, *self.shape, generator=generator),)

    def labels(self, batch_size: int) -> None:
        """None: noise shows nothing."""


@dataclass(frozen=True)
class Own:
    """What a model's author makes for it; depends on the seed only. images: how many; None for `INPUTS` batches."""

    make: Callable[[int, int], Tensors]
    images: int | None
    seed: int

    def count(self, batch_size: int) -> int:
        return _count(self.images, batch_size)

    def batches(self, batch_size: int) -> Iterator[Tensors]:
        """All tensors that the model takes, batch by batch. Raises UserError."""
        return (self.make(batch_size, self.seed + number) for number in range(self.count(batch_size)))

    def labels(self, batch_size: int) -> None:
        """None: nobody says what they show."""


@dataclass(frozen=True)
class Pictures:
    """Images of a data set, each taken once; those left over that make no whole batch are not taken.

    samples: in the order of use. images: how many at least. fit: from an image to a uint8 tensor (channels, height,
    width). finish: from a batch of these to what the model takes; None where it takes them as they are. classes: of
    the model, for each of the data set; empty where they are not known.
    """

    samples: tuple[Labelled, ...]
    images: int
    fit: Callable[[Image.Image], Tensor]
    finish: Callable[[Tensor], Tensor] | None
    classes: tuple[int, ...] = ()

    def count(self, batch_size: int) -> int:
        return min(len(self.samples) // batch_size, math.ceil(self.images / batch_size))

    def batches(self, batch_size: int) -> Iterator[Tensors]:
        """As those of noise. Raises UserError for an image that cannot be read."""
        fitted = ahead(partial(self._fitted, sample) for sample in self._taken(batch_size))
        for _ in range(self.count(batch_size)):
            batch = torch.stack([next(fitted) for _ in range(batch_size)])
            yield (batch if self.finish is None else self.finish(batch),)

    def labels(self, batch_size: int) -> Tensor | None:
        """The class of each image, int64 of shape (count, batch_size); None where they are not known."""
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


Feed = Noise | Own | Pictures


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

    def __call__(self, image: Image.Image) -> Tensor:
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

    facts: for the manifest. notes: for the user.
    """

    feed: Feed
    facts: dict[str, Any]
    notes: tuple[str, ...] = ()


def open_dataset(sweep: Sweep) -> Dataset | None:
    """The sweep's data set, no image of it read yet; None for a synthetic one. Raises UserError."""
    if sweep.data_path is None:
        return None
    dataset = {"cifar10": cifar10, "folder": folder}[sweep.dataset](sweep.data_path)
    for option, wanted in (("--images", sweep.images or 1), ("--batch-size", max(sweep.batch_sizes))):
        if wanted > len(dataset.samples):
            raise UserError(f"{option} {wanted}: {sweep.data_path} has {len(dataset.samples)} images")
    return dataset


def feed_for(
    sweep: Sweep,
    dataset: Dataset | None,
    recipe: Recipe,
    results: Sequence[TensorSpec],
) -> Feeding:
    """The feed for a model. results: what the model yields at batch 1. Raises UserError."""
    entry = registry.entry(recipe.name)
    if entry.make_inputs is not None:
        if dataset is not None:
            raise UserError(f"{recipe.name} makes its own inputs: leave out --dataset and --data-path")
        return Feeding(Own(entry.example, sweep.images, sweep.seed), {"name": OWN})
    shape = entry.input_shape
    if dataset is None:
        dtype = torch.uint8 if recipe.input == "uint8" else torch.float32
        return Feeding(Noise(shape, dtype, sweep.images, sweep.seed), {"name": sweep.dataset})
    outputs = results[0].shape[1] if len(results) == 1 and len(results[0].shape) == 2 else None
    labels = match(dataset.classes, outputs, entry.classes)
    images = sweep.images or min(IMAGES, len(dataset.samples))
    finish = None if recipe.input == "uint8" else partial(normalized, mean=entry.mean, std=entry.std)
    feed = Pictures(dataset.spread(sweep.seed), images, crop_for(recipe.name, shape), finish, labels.indices)
    facts = {
        "name": sweep.dataset,
        "images": images,
        "of": len(dataset.samples),
        "labels": labels.how,
        "classes": dict(zip(dataset.classes, labels.indices, strict=False)),
    }
    notes = () if labels.indices else (f"no accuracy for {recipe.name}: {labels.how}",)
    return Feeding(feed, facts, notes)
