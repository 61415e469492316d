"""Reads a YAML file into a pydantic model; each fault is one line that names the file and the line in it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, ValidationInfo, model_validator
from pydantic_core import ErrorDetails

from pareto.basics import files
from pareto.protocol.errors import UserError, in_plain_words
from pareto.protocol.validation import bare_name


class Keys(BaseModel):
    """The keys of one mapping in a file: the fields' names without their units, `delay` for `delay_s`.

    Each value comes as the text in the file; its field's type reads it. A validator that raises ValueError begins its
    message with the key to blame: that key's line is named.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=bare_name)
    WHAT: ClassVar[str]
    """A name for what the mapping describes, for messages."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_other_keys(cls, data: Any) -> Any:
        return only_keys(data, [bare_name(name) for name in cls.model_fields], cls.WHAT)


def only_keys(data: Any, known: Sequence[str], what: str) -> dict[str, Any]:
    """`data`, which must be a mapping with no other than the `known` keys. Raises ValueError, which says so."""
    if not isinstance(data, dict):
        raise ValueError(f"{what} must be a mapping with the keys {', '.join(known)}")
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ValueError(f"{key!r} is an unknown key{hint}: {what} has the keys {', '.join(known)}")
    return data


def quantity(read: Callable[[str, str], float], *, plain: bool = False) -> BeforeValidator:
    """A validator: `read` converts a field's text, a number and a unit; with `plain` the unit may be missing.

    A value that is a number already, from a manifest, stays as it is.
    """

    def convert(value: Any, info: ValidationInfo) -> Any:
        name = bare_name(info.field_name or "")
        if isinstance(value, dict | list):
            raise ValueError(f"{name} must be a number and a unit")
        if plain:
            with suppress(TypeError, ValueError):
                return float(value)
        return read(value, name) if isinstance(value, str) else value

    return BeforeValidator(convert)


_Model = TypeVar("_Model", bound=BaseModel)
_NULL = "tag:yaml.org,2002:null"
_SHAPES = {
    "missing": "is missing",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
}
_MOST_NODES = 100_000
"""The most nodes of a file with its aliases written out: nobody writes one with more."""


class YamlFile:
    """One file. `what` says what it holds, `error` is raised for each fault in it."""

    def __init__(self, path: Path, what: str, error: type[Exception] = UserError) -> None:
        self.path = path
        self._error = error
        self._lines: dict[tuple[str | int, ...], int] = {(): 1}
        try:
            text = files.text(path, what)
        except UserError as fault:
            raise error(str(fault)) from None
        try:
            self._root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as fault:
            line = fault.problem_mark.line + 1 if fault.problem_mark else 1
            raise error(f"{path}:{line}: not YAML: {fault.problem}") from None
        except yaml.reader.ReaderError as fault:
            line = text.count("\n", 0, fault.position) + 1
            raise error(f"{path}:{line}: not YAML: a character that is not text") from None
        except RecursionError:
            raise error(f"{path}: is nested too deep") from None

    def has(self, key: str) -> bool:
        """Whether the file says something of this."""
        return isinstance(self._root, yaml.MappingNode) and any(
            each.value == key for each, _ in self._root.value
        )

    def read(self, model: type[_Model], example: str) -> _Model:
        """The file's content, as `model`. An empty file is a fault, whose message shows the `example`."""
        if self._root is None:
            raise self._error(f"{self.path}: is empty; write {example}")
        try:
            return model.model_validate(self._plain(self._root))
        except RecursionError:
            raise self._error(f"{self.path}: is nested too deep") from None
        except ValidationError as error:
            faults = [(self._line(fault["loc"], words := _words(fault)), words) for fault in error.errors()]
            line, words = min(faults, key=lambda fault: fault[0])
            raise self._error(f"{self.path}:{line}: {words}") from None

    def fields(self, example: str) -> dict[str, Any]:
        """The file's content, by key: text as it stands there, lists of it, and None for nothing."""
        if not isinstance(self._root, yaml.MappingNode):
            raise self._error(f"{self.path}: must map options to values, as in {example}")
        empty = {key.value for key, value in self._root.value if value.tag == _NULL}
        return {key: None if key in empty else value for key, value in self._plain(self._root).items()}

    @contextmanager
    def blaming(self, *place: str | int) -> Iterator[None]:
        """Turns a UserError about the value at a place (its keys from the root down) into one that names its line."""
        try:
            yield
        except UserError as fault:
            raise self._error(f"{self.path}:{self._line(place, str(fault))}: {fault}") from None

    def _plain(self, node: yaml.Node, *place: str | int) -> Any:
        """The node at a place as dicts, lists and text; the lines of what is in it are noted."""
        if len(self._lines) > _MOST_NODES:
            raise self._fault(node, "the file says too much: is something in it repeated by aliases?")
        if isinstance(node, yaml.SequenceNode):
            self._lines |= {(*place, at): each.start_mark.line + 1 for at, each in enumerate(node.value)}
            return [self._plain(each, *place, at) for at, each in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return node.value
        values: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._fault(key, "a key must be one word")
            if key.value in values:
                raise self._fault(key, f"key {key.value!r} stands here twice")
            self._lines |= {(*place, key.value): key.start_mark.line + 1}
            values[key.value] = self._plain(value, *place, key.value)
        return values

    def _line(self, place: tuple[str | int, ...], words: str) -> int:
        """The line of what is at a place, as far as that is in the file, or of the first key in it that words name."""
        known: tuple[str | int, ...] = ()
        for part in place:
            known = (*known, part) if (*known, part) in self._lines else known
        named = ((*known, word) for word in re.findall(r"[\w.-]+", words))
        return next((self._lines[each] for each in named if each in self._lines), self._lines[known])

    def _fault(self, node: yaml.Node, words: str) -> Exception:
        return self._error(f"{self.path}:{node.start_mark.line + 1}: {words}")


def _words(fault: ErrorDetails) -> str:
    """One line of words for a fault."""
    name = next((part for part in reversed(fault["loc"]) if isinstance(part, str)), "")
    kind, words = fault["type"], in_plain_words(fault["msg"])
    if kind == "value_error":
        return str(fault["ctx"]["error"])
    if kind in _SHAPES:
        return f"{name} {_SHAPES[kind]}"
    if isinstance(fault["input"], dict | list):
        return f"{name} must be one value"
    return f"{name} {fault['input']!r:.60}: {words[0].lower()}{words[1:]}"
