"""Two runs against each other, in the terminal, in a log and as CSV: legible at 80 columns and without colour."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pareto.analysis.comparing.between_runs import Comparison
from pareto.analysis.naming import (
    ANY_NOTE,
    backend_name,
    cell_name,
    cell_names,
    condition_title,
    count,
    time_unit,
)
from pareto.analysis.points import CONDITION
from pareto.analysis.tables.columns import Column, by_backend, figures, framed, number, once, spans, starts
from pareto.basics import files

MOST_ROWS = 24
"""A table with more points than this shows only those that matter."""
MOST_TABLES = 12


def compare_table(comparison: Comparison) -> RenderableType:
    """The conclusion, doubts and differing settings, what is not compared, and a table for each condition.

    Columns: backend, point (+ enters the front, - leaves it, * is on both; ? where resamples do not all say so), the
    median latency of A and B, B - A with its 95 % interval and in percent, images/s in percent with its interval; an
    exclamation mark: significant. Beyond `MOST_ROWS` points it has only those that are on a front or
    differ significantly; beyond `MOST_TABLES` conditions there are no tables.
    """
    a, b = comparison.names
    parts: list[RenderableType] = [Text(f"A: {a}\nB: {b}\n")]
    parts += [_listed("", comparison.sentences)]
    parts += [_listed("made with other settings:", comparison.settings)] if comparison.settings else []
    for name, lacking in (("A", comparison.only_first), ("B", comparison.only_second)):
        parts += [_listed(f"only {name} has, so not compared:", lacking)] if lacking else []
    fronts = {tuple(row[key] for key in CONDITION): row for row in comparison.fronts.to_dict("records")}
    if len(fronts) > MOST_TABLES:
        return Group(*parts, *map(Text, (*comparison.notes, "every point is in compare.csv")))
    for _, rows in comparison.differences.groupby(CONDITION, dropna=False, observed=True, sort=False):
        parts.append(_table(rows, fronts.get(tuple(rows.iloc[0][CONDITION]), {})))
    return Group(*parts, *map(Text, comparison.notes))


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Write `compare.csv`, every point, and `compare-fronts.csv`, every condition; returns their paths."""
    tables = {"compare.csv": comparison.differences, "compare-fronts.csv": comparison.fronts}
    files.claim(folder, *tables)
    return [files.write_table(folder / name, table) for name, table in tables.items()]


def _listed(head: str, lines: Sequence[str]) -> RenderableType:
    """Each line as an item of a list; lines that continue it are indented."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row("-", Text(line))
    return Padding(Group(*([Text(head)] if head else []), grid), (0, 0, 1, 0))


def _table(rows: pd.DataFrame, front: Mapping[Hashable, Any]) -> RenderableType:
    marks = dict(front_marks(front))
    named = cell_names(rows)
    matters = rows["latency_significant"] | rows["throughput_significant"] | named.isin(marks)
    shown = rows if len(rows) <= MOST_ROWS else rows[matters]
    hidden = len(rows) - len(shown)
    shown = by_backend(shown, "point")
    unit, scale = time_unit(float(rows[["first_latency_s", "other_latency_s"]].max(axis=None)))
    digits = 3 if unit == "s" else 2
    neither = "neither differ significantly nor are" if hidden > 1 else "neither differs significantly nor is"
    notes = [
        f"B-A = median difference{', with its 95 % interval' if rows['latency_low_s'].notna().any() else ''}",
        f"! = significant, corrected for {count(int(rows['tests'].iloc[0]), 'test')} (Holm)",
        "* on both fronts, + enters, - leaves; ? = may" if marks else "",
        ANY_NOTE if (shown["backend"] == "").any() else "",
        "; ".join(sorted(set(rows["note"]) - {""})),
        f"{count(hidden, 'point')} that {neither} on a front: see compare.csv" if hidden else "",
    ]
    points = [f"{row['point']}{marks.get(cell_name(row), '')}" for row in shown.to_dict("records")]
    low, high = (shown[f"latency_{end}_s"] * scale for end in ("low", "high"))
    columns = [
        Column("backend", once(shown["backend"].map(backend_name))),
        Column("point", points, look={"no_wrap": True, "overflow": "ellipsis"}),
        number("A", shown["first_latency_s"] * scale, digits, unit),
        number("B", shown["other_latency_s"] * scale, digits, unit),
        number("B-A", shown["latency_difference_s"] * scale, digits, unit),
        Column("95 %", spans(low, high, digits), kind="number"),
        Column("%", _judged(shown, "latency"), kind="number"),
    ]
    if rows["throughput_difference_percent"].notna().any():
        low, high = shown["throughput_low_percent"], shown["throughput_high_percent"]
        columns += [
            Column("images/s", _judged(shown, "throughput"), "%", "number"),
            Column("95 %", spans(low, high, 1), kind="number"),
        ]
    title = f"{condition_title(rows.iloc[0])}: B against A"
    return framed(columns, title, notes, starts(shown["backend"]))


def front_marks(front: Mapping[Hashable, Any]) -> Iterator[tuple[str, str]]:
    """Yield the mark of each point that is on a front, enters it or leaves it, by backend and point."""
    for change, mark in (("stay", "*"), ("enter", "+"), ("leave", "-")):
        for column, sure in ((change, ""), (f"may_{change}", "?")):
            for named in filter(None, str(front.get(column, "")).split("; ")):
                yield named, mark + sure


def _judged(rows: pd.DataFrame, measure: str) -> list[str]:
    """The differences in percent, with an exclamation mark where they are significant."""
    cells = figures(rows[f"{measure}_difference_percent"], 1)
    marks = rows[f"{measure}_significant"]
    return [
        f"{cell}{'!' if is_significant else ' '}" for cell, is_significant in zip(cells, marks, strict=True)
    ]
