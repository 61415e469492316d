"""torchvision's models of images: classification, segmentation, and one-stage detectors up to what their heads say.

This is the one way to torchvision: whatever needs it imports `models` from here first. torchvision's wheel on PyPI is
built against CUDA. Beside a CPU-only torch its compiled operators cannot be loaded, and `import torchvision` then
fails with "operator torchvision::nms does not exist", because it registers shape functions for operators that nobody
declared. No model here calls those operators, so declaring their schemas first is enough. Where torch and torchvision
match, nothing is declared.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pareto.protocol.errors import UserError

from . import compiler
from .entry import DETECTION, SEGMENTATION, Entry, with_forward, without_memory
from .inputs import IMAGENET_MEAN, IMAGENET_STD, Images
from .recipe import CLASSES


def _load_operators() -> bool:
    """Load torchvision's own compiled operators, as its import would; False where this is impossible."""
    package = importlib.util.find_spec("torchvision")
    for folder in (package and package.submodule_search_locations) or ():
        for library in Path(folder).glob("_C.*"):
            with contextlib.suppress(OSError):
                torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
                return True
    return False


def _declare_missing_operators() -> torch.library.Library | None:
    """Declare the schemas unless the operators are there; the declarations live as long as the result."""
    if _load_operators():
        return None
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
    return library


compiler.put_off()
_declarations = _declare_missing_operators()
models = importlib.import_module("torchvision.models")

# Auxiliary heads are for training only: no inference graph runs them, so they are not built.
# transform_input would differ between random and pretrained weights: one graph whichever weights are used.
_WITHOUT_AUXILIARY = {"aux_logits": False, "transform_input": False, "init_weights": False}
_ARGUMENTS: dict[str, dict[str, Any]] = dict.fromkeys(("googlenet", "inception_v3"), _WITHOUT_AUXILIARY)

# These return what a threshold and non-maximum suppression leave over, which depends on the image. What comes before
# is a static graph of backbone and heads.
_ONE_STAGE = ("retinanet", "fcos", "ssd")
_MEAN_AND_STD = {
    "ssd300_vgg16": ((0.48235, 0.45882, 0.40784), (1 / 255, 1 / 255, 1 / 255)),
    "ssdlite320_mobilenet_v3_large": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}
_SIZES = {"ssd300_vgg16": 300, "ssdlite320_mobilenet_v3_large": 320}


@functools.cache
def _kinds() -> dict[str, str]:
    """The kind of each model."""
    modules = {"classification": models, "segmentation": models.segmentation, "detection": models.detection}
    return {name: kind for kind, module in modules.items() for name in models.list_models(module=module)}


def names() -> tuple[str, ...]:
    """The names of all of them, also of the detectors that have no static graph."""
    return tuple(_kinds())


def is_of_classes(name: str) -> bool:
    """Whether it is one of `names()` whose head can be made for any number of classes."""
    return _kinds().get(name, "detection") != "detection"


@functools.cache
def entry(name: str, classes: int = 0) -> Entry:
    """The entry of one of `names()`; downloads nothing. classes: how many its head tells apart; 0: as published."""
    if _kinds()[name] == "detection":
        return _detector(name)
    if not classes:
        return _classifier(name)
    made = _classifier(name, num_classes=classes)
    return replace(made, name=f"{name}{CLASSES}{classes}", classes=(), pretrained=None)


def _classifier(name: str, **head: int) -> Entry:
    """The entry of a model that tells images apart, or their pixels."""
    weights = models.get_model_weights(name).DEFAULT
    evaluated, of_pixels = weights.transforms.keywords, _kinds()[name] == "segmentation"
    size = int(evaluated["resize_size" if of_pixels else "crop_size"])
    arguments = _ARGUMENTS.get(name, {}) | head
    if of_pixels:
        arguments["weights_backbone"] = None
        if not name.startswith("lraspp"):  # auxiliary heads were trained, and the whole model runs them
            arguments["aux_loss"] = True
    if name.startswith("vit_"):  # its position embedding is as long as the image is large
        arguments["image_size"] = size
    return Entry(
        name,
        lambda: _new(name, **arguments),
        Images((3, size, size), evaluated.get("mean", IMAGENET_MEAN), evaluated.get("std", IMAGENET_STD)),
        tuple(weights.meta["categories"]),
        lambda: _trained(name),
        task=SEGMENTATION if of_pixels else "",
    )


def _detector(name: str) -> Entry:
    def network() -> nn.Module:
        """Up to the outputs of its heads for every anchor: class scores, boxes relative to the anchors."""
        if not name.startswith(_ONE_STAGE):
            raise UserError(
                f"{name} has no static graph: what its second stage computes depends on the regions that the first one"
                " finds in the image; a part of it that has one can be a model of your own: --model FILE.py:FUNCTION"
            )
        detector = _new(name, weights_backbone=None)
        if name == "retinanet_resnet50_fpn":  # torchvision sets it so for the trained weights
            for module in detector.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eps = 0.0
        return with_forward(detector, lambda self, images: self.head(list(self.backbone(images).values())))

    def trained() -> Mapping[str, Tensor]:
        """With the batch counts that our normalization has and the published frozen one has not."""
        state = dict(_trained(name))
        norms = [key.removesuffix("running_mean") for key in state if key.endswith("running_mean")]
        return state | {f"{norm}num_batches_tracked": torch.tensor(0) for norm in norms}

    size = _SIZES.get(name, 800)
    images = Images((3, size, size), *_MEAN_AND_STD.get(name, (IMAGENET_MEAN, IMAGENET_STD)))
    classes = tuple(models.get_model_weights(name).DEFAULT.meta["categories"])
    known = classes[1:] if name.startswith("ssd") else classes  # `Places` leaves their background out
    return Entry(name, network, images, known, trained, task=DETECTION, places=Places(network, size))


def _new(name: str, **arguments: Any) -> nn.Module:
    model: nn.Module = models.get_model(name, weights=None, **arguments)
    return model


def _trained(name: str) -> Mapping[str, Tensor]:
    state: Mapping[str, Tensor] = models.get_model(name, weights="DEFAULT", progress=False).state_dict()
    return state


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
        coder, logits = self._detector.box_coder, of_kind["classes"]
        decode = getattr(coder, "decode_single", coder.decode)
        corners = torch.stack([decode(each, self._anchors) for each in of_kind["boxes"]]).clamp(0, self._size)
        low, high = corners[..., :2], corners[..., 2:]
        if isinstance(self._detector, models.detection.ssd.SSD):
            scores = logits.softmax(2)[..., 1:]  # the first class is the background
        elif "middle" in of_kind:
            scores = (logits.sigmoid() * of_kind["middle"].sigmoid()).sqrt()
        else:
            scores = logits.sigmoid()
        return torch.cat(((low + high) / 2, high - low, scores), 2).transpose(1, 2)

    @functools.cached_property
    def _detector(self) -> Any:
        """The detector on the meta device: nothing of it is computed but shapes."""
        return without_memory(self._build).eval().to("meta")

    @functools.cached_property
    def _anchors(self) -> Tensor:
        """The anchors of an image: corners, (anchors, 4)."""
        shape = (3, self._size, self._size)
        features = self._detector.backbone(torch.empty(1, *shape, device="meta")).values()
        grids = [torch.zeros(1).expand(1, 1, *feature.shape[-2:]) for feature in features]
        images = models.detection.image_list.ImageList(torch.zeros(1).expand(1, *shape), [shape[1:]])
        (anchors,) = self._detector.anchor_generator(images, grids)
        return torch.as_tensor(anchors)
