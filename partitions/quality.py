"""How far a split's outputs are from the whole model's, in the terms of what the model is for.

A codec may lose something of what crosses. What that costs is measured against the whole model's own outputs, so that
only `top1` needs labels. Pure functions of tensors: a batch is their first dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .entry import DETECTION, SEGMENTATION

IOU = 0.5
"""The overlap from which on a box is taken for another."""
MOST_CANDIDATES = 1000
"""Boxes of an image before non-maximum suppression: the best are kept. It compares each with each, and a network that
was never trained may see one at each of 120 000 anchors."""


MOST_MARKED = 1024
"""Images of which a trial's row says one by one what became of them."""


@dataclass(frozen=True)
class Quality:
    """What became of the whole model's answers to some images.

    The figures have the names of columns of trials.csv, and are None where the output is of another kind, there are no
    labels, or the figure is not finite. changed, wrong: of each image, whether its top class is another one, and
    whether that is not its label; empty where that is not known.
    """

    images: int
    output_error: float | None
    agreement: float | None = None
    top1: float | None = None
    mean_iou: float | None = None
    map50: float | None = None
    changed: tuple[bool, ...] = ()
    wrong: tuple[bool, ...] = ()

    @property
    def accuracy(self) -> float | None:
        """The first figure that is known, of those that accuracy may be."""
        figures = (self.top1, self.agreement, self.mean_iou, self.map50)
        return next((figure for figure in figures if figure is not None), None)

    def columns(self) -> dict[str, Any]:
        """What a trial's row says of it."""
        figures = {name: getattr(self, name) for name in ("output_error", "mean_iou", "map50")}
        return figures | {
            "agreement": self.agreement,
            "agreement_images": None if self.agreement is None else self.images,
            "top1": self.top1,
            "top1_images": None if self.top1 is None else self.images,
            "changed_images": _marks(self.changed),
            "wrong_images": _marks(self.wrong),
        }


def _marks(images: Sequence[bool]) -> str | None:
    """A hexadecimal digit for four images, the first of them its highest bit; None where they are none, or too many."""
    if not images or len(images) > MOST_MARKED:
        return None
    padded = [*images, *[False] * (-len(images) % 4)]
    return "".join(
        f"{sum(bit << place for place, bit in zip((3, 2, 1, 0), padded[at : at + 4], strict=True)):x}"
        for at in range(0, len(padded), 4)
    )


@dataclass(frozen=True)
class Answers:
    """A batch of a model's outputs, and what is read from the first of them: top classes, or boxes."""

    tensors: Sequence[Tensor]
    tops: Tensor | None
    boxes: Sequence[Boxes]

    @classmethod
    def of(
        cls,
        tensors: Sequence[Tensor],
        task: str = "",
        places: Callable[[Sequence[Tensor]], Tensor] | None = None,
    ) -> Answers:
        """task, places: of the model, as its registry's entry has them."""
        first = tensors[0]
        if task == DETECTION:
            return cls(tensors, None, boxes(first if places is None else places(tensors)))
        has_classes = first.dim() == (4 if task == SEGMENTATION else 2)
        return cls(tensors, first.argmax(1) if has_classes else None, ())


class Comparison:
    """Compares outputs with the whole model's, batch by batch; holds no more than what figures need of them."""

    def __init__(self, task: str = "") -> None:
        self._task = task
        self._images = 0
        self._off = self._size = 0.0
        self._changed: list[bool] = []
        self._wrong: list[bool] = []
        self._common = self._either = torch.zeros(0, dtype=torch.int64)
        self._boxes: list[Boxes] = []
        self._truth: list[Boxes] = []

    def add(self, outputs: Answers, references: Answers, labels: Tensor | None = None) -> None:
        """labels: of each image, int64. Raises ValueError where shapes differ."""
        off, size = _squares(outputs.tensors, references.tensors)
        self._off, self._size = self._off + off, self._size + size
        self._images += len(outputs.tensors[0])
        self._boxes += outputs.boxes
        self._truth += references.boxes
        if outputs.tops is None or references.tops is None:
            return
        if self._task == SEGMENTATION:
            classes = outputs.tensors[0].shape[1]
            common, either = _overlaps_of_classes(outputs.tops, references.tops, classes)
            self._common = common if not len(self._common) else self._common + common
            self._either = either if not len(self._either) else self._either + either
            return
        known = ~(outputs.tensors[0].isnan().any(1) | references.tensors[0].isnan().any(1))
        self._changed += (~((outputs.tops == references.tops) & known)).tolist()
        if labels is not None:
            self._wrong += (outputs.tops != labels).tolist()

    def quality(self) -> Quality:
        """Of all that was added."""
        error = _relative(self._off, self._size)
        ious = _mean_iou(self._common, self._either) if len(self._common) else math.nan
        precision = mean_average_precision(self._boxes, self._truth) if self._task == DETECTION else math.nan
        return Quality(
            self._images,
            _finite(error),
            agreement=self._changed.count(False) / len(self._changed) if self._changed else None,
            top1=self._wrong.count(False) / len(self._wrong) if self._wrong else None,
            mean_iou=_finite(ious),
            map50=_finite(precision),
            changed=tuple(self._changed),
            wrong=tuple(self._wrong),
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _squares(outputs: Sequence[Tensor], references: Sequence[Tensor]) -> tuple[float, float]:
    """The sums of squares of the difference and of the references."""
    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs are not {len(references)}")
    off = size = 0.0
    for output, reference in zip(outputs, references, strict=True):
        _same_shape(output, reference)
        off += float((output.double() - reference.double()).square().sum())
        size += float(reference.double().square().sum())
    return off, size


def _relative(off: float, size: float) -> float:
    """The L2 norm of the difference over that of the references, by these sums over all tensors together.

    0 where both are zero; infinity where only the reference is, or an output is not finite.
    """
    if not math.isfinite(off):
        return math.inf
    if not size:
        return math.inf if off else 0.0
    return math.sqrt(off / size)


def _overlaps_of_classes(ours: Tensor, theirs: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """For each class, how many pixels are of it in both, and in either."""
    ours, theirs = ours.flatten(), theirs.flatten()
    common = torch.bincount(ours[ours == theirs], minlength=classes)
    either = torch.bincount(ours, minlength=classes) + torch.bincount(theirs, minlength=classes) - common
    return common, either


def _mean_iou(common: Tensor, either: Tensor) -> float:
    """The mean intersection over union of a segmentation against the whole model's, 0 to 1; NaN without pixels.

    Each pixel belongs to its top class; of each class that either has anywhere, intersection and union count the pixels
    of all images, and the mean is over these classes (Everingham et al., "The Pascal Visual Object Classes Challenge: A
    Retrospective", IJCV 111, 2015, section 3.3).
    """
    present = either > 0
    return float((common[present].double() / either[present]).mean())


@dataclass(frozen=True)
class Boxes:
    """What a detector sees in one image.

    corners: (n, 4), left, top, right and bottom. scores: (n,). classes: (n,), int64.
    """

    corners: Tensor
    scores: Tensor
    classes: Tensor


def boxes(outputs: Tensor, score: float = 0.25, iou: float = 0.45) -> list[Boxes]:
    """The boxes of each image in YOLO's outputs: those of at least `score` that overlap no better one of their class.

    outputs: (n, 4 + classes, places): centre, width and height, and a score for each class. Of two boxes of one class
    that overlap by more than `iou` the better is kept (non-maximum suppression), of the best `MOST_CANDIDATES`; by
    falling score.
    """
    return [_image_boxes(image, score, iou) for image in outputs]


def _image_boxes(outputs: Tensor, score: float, iou: float) -> Boxes:
    scores, classes = outputs[4:].max(0)
    kept = scores >= score
    scores, order = scores[kept].sort(descending=True, stable=True)
    scores, order = scores[:MOST_CANDIDATES], order[:MOST_CANDIDATES]
    classes = classes[kept][order]
    placed = outputs[:4, kept][:, order].T
    centre, size = placed[:, :2], placed[:, 2:]
    corners = torch.cat((centre - size / 2, centre + size / 2), 1)
    rivals = (overlaps(corners, corners) > iou) & (classes[:, None] == classes)
    free = torch.ones(len(scores), dtype=torch.bool)
    for place in range(len(scores)):
        if free[place]:
            free[place + 1 :] &= ~rivals[place, place + 1 :]
    return Boxes(corners[free], scores[free], classes[free])


def overlaps(ours: Tensor, theirs: Tensor) -> Tensor:
    """Intersection over union of each box with each, (n, m) of (n, 4) and (m, 4); 0 for boxes without an area."""
    low = torch.maximum(ours[:, None, :2], theirs[None, :, :2])
    high = torch.minimum(ours[:, None, 2:], theirs[None, :, 2:])
    common = (high - low).clamp(min=0).prod(2)
    either = _areas(ours)[:, None] + _areas(theirs)[None] - common
    return torch.where(either > 0, common / either, torch.zeros_like(common))


def _areas(corners: Tensor) -> Tensor:
    return (corners[:, 2:] - corners[:, :2]).clamp(min=0).prod(1)


def mean_average_precision(outputs: Sequence[Boxes], references: Sequence[Boxes], iou: float = IOU) -> float:
    """The mAP of a detector's boxes where the whole model's are the truth, 0 to 1; NaN where that saw nothing.

    One entry an image. For each class of the truth: over all images, boxes in the order of falling scores; each takes
    the true box of its image and class that it overlaps most, if that is `iou` or more and the box is still free, and
    is wrong otherwise. The average precision is the area under the precision that is made monotonous, over the recall
    at every box (Everingham et al., IJCV 111, 2015, section 3.4.1: as since 2010, not at eleven points); the mean
    is over the classes. Raises ValueError where the numbers of images differ.
    """
    if len(outputs) != len(references):
        raise ValueError(f"boxes of {len(outputs)} images are not those of {len(references)}")
    classes = sorted({int(number) for image in references for number in image.classes})
    if not classes:
        return math.nan
    return sum(_average_precision(outputs, references, number, iou) for number in classes) / len(classes)


def _average_precision(
    outputs: Sequence[Boxes], references: Sequence[Boxes], number: int, iou: float
) -> float:
    scored: list[tuple[float, bool]] = []
    true = 0
    for ours, theirs in zip(outputs, references, strict=True):
        corners = theirs.corners[theirs.classes == number].double()
        true += len(corners)
        scored += _judged(ours, number, corners, iou)
    # Of equal scores the order is that of images and boxes: sorting is stable.
    scored.sort(key=lambda pair: -pair[0])
    if not scored:
        return 0.0
    right = torch.tensor([hit for _, hit in scored], dtype=torch.float64).cumsum(0)
    precision = right / torch.arange(1, len(scored) + 1)
    at_least = precision.flip(0).cummax(0).values.flip(0)
    recall = torch.cat((torch.zeros(1, dtype=torch.float64), right / true))
    return float((recall.diff() * at_least).sum())


def _judged(ours: Boxes, number: int, truth: Tensor, iou: float) -> list[tuple[float, bool]]:
    """The score of each box of the class in one image, and whether it is right; by falling score."""
    mine = ours.classes == number
    order = ours.scores[mine].argsort(descending=True, stable=True)
    corners, scores = ours.corners[mine][order].double(), ours.scores[mine][order]
    free = [True] * len(truth)
    judged = []
    for score, row in zip(scores.tolist(), overlaps(corners, truth), strict=True):
        best = int(row.argmax()) if len(truth) else -1
        hit = best >= 0 and float(row[best]) >= iou and free[best]
        if hit:
            free[best] = False
        judged.append((score, hit))
    return judged


def _same_shape(outputs: Tensor, references: Tensor) -> None:
    if outputs.shape != references.shape:
        raise ValueError(f"an output of shape {tuple(outputs.shape)} is not {tuple(references.shape)}")
