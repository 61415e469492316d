"""`compare.html`: two runs beside each other, on the same axes, and every point that both have."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pareto.analysis.comparing.between_runs import Comparison
from pareto.analysis.figures.marks import FILLS, LOG_RANGE, STATE_WORDS
from pareto.analysis.naming import backend_name, backends, cell_names, condition_title, count, time_unit
from pareto.analysis.page.document import rendered
from pareto.analysis.page.fronts import KEYS, MOST_CELLS, short
from pareto.analysis.points import CONDITION, NONE
from pareto.analysis.tables.columns import Column, by_backend, number, spans
from pareto.analysis.tables.compare import front_marks
from pareto.basics import files

FILE = "compare.html"
_SIDES = (("A", "first", "*-"), ("B", "other", "*+"))
"""Each run: its name, how its columns begin, and the marks (`analysis.tables.compare`) of what is on its front."""


def write(comparison: Comparison, folder: Path) -> Path:
    """Write the page of two runs and return its path; it is as self-contained as a report's.

    Raises `files.StoreError`, OSError.
    """
    return files.write(files.claim(folder, FILE) / FILE, html(comparison))


def html(comparison: Comparison) -> str:
    """The page: the conclusion, both charts, what differs otherwise, and every point."""
    every = comparison.differences
    rows = every.head(MOST_CELLS)
    names = backends(rows)
    found = {tuple(row[key] for key in CONDITION): row for row in comparison.fronts.to_dict("records")}
    groups = [
        by_backend(group, "point")
        for _, group in rows.groupby(CONDITION, dropna=False, observed=True, sort=False)
    ]
    charts = [
        _chart(group, names, found.get(tuple(group.iloc[0][CONDITION]), {}), comparison.sentences)
        for group in groups
    ]
    a, b = (Path(name).name for name in comparison.names)
    return rendered(
        "comparison.html",
        title=f"{b} (B) against {a} (A)",
        names=(a, b),
        sentences=comparison.sentences,
        note=f"The first {len(rows)} of {len(every)} points; all are in compare.csv."
        if len(rows) < len(every)
        else "",
        boxes=[
            ("Made with other settings", comparison.settings, "warnings"),
            ("Only A has, so not compared", comparison.only_first, "notes"),
            ("Only B has, so not compared", comparison.only_second, "notes"),
            ("Notes", comparison.notes, "notes"),
        ],
        conditions=[
            {"title": condition_title(group.iloc[0]), "about": _about(group), "columns": _columns(group)}
            for group in groups
        ],
        data={
            "backends": list(map(backend_name, names)),
            "any": names.index(NONE) if NONE in names else None,
            "states": [[STATE_WORDS[state], fill] for state, fill in FILLS.items()],
            "log_range": LOG_RANGE,
            "charts": charts,
            "maps": [],
        },
    )


def _about(rows: pd.DataFrame) -> str:
    significant = int((rows["latency_significant"] | rows["throughput_significant"]).sum())
    rounds = " and ".join(f"{int(rows[f'{side}_rounds'].median())} of {name}" for name, side, _ in _SIDES)
    return f"{count(len(rows), 'point')}, {significant} with a significant difference; rounds: {rounds}."


def _columns(rows: pd.DataFrame) -> list[Column]:
    """A table's columns; those with a group stand beside a point of the chart, too."""
    unit, scale = time_unit(float(rows[["first_latency_s", "other_latency_s"]].min(axis=None)))
    digits = 4 if unit == "s" else 2
    columns = [
        Column("backend", [backend_name(backend) for backend in rows["backend"]]),
        Column("point", [str(point) for point in rows["point"]], kind="point"),
        Column("name", [str(name) or "-" for name in rows["point_name"]]),
    ]
    for measure, column, of, per, decimals in (
        ("latency", "latency_s", unit, scale, digits),
        ("throughput", "throughput_ips", "images/s", 1.0, 2),
    ):
        low, high = rows[f"{measure}_low_percent"], rows[f"{measure}_high_percent"]
        figures = [
            *(
                number(f"{measure} {name}", rows[f"{side}_{column}"] * per, decimals, of)
                for name, side, _ in _SIDES
            ),
            number("B - A", rows[f"{measure}_difference_percent"], 1, "%"),
            Column("95 %", spans(low, high, 1), "%", "number"),
            Column("significant", ["yes" if yes else "-" for yes in rows[f"{measure}_significant"]]),
        ]
        words = ("A", "B", "B - A", "95 %", "significant")
        columns += [
            Column(each.head, each.cells, each.unit, each.kind, word, measure)
            for each, word in zip(figures, words, strict=True)
        ]
    return columns


def _chart(
    rows: pd.DataFrame, names: Sequence[str], front: Mapping[Hashable, Any], sentences: Sequence[str]
) -> dict[str, Any]:
    """The places of a table's points in both runs, row by row: see `analysis.page.fronts`."""
    unit, scale = time_unit(float(rows[["first_latency_s", "other_latency_s"]].min(axis=None)))
    known = dict(front_marks(front))
    sides: list[dict[str, Any]] = []
    for name, side, on in _SIDES:
        points = []
        for row, cell in zip(rows.to_dict("records"), cell_names(rows), strict=True):
            mark = known.get(cell, " ")
            state = "dominated" if mark[0] not in on else "unsure" if mark.endswith("?") else "front"
            place = [short(row[f"{side}_latency_s"] * scale), short(row[f"{side}_throughput_ips"])]
            points.append(
                [*place, *[None] * 4, names.index(str(row["backend"])), 2 * (mark[0] in on), FILLS[state]]
            )
        sides.append({"name": name, "points": points})
    first = rows.iloc[0]
    head = f"{condition_title(first)}: "
    return {
        "keys": {name: str(first[key]) for key, name in KEYS.items()},
        "unit": unit,
        # On the front of either, for the reader who asks for the front's points alone.
        "points": [
            max(both, key=lambda point: point[7])
            for both in zip(*(side["points"] for side in sides), strict=True)
        ],
        "sides": sides,
        "stairs": "all",
        "answer": next((place for place, line in enumerate(sentences) if line.startswith(head)), None),
        "map": None,
    }
