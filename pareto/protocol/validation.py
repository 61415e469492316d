"""JSON from another program as typed values: `read` accepts what a type and its bounds allow, and nothing else.

Types are int, float, str, bool, None, Any, lists, tuples, dicts, dataclasses, and unions of these. Numbers and lists
have `Bounds`, texts a `Text`. A field that has a default may be missing. A dataclass' own `__post_init__` may raise
ValueError for fields that contradict each other; `check` holds it to its bounds wherever it is made. This module
travels to the hosts and needs the standard library only.
"""

from __future__ import annotations

import functools
import math
import re
import reprlib
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, NamedTuple, NoReturn, Union, get_args, get_origin, get_type_hints

from pareto.protocol.errors import UserError


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest value of a number, or length of a list. infinite: whether the number may be. `words`
    say what is wrong in place of the numbers."""

    least: float
    most: float
    infinite: bool = False
    unit: str = ""
    words: str = ""

    def hold(self, value: float) -> bool:
        """Whether a number is within them. NaN is not."""
        return self.least <= value <= self.most or (self.infinite and value == math.inf)

    def check(self, name: str, value: float) -> None:
        """Raises UserError for what is outside."""
        if not self.hold(value):
            unit = f" {self.unit}" if self.unit else ""
            words = self.words or f"is out of range: {self.least:.12g} to {self.most:.12g}{unit}"
            shown = f"{value:g}" if isinstance(value, float) else reprlib.repr(value)
            raise UserError(f"{name} {shown}{unit} {words}")


@dataclass(frozen=True)
class Text:
    """The whole text fits the pattern, or it is no `what`."""

    pattern: str
    what: str

    def check(self, name: str, value: str) -> None:
        """Raises UserError."""
        if not re.fullmatch(self.pattern, value):
            raise UserError(f"{name} {reprlib.repr(value)} is no {self.what}")


NAME = Annotated[
    str, Text("[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{0,4096}", "name: it has a character that is none")
]


_WORDS = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", type(None): "null"}
_UNBOUNDED = Bounds(-1e18, 1e18)
_UNITS = re.compile("_(s|bps|bytes)$")


class _Number(NamedTuple):
    """A number's types, which may include None's, and its bounds. Nearly all values are such, and told at once: a
    trial has tens of thousands of them, a trace hundreds of thousands."""

    types: frozenset[type]
    least: float
    most: float

    def fits(self, value: Any) -> bool:
        return type(value) in self.types and (value is None or self.least <= value <= self.most)


class _Field(NamedTuple):
    """A dataclass' field: its type with its bounds; whether it has no default."""

    kind: Any
    number: _Number | None
    is_needed: bool


def read(kind: Any, value: Any, *path: object) -> Any:
    """`value`, which came as JSON, as a `kind`; `path` says where it stood. Raises ValueError, in one line."""
    origin, arguments = _parts(kind)
    if origin is Annotated:
        base, bounds = arguments
        if base in (int, float):
            return _number(base, bounds, value, path)
        made = read(base, value, *path)
        if isinstance(bounds, Text):
            bounds.check(".".join(map(str, path)), made)
        elif not bounds.least <= len(made) <= bounds.most:
            _refuse(value, f"it should have {bounds.least:g} to {bounds.most:g} parts", path)
        return made
    if is_dataclass(kind):
        return _record(kind, value, path)
    if origin in (list, tuple):
        return _sequence(origin, arguments, value, path)
    if origin is dict:
        if type(value) is not dict:
            _refuse(value, "it should be an object", path)
        return {name: read(arguments[1], part, *path, name) for name, part in value.items()}
    if origin is not None:
        return _union(arguments, value, path)
    if kind in (int, float):
        return _number(kind, _UNBOUNDED, value, path)
    if kind is not Any and type(value) is not (kind or type(None)):
        _refuse(value, f"it should be {_WORDS[kind or type(None)]}", path)
    return value


def _number(kind: type[int] | type[float], bounds: Bounds, value: Any, path: tuple[object, ...]) -> float:
    if type(value) is not kind and not (kind is float and type(value) is int):
        _refuse(value, f"it should be {_WORDS[kind]}", path)
    if not bounds.hold(value):
        more = ", or infinite" if bounds.infinite else ""
        _refuse(value, f"it should be from {bounds.least:g} to {bounds.most:g}{more}", path)
    return kind(value)


def _sequence(origin: Any, kinds: tuple[Any, ...], value: Any, path: tuple[object, ...]) -> Any:
    if type(value) not in (list, tuple):
        _refuse(value, "it should be a list", path)
    if origin is list or kinds[-1] is ...:
        if (number := _number_of(kinds[0])) is not None and all(map(number.fits, value)):
            return origin(value)
        kinds = kinds[:1] * len(value)
    if len(value) != len(kinds):
        _refuse(value, f"it should have {len(kinds)} parts", path)
    return origin(
        read(kind, part, *path, at) for at, (kind, part) in enumerate(zip(kinds, value, strict=True))
    )


def _union(kinds: tuple[Any, ...], value: Any, path: tuple[object, ...]) -> Any:
    """None, or the one kind that is left; of several dataclasses the one whose fields are most like the value's."""
    if value is None and type(None) in kinds:
        return None
    some = [kind for kind in kinds if kind is not type(None)]
    records = [kind for kind in some if is_dataclass(kind)]
    if records and type(value) is dict:
        some = sorted(records, key=lambda kind: len(value.keys() ^ _fields(kind).keys()))
    return read(some[0], value, *path)


def _record(kind: Any, value: Any, path: tuple[object, ...]) -> Any:
    known = _fields(kind)
    if type(value) is not dict:
        _refuse(value, "it should be an object", path)
    for name, field in known.items():
        if field.is_needed and name not in value:
            _refuse(value, f"{name} is missing", path)
    made = {}
    for name, part in value.items():
        if name not in known:
            _refuse(part, "it should not be there", (*path, name))
        field = known[name]
        usual = field.number is not None and field.number.fits(part)
        made[name] = part if usual else read(field.kind, part, *path, name)
    try:
        return kind(**made)
    except ValueError as error:
        _refuse(value, str(error), path)


@functools.cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind), get_args(kind)


@functools.cache
def _number_of(kind: Any) -> _Number | None:
    """The kind as a number within its bounds, or that or None; None where it is another, or may be infinite."""
    base, *more = get_args(kind) or (kind,)
    if more == [type(None)] and (number := _number_of(base)) is not None:
        return number._replace(types=number.types | {type(None)})
    if base in (int, float) and get_origin(kind) is Annotated and not more[0].infinite:
        return _Number(frozenset([base]), more[0].least, more[0].most)
    return None


@functools.cache
def _fields(kind: Any) -> dict[str, _Field]:
    """The fields of a dataclass, by name."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        each.name: _Field(
            hints[each.name],
            _number_of(hints[each.name]),
            each.default is MISSING and each.default_factory is MISSING,
        )
        for each in fields(kind)
    }


# What is made here, and not read


def check(instance: object, prefix: str = "") -> None:
    """Raises UserError where a dataclass' field is not within its bounds; `prefix` comes before the field's name."""
    kind: Any = type(instance)
    for name, bounds in _bounded(kind):
        value = getattr(instance, name)
        if type(value) in (float, int, str):
            bounds.check(prefix + bare_name(name), value)


@functools.cache
def bare_name(field: str) -> str:
    """A field's name as people know it: without its unit, `delay` for `delay_s`."""
    return _UNITS.sub("", field)


@functools.cache
def _bounded(kind: Any) -> list[tuple[str, Any]]:
    """Each field that has bounds: its name, and its `Bounds` or `Text`."""
    return [
        (name, get_args(part)[1])
        for name, field in _fields(kind).items()
        for part in (get_args(field.kind) if get_origin(field.kind) in (Union, UnionType) else [field.kind])
        if get_origin(part) is Annotated
    ]


def _refuse(value: Any, why: str, path: tuple[object, ...]) -> NoReturn:
    where = ".".join(map(str, path)) or "it"
    where = where if where.isprintable() else ascii(where)
    shown = f"{value!r:.40}" if isinstance(value, int | float | str | None) else f"a {type(value).__name__}"
    raise ValueError(f"{where:.200} is {shown}: {why}")
