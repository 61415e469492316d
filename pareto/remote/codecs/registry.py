"""The codecs: what each is called, and which module has it.

A codec is written as steps joined by `+`: at most one that gives numbers fewer bits, then at most one that compresses
bytes, as in `fp16`, `int8:channel`, `zstd:3`, `int8+zstd`; or one alone that makes pictures of images, as `jpeg:90`.
A user's own comes before both: `path/to/file.py:Bottleneck+zstd`. One codec has one text: `zstd` is `zstd:3`, and the
user's own has its class's name. Behind a slash stands the codec of results on their way back, as in `int8/lz4`. This
module needs no torch: a request is checked with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pareto.partitions.engines.registry import EAGER
from pareto.protocol.own import Kind, Own, in_rows

if TYPE_CHECKING:
    from pareto.remote.backends.base import Layout, Tensors
    from pareto.remote.codecs.base import Step

NONE = "none"
JOINS, SEPARATOR, BACK = "+", ":", "/"


class Entry(NamedTuple):
    """A step. module: of this package. variants: their pattern. default: the one where none is written. words: for
    messages. needs: the package that it imports. changes: the dtypes that it changes, any if empty."""

    module: str
    variants: str
    default: str
    words: str
    lossless: bool
    needs: str = ""
    changes: frozenset[str] = frozenset()


WIDE = frozenset({"float32", "float64"})
FLOATS = WIDE | {"float16", "bfloat16"}
BITS = {
    "fp16": Entry("bits", "", "", "fp16", False, changes=WIDE),
    "bf16": Entry("bits", "", "", "bf16", False, changes=WIDE),
    "int8": Entry("bits", "channel", "", "int8, int8:channel", False, changes=FLOATS),
    "uint4": Entry("bits", "channel", "", "uint4, uint4:channel", False, changes=FLOATS),
}
"""Steps that give numbers fewer bits. A new one is a module with `step(name, variant)` and an entry here."""
COMPRESSORS = {
    "zstd": Entry("compressed", r"[1-9]|1\d|2[0-2]", "3", "zstd:LEVEL (1 to 22)", True, "zstandard"),
    "lz4": Entry("compressed", r"[1-9]|1[0-2]", "", "lz4, lz4:LEVEL (1 to 12)", True, "lz4"),
    "blosc2": Entry(
        "compressed",
        "(blosclz|lz4|lz4hc|zlib|zstd):[0-9]:(shuffle|bitshuffle|noshuffle)",
        "blosclz:9:shuffle",
        "blosc2:CODEC:LEVEL:FILTER (blosc2:blosclz:9:shuffle)",
        True,
        "blosc2",
    ),
}
"""Steps that compress bytes, by the same rule."""
PICTURES = {
    "jpeg": Entry("pictures", r"[1-9]\d?|100", "90", "jpeg:QUALITY (1 to 100)", False, "PIL"),
    "webp": Entry("pictures", r"[1-9]\d?|100", "80", "webp:QUALITY (1 to 100)", False, "PIL"),
    "png": Entry("pictures", "", "", "png", True, "PIL"),
}
"""Steps that make pictures of images: alone, and where the payload is the input."""
FILE = "file"
"""The camera's own files in place of the images in them (`codecs.camera`); `none` where no images cross."""
_ALL = (
    BITS | COMPRESSORS | PICTURES | {FILE: Entry("", "", "", FILE, True, "PIL", changes=frozenset({"uint8"}))}
)
OWN = Kind("codec", "Bottleneck", "pareto.codecs", behind=r"(\+.*)?", taken=frozenset({NONE, *_ALL}))
_IS_OWN = Entry("", "", "", "", False)
"""The entry of every user's own step."""


@dataclass(frozen=True)
class Codec:
    """A way to code payloads. forth: the canonical name of that. It has no state but its steps, which one thread uses.
    own: the user's own step. made: that step by point, or at point 0 what reads files. cut: see `for_cut`. back: the
    codec of results on their way back; None where they go as they are."""

    forth: str
    own: Own | None = None
    cut: int | None = None
    made: Mapping[int, Step] | None = field(default=None, compare=False, repr=False)
    back: Codec | None = None
    _at_cuts: dict[int, Codec] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The canonical name, with what results go through."""
        return f"{self.forth}{BACK}{self.back.text}" if self.back else self.forth

    @property
    def out(self) -> Codec:
        """The codec without what results go through."""
        return replace(self, back=None)

    @property
    def typed(self) -> str:
        """The codec as a user writes it: with the file of a step of the user's own."""
        own = self.own
        return self.text.replace(own.name, own.text, 1) if own else self.text

    def bound(self, made: Mapping[int, Step]) -> Codec:
        """The codec with its user's own step, by point."""
        return replace(self, made=made)

    def for_cut(self, cut: int) -> Codec:
        """The codec for what crosses at this point: a user's own is another one at each."""
        return self if self.own is None else self._at_cuts.setdefault(cut, replace(self, cut=cut))

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Name and variant of each step; empty for `none`."""
        steps = self.forth.split(JOINS) if self.forth != NONE else []
        return tuple((name, variant) for name, _, variant in (step.partition(SEPARATOR) for step in steps))

    @property
    def lossless(self) -> bool:
        """Whether decoded tensors are equal to the encoded ones to the last bit, by how it is made."""
        return all(self._entry(name).lossless for name, _ in self.names)

    @property
    def lossy(self) -> Codec:
        """The codec without its steps that lose nothing, and what results go through: these change no result."""
        return self.out._of(step for step in self.names if not self._entry(step[0]).lossless)

    def at(self, dtypes: Collection[str]) -> Codec:
        """The codec without its steps that change no tensor of these dtypes, those of all that crosses; `none` where
        nothing does. All steps stay behind a user's own, which makes its own dtypes."""
        crossing = frozenset(dtypes)
        if self.own is not None or not crossing:
            return self if crossing else Codec(NONE)
        return self._of(each for each in self.names if crossing & (self._entry(each[0]).changes or crossing))

    def _of(self, steps: Iterable[tuple[str, str]]) -> Codec:
        return replace(self, forth=JOINS.join(SEPARATOR.join(filter(None, step)) for step in steps) or NONE)

    @property
    def file(self) -> bool:
        """Whether it sends the camera's own files."""
        return self.names == ((FILE, ""),)

    @property
    def pictures(self) -> bool:
        """Whether it makes pictures, and so takes nothing but images of bytes."""
        return any(name in PICTURES for name, _ in self.names)

    def fits(self, cuts: Sequence[int], last: int) -> bool:
        """Whether it takes what crosses at these cuts: pictures are of the input, at point 0; a user's own is for the
        points that it was made for, and before that for any. last: the point that keeps everything on the edge."""
        if self.pictures:
            return not any(0 < cut < last for cut in cuts)
        return self.file or self.made is None or all(cut in self.made for cut in cuts if cut < last)

    def coded_name(self, cuts: Sequence[int], engine: str = EAGER) -> str:
        """How the results of a model that is cut there, with this codec, are called: `int8@7`, `int8@3+7`. engine: what
        of its hosts' engines changes results, too (`Engine.lossy`): `none@7 edge=onnx:int8`."""
        by = "" if engine == EAGER else f" {engine}"
        return f"{self.lossy.text}@{'+'.join(map(str, cuts))}{by}"

    @property
    def missing(self) -> str:
        """The package that it needs and this host lacks; empty: none."""
        names = [*self.names, *(self.back.names if self.back else ())]
        needed = (self._entry(name).needs for name, _ in names)
        return next((package for package in needed if package and not find_spec(package)), "")

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
        Whatever the tensors hold, no more is allocated than the layout needs."""
        from pareto.remote.codecs.base import check

        layouts = [*accumulate(self._steps, lambda of, step: step.encoded(of), initial=layout)]
        for step, (coded, plain) in zip(reversed(self._steps), pairwise(reversed(layouts)), strict=True):
            check(tensors, coded)
            tensors = step.decode(tensors, plain)
        return tensors

    def _entry(self, name: str) -> Entry:
        return _IS_OWN if self.own is not None and name == self.own.name else _ALL[name]

    @cached_property
    def _steps(self) -> tuple[Step, ...]:
        return tuple(self._step(name, variant) for name, variant in self.names)

    def _step(self, name: str, variant: str) -> Step:
        if entry := self._entry(name).module:
            step: Step = import_module(f"{__package__}.{entry}").step(name, variant)
            return step
        cut = 0 if self.file else self.cut
        assert self.made is not None and cut is not None, self  # noqa: S101
        return self.made[cut]


def ways(text: str) -> tuple[str, str]:
    """The parts of a codec's text that payloads and that results go through; the latter is empty if these go as they
    are."""
    out, _, back = text.rpartition(BACK)
    return (out, back) if back.partition(SEPARATOR)[0] in COMPRESSORS and out else (text, "")


def parse_back(text: str) -> Codec | None:
    """The codec that results go through; None for `none`. Raises ValueError."""
    if text == NONE:
        return None
    if text.partition(SEPARATOR)[0] not in COMPRESSORS or JOINS in text:
        words = ", ".join(each.words for each in COMPRESSORS.values())
        raise ValueError(f"{text!r}: results come back through none or what loses nothing: {words}")
    return _of_steps(text)


def parse_all(texts: Iterable[str]) -> tuple[Codec, ...]:
    """The codecs of these texts, each once. Raises ValueError. Own ones of one name have their files' before it."""
    codecs = list(dict.fromkeys(map(parse, texts)))
    owns = list(dict.fromkeys(codec.own for codec in codecs if codec.own is not None))
    several = {name for name, count in Counter(own.name for own in owns).items() if count > 1}
    names = {own: in_rows(own.file, own.attribute) if own.name in several else own.name for own in owns}
    if twice := [own for own in owns if list(names.values()).count(names[own]) > 1]:
        raise ValueError(
            f"{twice[0].file} and {twice[1].file} both have a codec {names[twice[0]]}: rename one file"
        )
    return tuple(
        replace(codec, forth=codec.forth.replace(own.name, names[own], 1), own=replace(own, name=names[own]))
        if (own := codec.own)
        else codec
        for codec in codecs
    )


def parse(text: str, own: Container[str] = ()) -> Codec:
    """The codec of this text. Raises ValueError, which says what there is. own: names of users' own steps that are
    known by them alone; else one has its file before its name, as in `path/to/file.py:Bottleneck`, which need not be
    there."""
    forth, back = ways(text)
    if back:
        codec = parse(forth, own)
        if codec.back:
            raise ValueError(_there_is(text))
        return replace(codec, back=parse_back(back))
    if text in (NONE, FILE):
        return Codec(text)
    name, joins, rest = text.partition(JOINS)
    if name in own:
        return _joined(Own(name, "", "", ""), joins + rest, text)
    if step := OWN.own(text):
        is_short = not step.offered and step.attribute not in OWN.taken
        return _joined(replace(step, name=step.attribute) if is_short else step, step.behind, text)
    if re.fullmatch(r".+\.py:?", text):
        raise ValueError(
            f"{text!r} is a file: say which codec in it, as in {Path(text.rstrip(':')).name}:Bottleneck"
        )
    return _of_steps(text)


def _joined(own: Own, rest: str, text: str) -> Codec:
    """A user's own step, and what is joined to it: empty, or with the sign that joins."""
    behind = _of_steps(rest.removeprefix(JOINS), text) if rest else Codec("")
    if behind.pictures or behind.text == NONE:
        raise ValueError(_there_is(text))
    return Codec(JOINS.join(filter(None, (own.name, behind.text))), own)


def _of_steps(text: str, whole: str = "") -> Codec:
    """The codec of steps that are not a user's own. whole: for the message."""
    alone = text.partition(SEPARATOR)[0] in PICTURES
    steps, allowed = [], [PICTURES] if alone else [BITS, COMPRESSORS]
    for part in text.split(JOINS):
        name, _, variant = part.partition(SEPARATOR)
        while allowed and name not in allowed[0]:
            allowed.pop(0)
        is_strange = bool(variant and allowed) and not re.fullmatch(_ALL[name].variants, variant)
        if not allowed or is_strange or part.endswith(SEPARATOR):
            raise ValueError(_there_is(whole or text))
        allowed.pop(0)
        steps.append(SEPARATOR.join(filter(None, (name, variant or _ALL[name].default))))
    return Codec(JOINS.join(steps))


def _there_is(text: str) -> str:
    groups = BITS, COMPRESSORS, PICTURES
    bits, compressors, pictures = (", ".join(each.words for each in group.values()) for group in groups)
    return (
        f"{text!r} is no codec: there are {NONE}; {bits}; {compressors}; one of each of these groups, as in int8+zstd;"
        f" for the images at point 0 {pictures}, and with --from jpeg {FILE}; and before any but a picture's a class of"
        f" your own, {', '.join((f'path/to/file.py:{OWN.example}', *OWN.others))}"
    )
