"""From an image of any size to the pixels that a model looks at."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from PIL.Image import Image
from torch import Tensor

from pareto.errors import UserError
from partitions.torchvision_compat import models

# By name, after torchvision_compat: beside a CPU-only torch nothing of torchvision can be imported before it.
_transforms: Any = importlib.import_module("torchvision.transforms.functional")


_MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class Crop:
    """Scale an image so that its shorter side is `resize` pixels, and cut `shape`, as it says, from the middle.

    shape: channels (1: grey, or 3), height, width.
    """

    shape: tuple[int, int, int]
    resize: int
    interpolation: Any = _transforms.InterpolationMode.BILINEAR

    def __call__(self, image: Image) -> Tensor:
        """uint8, of this shape."""
        channels, height, width = self.shape
        scaled = _transforms.resize(image.convert(_MODES[channels]), [self.resize], self.interpolation)
        pixels: Tensor = _transforms.pil_to_tensor(_transforms.center_crop(scaled, [height, width]))
        return pixels


def evaluated(name: str, shape: tuple[int, int, int]) -> Crop:
    """As torchvision evaluates the model; one that it does not know sees as much of an image as it has room for.

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
