"""What two runs have in common, and in words what only one of them has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.keys import CELL, CONDITION
from analysis.naming import condition_title
from analysis.neutral import NONE
from analysis.points import cuts, sorted_cells

WORDS = {
    "model": "model",
    "netem": "profile",
    "batch_size": "batch size",
    "codec": "codec",
    "in_flight_asked": "requests in flight",
    "backend": "backend",
}
_MOST = 3
"""Conditions that a line names; of more it tells the number."""


def cells(trials: pd.DataFrame) -> pd.DataFrame:
    """One row a cell, points by their cuts: `point_name`, and under `valid` how many of its trials are ok."""
    grouped = trials.assign(valid=trials["status"] == "ok").groupby(CELL, dropna=False, observed=True)
    found: pd.DataFrame = grouped.agg(point_name=("point_name", "max"), valid=("valid", "sum")).reset_index()
    return sorted_cells(found)


def both(first: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The cells (rows of `cells`) that have a valid trial in both runs; `point_name` is the first's."""
    valid = first[first["valid"] > 0].drop(columns="valid")
    return valid.merge(other.loc[other["valid"] > 0, CELL], on=CELL, how="inner")


def only(these: pd.DataFrame, those: pd.DataFrame) -> list[str]:
    """What only the first of two runs has (frames of `cells`): models, profiles, ..., conditions, backends, points.

    A point without a valid trial in the other run is named as well. What follows from a line is not told again: of a
    profile that the other run lacks no points are listed.
    """
    return [*_values(these, those), *_conditions(these, those), *_points(these, those)]


def _values(these: pd.DataFrame, those: pd.DataFrame) -> Iterator[str]:
    for column, word in WORDS.items():
        left = [value for value in these[column].unique() if value not in _known(those, column)]
        if left:
            yield f"{word if len(left) == 1 else _plural(word)} {', '.join(str(value) or 'none' for value in left)}"


def _conditions(these: pd.DataFrame, those: pd.DataFrame) -> Iterator[str]:
    """Such as would be there, had the other run all combinations of what it has."""
    known = set(those[CONDITION].itertuples(index=False, name=None))
    for row in _with_known_values(these, those)[CONDITION].drop_duplicates().to_dict("records"):
        if tuple(row[column] for column in CONDITION) not in known:
            yield condition_title(row)


def _points(these: pd.DataFrame, those: pd.DataFrame) -> Iterator[str]:
    """Of conditions that both have, by what is missing, so that a line may be of many conditions."""
    counts = those.set_index(CELL)["valid"].to_dict()
    conditions = set(those[CONDITION].itertuples(index=False, name=None))
    lines: dict[tuple[str, str, str], list[str]] = {}
    for _, rows in _with_known_values(these, those).groupby(
        [*CONDITION, "backend"], observed=True, sort=False
    ):
        row = rows.iloc[0]
        if tuple(row[CONDITION]) not in conditions:
            continue
        valid = rows[rows["valid"] > 0]
        missing: dict[str, list[str]] = {}
        for cell in valid[CELL].itertuples(index=False, name=None):
            count = counts.get(cell)
            if not count:
                kind = "" if count is None else " without a valid trial in the other run"
                missing.setdefault(kind, []).append(str(cell[-1]))
        for kind, lacking in missing.items():
            place = (numbers(lacking), str(row["backend"]), kind)
            lines.setdefault(place, []).append(condition_title(row))
    for (points, backend, kind), titles in lines.items():
        word = "points" if "," in points or " to " in points else "point"
        at = f"{len(titles)} conditions" if len(titles) > _MOST else "; ".join(titles)
        over = f" over {backend}" if backend else ""
        yield f"{word} {points}{over}{kind}: {at}"


def _with_known_values(these: pd.DataFrame, those: pd.DataFrame) -> pd.DataFrame:
    known = pd.Series(True, index=these.index)
    for column in WORDS:
        known &= these[column].isin(_known(those, column))
    return these[known]


def _known(those: pd.DataFrame, column: str) -> set[Any]:
    """What the run has; that something crosses nothing, and is of no backend, is known to any."""
    return {*those[column], *([NONE] if column == "backend" else [])}


def numbers(points: Iterable[str]) -> str:
    """`3, 5 to 9, 12`; points with several cuts each for itself."""
    ordered = sorted(points, key=cuts)
    spans: list[list[str]] = []
    for point in ordered:
        if spans and point == _next(spans[-1][-1]):
            spans[-1].append(point)
        else:
            spans.append([point])
    return ", ".join(_span(span) for span in spans)


def _next(point: str) -> str:
    return "" if "+" in point else str(int(point) + 1)


def _span(points: Sequence[str]) -> str:
    return f"{points[0]} to {points[-1]}" if len(points) > 2 else ", ".join(points)


def _plural(word: str) -> str:
    return word if word.endswith("flight") else f"{word}s"


def nothing_shared(first: pd.DataFrame, other: pd.DataFrame) -> str:
    """Why two runs cannot be compared, in one line."""
    for column, word in WORDS.items():
        sides: list[Mapping[Any, None]] = [dict.fromkeys(side[column]) for side in (first, other)]
        if not sides[0].keys() & sides[1].keys():
            has = (", ".join(filter(None, map(str, side))) or "none" for side in sides)
            return f"the runs have no {word} in common: {' in A, '.join(has)} in B"
    return "the runs have no point in common that has a valid trial in both"
