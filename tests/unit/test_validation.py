"""What a declaration takes, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from pareto.protocol.errors import UserError
from pareto.protocol.validation import Bounds, Text, check, read

SHORT = Annotated[str, Text("[a-z]{1,3}", "short word")]


@dataclass(frozen=True)
class Part:
    size_bytes: Annotated[int, Bounds(1, 9, unit="mm")]
    share: Annotated[float, Bounds(0.1, 1)] = 0.5

    def __post_init__(self) -> None:
        check(self, "part ")


@dataclass(frozen=True)
class Whole:
    name: SHORT
    parts: tuple[Part, ...] = ()
    best: Annotated[float, Bounds(0, 9)] | Part = 0.0
    spare: Part | None = None
    loud: bool = False

    def __post_init__(self) -> None:
        check(self)


def test_what_json_says_becomes_what_is_declared() -> None:
    data = {
        "name": "abc",
        "parts": [{"size_bytes": 1}, {"size_bytes": 9, "share": 1}],
        "best": {"size_bytes": 2},
        "loud": True,
    }
    assert read(Whole, data) == Whole("abc", (Part(1), Part(9, 1.0)), Part(2), None, True)
    assert read(Whole, {"name": "a", "best": 3, "spare": None}) == Whole("a", (), 3)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "name is missing"),
        (None, "it is None: it should be an object"),
        ({"name": 1}, "name is 1: it should be a text"),
        ({"name": "abcd"}, "name 'abcd' is no short word"),
        ({"name": "abc\n"}, "name 'abc\\\\n' is no short word"),
        ({"name": "a", "loud": 1}, "loud is 1: it should be true or false"),
        ({"name": "a", "loud": None}, "loud is None: it should be true or false"),
        ({"name": "a", "more\n": 1}, "'more\\\\n' is 1: it should not be there"),
        ({"name": "a", "parts": {}}, "parts is a dict: it should be a list"),
        ({"name": "a", "parts": [7]}, "parts.0 is 7: it should be an object"),
        ({"name": "a", "best": "x"}, "best is 'x': it should be a number"),
        ({"name": "a", "best": True}, "best is True: it should be a number"),
        ({"name": "a", "best": None}, "best is None: it should be a number"),
        ({"name": "a", "best": float("nan")}, "best is nan: it should be from 0 to 9"),
        ({"name": "a", "spare": {"size_bytes": 10}}, "spare.size_bytes is 10: it should be from 1 to 9"),
        ({"name": "a", "spare": {"size_bytes": 2.0}}, "spare.size_bytes is 2.0: it should be a whole number"),
        ({"name": "a", "spare": {"size_bytes": 2, "share": 0}}, "spare.share is 0: it should be"),
        ({"name": "a", "spare": {"size_bytes": 2, "share": 0.0}}, "spare.share is 0.0: it should be"),
    ],
)
def test_what_is_not_as_declared_is_one_line(data: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        read(Whole, data)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("size", "share", "words"),
    [
        (10, 0.5, "part size 10 mm is out of range: 1 to 9 mm"),
        (10**400, 0.5, r"part size 1000.*000 mm is out of range"),
        (2, 0.0, "part share 0 is out of range: 0.1 to 1"),
        (2, float("nan"), "part share nan is out of range"),
    ],
)
def test_what_is_made_here_is_held_to_its_bounds_too(size: int, share: float, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Part(size, share)
