"""What a model takes: images, or whatever its author makes for it."""

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
    """What payloads are compared with, in figures and sentences."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The tensors that the module takes."""
        return (Input(self.shape),)

    @property
    def nbytes(self) -> int:
        """Of one image in float32, whatever dtype it is sent in."""
        return 4 * math.prod(self.shape)

    @property
    def size(self) -> str:
        """Such as '224 px'."""
        return f"{self.shape[1]} px"

    def dtypes(self, asked: str) -> str:
        """`asked`, uint8 or float32; where that is empty, bytes if the images have a picture's channels."""
        return asked or (BYTES if self.shape[0] in (1, 3, 4) else FLOATS)

    def normalising(self, dtypes: str) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Mean and standard deviation for bytes, None for images that are normalised already."""
        return (self.mean, self.std) if dtypes == BYTES else None

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

    def for_module(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Copies, which the module may overwrite: normalised where they are bytes."""
        (images,) = inputs
        return [normalized(images, self.mean, self.std) if images.dtype == torch.uint8 else images.clone()]

    def smaller(self) -> Iterator[Images]:
        """The same for smaller images, the smallest first: where a model is cut does not depend on their size."""
        channels, *own = self.shape
        return (replace(self, shape=(channels, side, side)) for side in _SIDES if side < min(own))


@dataclass(frozen=True)
class Own:
    """What a model's author makes for it: token ids, masks, waves.

    make: from batch size and seed to the inputs, by the names of the parameters of `forward` that they are for, or by
    numbers where they go to the first ones in their order. Raises UserError.
    """

    make: Callable[[int, int], Mapping[str, Tensor]]

    words = "input"
    size = ""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The tensors that the module takes. Raises UserError."""
        return tuple(
            Input(tuple(tensor.shape[1:]), tensor.dtype, "" if name.isdecimal() else name)
            for name, tensor in self.make(2, 0).items()
        )

    @property
    def nbytes(self) -> int:
        """Of all of them, at batch 1."""
        return sum(math.prod(one.shape) * one.dtype.itemsize for one in self.inputs)

    def dtypes(self, asked: str) -> str:
        """Those that the author makes; `asked`, the dtype of images, says nothing."""
        return ", ".join(str(one.dtype).removeprefix("torch.") for one in self.inputs)

    def normalising(self, dtypes: str) -> None:
        """None."""

    def batches(
        self, count: int, batch_size: int, seed: int, dtypes: str = ""
    ) -> Iterator[tuple[Tensor, ...]]:
        """All tensors that the model takes, batch by batch; they depend on the seed only. Raises UserError."""
        return (tuple(self.make(batch_size, seed + number).values()) for number in range(count))

    def calibrating(self, seed: int) -> tuple[Tensor, ...]:
        """A batch. Raises UserError."""
        return tuple(self.make(2 * _CALIBRATING, seed).values())

    def for_module(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Copies, which the module may overwrite."""
        return [one.clone() for one in inputs]

    def smaller(self) -> Iterator[Own]:
        """None."""
        return iter(())


Taken = Images | Own
IMAGES = Images()
"""What most models take."""
