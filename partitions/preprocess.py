"""Normalising images: outside the model for float32 inputs, in its first unit for bytes."""

from __future__ import annotations

import functools

import torch
from torch import Tensor


def normalized(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """(images / 255 - mean) / std, for each channel: uint8 (batch, channels, height, width) to float32 of that shape.

    Each value is computed by itself: the same bits in whatever batch, and on whichever side of the link.
    """
    centre, scale = _constants(mean, std, images.device)
    return images.to(torch.float32).div_(255).sub_(centre).div_(scale)


@functools.lru_cache(maxsize=8)
def _constants(
    mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Made once a device: making them waits for a GPU."""
    with torch.inference_mode(False):
        centre, scale = (
            torch.tensor(values, dtype=torch.float32).view(-1, 1, 1).to(device) for values in (mean, std)
        )
    return centre, scale
