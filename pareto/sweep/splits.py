"""Where a model is cut: its splits for a chain of hosts, with a point for each link, each at or after the one before;
and the points that somebody chose in a file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import StringConstraints

from pareto import partitions
from pareto.basics.yaml_file import Keys, YamlFile
from pareto.partitions.points import Point, select
from pareto.partitions.recipe import Handmade
from pareto.protocol.errors import UserError
from pareto.sweep.networks import ALONG
from pareto.sweep.sweep import Sweep

Split = tuple[int, ...]
MOST_SPLITS = 400
"""More would take days, so whoever means so many names them."""
MOST_SEARCHED = 4000
"""The most splits of a search, which leaves most of them out: comparing more forecasts in pairs takes minutes."""
ALL = "all"
FOLDER = Path(partitions.__file__).parent

_SHAPE = "either 'points: [features.3, features.6]' or 'chain: [stem, body, head]'"
_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


def find(
    model: str, points: Sequence[Point], selectors: Sequence[str], links: int, most: int = MOST_SPLITS
) -> tuple[Split, ...]:
    """The splits of a model that `selectors` name, sorted: 'all', points (`7`, `features.7`, `4-9`), which may stand at
    any link, or one of these for each link (`3+7`, `0-4+9`). most: for more than two hosts. Raises UserError."""
    if not links:  # a single host, which runs all of it
        return ((len(points) - 1,),)
    anywhere: set[int] = set()
    splits: set[Split] = set()
    for text in selectors:
        if ALONG in text:
            splits.update(_along(model, points, text, links))
        else:
            anywhere.update(_select(model, points, text))
    count = math.comb(len(anywhere) + links - 1, links)
    if links == 1 or count <= most:
        splits.update(itertools.combinations_with_replacement(sorted(anywhere), links))
        count = len(splits)
    if links > 1 and count > most:
        or_search = f" (--search: {MOST_SEARCHED})" if count <= MOST_SEARCHED else ""
        raise UserError(
            f"{model}: {count} ways to split it over {links + 1} hosts are more than {most}{or_search}: choose "
            f"fewer with --points, as in 0,4,9 (any of these at each link) or {example(links)}"
        )
    return tuple(sorted(splits))


def to_measure(model: str, points: Sequence[Point], sweep: Sweep, links: int) -> tuple[Split, ...]:
    """The splits of a model that a sweep measures, sorted: unless it has `only`, also what a cut has to beat, the whole
    model on one host. Raises UserError."""
    most = MOST_SEARCHED if sweep.search else MOST_SPLITS
    splits = find(model, points, sweep.points, links, most)
    if sweep.only or not links:
        return splits
    whole = itertools.combinations_with_replacement((0, len(points) - 1), links)
    return tuple(sorted({*splits, *whole}))


def ends_note(added: Collection[Split]) -> str:
    """A sentence on the splits that were added to the wanted ones; empty if there are none."""
    if not added:
        return ""
    *most, last = (ALONG.join(map(str, split)) for split in sorted(added))
    named = f"{', '.join(most)} and {last}" if most else last
    return f"added: {named}, the whole model on one host, which a cut has to beat (--only leaves them out)"


def fold_note(points: Sequence[Point], cuts: int) -> str:
    """A sentence on the cuts that are no points, of so many at granularity 'op'; empty if there is none."""
    folded, kept = sum(len(point.folded) for point in points), len(points) - 1
    if not folded:
        return f"{kept} of {cuts} cuts are points (--granularity op has the others)" if kept < cuts else ""
    fold = f"{folded} fold into their neighbours (--no-fold keeps them)"
    return f"{kept + folded} cuts, {kept} points before the last: {fold}"


def _along(model: str, points: Sequence[Point], text: str, links: int) -> list[Split]:
    parts = text.split(ALONG)
    if len(parts) != links:
        raise UserError(
            f"--points {text} names {len(parts)} points, and {links + 1} hosts are cut at {links}: "
            f"write {example(links)}"
        )
    each = [_select(model, points, part) for part in parts]
    if math.prod(map(len, each)) > MOST_SPLITS**2:
        raise UserError(f"--points {text} are too many: choose fewer")
    splits = [split for split in itertools.product(*each) if list(split) == sorted(split)]
    if not splits:
        raise UserError(f"--points {text} goes back: each point must be at or after the one before it")
    return splits


def _select(model: str, points: Sequence[Point], text: str) -> list[int]:
    if text == ALL:
        return list(range(len(points)))
    try:
        return select(points, text)
    except ValueError as error:
        raise UserError(f"--points: {model}: {error}") from None


def example(links: int) -> str:
    return ALONG.join(str(3 * number) for number in range(1, links + 1))


class _Points(Keys):
    WHAT: ClassVar[str] = "a points file"
    points: tuple[_Name, ...] = ()
    chain: tuple[_Name, ...] = ()


def chosen_points(name: str, file: str) -> Handmade | None:
    """The points that somebody chose in <name>.yaml, which lies in `partitions/`, or beside `file`, a user's own model;
    None where there is no such file. Raises UserError with the file and the line."""
    path = (Path(file).parent if file else FOLDER) / f"{name}.yaml"
    if not path.exists():
        return None
    points_file = YamlFile(path, "points file")
    keys = points_file.read(_Points, _SHAPE)
    with points_file.blaming():
        if bool(keys.points) == bool(keys.chain):
            raise UserError(f"it has {'points and chain' if keys.points else 'neither'}; write {_SHAPE}")
    for place, point in enumerate(keys.points):
        with points_file.blaming("points", place):
            if point in keys.points[:place]:
                raise UserError(f"point {point!r} stands here twice")
    return Handmade(points=keys.points, chain=keys.chain)
