"""What requests are fed with: batches of tensors as the model takes them, and what they show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from PIL.Image import Image
from torch import Tensor

from pareto.datasets.ahead import ahead
from pareto.datasets.dataset import Sample

INPUTS = 4
"""Different inputs that requests take in turn, so that a stale result cannot pass for a fresh one."""


class Feed(Protocol):
    """Inputs for a model, the same whenever they are asked for."""

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
    """Images of a data set, each taken once: what is left over of them, and is no whole batch, is not taken.

    samples: in the order of use. images: how many at least. fit: from an image to a uint8 tensor (channels, height,
    width). finish: from a batch of these to what the model takes. classes: of the model, for each of the data set;
    empty where they are not known.
    """

    samples: tuple[Sample, ...]
    images: int
    fit: Callable[[Image], Tensor]
    finish: Callable[[Tensor], Tensor]
    classes: tuple[int, ...] = ()

    def count(self, batch_size: int) -> int:
        return min(len(self.samples) // batch_size, math.ceil(self.images / batch_size))

    def batches(self, batch_size: int) -> Iterator[Tensor]:
        taken = self.samples[: self.count(batch_size) * batch_size]
        fitted = ahead(partial(self._fitted, sample) for sample in taken)
        for _ in range(self.count(batch_size)):
            yield self.finish(torch.stack([next(fitted) for _ in range(batch_size)]))

    def _fitted(self, sample: Sample) -> Tensor:
        return self.fit(sample.read())

    def labels(self, batch_size: int) -> Tensor | None:
        if not self.classes:
            return None
        taken = self.samples[: self.count(batch_size) * batch_size]
        shown = [self.classes[sample.label] for sample in taken if sample.label is not None]
        return torch.tensor(shown).reshape(-1, batch_size)
