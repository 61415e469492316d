"""Pictures of what a model says of images: its stages at a split, with codec and engines, beside the uncut model."""

from __future__ import annotations

import importlib
import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

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
MOST_BOXES = 12
LETTERS, LINE = 86, 17
"""The letters in a line of a title, and its height."""
NOTHING = "__background__"
_COLOURS = ["yellow", "aqua", "lime", "orange", "violet", "tan", "salmon", "skyblue", "khaki", "plum"]
"""Colours of classes, the same in all pictures; light, as what is written on them is black."""
_FONT = str(Path(mpl.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"))
_labelled = partial(utils.draw_bounding_boxes, width=2, font=_FONT, font_size=13, fill_labels=True)


def drawn(
    made: prepare.Prepared, split: Split, codec: Codec, engine: str, size: int, seed: int, most: int
) -> tuple[list[Tensor], list[float], str]:
    """Pictures of the first images, split and uncut in turn; how far both agree on each, 0 to 1; and the codec at work.
    size: of batches. seed: of a user's own codec. Raises UserError."""
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
    both = [
        Answers.of([torch.cat(parts)[:most] for parts in zip(*of, strict=True)], task, entry.places)
        for of in (results, references[:count])
    ]
    if task != DETECTION and both[1].tops is None:
        raise UserError(f"{made.name}: its results are no logits, no 'out' and no boxes: they are not drawn")
    classes = made.manifest["dataset"]["classes"]
    names = dict(enumerate(entry.classes)) or {classes[name]: name for name in classes}
    images = torch.cat([batch[0] for batch in inputs[:count]])[:most]
    if images.dtype != torch.uint8:
        mean, std = (torch.tensor(of)[:, None, None] for of in (entry.takes.mean, entry.takes.std))
        images = ((images * std + mean) * 255).round().clamp(0, 255).byte()
    agree, is_masks = agreement(*both), task == SEGMENTATION
    pictures = [
        _picture(image, answers, number, f"{who}{' (differs)' * (agree[number] < 1)}", names, is_masks)
        for number, image in enumerate(images)
        for who, answers in zip(("split", "uncut"), both, strict=True)
    ]
    return pictures, agree, bound.text


def sheet(pictures: Sequence[Tensor], title: Sequence[str]) -> Tensor:
    """The pictures in rows of two, under lines of words."""
    grid: Tensor = utils.make_grid([*pictures], nrow=2, padding=PADDING, pad_value=255)
    lines = [part for line in title for part in textwrap.wrap(line, LETTERS)]
    head = torch.full((3, LINE * len(lines) + PADDING, grid.shape[2]), 255, dtype=torch.uint8)
    words = _labelled(head, torch.tensor([[0, 0, *head.shape[:0:-1]]]), ["\n".join(lines)], "white")
    return torch.cat([words, grid], 1)


def agreement(ours: Answers, theirs: Answers) -> list[float]:
    """For each image 1 or 0: whether the top class is the same, or the boxes; of masks the share of pixels."""
    if ours.tops is not None:
        same = (ours.tops == theirs.tops) & ~ours.tensors[0].isnan().any(1)
        return list(same.float().reshape(len(same), -1).mean(1).tolist())
    agree = []
    for a, b in zip(ours.boxes, theirs.boxes, strict=True):
        # Boxes without an area overlap nothing, not even themselves. NaN: neither has a box.
        off = mean_average_precision([b], [b]) - mean_average_precision([a], [b])
        agree.append(float(len(a.scores) == len(b.scores) and not off > 1e-6))
    return agree


def probabilities(outputs: Tensor) -> Tensor:
    """The probabilities of a classifier's outputs, which are logits, or probabilities already."""
    is_done = bool((outputs >= 0).all()) and abs(float(outputs.sum()) - 1) < 1e-3
    return outputs if is_done else outputs.softmax(0)


def _picture(
    image: Tensor, of: Answers, number: int, who: str, names: Mapping[int, str], is_masks: bool
) -> Tensor:
    """An image with masks or boxes, and what is said of it in a line below."""

    def name(number: int) -> str:
        return names.get(number, f"class {number}")

    scale = SIDE / max(image.shape[1:])
    sides = [max(1, round(scale * side)) for side in image.shape[1:]]
    big = interpolate(image.expand(3, -1, -1)[None].float(), sides, mode="bilinear", antialias=True)
    picture, corners = big[0].round().byte(), torch.empty(0, 4)
    labels, colours = list[str](), list[str]()
    if of.tops is None:
        boxes = of.boxes[number]
        corners = (boxes.corners[:MOST_BOXES] * scale).nan_to_num().clamp(0, SIDE)
        found = [*zip(boxes.classes.tolist(), boxes.scores.tolist(), strict=True)][:MOST_BOXES]
        labels = [f"{name(at)} {score:.2f}" for at, score in found]
        colours = [_COLOURS[at % len(_COLOURS)] for at, _ in found]
        words = f"{len(boxes.scores)} boxes" + ", best drawn" * (len(boxes.scores) > MOST_BOXES)
    elif is_masks:
        tops = interpolate(of.tops[number][None, None].float(), sides)[0, 0].long()
        shares = tops.flatten().bincount() / tops.numel()
        seen = [at for at in shares.argsort(descending=True).tolist() if shares[at] and name(at) != NOTHING]
        masks = torch.stack([tops == at for at in seen or [-1]])
        picture = utils.draw_segmentation_masks(
            picture, masks, 0.55, [_COLOURS[at % len(_COLOURS)] for at in seen or [0]]
        )
        words = ", ".join(f"{name(at)} {100 * shares[at]:.0f} %" for at in seen) or "background"
    else:
        share, top = probabilities(of.tensors[0][number].float()).max(0)
        words = f"{name(int(top))}, {100 * share:.0f} %" if share.isfinite() else "not a number"
    corners = torch.cat([torch.tensor([[0, sides[0], SIDE, sides[0] + BAND]]), corners])
    labels = [textwrap.shorten(f"{who}: {words}", 45, placeholder="..."), *labels]
    colours = ["orange" if "differs" in who else "white", *colours]
    drawn: Tensor = _labelled(
        pad(picture, (0, SIDE - sides[1], 0, BAND), value=255), corners, labels, colours
    )
    return drawn
