"""The models that can be partitioned, by name: torchvision's, Ultralytics' YOLO, and those of a user's own file."""

from __future__ import annotations

import difflib
import re

from torch import nn

from pareto.protocol.errors import UserError
from pareto.protocol.own import Own

from . import torchvision_models, user_file, yolo
from .entry import Entry, without_memory
from .recipe import CLASSES, OWN, Recipe, squashed
from .user_file import register

__all__ = ["Entry", "adopt", "build_structure", "canonical", "entry", "names", "register", "source"]

_adopted: dict[str, Entry] = {}  # users' models


def names() -> list[str]:
    """The canonical names of all models, sorted: those of installed packages, and of the users' files seen so far."""
    return sorted((*torchvision_models.names(), *yolo.names(), *_adopted))


def canonical(name: str) -> str:
    """The registered name for `name`, whatever its case and separators: 'mobilenet_v2' for 'MobileNet-V2'.

    For 'path/to/file.py:build' the file is run, and its model is registered as 'file.build'; without ':build' it must
    have one builder under `register`. Raises UserError for a name that fits no model, or several (regnetx16gf: 16
    or 1.6 GF), and for a file that has no model.
    """
    if own := OWN.own(name):
        new = user_file.load(own)
        known = _adopted.get(new.name, new)
        if known.file != new.file:
            raise UserError(
                f"{known.file} and {new.file} both have a model {new.name}: rename one of the files"
            )
        _adopted[new.name] = new
        return new.name
    name, sign, classes = name.partition(CLASSES)
    if sign and not re.fullmatch("[1-9][0-9]{0,5}", classes):
        raise UserError(
            f"model {name}{sign}{classes}: a number of classes follows {CLASSES}, as in {name}{CLASSES}10"
        )
    return f"{_full(name)}{sign}{classes}"


def _full(name: str) -> str:
    known = names()
    if name in known:
        return name
    matches = [candidate for candidate in known if squashed(candidate) == squashed(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UserError(f"model {name!r} is ambiguous: {' or '.join(matches)}?")
    if squashed(name) in yolo.NAMES:
        raise UserError(f"{squashed(name)} needs the package ultralytics: {yolo.INSTALL}")
    by_letters = {squashed(candidate): candidate for candidate in known}
    nearest = difflib.get_close_matches(squashed(name), by_letters, n=3, cutoff=0.0)
    raise UserError(f"unknown model {name!r}: did you mean {', '.join(by_letters[n] for n in nearest)}?")


def entry(name: str) -> Entry:
    """The entry of a model. Raises UserError."""
    name = canonical(name)
    if name in _adopted:
        return _adopted[name]
    name, sign, classes = name.partition(CLASSES)
    if name in yolo.NAMES and not sign:
        return yolo.entry(name)
    if sign and not torchvision_models.is_of_classes(name):
        raise UserError(
            f"{name}: only torchvision's classifiers and segmentation models have another number of classes"
        )
    return torchvision_models.entry(name, int(classes or 0))


def source(name: str) -> tuple[str, str]:
    """The file of a user's own model and the builder's name in it; ('', '') for other models. Raises UserError."""
    known = entry(name)
    return str(known.file or ""), known.attribute


def adopt(recipe: Recipe) -> None:
    """Make a user's own model known by the name that it has on other hosts. Raises UserError."""
    if recipe.file:
        _adopted[recipe.name] = user_file.read(Own(recipe.name, recipe.file, recipe.attribute, recipe.file))


def build_structure(name: str) -> nn.Module:
    """A new model in eval mode, gradients off, its parameters on the meta device; its buffers are real. Raises
    UserError."""
    return without_memory(lambda: entry(name).module().requires_grad_(False))
