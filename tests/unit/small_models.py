"""Models of the registry for smaller images than they were made for, some narrower: they are cut at the same places."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from torch import nn

from pareto.partitions import registry, yolo
from pareto.partitions.torchvision_models import models


@contextmanager
def small(name: str, size: int) -> Iterator[str]:
    """The name by which the model is known meanwhile for images of `size` pixels a side."""
    entry = registry.entry(name)
    called = f"{name}_{size}_pixels"
    narrow = _vision_transformer if name.startswith("vit") else _NARROW.get(name)
    build = entry.build if narrow is None else (lambda: narrow(size))
    made = dataclasses.replace(
        entry, name=called, takes=dataclasses.replace(entry.images, shape=(3, size, size)), build=build
    )
    with patch.dict(registry._adopted, {called: made}), patch.object(yolo, "_SIZE", size):
        yield called


def _vision_transformer(size: int) -> nn.Module:
    """Its size is part of the model."""
    return models.VisionTransformer(size, 16, num_layers=12, num_heads=3, hidden_dim=96, mlp_dim=384)


def _swin(_size: int) -> nn.Module:
    return models.SwinTransformer(
        patch_size=[4, 4], embed_dim=24, depths=[2, 2, 6, 2], num_heads=[1, 2, 4, 8], window_size=[7, 7]
    )


def _with_narrow_classifier(model: nn.Module) -> nn.Module:
    classifier: nn.Module = model.classifier  # type: ignore[assignment]
    width = 0
    for place, layer in list(classifier.named_children()):
        if isinstance(layer, nn.Linear):
            classifier.register_module(place, nn.Linear(width or layer.in_features, 64))
            width = 64
    return model


_NARROW: dict[str, Callable[[int], nn.Module]] = {
    "swin_t": _swin,
    "alexnet": lambda _size: _with_narrow_classifier(models.alexnet()),
    "vgg16": lambda _size: _with_narrow_classifier(models.vgg16()),
}
"""Models with as many layers as the published ones, but fewer weights, which else take most of a test's time."""
