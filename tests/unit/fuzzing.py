"""Values that nobody expects in a message of JSON, and bytes that are not as they were sent: by seeded chance."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Sequence
from typing import Any

HOSTILE: list[Any] = [
    math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, 5e-324, 1e-300, 1e-9, 1e-3, 0.02, 0.5, 1.0, 60.0, 61.0, 86_400.0,
    1e7, 1e9, 1e300, -1e300, 1e308, 0, 1, -1, 2, 1514, 1 << 31, 1 << 32, 1 << 64, 1 << 2000, -(1 << 63), 10**400, True,
    False, None, "", "7", "200ms", "lo", "..", "../../etc/passwd", "/", "::1", "10.77.0.1", "fe80::1%lo", "\0", "=1+1",
    "\x1b]0;mine\x07", "\x1b[2J", "\u202e\ud800", "a\nb\r\tc", "ü", "a" * 16, "x" * 3000, [], {}, [1], [[]], [1.0, 2.0],
    [2.0, 1.0], [[0.1]], [None], [None] * 1000, {"a": 1}, {"": None},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all that is in a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


def changed(value: Any, chance: random.Random, where: list[tuple[Any, ...]]) -> Any:
    """The same with one thing in it replaced, left out, added or doubled."""
    value = copy.deepcopy(value)
    path = chance.choice(where)
    if not path:
        return copy.deepcopy(chance.choice(HOSTILE))
    *outer, last = path
    part = value
    for key in outer:
        part = part[key]
    way = chance.choice(("replaced", "replaced", "replaced", "left out", "added"))
    if way == "left out":
        del part[last]
    elif way == "added" and isinstance(part, dict):
        part[chance.choice(("more", "op", "\x1b[2J", ""))] = chance.choice(HOSTILE)
    elif way == "added":
        part.append(part[last])
    else:
        part[last] = copy.deepcopy(chance.choice(HOSTILE))
    return value


def edited(
    data: bytes, chance: random.Random, places: Sequence[int] = (), values: Sequence[bytes] = ()
) -> bytes:
    """With some bytes replaced, left out, added, doubled or cut off: mostly at these places, and by these values."""
    at = chance.choice(places) if places and chance.random() < 0.7 else chance.randrange(len(data) + 1)
    some = data[at : at + chance.choice((0, 1, 1, 1, 8, 40))]
    if values and chance.random() < 0.5:
        new = chance.choice(values)
        some = new
    else:
        drawn = chance.randbytes(len(some)), chance.randbytes(chance.randrange(200))
        new = chance.choice((b"", 2 * some, *drawn, drawn[0]))
    return data[:at] + new + (data[at + len(some) :] if chance.random() < 0.9 else b"")
