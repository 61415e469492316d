"""Points as people name them: by number, by name, by module, or as a range of these."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .points import Point


def select(points: Sequence[Point], text: str) -> list[int]:
    """The indices of the points that a selector means, ascending.

    text: a number; a name, also that of a cut folded into a point; a module, for the last point within it; or a
    range of two of these, as in '4-9' and 'features.2-features.5', which takes in both ends, a module from its first
    point on. A name may contain '-'. Raises ValueError, in one line, where nothing or more than one thing is meant.
    """
    found = _one(points, text)
    if found:
        return [found[-1]]
    dashes = [place for place, sign in enumerate(text) if sign == "-"]
    ranges = [(_one(points, text[:place]), _one(points, text[place + 1 :])) for place in dashes]
    meant = {(first[0], last[-1]) for first, last in ranges if first and last}
    if len(meant) > 1:
        raise ValueError(f"{text!r} is more than one range of points: use numbers")
    for first, last in meant:
        if first > last:
            raise ValueError(f"the range {text!r} goes backwards: from point {first} to {last}")
        return list(range(first, last + 1))
    raise ValueError(f"no point {text!r}: the points are 0 to {len(points) - 1}{_nearest(points, text)}")


def within(text: str, names: Iterable[str]) -> list[str]:
    """Those of `names` that are `text`, or lie within the module of that path."""
    names = list(names)
    return [name for name in names if name == text] or [name for name in names if name.startswith(f"{text}.")]


def _one(points: Sequence[Point], text: str) -> list[int]:
    """The points that a number, a name or a module means, ascending; of a module all."""
    if text.isdecimal():
        return [int(text)] if int(text) < len(points) else []
    owner = {name: point.index for point in points for name in (*point.folded, point.name)}
    return sorted({owner[name] for name in within(text, owner)})


def _nearest(points: Sequence[Point], text: str) -> str:
    names = [name for point in points for name in (*point.folded, point.name)]
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.4)
    return f"; did you mean {', '.join(near)}?" if near else ""
