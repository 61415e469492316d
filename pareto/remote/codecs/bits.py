"""Fewer bits for a number: floats of half the bits, and affine quantisation.

`fp16` has 11 bits of mantissa, up to 65504; `bf16` 8 bits, and float32's range. `int8` and `uint4` have one scale for a
tensor, or one for each channel:

    q = round(x / scale) + zero        x' = (q - zero) x scale        scale = (max - min) / levels

with levels 255 or 15, and 0 always among the range, so that it is kept exactly (Jacob et al., Quantization and
Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference, CVPR 2018, section 2.1). The range is that
of each tensor, in each request. Scales and zeros of all tensors travel as one tensor behind them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pareto.protocol.errors import BackendError
from pareto.remote.backends.base import Layout, Tensors, layout
from pareto.remote.codecs.base import Step
from pareto.remote.codecs.registry import FLOATS, WIDE

_HALF = 0.4999
"""Added before the fraction is cut off. With a whole half, a largest value could round up past the highest level."""
_LEAST_SCALE = 2.0**-126
"""The least normal float32: what is smaller has no reciprocal. Such values become 0."""


class Narrowed:
    """Floats as this dtype; what is no float, or is as narrow already, is left as it is."""

    def __init__(self, dtype: str) -> None:
        self._name = dtype

    def encoded(self, layout: Layout) -> Layout:
        return tuple((self._name if dtype in WIDE else dtype, shape) for dtype, shape in layout)

    def encode(self, tensors: Tensors) -> Tensors:
        return _cast(tensors, self.encoded(layout(tensors)))

    def decode(self, tensors: Tensors, layout: Layout) -> Tensors:
        return _cast(tensors, layout)


def _cast(tensors: Tensors, to: Layout) -> Tensors:
    return tuple(tensor.to(getattr(torch, dtype)) for tensor, (dtype, _) in zip(tensors, to, strict=True))


class Affine:
    """Floats as whole numbers of so many bits, 8 or 4; what is no float is left as it is."""

    def __init__(self, bits: int, *, by_channel: bool) -> None:
        self._bits = bits
        self._levels = 2**bits - 1
        self._by_channel = by_channel

    def encoded(self, layout: Layout) -> Layout:
        coded = [
            ("uint8", self._coded(shape)) if dtype in FLOATS else (dtype, shape) for dtype, shape in layout
        ]
        scales = sum(self._scales(shape) for dtype, shape in layout if dtype in FLOATS)
        return (*coded, ("float32", (scales, 2))) if scales else tuple(coded)

    def encode(self, tensors: Tensors) -> Tensors:
        coded, parameters = [], []
        for tensor in tensors:
            if tensor.is_floating_point():
                numbers, scales = self._quantised(tensor)
                tensor = numbers if self._bits == 8 else _packed(numbers)
                parameters.append(scales)
            coded.append(tensor)
        return (*coded, torch.cat(parameters)) if parameters else tuple(coded)

    def decode(self, tensors: Tensors, layout: Layout) -> Tensors:
        decoded, at = [], 0
        for tensor, (dtype, shape) in zip(tensors, layout, strict=False):  # scales are behind them
            if dtype in FLOATS:
                scales = tensors[-1][at : at + self._scales(shape)]
                at += len(scales)
                numbers = tensor if self._bits == 8 else _unpacked(tensor, shape)
                tensor = _restored(numbers, scales).to(getattr(torch, dtype))
            decoded.append(tensor)
        return tuple(decoded)

    def _coded(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape if self._bits == 8 else ((math.prod(shape) + 1) // 2,)

    def _scales(self, shape: tuple[int, ...]) -> int:
        """How many scales a tensor has: one a channel where it has channels, the second dimension."""
        return shape[1] if self._by_channel and len(shape) > 1 else 1

    def _quantised(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers, uint8 of the tensor's shape; and scale and zero of each channel, or of all: (scales, 2)."""
        if not tensor.numel():
            return tensor.to(torch.uint8), torch.ones(self._scales(tuple(tensor.shape)), 2)
        values = tensor if tensor.dtype == torch.float32 else tensor.to(torch.float32)
        if self._by_channel and tensor.dim() > 1:
            return self._by_channels(values)
        # Plain numbers: a tensor's operation costs 10 us where nothing is in the processor's caches.
        low, high = (each.item() for each in torch.aminmax(values))
        low, high = min(low, 0.0), max(high, 0.0)
        scale = (high - low) / self._levels
        if scale < _LEAST_SCALE:
            scale = 1.0
        _check_finite(math.isfinite(scale))
        zero = round(-low / scale)
        numbers = torch.add(torch.tensor(zero + _HALF), values, alpha=1 / scale)
        return numbers.to(torch.uint8), torch.tensor([[scale, zero]])

    def _by_channels(self, values: Tensor) -> tuple[Tensor, Tensor]:
        flat = values.flatten(2) if values.dim() > 2 else values.unsqueeze(2)
        low, high = flat.amin(dim=(0, 2)).clamp(max=0.0), flat.amax(dim=(0, 2)).clamp(min=0.0)
        scale = (high - low) / self._levels
        scale[scale < _LEAST_SCALE] = 1.0
        _check_finite(bool(scale.isfinite().all()))
        zero = torch.round(-low / scale)
        numbers = torch.addcmul(_beside(zero + _HALF, values), values, _beside(1 / scale, values))
        return numbers.to(torch.uint8), torch.stack((scale, zero), dim=1)


def _check_finite(is_finite: bool) -> None:
    if not is_finite:
        raise BackendError("a payload with values that are not finite cannot be quantised")


def _restored(numbers: Tensor, scales: Tensor) -> Tensor:
    """The values of these numbers, by scale and zero of each channel, or of all: (scales, 2)."""
    if len(scales) == 1:
        scale, zero = scales[0].tolist()
    else:
        scale, zero = (_beside(each, numbers) for each in scales.unbind(1))
    return numbers.to(torch.float32).sub_(zero).mul_(scale)


def _beside(values: Tensor, tensor: Tensor) -> Tensor:
    """A value of each channel, in the shape that broadcasts over the tensor."""
    return values.reshape(1, -1, *[1] * (tensor.dim() - 2))


def _packed(numbers: Tensor) -> Tensor:
    """Numbers from 0 to 15, two a byte, the first in the low bits."""
    flat = numbers.reshape(-1)
    if len(flat) % 2:
        flat = torch.cat((flat, flat.new_zeros(1)))
    return flat[0::2] | (flat[1::2] << 4)


def _unpacked(packed: Tensor, shape: tuple[int, ...]) -> Tensor:
    numbers = torch.stack((packed & 15, packed >> 4), dim=1).reshape(-1)
    return numbers[: math.prod(shape)].reshape(shape)


def step(name: str, variant: str) -> Step:
    narrowed = {"fp16": "float16", "bf16": "bfloat16"}
    if name in narrowed:
        return Narrowed(narrowed[name])
    return Affine({"int8": 8, "uint4": 4}[name], by_channel=variant == "channel")
