"""Pictures as a camera's files: what a host makes of them for a model, and the codec `file`, which sends them.

The edge decodes the files of a request inside its latency. With `file` it sends them instead where the whole model is
on the server, which decodes them. Every host, and the driver for the proof, makes the same pixels of a file.
"""

from __future__ import annotations

import importlib
import io
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from pareto.partitions.torchvision_models import models
from pareto.protocol.errors import BackendError, UserError, one_line
from pareto.remote.backends.base import BYTES, Layout, Tensors, bytes_of
from pareto.remote.codecs import pictures
from pareto.remote.codecs.base import parted

# By name, after torchvision_models: beside a CPU-only torch nothing of torchvision can be imported before it.
_transforms: Any = importlib.import_module("torchvision.transforms.functional")

MOST_PIXELS = 100_000_000
"""The most pixels of a file that comes from the network: a header may say anything."""


@dataclass(frozen=True)
class Crop:
    """Scales an image so that its shorter side has `resize` pixels, and cuts `shape` from its middle. shape: channels
    (1: grey, or 3), height, width."""

    shape: tuple[int, int, int]
    resize: int
    interpolation: Any = _transforms.InterpolationMode.BILINEAR

    def __call__(self, image: Image.Image) -> Tensor:
        """The pixels as uint8, of this shape."""
        channels, height, width = self.shape
        coloured = image.convert(pictures.MODES[channels])
        scaled = _transforms.resize(coloured, [self.resize], self.interpolation)
        cut: Tensor = _transforms.pil_to_tensor(_transforms.center_crop(scaled, [height, width]))
        return cut


def crop_for(name: str, shape: tuple[int, int, int]) -> Crop:
    """The crop by which torchvision evaluates the model; for other models as much of an image as there is room for.
    Raises UserError for a model that does not take images."""
    if shape[0] not in pictures.MODES:
        raise UserError(f"{name} takes {shape[0]} channels, and images have 3: leave out --dataset")
    known = name in models.list_models()
    preset: Any = models.get_model_weights(name).DEFAULT.transforms() if known else None
    if not hasattr(preset, "resize_size"):  # its detectors take images as they are
        return Crop(shape, max(shape[1:]))
    return Crop(shape, preset.resize_size[0], preset.interpolation)


def pixels(file: bytes, crop: Crop) -> Tensor:
    """The pixels of a JPEG file as a model takes them, uint8 (channels, height, width). Raises ValueError."""
    try:
        with Image.open(io.BytesIO(file), formats=("JPEG",)) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise ValueError(f"it has {picture.width} x {picture.height} pixels")
            return crop(picture.convert("RGB"))
    except Exception as error:  # Pillow's decoders raise OSError, ValueError, SyntaxError, TypeError
        # Pillow names the memory in which the file lies.
        words = "" if isinstance(error, UnidentifiedImageError) else f": {one_line(error)[:200]}"
        raise ValueError(f"it is no JPEG that can be read{words}") from error


@dataclass(frozen=True)
class Camera:
    """Decodes the files of a request. most_bytes: of an image's file, with its part of the frame."""

    crop: Crop
    most_bytes: int

    def encoded(self, layout: Layout) -> Layout:
        return ((BYTES, (layout[0][1][0] * self.most_bytes,)),)

    def encode(self, tensors: Tensors) -> Tensors:
        """Raises BackendError: what the camera wrote is not made again."""
        raise BackendError("the camera's files are sent as they are")

    def decode(self, tensors: Tensors, layout: Layout) -> Tensors:
        return self.read(tensors, layout[0][1][0])

    def read(self, tensors: Tensors, images: int) -> Tensors:
        """The images of a frame that has so many, as bytes (n, channels, height, width). Raises BackendError."""
        frame = tensors[0].contiguous()
        files = parted(bytes_of(frame), images, "pictures")
        try:
            return (torch.stack([pixels(bytes(file), self.crop) for file in files]),)
        except ValueError as error:
            raise BackendError(f"a file came that is no picture: {error}") from error
