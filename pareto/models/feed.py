"""The input of requests: batches of noise or of the user's images, as the model takes them, and their labels."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from PIL import Image
from torch import Tensor

from pareto.models import datasets
from pareto.models.datasets import Dataset, Labelled, match
from pareto.partitions import registry
from pareto.partitions.graph import Input, TensorSpec
from pareto.partitions.inputs import BYTES, Images, Taken
from pareto.partitions.recipe import Recipe
from pareto.partitions.tracing import normalized
from pareto.protocol.errors import UserError
from pareto.remote.backends.base import Tensors, dtype_name, layout
from pareto.remote.codecs import camera, pictures
from pareto.remote.codecs.base import in_words
from pareto.remote.codecs.camera import Crop, crop_for
from pareto.sweep import dataset_names
from pareto.sweep.sweep import JPEG, Sweep

OWN = "own"
"""A manifest's word for inputs that the model's author makes."""
INPUTS = 4
"""Different inputs that requests take in turn, so that a stale result cannot pass for a fresh one."""
IMAGES = 16
"""How many images of a data set are used where the user does not say."""
THREADS = min(4, os.cpu_count() or 1)
"""Decoders release the interpreter's lock; more threads than these would wait for the disk, or for the model."""
AHEAD = 2 * THREADS
_T = TypeVar("_T")


# Batches of samples, or of what is made


@dataclass(frozen=True)
class Synthetic:
    """Noise as images, or what the model's author makes; the same each time. dtypes: a recipe's. images: how many; None
    for `INPUTS` batches."""

    takes: Taken
    dtypes: str
    images: int | None
    seed: int

    def count(self, batch_size: int) -> int:
        return INPUTS if self.images is None else math.ceil(self.images / batch_size)

    def batches(self, batch_size: int) -> Iterator[Tensors]:
        """Each the tensors that the model takes, the batch first. Raises UserError."""
        return self.takes.batches(self.count(batch_size), batch_size, self.seed, self.dtypes)

    def labels(self, batch_size: int) -> None:
        """None: nobody says what they show."""

    def files(self, batch_size: int) -> Iterator[Tensor]:
        return iter(())


@dataclass(frozen=True)
class Samples:
    """Samples of a data set, each taken once; those left over that make no whole batch are not taken.

    samples: in the order of use. images: how many at least. fit: from a sample to its tensors, without the batch; it
    raises ValueError. finish: from a batch of images to what the model takes; None where it takes them as they are.
    classes: of the model, for each of the data set; empty where they are not known. threads: read ahead. are_files:
    whether what is read of a sample is the bytes of its file.
    """

    samples: tuple[Labelled, ...]
    images: int
    fit: Callable[[Any], Tensors]
    finish: Callable[[Tensor], Tensor] | None
    classes: tuple[int, ...] = ()
    threads: int = field(default=THREADS, compare=False)
    are_files: bool = False

    def count(self, batch_size: int) -> int:
        return min(len(self.samples) // batch_size, math.ceil(self.images / batch_size))

    def batches(self, batch_size: int) -> Iterator[Tensors]:
        """As synthetic ones. Raises UserError for a sample that cannot be read, or does not fit."""
        jobs = (partial(self._fitted, sample) for sample in self._taken(batch_size))
        fitted = ahead(jobs, self.threads)
        for _ in range(self.count(batch_size)):
            batch = tuple(map(torch.stack, zip(*(next(fitted) for _ in range(batch_size)), strict=True)))
            yield batch if self.finish is None else tuple(map(self.finish, batch))

    def labels(self, batch_size: int) -> Tensor | None:
        """The class of each image, int64 of shape (count, batch_size); None where they are not known."""
        if not self.classes:
            return None
        labels = [sample.label for sample in self._taken(batch_size)]
        known = [self.classes[label] for label in labels if label is not None]
        return torch.tensor(known).reshape(-1, batch_size)

    def files(self, batch_size: int) -> Iterator[Tensor]:
        """The files of each batch, as one tensor of bytes; nothing where samples are none. Raises UserError."""
        if self.are_files:
            taken = iter(self._taken(batch_size))
            for _ in range(self.count(batch_size)):
                yield pictures.joined([next(taken).read() for _ in range(batch_size)])

    def _taken(self, batch_size: int) -> tuple[Labelled, ...]:
        return self.samples[: self.count(batch_size) * batch_size]

    def _fitted(self, sample: Labelled) -> Tensors:
        what = sample.read()
        try:
            return self.fit(what)
        except UserError:
            raise
        except ValueError as error:
            raise UserError(f"{sample.name}: {error}") from error


Feed = Synthetic | Samples


def ahead(jobs: Iterable[Callable[[], _T]], threads: int = THREADS) -> Iterator[_T]:
    """The results of the jobs in their order, while threads work ahead; no more than `AHEAD` results lie ready. Raises
    what a job raises, when its turn comes; the jobs after it are dropped."""
    waiting: deque[Future[_T]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
    try:
        for job in jobs:
            waiting.append(pool.submit(job))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def image(what: Any, shape: tuple[int, ...], crop: Crop | None) -> Tensors:
    """The one tensor of bytes, of this shape, that an image becomes: one of PIL, or a tensor (channels, height, width)
    of bytes, or floats from 0 to 1. One of this shape is taken as it is; all others are cut to it by `crop`, which is
    None where the model takes no pictures. Raises ValueError."""
    if isinstance(what, Tensor):
        what = _as_bytes(what)
        if what.shape == shape:
            return (what,)
        if what.dim() != 3 or len(what) not in pictures.MODES:
            raise ValueError(
                f"it is a tensor {_sizes(what.shape)}: an image is {_sizes(shape)}, or 1 or 3 channels"
            )
        what = Image.fromarray(what.squeeze(0).numpy() if len(what) == 1 else what.permute(1, 2, 0).numpy())
    if not isinstance(what, Image.Image):
        raise ValueError(f"it is neither an image of PIL nor a tensor but {type(what).__name__}")
    if crop is None:
        raise ValueError(
            f"it is a picture, and the model takes {shape[0]} channels: give tensors {_sizes(shape)}"
        )
    return (crop(what.convert("RGB")),)


def _as_bytes(pixels: Tensor) -> Tensor:
    pixels = pixels.detach().cpu()
    if pixels.is_floating_point():
        least, most = (float(each) for each in pixels.aminmax())
        if not 0.0 <= least <= most <= 1.0:
            raise ValueError(
                f"its floats are from {least:.3g} to {most:.3g}: an image has them from 0 to 1, and is normalised by "
                "the model's mean and std, so leave that out of the data set"
            )
        return pixels.mul(255).round().to(torch.uint8).contiguous()
    if pixels.dtype != torch.uint8:
        raise ValueError(
            f"its pixels are {dtype_name(pixels.dtype)}: an image has uint8, or floats from 0 to 1"
        )
    return pixels.contiguous()


def own_inputs(what: Any, inputs: Sequence[Input]) -> Tensors:
    """A sample for a model with inputs of its own: a tensor, a tuple, or a dict by their names. Raises ValueError."""
    if isinstance(what, Mapping):
        names = [one.name or str(number) for number, one in enumerate(inputs)]
        if {*what} != {*names}:
            raise ValueError(
                f"it has {', '.join(map(str, what)) or 'nothing'}: the model takes {', '.join(names)}"
            )
        what = tuple(what[name] for name in names)
    tensors = tuple(what) if isinstance(what, tuple | list) else (what,)
    came = tuple(layout([one])[0] if isinstance(one, Tensor) else (type(one).__name__, ()) for one in tensors)
    wanted = tuple((dtype_name(one.dtype), one.shape) for one in inputs)
    if came != wanted:
        raise ValueError(f"it is {in_words(came)}: the model takes {in_words(wanted)}, without the batch")
    return tuple(one.detach().cpu().contiguous() for one in tensors)


def _sizes(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def open_dataset(sweep: Sweep) -> Dataset | None:
    """The sweep's data set, no image of it read yet; None for a synthetic one. Raises UserError."""
    if sweep.dataset == dataset_names.SYNTHETIC:
        return None
    dataset = datasets.open_named(sweep.dataset, sweep.data_path)
    for option, wanted in (("--images", sweep.images or 1), ("--batch-size", max(sweep.batch_sizes))):
        if wanted > len(dataset.samples):
            raise UserError(f"{option} {wanted}: {dataset.where} has {len(dataset.samples)} images")
    return dataset


def feed_for(
    sweep: Sweep, dataset: Dataset | None, recipe: Recipe, results: Sequence[TensorSpec]
) -> tuple[Feed, dict[str, Any], tuple[str, ...]]:
    """The feed for a model, facts for the manifest, notes for the user. results: at batch 1. Raises UserError."""
    entry = registry.entry(recipe.name)
    takes = entry.takes
    if dataset is None:
        name = sweep.dataset if isinstance(takes, Images) else OWN
        return Synthetic(takes, recipe.input, sweep.images, sweep.seed), {"name": name}, ()
    if dataset.pictures and not isinstance(takes, Images):
        raise UserError(
            f"{recipe.name} makes its own inputs: leave out --dataset and --data-path, or give a data set of such "
            "inputs, as in --dataset data.py:make"
        )
    fit, finish = _fitting(dataset, recipe, takes)
    images = sweep.images or min(IMAGES, len(dataset.samples))
    chosen = dataset.chosen(sweep.seed, max(math.ceil(images / size) * size for size in sweep.batch_sizes))
    outputs = results[0].shape[1] if len(results) == 1 and len(results[0].shape) == 2 else None
    indices, how = match(chosen.classes, outputs, entry.classes)
    threads = THREADS if dataset.at_once else 1
    samples, are_files = chosen.samples, sweep.source == JPEG
    if are_files:
        samples = tuple(sample.encoded for sample in samples)
        fit = partial(_of_file, crop=crop_for(recipe.name, entry.images.shape))
    feed = Samples(samples, images, fit, finish, indices, threads, are_files)
    facts = {
        "name": dataset_names.shown(sweep.dataset),
        "images": images,
        "of": len(dataset.samples),
        "labels": how,
        "classes": dict(zip(chosen.classes, indices, strict=False)),
    }
    return feed, facts, () if indices else (f"no accuracy for {recipe.name}: {how}",)


def _fitting(
    dataset: Dataset, recipe: Recipe, takes: Taken
) -> tuple[Callable[[Any], Tensors], Callable[[Tensor], Tensor] | None]:
    """`Samples.fit` and `Samples.finish` for a model. Raises UserError."""
    if not isinstance(takes, Images):
        return partial(own_inputs, inputs=takes.inputs), None
    shape = takes.shape
    if not dataset.pictures and takes.dtypes("") != BYTES:
        return partial(own_inputs, inputs=(Input(shape, getattr(torch, recipe.input)),)), None
    crop = crop_for(recipe.name, shape) if dataset.pictures or shape[0] in pictures.MODES else None
    finish = None if recipe.input == BYTES else partial(normalized, mean=takes.mean, std=takes.std)
    return partial(image, shape=shape, crop=crop), finish


def _of_file(file: bytes, crop: Crop) -> Tensors:
    return (camera.pixels(file, crop),)
