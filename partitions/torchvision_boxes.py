"""The boxes that torchvision's one-stage detectors see, from what their heads say of every anchor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .entry import without_memory
from .torchvision_models import models

detection: Any = models.detection


class Places:
    """Turns a detector's outputs into YOLO's form: (n, 4 + classes, anchors), as `partitions.quality.boxes` takes it.

    Anchors, the coding of boxes and the meaning of scores are the model's own; what comes after them, a threshold and
    non-maximum suppression, is the same for all detectors. build: makes the detector. size: of its square images.
    """

    def __init__(self, build: Callable[[], nn.Module], size: int) -> None:
        self._build, self._size = build, size

    def __call__(self, outputs: Sequence[Tensor]) -> Tensor:
        """outputs: of the heads: class scores (n, anchors, classes), boxes relative to the anchors (n, anchors, 4), and
        of FCOS how near to its middle a box is seen from there (n, anchors, 1), in any order.
        """
        of_kind = {{4: "boxes", 1: "middle"}.get(one.shape[-1], "classes"): one.float() for one in outputs}
        coder = self._detector.box_coder
        decode = getattr(coder, "decode_single", coder.decode)
        corners = torch.stack([decode(each, self._anchors) for each in of_kind["boxes"]]).clamp(0, self._size)
        low, high = corners[..., :2], corners[..., 2:]
        placed = torch.cat(((low + high) / 2, high - low, self._scores(of_kind)), 2)
        return placed.transpose(1, 2)

    def _scores(self, of_kind: dict[str, Tensor]) -> Tensor:
        logits = of_kind["classes"]
        if isinstance(self._detector, detection.ssd.SSD):
            return logits.softmax(2)[..., 1:]  # the first class is the background
        if "middle" in of_kind:
            return (logits.sigmoid() * of_kind["middle"].sigmoid()).sqrt()
        return logits.sigmoid()

    @functools.cached_property
    def _detector(self) -> Any:
        """On the meta device: nothing of it is computed but shapes."""
        return without_memory(self._build).eval().to("meta")

    @functools.cached_property
    def _anchors(self) -> Tensor:
        """Of an image: corners, (anchors, 4)."""
        shape = (3, self._size, self._size)
        features = self._detector.backbone(torch.empty(1, *shape, device="meta")).values()
        grids = [torch.zeros(1).expand(1, 1, *feature.shape[-2:]) for feature in features]
        images = detection.image_list.ImageList(torch.zeros(1).expand(1, *shape), [shape[1:]])
        return torch.as_tensor(*self._detector.anchor_generator(images, grids))
