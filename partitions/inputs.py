"""The inputs of a model: images, or whatever its author makes for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .graph import Input
from .tracing import normalized

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
BYTES, FLOATS = "uint8", "float32"
"""The dtypes of images: a camera's bytes, which the model's first unit normalises, or normalised already."""
_SIDES = (64, 96, 128)
_CALIBRATING = 2


@dataclass(frozen=True)
class Images:
    """Images of one size.

    shape: channels, height and width. mean, std: of each channel, for values between 0 and 1, by which images are
    normalised before the model sees them.
    """

    shape: tuple[int, int, int] = (3, 224, 224)
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    words = f"{FLOATS} input"
    """The name, in figures and sentences, of what payloads are compared with."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The tensors that the module takes."""
        return (Input(self.shape),)

    @property
    def nbytes(self) -> int:
        """The size of one image in float32, whatever dtype it is sent in."""
        return 4 * math.prod(self.shape)

    @property
    def size(self) -> str:
        """The side in words, as in '224 px'."""
        return f"{self.shape[1]} px"

    def dtypes(self, asked: str) -> str:
        """`asked`, uint8 or float32; where that is empty, bytes if the images have a picture's channels."""
        return asked or (BYTES if self.shape[0] in (1, 3, 4) else FLOATS)

    def batches(
        self, count: int, batch_size: int, seed: int, dtypes: str = FLOATS
    ) -> Iterator[tuple[Tensor, ...]]:
        """Batches of noise, normal or of random bytes; they depend on the seed only."""
        generator = torch.Generator().manual_seed(seed)
        for _ in range(count):
            if dtypes == BYTES:
                yield (torch.randint(256, (batch_size, *self.shape), generator=generator, dtype=torch.uint8),)
            else:
                yield (torch.randn(batch_size, *self.shape, generator=generator),)

    def calibrating(self, seed: int) -> tuple[Tensor, ...]:
        """A batch from torch's own generator: normalised images, and raw ones between 0 and 1, for either may come."""
        shape = (_CALIBRATING, *self.shape)
        return (torch.cat([torch.randn(shape), torch.rand(shape)]),)

    def smaller(self) -> Iterator[Images]:
        """The same for smaller images, the smallest first: where a model is cut does not depend on their size."""
        channels, *own = self.shape
        return (replace(self, shape=(channels, side, side)) for side in _SIDES if side < min(own))


@dataclass(frozen=True)
class Own:
    """Inputs that a model's author makes for it: token ids, masks, waves. It raises UserError.

    make: from batch size and seed to the inputs, by the names of the parameters of `forward` that they are for, or by
    numbers where they go to the first ones in their order.
    """

    make: Callable[[int, int], Mapping[str, Tensor]]

    words = "input"
    size = ""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The tensors that the module takes."""
        return tuple(
            Input(tuple(tensor.shape[1:]), tensor.dtype, "" if name.isdecimal() else name)
            for name, tensor in self.make(2, 0).items()
        )

    @property
    def nbytes(self) -> int:
        """The size of all of them, at batch 1."""
        return sum(math.prod(one.shape) * one.dtype.itemsize for one in self.inputs)

    def dtypes(self, asked: str) -> str:
        """The dtypes that the author makes; `asked`, the dtype of images, says nothing."""
        return ", ".join(str(one.dtype).removeprefix("torch.") for one in self.inputs)

    def batches(
        self, count: int, batch_size: int, seed: int, dtypes: str = ""
    ) -> Iterator[tuple[Tensor, ...]]:
        """All tensors that the model takes, batch by batch; they depend on the seed only."""
        return (tuple(self.make(batch_size, seed + number).values()) for number in range(count))

    def calibrating(self, seed: int) -> tuple[Tensor, ...]:
        """A batch."""
        return tuple(self.make(2 * _CALIBRATING, seed).values())


Taken = Images | Own


def for_module(takes: Taken, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Copies, which the module may overwrite; images normalised where they are bytes."""
    if isinstance(takes, Images) and inputs[0].dtype == torch.uint8:
        return [normalized(inputs[0], takes.mean, takes.std)]
    return [one.clone() for one in inputs]
