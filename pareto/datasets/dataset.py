"""A set of images that the user has: what is in it, and which of it a sweep takes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL.Image import Image


@dataclass(frozen=True)
class Sample:
    """One image. label: index into its data set's classes; None where it has none. read: raises UserError."""

    label: int | None
    read: Callable[[], Image]


@dataclass(frozen=True)
class Dataset:
    """Images and the names of their classes, which are none where nobody said what the images show."""

    path: Path
    samples: tuple[Sample, ...]
    classes: tuple[str, ...] = ()

    def spread(self, seed: int) -> tuple[Sample, ...]:
        """All samples in an order of which each beginning is spread as evenly over the classes as it can be.

        The order depends on the seed and on what is in the set, and on nothing else.
        """
        # Not cryptography: a choice that anybody can make again from the manifest.
        shuffled = random.Random(f"{seed}/images")  # noqa: S311
        by_class: dict[int | None, list[Sample]] = {}
        for sample in self.samples:
            by_class.setdefault(sample.label, []).append(sample)
        kinds = list(by_class.values())
        for kind in kinds:
            shuffled.shuffle(kind)
        shuffled.shuffle(kinds)
        turns = range(max(map(len, kinds), default=0))
        return tuple(kind[turn] for turn in turns for kind in kinds if turn < len(kind))
