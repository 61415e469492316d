"""How far a split's outputs are from the whole model's, in the terms of what the model is for.

A codec may lose something of what crosses. The loss is measured against the whole model's own outputs, so that
only `top1` needs labels. Pure functions of tensors: a batch is their first dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .entry import DETECTION, SEGMENTATION, Placing

IOU = 0.5
"""The overlap from which on a box is taken for another."""
SUPPRESSED_IOU = 0.45
"""The overlap beyond which the worse of two boxes of one class is left out."""
MOST_CANDIDATES = 1000
"""Boxes of an image before non-maximum suppression: the best are kept. It compares each with each, and a network that
was never trained may see one at each of 120 000 anchors."""
MOST_MARKED = 1024
"""Images of which a trial's row says one by one what became of them."""


@dataclass(frozen=True)
class Quality:
    """The quality of a split's outputs for some images.

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
        """The cells of a trial's row."""
        figures = "output_error", "agreement", "top1", "mean_iou", "map50"
        return {name: getattr(self, name) for name in figures} | {
            "agreement_images": None if self.agreement is None else self.images,
            "top1_images": None if self.top1 is None else self.images,
            "changed_images": _marks(self.changed),
            "wrong_images": _marks(self.wrong),
        }


def _marks(images: Sequence[bool]) -> str | None:
    """A hexadecimal digit for four images, the first of them its highest bit; None where they are none, or too many."""
    if not 0 < len(images) <= MOST_MARKED:
        return None
    digits = math.ceil(len(images) / 4)
    bits = "".join(str(int(one)) for one in images).ljust(4 * digits, "0")
    return f"{int(bits, 2):0{digits}x}"


@dataclass(frozen=True)
class Answers:
    """A batch of a model's outputs, and what is read from the first of them: top classes, or boxes."""

    tensors: Sequence[Tensor]
    tops: Tensor | None
    boxes: Sequence[Boxes]

    @classmethod
    def of(cls, tensors: Sequence[Tensor], task: str = "", places: Placing | None = None) -> Answers:
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
        """Sums of squares over all tensors: of the differences, and of the references."""
        self._changed: list[bool] = []
        self._wrong: list[bool] = []
        self._common = self._either = torch.tensor(0)
        """By class, how many pixels are of it in both, and in either."""
        self._boxes: list[Boxes] = []
        self._truth: list[Boxes] = []

    def add(self, outputs: Answers, references: Answers, labels: Tensor | None = None) -> None:
        """labels: of each image, int64. Raises ValueError where shapes differ."""
        self._add_squares(outputs.tensors, references.tensors)
        self._images += len(outputs.tensors[0])
        self._boxes += outputs.boxes
        self._truth += references.boxes
        ours, theirs = outputs.tops, references.tops
        if ours is None or theirs is None:
            return
        if self._task == SEGMENTATION:
            agreed, *each = (
                torch.bincount(pixels.flatten(), minlength=outputs.tensors[0].shape[1])
                for pixels in (ours[ours == theirs], ours, theirs)
            )
            self._common, self._either = self._common + agreed, self._either + sum(each) - agreed
            return
        known = ~(outputs.tensors[0].isnan().any(1) | references.tensors[0].isnan().any(1))
        self._changed += (~((ours == theirs) & known)).tolist()
        if labels is not None:
            self._wrong += (ours != labels).tolist()

    def _add_squares(self, outputs: Sequence[Tensor], references: Sequence[Tensor]) -> None:
        if len(outputs) != len(references):
            raise ValueError(f"{len(outputs)} outputs are not {len(references)}")
        for output, reference in zip(outputs, references, strict=True):
            if output.shape != reference.shape:
                raise ValueError(f"an output of shape {tuple(output.shape)} is not {tuple(reference.shape)}")
            self._off += float((output.double() - reference.double()).square().sum())
            self._size += float(reference.double().square().sum())

    def quality(self) -> Quality:
        """The figures of all that was added.

        output_error: the L2 norm of the difference over that of the references, over all tensors together. mean_iou:
        the mean intersection over union of a segmentation against the whole model's. Each pixel belongs to its top
        class; of each class that either has anywhere, intersection and union count the pixels of all images, and the
        mean is over these classes (Everingham et al., "The Pascal Visual Object Classes Challenge: A Retrospective",
        IJCV 111, 2015, section 3.3).
        """
        error = math.sqrt(self._off / self._size) if self._size else math.inf if self._off else 0.0
        present = self._either > 0
        ious = self._common[present].double() / self._either[present]
        precision = mean_average_precision(self._boxes, self._truth) if self._task == DETECTION else math.nan
        return Quality(
            self._images,
            _finite(error),
            agreement=self._changed.count(False) / len(self._changed) if self._changed else None,
            top1=self._wrong.count(False) / len(self._wrong) if self._wrong else None,
            mean_iou=_finite(float(ious.mean())),
            map50=_finite(precision),
            changed=tuple(self._changed),
            wrong=tuple(self._wrong),
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Boxes:
    """A detector's boxes in one image. corners: (n, 4), left, top, right and bottom. scores, classes: (n,)."""

    corners: Tensor
    scores: Tensor
    classes: Tensor


def boxes(outputs: Tensor, score: float = 0.25) -> list[Boxes]:
    """The boxes of each image in YOLO's outputs: those of at least `score` that overlap no better one of their class.

    outputs: (n, 4 + classes, places): centre, width and height, and a score for each class. The better of
    two boxes of one class that overlap by more than `SUPPRESSED_IOU` is kept (non-maximum suppression), of the
    best `MOST_CANDIDATES`; by falling score.
    """
    return [_image_boxes(image, score) for image in outputs]


def _image_boxes(outputs: Tensor, score: float) -> Boxes:
    scores, classes = outputs[4:].max(0)
    kept = scores >= score
    scores, order = scores[kept].sort(descending=True, stable=True)
    scores, order = scores[:MOST_CANDIDATES], order[:MOST_CANDIDATES]
    classes = classes[kept][order]
    centre, size = outputs[:4, kept][:, order].T.chunk(2, 1)
    corners = torch.cat((centre - size / 2, centre + size / 2), 1)
    rivals = (overlaps(corners, corners) > SUPPRESSED_IOU) & (classes[:, None] == classes)
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
    our_area, their_area = ((each[:, 2:] - each[:, :2]).clamp(min=0).prod(1) for each in (ours, theirs))
    either = our_area[:, None] + their_area[None] - common
    return torch.where(either > 0, common / either, torch.zeros_like(common))


def mean_average_precision(outputs: Sequence[Boxes], references: Sequence[Boxes]) -> float:
    """The mAP of a detector's boxes where the whole model's are the truth, 0 to 1; NaN where that saw nothing.

    One entry an image. For each class of the truth: over all images, boxes in the order of falling scores; each takes
    the true box of its image and class that it overlaps most, if that is `IOU` or more and the box is still free, and
    is wrong otherwise. The average precision is the area under the precision that is made monotonous, over the recall
    at every box (Everingham et al., IJCV 111, 2015, section 3.4.1: as since 2010, not at eleven points); the mean
    is over the classes. Raises ValueError where the numbers of images differ.
    """
    if len(outputs) != len(references):
        raise ValueError(f"boxes of {len(outputs)} images are not those of {len(references)}")
    classes = sorted({int(number) for image in references for number in image.classes})
    if not classes:
        return math.nan
    return sum(_average_precision(outputs, references, number) for number in classes) / len(classes)


def _average_precision(outputs: Sequence[Boxes], references: Sequence[Boxes], number: int) -> float:
    scored: list[tuple[float, bool]] = []
    true = 0
    for ours, theirs in zip(outputs, references, strict=True):
        corners = theirs.corners[theirs.classes == number].double()
        true += len(corners)
        scored += _judged(ours, number, corners)
    # Of equal scores the order is that of images and boxes: sorting is stable.
    scored.sort(key=lambda pair: -pair[0])
    if not scored:
        return 0.0
    right = torch.tensor([hit for _, hit in scored], dtype=torch.float64).cumsum(0)
    precision = right / torch.arange(1, len(scored) + 1)
    at_least = precision.flip(0).cummax(0).values.flip(0)
    recall = torch.cat((torch.zeros(1, dtype=torch.float64), right / true))
    return float((recall.diff() * at_least).sum())


def _judged(ours: Boxes, number: int, truth: Tensor) -> list[tuple[float, bool]]:
    """The score of each box of the class in one image, and whether it is right; by falling score."""
    mine = ours.classes == number
    order = ours.scores[mine].argsort(descending=True, stable=True)
    corners, scores = ours.corners[mine][order].double(), ours.scores[mine][order]
    free = [True] * len(truth)
    judged = []
    for score, row in zip(scores.tolist(), overlaps(corners, truth), strict=True):
        best = int(row.argmax()) if len(truth) else -1
        hit = best >= 0 and float(row[best]) >= IOU and free[best]
        if hit:
            free[best] = False
        judged.append((score, hit))
    return judged
