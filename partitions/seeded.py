"""Random weights on which a proof of equality proves something."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import registry

_IMAGES_OF_A_KIND = 2  # normalized images, and raw ones between 0 and 1: inputs may be either


def seeded(name: str, seed: int) -> nn.Module:
    """The model with random weights that depend on `seed` only; the global RNG is left alone.

    torchvision's initialization is the start of a training, not a working network: untrained batch
    normalization passes on signals that fade (MobileNetV2 ends at 1e-10) or explode (ResNet152 at 1e7)
    with depth, and ViT's head is zero. Such a network yields much the same for any input, and any split of
    it would pass for equal. So one batch of noise is run through it, as the first step of a training would
    do: batch normalization takes its statistics, and the last layer is scaled so that its outputs are
    centred, with unit deviation.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = registry.build(name)
        shape = (_IMAGES_OF_A_KIND, *registry.input_shape(name))
        _calibrate(model, torch.cat([torch.randn(shape), torch.rand(shape)]))
    return model


def _calibrate(model: nn.Module, images: Tensor) -> None:
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    last = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)][-1]
    if not last.weight.any():
        nn.init.trunc_normal_(last.weight, std=last.weight.shape[1] ** -0.5)
    momenta = [norm.momentum for norm in norms]
    outputs: list[Tensor] = []
    hook = last.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the order of summation, and with it the last bits, depends on their number
    try:
        for norm in norms:
            norm.train().momentum = 1.0  # the statistics of this batch, whole
        with torch.no_grad():
            model(images)
    finally:
        torch.set_num_threads(threads)
        hook.remove()
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.eval().momentum = momentum
    _standardize(last, outputs[-1])


def _standardize(layer: nn.Linear | nn.Conv2d, output: Tensor) -> None:
    """Scale weights and bias so that `output` would have had mean 0 a channel and deviation 1 overall."""
    channels_last = output.movedim(1, -1).flatten(0, -2)
    mean = channels_last.mean(0)
    deviation = (channels_last - mean).std()
    layer.weight /= deviation
    if layer.bias is not None:
        layer.bias.sub_(mean).div_(deviation)
