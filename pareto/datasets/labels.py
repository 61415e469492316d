"""From the classes of a data set to those of a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Labels:
    """indices: for each class of the data set, the output of the model that stands for it; empty where it has none.

    how: by what they were matched, or why they could not be.
    """

    indices: tuple[int, ...]
    how: str


def match(classes: Sequence[str], outputs: int | None, categories: Sequence[str]) -> Labels:
    """classes: names in the data set. outputs: how many classes the model tells apart, None where it is no classifier.

    categories: their names, where the model's author gave them.
    """
    if not classes:
        return Labels((), "the images are in no class folders")
    if outputs is None:
        return Labels((), "the model is no classifier")
    known = {_plain(name): index for index, name in enumerate(categories)}
    if all(_plain(name) in known for name in classes):
        return Labels(tuple(known[_plain(name)] for name in classes), "names")
    if all(name.isdecimal() and int(name) < outputs for name in classes):
        return Labels(tuple(map(int, classes)), "numbers")
    if len(classes) == outputs:
        return Labels(tuple(range(outputs)), "order")
    strange = next(name for name in classes if _plain(name) not in known)
    return Labels(
        (),
        f"the data set has {len(classes)} classes and the model {outputs}, and {strange!r} is neither the name nor the "
        "number of one of them",
    )


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", " ", name).strip().casefold()
