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
from dataclasses import KW_ONLY, MISSING, dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin, get_type_hints

from pareto.protocol.errors import UserError


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest value of a number, or length of a list. infinite: whether the number may be. above:
    whether it must be more than the least. `words` say what is wrong in place of the numbers."""

    least: float
    most: float
    infinite: bool = False
    _: KW_ONLY
    unit: str = ""
    words: str = ""
    above: bool = False

    def hold(self, value: float) -> bool:
        """Whether a number is within them. NaN is not."""
        inside = self.least < value if self.above else self.least <= value
        return (inside and value <= self.most) or (self.infinite and value == math.inf)

    def check(self, name: str, value: float) -> None:
        """Raises UserError for what is outside."""
        if not self.hold(value):
            unit = f" {self.unit}" if self.unit else ""
            span = f"more than {self.least:.12g}, up to" if self.above else f"{self.least:.12g} to"
            words = self.words or f"is out of range: {span} {self.most:.12g}{unit}"
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


@dataclass(frozen=True)
class ColumnsOf:
    """Marks a dict that has a list for each field of a dataclass, all of one length."""

    row: Any


_WORDS = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", type(None): "null"}
_UNBOUNDED = Bounds(-1e18, 1e18)
_UNITS = re.compile("_(s|bps|bytes)$")


def read(kind: Any, value: Any, *path: object) -> Any:
    """`value`, which came as JSON, as a `kind`; `path` says where it stood. Raises ValueError, in one line."""
    origin, arguments = _parts(kind)
    if origin is Annotated:
        base, bounds = arguments
        if isinstance(bounds, ColumnsOf):
            return _columns(bounds.row, value, path)
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
        if type(value) not in (list, tuple):
            _refuse(value, "it should be a list", path)
        return _tuple(arguments, value, path) if origin is tuple else _list(arguments[0], value, path)
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


def _list(kind: Any, value: list[Any], path: tuple[object, ...]) -> list[Any]:
    if (number := _number_kind(kind)) is not None:  # a trial has tens of thousands of them
        types, least, most = number
        if all(type(part) in types and (part is None or least <= part <= most) for part in value):
            return value
    return [read(kind, part, *path, number) for number, part in enumerate(value)]


@functools.cache
def _number_kind(kind: Any) -> tuple[set[type], float, float] | None:
    """The types and the bounds of what is a number within simple bounds, or that or None."""
    base, *more = get_args(kind) or (kind,)
    if more == [type(None)] and (number := _number_kind(base)) is not None:
        return (number[0] | {type(None)}, *number[1:])
    if base in (int, float) and get_origin(kind) is Annotated and not (more[0].above or more[0].infinite):
        return {base}, more[0].least, more[0].most
    return None


def _tuple(kinds: tuple[Any, ...], value: list[Any], path: tuple[object, ...]) -> tuple[Any, ...]:
    if kinds[-1] is ...:
        return tuple(_list(kinds[0], value, path))
    if len(value) != len(kinds):
        _refuse(value, f"it should have {len(kinds)} parts", path)
    return tuple(
        read(kind, part, *path, at) for at, (kind, part) in enumerate(zip(kinds, value, strict=True))
    )


def _union(kinds: tuple[Any, ...], value: Any, path: tuple[object, ...]) -> Any:
    """None, or the one kind that is left; of several dataclasses the one whose fields are most like the value's."""
    if value is None and type(None) in kinds:
        return None
    some = [kind for kind in kinds if kind is not type(None)]
    records = [kind for kind in some if is_dataclass(kind)]
    if records and type(value) is dict:
        some = sorted(records, key=lambda kind: len(value.keys() ^ _hints(kind).keys()))
    return read(some[0], value, *path)


def _record(kind: Any, value: Any, path: tuple[object, ...]) -> Any:
    hints = _hints(kind)
    if type(value) is not dict:
        _refuse(value, "it should be an object", path)
    for name in _required(kind):
        if name not in value:
            _refuse(value, f"{name} is missing", path)
    for name in value:
        if name not in hints:
            _refuse(value[name], "it should not be there", (*path, name))
    made, floats = {}, _floats(kind)
    for name, part in value.items():
        bounds = floats.get(name)  # a trace has hundreds of thousands of them
        usual = bounds is not None and type(part) is float and bounds.least <= part <= bounds.most
        made[name] = part if usual else read(hints[name], part, *path, name)
    try:
        return kind(**made)
    except ValueError as error:
        _refuse(value, str(error), path)


def _columns(row: Any, value: Any, path: tuple[object, ...]) -> dict[str, list[Any]]:
    hints = _hints(row)
    if type(value) is not dict or value.keys() != hints.keys():
        _refuse(value, f"it should have a column for each field of a {row.__name__}", path)
    made = {name: read(list[hint], value[name], *path, name) for name, hint in hints.items()}  # type: ignore[valid-type]
    if len({len(column) for column in made.values()}) > 1:
        _refuse(value, "its columns have different lengths", path)
    return made


@functools.cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind), get_args(kind)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """By field of a dataclass, its type with its bounds."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


@functools.cache
def _floats(kind: Any) -> dict[str, Bounds]:
    """The bounds of a dataclass' numbers that need not be whole."""
    return {name: bounds for name, base, bounds in _bounded(kind) if base is float and not bounds.above}


@functools.cache
def _required(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass that have no default."""
    return tuple(
        field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING
    )


# What is made here, and not read


def check(instance: object, prefix: str = "") -> None:
    """Raises UserError where a dataclass' field is not within its bounds; `prefix` comes before the field's name."""
    kind: Any = type(instance)
    for name, _, bounds in _bounded(kind):
        value = getattr(instance, name)
        if type(value) in (float, int, str):
            bounds.check(prefix + bare_name(name), value)


@functools.cache
def bare_name(field: str) -> str:
    """A field's name as people know it: without its unit, `delay` for `delay_s`."""
    return _UNITS.sub("", field)


@functools.cache
def _bounded(kind: Any) -> list[tuple[str, Any, Any]]:
    """Each field that has bounds: its name, its type, and its `Bounds` or `Text`."""
    return [
        (name, *get_args(part))
        for name, hint in _hints(kind).items()
        for part in (get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint])
        if get_origin(part) is Annotated
    ]


def _refuse(value: Any, why: str, path: tuple[object, ...]) -> NoReturn:
    where = ".".join(map(str, path)) or "it"
    where = where if where.isprintable() else ascii(where)
    shown = f"{value!r:.40}" if isinstance(value, int | float | str | None) else f"a {type(value).__name__}"
    raise ValueError(f"{where:.200} is {shown}: {why}")
