"""The codecs: what each is called, and which module has it.

A codec is written as steps joined by `+`: at most one that gives numbers fewer bits, then at most one that compresses
bytes, as in `fp16`, `int8:channel`, `zstd:3`, `int8+zstd`; or one alone that makes pictures of images, as `jpeg:90`.
One codec has one text: `zstd` is `zstd:3`. This module needs no torch: a request is checked with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pareto.backends.base import Layout, Tensors
    from pareto.codecs.base import Step

NONE = "none"
JOINS, SEPARATOR = "+", ":"
BLOSC2_CODECS = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
BLOSC2_FILTERS = ("shuffle", "bitshuffle", "noshuffle")


class Entry(NamedTuple):
    """A step. variants: the pattern that they match. default: the variant that is meant where none is written.

    words: how messages describe it. needs: the package that it imports. changes: the dtypes that it changes, any if
    empty.
    """

    module: str
    variants: str
    default: str
    words: str
    lossless: bool
    needs: str = ""
    changes: tuple[str, ...] = ()

    def acts_on(self, dtypes: Collection[str]) -> bool:
        """Whether it changes a tensor of any of these dtypes."""
        return any(not self.changes or dtype in self.changes for dtype in dtypes)


_WIDE = ("float32", "float64")
_FLOATS = (*_WIDE, "float16", "bfloat16")
BITS = {
    "fp16": Entry("pareto.codecs.floats", "", "", "fp16", False, changes=_WIDE),
    "bf16": Entry("pareto.codecs.floats", "", "", "bf16", False, changes=_WIDE),
    "int8": Entry("pareto.codecs.affine", "channel", "", "int8, int8:channel", False, changes=_FLOATS),
    "uint4": Entry("pareto.codecs.affine", "channel", "", "uint4, uint4:channel", False, changes=_FLOATS),
}
"""Steps that give numbers fewer bits. A new one is a module with `step(name, variant)` and an entry here."""
COMPRESSORS = {
    "zstd": Entry(
        "pareto.codecs.compressed", r"[1-9]|1\d|2[0-2]", "3", "zstd:LEVEL (1 to 22)", True, "zstandard"
    ),
    "lz4": Entry("pareto.codecs.compressed", r"[1-9]|1[0-2]", "", "lz4, lz4:LEVEL (1 to 12)", True, "lz4"),
    "blosc2": Entry(
        "pareto.codecs.compressed",
        rf"({'|'.join(BLOSC2_CODECS)}):[0-9]:({'|'.join(BLOSC2_FILTERS)})",
        "blosclz:9:shuffle",
        "blosc2:CODEC:LEVEL:FILTER (blosc2:blosclz:9:shuffle)",
        True,
        "blosc2",
    ),
}
"""Steps that compress bytes, by the same rule."""
PICTURES = {
    "jpeg": Entry("pareto.codecs.pictures", r"[1-9]\d?|100", "90", "jpeg:QUALITY (1 to 100)", False, "PIL"),
    "webp": Entry("pareto.codecs.pictures", r"[1-9]\d?|100", "80", "webp:QUALITY (1 to 100)", False, "PIL"),
    "png": Entry("pareto.codecs.pictures", "", "", "png", True, "PIL"),
}
"""Steps that make pictures of images: alone, and where the payload is the input."""
_ALL = BITS | COMPRESSORS | PICTURES


@dataclass(frozen=True)
class Codec:
    """What is done to a payload. text: its canonical name. It has no state but its steps, which one thread uses."""

    text: str

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Name and variant of each step; empty for `none`."""
        if self.text == NONE:
            return ()
        parted = (step.partition(SEPARATOR) for step in self.text.split(JOINS))
        return tuple((name, variant) for name, _, variant in parted)

    @property
    def lossless(self) -> bool:
        """Whether decoded tensors are equal to the encoded ones to the last bit, by how it is made."""
        return all(_ALL[name].lossless for name, _ in self.names)

    @property
    def lossy(self) -> Codec:
        """The codec without its steps that lose nothing, which change no result."""
        return self._of(step for step in self.names if not _ALL[step[0]].lossless)

    def at(self, dtypes: Collection[str]) -> Codec:
        """The codec without its steps that change no tensor of these dtypes, those of all that crosses.

        `none` where nothing crosses. A step that changes one tensor of several stays.
        """
        return self._of(step for step in self.names if _ALL[step[0]].acts_on(dtypes))

    @staticmethod
    def _of(steps: Iterable[tuple[str, str]]) -> Codec:
        return Codec(JOINS.join(SEPARATOR.join(filter(None, step)) for step in steps) or NONE)

    @property
    def pictures(self) -> bool:
        """Whether it makes pictures, and so takes nothing but images of bytes."""
        return any(name in PICTURES for name, _ in self.names)

    def fits(self, cuts: Sequence[int], last: int) -> bool:
        """Whether it takes what crosses where a model is cut there: pictures are of the input, at point 0.

        last: the point that keeps everything on the edge.
        """
        return not (self.pictures and any(0 < cut < last for cut in cuts))

    def coded_name(self, cuts: Sequence[int]) -> str:
        """How the results of a model that is cut there, with this codec, are called: `int8@7`, `int8@3+7`."""
        return f"{self.lossy.text}@{'+'.join(map(str, cuts))}"

    @property
    def missing(self) -> str:
        """The package that it needs and this host lacks; empty: none."""
        return next(
            (needs for name, _ in self.names if (needs := _ALL[name].needs) and not find_spec(needs)), ""
        )

    def encoded(self, layout: Layout) -> Layout:
        """The layout of what `encode` makes of tensors with this one."""
        for step in self._steps:
            layout = step.encoded(layout)
        return layout

    def encode(self, tensors: Tensors) -> Tensors:
        """The tensors to send. They may share memory with these. Raises BackendError for what is not finite."""
        for step in self._steps:
            tensors = step.encode(tensors)
        return tensors

    def decode(self, tensors: Tensors, layout: Layout) -> Tensors:
        """The tensors, of this layout, that were encoded. Raises BackendError for anything else than `encode` makes.

        Whatever the tensors hold, no more is allocated than the layout needs.
        """
        layouts = [layout]
        for step in self._steps:
            layouts.append(step.encoded(layouts[-1]))
        for step, of in zip(reversed(self._steps), reversed(layouts[:-1]), strict=True):
            tensors = step.decode(tensors, of)
        return tensors

    @cached_property
    def _steps(self) -> tuple[Step, ...]:
        made = []
        for name, variant in self.names:
            step: Callable[[str, str], Step] = import_module(_ALL[name].module).step
            made.append(step(name, variant))
        return tuple(made)


def parse(text: str) -> Codec:
    """The codec of this name. Raises ValueError, which says what there is."""
    if text == NONE:
        return Codec(NONE)
    alone = text.partition(SEPARATOR)[0] in PICTURES
    steps, allowed = [], [PICTURES] if alone else [BITS, COMPRESSORS]
    for part in text.split(JOINS):
        name, _, variant = part.partition(SEPARATOR)
        while allowed and name not in allowed[0]:
            allowed.pop(0)
        if (
            not allowed
            or (variant and not re.fullmatch(_ALL[name].variants, variant))
            or part.endswith(SEPARATOR)
        ):
            raise ValueError(_there_is(text))
        allowed.pop(0)
        steps.append(SEPARATOR.join(filter(None, (name, variant or _ALL[name].default))))
    return Codec(JOINS.join(steps))


def _there_is(text: str) -> str:
    bits, compressors, pictures = (
        ", ".join(entry.words for entry in entries.values()) for entries in (BITS, COMPRESSORS, PICTURES)
    )
    return (
        f"{text!r} is no codec: there are {NONE}; {bits}; {compressors}; one of each of these groups, as in int8+zstd;"
        f" and for the images at point 0 {pictures}"
    )
