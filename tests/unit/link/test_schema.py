"""What a declaration takes, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from pareto.errors import UserError
from pareto.link import schema
from pareto.link.schema import Bounds, Text

SHORT = Annotated[str, Text("[a-z]{1,3}", "short word")]


@dataclass(frozen=True)
class Part:
    size: Annotated[int, Bounds(1, 9, "mm")]
    share: Annotated[float, Bounds(0, 1, above=True)] = 0.5

    def __post_init__(self) -> None:
        schema.check(self, "part ")


@dataclass(frozen=True)
class Whole:
    name: SHORT
    parts: tuple[Part, ...] = ()
    best: Annotated[float, Bounds(0, 9)] | Part = 0.0
    spare: Part | None = None
    loud: bool = False

    def __post_init__(self) -> None:
        schema.check(self)


@dataclass(frozen=True)
class Endless:
    size: float


@dataclass(frozen=True)
class Wordy:
    word: str | None


def test_what_json_says_becomes_what_is_declared() -> None:
    data = {"name": "abc", "parts": [{"size": 1}, {"size": 9, "share": 1}], "best": {"size": 2}, "loud": True}
    assert schema.read(Whole, data) == Whole("abc", (Part(1), Part(9, 1.0)), Part(2), None, True)
    assert schema.read(Whole, {"name": "a", "best": 3, "spare": None}) == Whole("a", (), 3)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "name is missing"),
        (None, "expected the fields name, parts"),
        ({"name": 1}, "name must be text, not 1"),
        ({"name": "abcd"}, "name 'abcd' is no short word"),
        ({"name": "abc\n"}, "name 'abc\\\\n' is no short word"),
        ({"name": "a", "loud": 1}, "loud must be true or false, not 1"),
        ({"name": "a", "loud": None}, "loud must be true or false, not None"),
        ({"name": "a", "parts": {}}, "parts must be a list, not {}"),
        ({"name": "a", "parts": [7]}, "expected the fields size, share, not 7"),
        ({"name": "a", "best": "x"}, "best must be a number or the fields size, share, not 'x'"),
        ({"name": "a", "best": True}, "best must be a number"),
        ({"name": "a", "best": None}, "best must be a number"),
        ({"name": "a", "best": float("nan")}, "best nan is out of range: 0 to 9"),
        ({"name": "a", "spare": {"size": 10}}, "part size 10 mm is out of range: 1 to 9 mm"),
        ({"name": "a", "spare": {"size": 2.0}}, "part size must be a whole number, not 2"),
        (
            {"name": "a", "spare": {"size": 2, "share": 0}},
            "part share 0 is out of range: more than 0, up to 1",
        ),
        ({"name": "a", "spare": {"size": 10**400}}, "part size 1000.*000 mm is out of range"),
    ],
)
def test_what_is_not_as_declared_is_one_line(data: Any, words: str) -> None:
    with pytest.raises(UserError, match=words) as refused:
        schema.read(Whole, data)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 200


def test_what_is_made_here_is_held_to_it_too() -> None:
    with pytest.raises(UserError, match="parts must be a list"):
        Whole("a", parts=(1,))  # type: ignore[arg-type]


@pytest.mark.parametrize(("declared", "data"), [(Endless, {"size": 1.0}), (Wordy, {"word": None})])
def test_a_number_or_a_text_cannot_be_declared_without_bounds(declared: type[Any], data: Any) -> None:
    with pytest.raises(TypeError, match="without bounds"):
        schema.read(declared, data)
