"""Models of the registry for smaller images than they were made for: where one is cut does not depend on their size."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from torch import nn

from partitions import registry, yolo
from partitions.torchvision_models import models


@contextmanager
def small(name: str, size: int) -> Iterator[str]:
    """The name by which the model is known meanwhile for images of `size` pixels a side."""
    entry = registry.entry(name)
    called = f"{name}_{size}_pixels"
    build = (lambda: _vision_transformer(size)) if name.startswith("vit") else entry.build
    made = dataclasses.replace(entry, name=called, input_shape=(3, size, size), build=build)
    with patch.dict(registry._adopted, {called: made}), patch.object(yolo, "_SIZE", size):
        yield called


def _vision_transformer(size: int) -> nn.Module:
    """Of as many layers as the published ones, but narrow: its size is part of the model."""
    return models.VisionTransformer(size, 16, num_layers=12, num_heads=3, hidden_dim=96, mlp_dim=384)
