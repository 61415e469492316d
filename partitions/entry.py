"""What the registry knows of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from .structure import with_forward

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Entry:
    """One model.

    build: makes it, float32, with random weights from the global RNG.
    input_shape: channels, height and width of one image.
    mean, std: of each channel, for values between 0 and 1: how images are normalised before the model sees them.
    classes: what the outputs of a classifier stand for, in order; empty where the model is none or does not say.
    pretrained: downloads the state dict of trained weights; None where there are none to be had.
    postprocess: applied to what the module returns; its result is the model's.
    file, attribute: for a user's own model, the Python file and the name of the builder in it.
    """

    name: str
    build: Callable[[], nn.Module]
    input_shape: tuple[int, int, int] = (3, 224, 224)
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    classes: tuple[str, ...] = ()
    pretrained: Callable[[], Mapping[str, Tensor]] | None = None
    postprocess: Callable[[Any], Any] | None = None
    file: Path | None = None
    attribute: str = ""

    def module(self) -> nn.Module:
        """A new one in eval mode, with its postprocessing. Raises what `build` raises."""
        model = self.build().eval()
        if self.postprocess is None:
            return model
        forward, postprocess = type(model).forward, self.postprocess
        return with_forward(model, lambda it, images: postprocess(forward(it, images)))
