"""What may come in, declared once: the types and bounds of a dataclass's fields, and what holds values to them.

A field's type says what it takes, `Annotated` what its bounds are: ``delay_s: Annotated[float, Bounds(0, 60, "s")]``.
`read` makes a dataclass of what JSON says; `check`, which every dataclass here calls when it is made, refuses what is
not as declared. Numbers, text, true or false, None, dataclasses and tuples of them are known; True is no number.
"""

from __future__ import annotations

import operator
import re
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar

from pareto.errors import UserError

_Made = TypeVar("_Made")
_Check = Callable[[str, Any], None]
_UNITS = re.compile("_(s|bps|bytes)$")


@dataclass(frozen=True)
class Bounds:
    """From `least` to `most`, both included unless `above`. `words` say it in place of the numbers."""

    least: float
    most: float
    unit: str = ""
    words: str = ""
    above: bool = False

    def check(self, name: str, value: float) -> None:
        """Raises UserError for what is outside, NaN among it."""
        if not self.least <= value <= self.most or (self.above and value == self.least):
            unit = f" {self.unit}" if self.unit else ""
            span = f"more than {self.least:.12g}, up to" if self.above else f"{self.least:.12g} to"
            words = self.words or f"is out of range: {span} {self.most:.12g}{unit}"
            raise UserError(f"{name} {_shown(value)}{unit} {words}")


@dataclass(frozen=True)
class Text:
    """The whole text fits the pattern, or it is no `what`."""

    pattern: str
    what: str

    def check(self, name: str, value: str) -> None:
        if not re.fullmatch(self.pattern, value):
            raise UserError(f"{name} {_shown(value)} is no {self.what}")


NAME = Annotated[
    str, Text("[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{0,4096}", "name: it has a character that is none")
]


def read(made: type[_Made], data: object) -> _Made:
    """The dataclass that JSON's types describe. Raises UserError."""
    kinds = _kinds(made)
    if not isinstance(data, Mapping):
        raise UserError(f"expected the fields {', '.join(kinds) or '(none)'}, not {_shown(data)}")
    for key in data:
        if key not in kinds:
            raise UserError(f"unknown field {_shown(key)}: use {', '.join(kinds) or 'none'}")
    for name, kind in kinds.items():
        if kind.required and name not in data:
            raise UserError(f"{name} is missing")
    return made(**{name: kinds[name].converted(value) for name, value in data.items()})


def check(instance: object, prefix: str = "") -> None:
    """Raises UserError where a field is not as its class declares. `prefix` comes before the field's name."""
    for name, value_of, check_value in _checks(type(instance)):
        check_value(prefix + name, value_of(instance))


_KINDS: dict[type[Any], dict[str, _Kind]] = {}
_CHECKS: dict[type[Any], list[tuple[str, Callable[[Any], Any], _Check]]] = {}


class _Kind:
    """What one field takes."""

    def __init__(self, hint: Any, *, required: bool) -> None:
        self.required = required
        union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        alternatives = typing.get_args(hint) if union else (hint,)
        self._optional = type(None) in alternatives
        self._scalar: tuple[type, ...] = ()
        self._bounds: _Check | None = None
        self._record: type[Any] | None = None
        self._each: type[Any] | None = None
        self._words: list[str] = []
        for alternative in alternatives:
            self._take(alternative)
        if self._scalar not in ((), (bool,)) and self._bounds is None:
            raise TypeError(f"{hint} is declared without bounds")

    def _take(self, hint: Any) -> None:
        base, *metadata = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        if metadata:
            self._bounds = metadata[0].check
        if typing.get_origin(base) is tuple:
            self._each = typing.get_args(base)[0]
            self._words.append("a list")
        elif is_dataclass(base):
            self._record = typing.cast(type[Any], base)
            self._words.append(f"the fields {', '.join(_kinds(self._record))}")
        elif base is not type(None):
            self._scalar = (int, float) if base is float else (base,)
            self._words.append(
                {float: "a number", int: "a whole number", bool: "true or false", str: "text"}[base]
            )

    def converted(self, value: Any) -> Any:
        """JSON's mappings and lists as dataclasses and tuples; what is neither as it is, for `check` to judge."""
        if self._each is not None and isinstance(value, (list, tuple)):
            return tuple(read(self._each, one) for one in value)
        if self._record is not None and isinstance(value, Mapping):
            return read(self._record, value)
        return value

    def check(self, name: str, value: Any) -> None:
        if value is None and self._optional:
            return
        if isinstance(value, self._scalar) and (self._scalar == (bool,) or not isinstance(value, bool)):
            if self._bounds is not None:
                self._bounds(name, value)
        elif not (
            (self._record is not None and isinstance(value, self._record))
            or (
                self._each is not None
                and isinstance(value, tuple)
                and all(isinstance(one, self._each) for one in value)
            )
        ):
            raise UserError(f"{name} must be {' or '.join(self._words)}, not {_shown(value)}")


def _kinds(made: type[Any]) -> dict[str, _Kind]:
    if made not in _KINDS:
        _KINDS[made] = _declared(made)
    return _KINDS[made]


def _declared(made: type[Any]) -> dict[str, _Kind]:
    hints = typing.get_type_hints(made, include_extras=True)
    return {
        field.name: _Kind(
            hints[field.name], required=field.default is MISSING and field.default_factory is MISSING
        )
        for field in fields(made)
    }


def _checks(made: type[Any]) -> list[tuple[str, Callable[[Any], Any], _Check]]:
    """Each field's name as people know it, how to get its value, and what that must pass."""
    if made not in _CHECKS:
        _CHECKS[made] = [
            (bare_name(name), operator.attrgetter(name), kind.check) for name, kind in _kinds(made).items()
        ]
    return _CHECKS[made]


def bare_name(field: str) -> str:
    """A field's name as people know it: without its unit, `delay` for `delay_s`."""
    return _UNITS.sub("", field)


def _shown(value: object) -> str:
    """In few words, whatever it is: it may come from anybody."""
    return f"{value:g}" if isinstance(value, float) else reprlib.repr(value)
