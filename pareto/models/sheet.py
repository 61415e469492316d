"""Pictures of what a model says of images: its stages at a split, with codec and engines, beside the uncut model."""

from __future__ import annotations

import importlib
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import interpolate, pad

from pareto.models import codec_results, prepare
from pareto.partitions import model, registry
from pareto.partitions.engines import registry as engines
from pareto.partitions.engines.base import EngineError
from pareto.partitions.entry import DETECTION, SEGMENTATION
from pareto.partitions.inputs import Images, for_module
from pareto.partitions.quality import Answers, mean_average_precision
from pareto.protocol.errors import BackendError, UserError
from pareto.remote.backends.base import batches
from pareto.remote.codecs import own
from pareto.remote.codecs.pictures import MODES
from pareto.remote.codecs.registry import Codec
from pareto.sweep.splits import Split

utils = importlib.import_module("torchvision.utils")  # after `torchvision_models`, which `registry` imports
SIDE, BAND, PADDING = 320, 25, 8
"""Pixels: a picture's longer side, the words below it, and what is between pictures."""
NOTHING = "__background__"
MOST_BOXES = 12
"""Boxes that are drawn in a picture: the best."""
LETTERS, LINE = 86, 17
"""The letters in a line of a title, and its height."""
_COLOURS = "yellow", "aqua", "lime", "orange", "violet", "tan", "salmon", "skyblue", "khaki", "silver", "plum"
_FONT = str(Path(mpl.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"))


@dataclass(frozen=True)
class Said:
    """What both models say of some images. images: bytes, (n, channels, height, width). masks: whether tops are those
    of pixels. names: of classes, by number. codec: at work at the split."""

    images: Tensor
    split: Answers
    uncut: Answers
    masks: bool
    names: Mapping[int, str]
    codec: str

    @property
    def agree(self) -> list[float]:
        """For each image 1 if the top class is the same, or each box lies on one of its class, else 0; of masks the
        share of pixels with the same class."""
        if self.split.tops is not None:
            same = (self.split.tops == self.uncut.tops) & ~self.split.tensors[0].isnan().any(1)
            return list(same.float().reshape(len(same), -1).mean(1).tolist())
        pairs = [*zip(self.split.boxes, self.uncut.boxes, strict=True)]
        # Boxes without an area overlap nothing, not even themselves. NaN: neither has a box.
        off = (mean_average_precision([b], [b]) - mean_average_precision([a], [b]) for a, b in pairs)
        return [
            len(a.scores) == len(b.scores) and not by > 1e-6 for (a, b), by in zip(pairs, off, strict=True)
        ]


def said(
    made: prepare.Prepared, split: Split, codec: Codec, engine: str, size: int, seed: int, most: int
) -> Said:
    """What both models say of the first images. size: of batches. seed: of a user's own codec. Raises UserError."""
    entry, by, count = registry.entry(made.name), engines.parse(engine), math.ceil(most / size)
    if not isinstance(entry.takes, Images) or entry.takes.shape[0] not in MODES:
        raise UserError(f"{made.name} takes no pictures: there is nothing to draw on")
    if lacks := next(filter(None, map(engines.missing, {*by.of_all} - {engines.EAGER})), ""):
        raise UserError(f"engine {engine} is to run here, too: {lacks}")
    whole, data = model.load(made.recipe, made.weights.path), load_file(made.data[size].path)
    inputs, references = batches(data, "input"), batches(data, "reference")
    with torch.inference_mode(), entry.blamed():
        returned = entry.call(whole.eager, for_module(entry.takes, inputs[0]))
    has_out = isinstance(returned, Mapping) and next(iter(returned), "") == "out"
    task = entry.task or (SEGMENTATION if has_out else "")
    try:
        (bound,) = own.bound([codec], prepare.cuts(whole, [split]), seed)
        results, bound = codec_results.of_split(whole, inputs, (split, bound, by), count)
    except (BackendError, EngineError) as error:
        raise UserError(f"{made.name}: {error}") from None
    images = torch.cat([batch[0] for batch in inputs[:count]])[:most]
    if images.dtype != torch.uint8:
        mean, std = (torch.tensor(of)[:, None, None] for of in (entry.takes.mean, entry.takes.std))
        images = ((images * std + mean) * 255).round().clamp(0, 255).byte()
    ours, theirs = (
        Answers.of([torch.cat(parts)[:most] for parts in zip(*of, strict=True)], task, entry.places)
        for of in (results, references[:count])
    )
    if task != DETECTION and theirs.tops is None:
        raise UserError(f"{made.name}: its results are no logits, no 'out' and no boxes: they are not drawn")
    numbers = made.manifest["dataset"]["classes"]
    names = dict(enumerate(entry.classes)) or {numbers[name]: name for name in numbers}
    return Said(images, ours, theirs, task == SEGMENTATION, names, bound.text)


def pictures(of: Said) -> list[Tensor]:
    """The pictures, (3, height, width) of bytes: for each image one of the split model, then one of the uncut."""
    both = (("split", of.split), ("uncut", of.uncut))
    return [
        _picture(of, answers, number, who if agrees == 1 else f"{who} (differs)")
        for number, agrees in enumerate(of.agree)
        for who, answers in both
    ]


def sheet(drawn: Sequence[Tensor], title: Sequence[str]) -> Tensor:
    """The pictures in rows of two, under lines of words."""
    grid: Tensor = utils.make_grid([*drawn], nrow=2, padding=PADDING, pad_value=255)
    lines = [part for line in title for part in textwrap.wrap(line, LETTERS)]
    head = torch.full((3, LINE * len(lines) + PADDING, grid.shape[2]), 255, dtype=torch.uint8)
    return torch.cat(
        [_labelled(head, torch.tensor([[0, 0, *head.shape[:0:-1]]]), ["\n".join(lines)]), grid], 1
    )


def _picture(of: Said, answers: Answers, number: int, who: str) -> Tensor:
    """An image with masks or boxes, and what is said of it in a line below."""
    image, words, labels = of.images[number].expand(3, -1, -1), "", list[str]()
    scale = SIDE / max(image.shape[1:])
    sides = [max(1, round(scale * side)) for side in image.shape[1:]]
    picture = interpolate(image[None].float(), sides, mode="bilinear", antialias=True)[0].round().byte()

    def name(number: int) -> str:
        return of.names.get(number, f"class {number}")

    if answers.tops is None:
        boxes = answers.boxes[number]
        corners = (boxes.corners[:MOST_BOXES] * scale).nan_to_num().clamp(0, SIDE)
        numbers, scores = (each[:MOST_BOXES].tolist() for each in (boxes.classes, boxes.scores))
        labels = [f"{name(at)} {score:.2f}" for at, score in zip(numbers, scores, strict=True)]
        words = f"{len(boxes.scores)} boxes" + ", best drawn" * (len(boxes.scores) > MOST_BOXES)
    elif of.masks:
        tops = interpolate(answers.tops[number][None, None].float(), sides)[0, 0].long()
        shares = tops.flatten().bincount() / tops.numel()
        seen = [at for at in shares.argsort(descending=True).tolist() if shares[at] and name(at) != NOTHING]
        masks = torch.stack([tops == at for at in seen or [-1]])
        picture = utils.draw_segmentation_masks(picture, masks, 0.55, [_colour(at) for at in seen or [0]])
        words = ", ".join(f"{name(at)} {100 * shares[at]:.0f} %" for at in seen) or "background"
    else:
        share, top = answers.tensors[0][number].float().softmax(0).max(0)
        words = f"{name(int(top))}, {100 * share:.0f} %" if share.isfinite() else "not a number"
    picture = pad(picture, (0, SIDE - sides[1], 0, BAND), value=255)
    words = textwrap.shorten(f"{who}: {words}", 45, placeholder="...")
    below = torch.tensor([[0, sides[0], SIDE, sides[0] + BAND]])
    picture = _labelled(picture, below, [words], "orange" if "differs" in who else "white")
    return _labelled(picture, corners, labels, [_colour(at) for at in numbers]) if labels else picture


def _labelled(picture: Tensor, corners: Tensor, labels: list[str], colours: Any = "white") -> Tensor:
    fonts = {"font": _FONT, "font_size": 13, "fill_labels": True}
    drawn: Tensor = utils.draw_bounding_boxes(picture, corners, labels, colours, width=2, **fonts)
    return drawn


def _colour(number: int) -> str:
    """The colour of a class, the same in all pictures; light, as what is written on it is black."""
    return _COLOURS[number % len(_COLOURS)]
