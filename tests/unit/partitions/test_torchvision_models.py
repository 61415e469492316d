"""The boxes of torchvision's detectors, from their heads' outputs."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from pareto.partitions import registry
from pareto.partitions.quality import boxes
from pareto.partitions.torchvision_models import Places, models

SSDLITE = "ssdlite320_mobilenet_v3_large"
ONE_STAGE = [SSDLITE, "retinanet_resnet50_fpn_v2", "fcos_resnet50_fpn"]


@cache
def places_of(name: str) -> Places:
    entry = registry.entry(name)
    return Places(entry.build, entry.images.shape[1])


def outputs(places: Places, seen: dict[int, tuple[int, float]], *, middle: bool = False) -> list[Tensor]:
    """What heads say where so many anchors see a class with a logit, and all others nothing: each box as its anchor."""
    anchors = len(places._anchors)
    logits = torch.full((1, anchors, 91), -9.0)
    for anchor, (number, logit) in seen.items():
        logits[0, anchor, number] = logit
    return [logits, torch.zeros(1, anchors, 4), *([torch.full((1, anchors, 1), 9.0)] if middle else [])]


@pytest.mark.parametrize("name", ONE_STAGE)
def test_a_box_is_where_its_anchor_is_with_its_class_and_score(name: str) -> None:
    places = places_of(name)
    size = places._size
    inside = ((places._anchors >= 0) & (places._anchors <= size)).all(1)
    anchor = int(inside.nonzero()[len(inside.nonzero()) // 2])
    is_fcos = name.startswith("fcos")
    (found,) = boxes(places(outputs(places, {anchor: (7, 9.0)}, middle=is_fcos)))
    if is_fcos:  # which codes distances from its middle: without any a box has no size
        middle = places._anchors[anchor].reshape(2, 2).mean(0)
        assert torch.allclose(found.corners.reshape(2, 2), middle.expand(2, 2))
    else:
        assert torch.allclose(found.corners, places._anchors[anchor][None], atol=1e-3)
    assert found.classes.tolist() == [6 if name == SSDLITE else 7], "the background of an SSD is no class"
    assert found.scores.item() > 0.99


def test_the_anchors_are_the_model_s_own() -> None:
    """Where the shapes of its features are known from running it."""
    entry = registry.entry(SSDLITE)
    size = entry.images.shape[1]
    model: Any = entry.module()
    images = torch.rand(1, 3, size, size)
    with torch.inference_mode():
        features = list(model.backbone(images).values())
    listed = models.detection.image_list.ImageList(images, [(size, size)])
    (anchors,) = model.anchor_generator(listed, features)
    assert torch.equal(places_of(SSDLITE)._anchors, anchors)
