"""Two runs against each other, in the terminal, in a log and as CSV: legible at 80 columns and without colour."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pareto.analysis.comparing.between_runs import Comparison
from pareto.analysis.naming import ANY_NOTE, backend_name, cell_names, condition_title, count, time_unit
from pareto.analysis.runs.points import CONDITION, NONE
from pareto.analysis.tables.columns import Column, by_backend, figures, framed, number, once, spans, starts
from pareto.basics import files

MOST_ROWS = 24
"""A table with more points than this shows only those that matter."""
MOST_TABLES = 12


def compare_table(comparison: Comparison) -> RenderableType:
    """The conclusion, doubts and differing settings, what is not compared, and a table for each condition.

    Beyond `MOST_ROWS` points a table has only those that are on a front or differ significantly; beyond `MOST_TABLES`
    conditions there are no tables.
    """
    a, b = comparison.names
    parts: list[RenderableType] = [Text(f"A: {a}\nB: {b}\n")]
    for head, lines in (
        ("", comparison.sentences),
        ("made with other settings:", comparison.settings),
        ("only A has, so not compared:", comparison.only_first),
        ("only B has, so not compared:", comparison.only_second),
    ):
        parts += [listed(head, [("-", line) for line in lines])] if lines else []
    notes = list(comparison.notes)
    fronts = {tuple(row[key] for key in CONDITION): row for row in comparison.fronts.to_dict("records")}
    if len(fronts) > MOST_TABLES:
        return Group(*parts, *map(Text, [*notes, "every point is in compare.csv"]))
    for _, rows in comparison.differences.groupby(CONDITION, dropna=False, observed=True, sort=False):
        parts.append(_table(rows, fronts.get(tuple(rows.iloc[0][CONDITION]), {})))
    return Group(*parts, *map(Text, notes))


def write(comparison: Comparison, folder: Path) -> list[Path]:
    """Write `compare.csv`, every point, and `compare-fronts.csv`, every condition; returns their paths."""
    tables = {"compare.csv": comparison.differences, "compare-fronts.csv": comparison.fronts}
    files.claim(folder, *tables)
    return [files.write_table(folder / name, table) for name, table in tables.items()]


def listed(
    head: str, lines: Iterable[tuple[str, str]], style: str = "", gap: int = 1, indent: int = 0
) -> RenderableType:
    """Items under a head, each with its mark or word; lines that continue one are indented."""
    grid = Table.grid(padding=(0, gap))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for mark, line in lines:
        grid.add_row(mark, Text(line))
    return Group(*([Text(head, style)] if head else []), Padding(grid, (0, 0, 1, indent)))


def _table(rows: pd.DataFrame, front: Mapping[Hashable, Any]) -> RenderableType:
    """The median latency of A and B, B - A with its interval and in percent, images/s in percent with its interval."""
    marks = dict(front_marks(front))
    mark = cell_names(rows).map(marks)
    matters = rows["latency_significant"] | rows["throughput_significant"] | mark.notna()
    rows = rows.assign(point_marked=rows["point"] + mark.fillna(""))
    shown = by_backend(rows if len(rows) <= MOST_ROWS else rows[matters], "point")
    hidden = len(rows) - len(shown)
    unit, scale = time_unit(float(rows[["first_latency_s", "other_latency_s"]].max(axis=None)))
    digits = 3 if unit == "s" else 2
    neither = "neither differ significantly nor are" if hidden > 1 else "neither differs significantly nor is"
    notes = [
        f"B-A = median difference{', with its 95 % interval' if rows['latency_low_s'].notna().any() else ''}",
        f"! = significant, corrected for {count(int(rows['tests'].iloc[0]), 'test')} (Holm)",
        "* on both fronts, + enters, - leaves; ? = may" if marks else "",
        ANY_NOTE if (shown["backend"] == NONE).any() else "",
        "; ".join(sorted(set(rows["note"]) - {""})),
        f"{count(hidden, 'point')} that {neither} on a front: see compare.csv" if hidden else "",
    ]
    low, high = (shown[f"latency_{end}_s"] * scale for end in ("low", "high"))
    columns = [
        Column("backend", once(shown["backend"].map(backend_name))),
        Column("point", [*shown["point_marked"]], look={"no_wrap": True, "overflow": "ellipsis"}),
        number("A", shown["first_latency_s"] * scale, digits, unit),
        number("B", shown["other_latency_s"] * scale, digits, unit),
        number("B-A", shown["latency_difference_s"] * scale, digits, unit),
        Column("95 %", spans(low, high, digits), kind="number"),
        Column("%", _judged(shown, "latency"), kind="number"),
    ]
    if rows["throughput_difference_percent"].notna().any():
        ends = spans(shown["throughput_low_percent"], shown["throughput_high_percent"], 1)
        columns.append(Column("images/s", _judged(shown, "throughput"), "%", "number"))
        columns.append(Column("95 %", ends, kind="number"))
    return framed(columns, f"{condition_title(rows.iloc[0])}: B against A", notes, starts(shown["backend"]))


def front_marks(front: Mapping[Hashable, Any]) -> Iterator[tuple[str, str]]:
    """Yield the mark of each point that is on a front, enters it or leaves it, by backend and point."""
    for change, mark in (("stay", "*"), ("enter", "+"), ("leave", "-")):
        for column, sure in ((change, ""), (f"may_{change}", "?")):
            for named in filter(None, str(front.get(column, "")).split("; ")):
                yield named, mark + sure


def _judged(rows: pd.DataFrame, measure: str) -> list[str]:
    """The differences in percent, with an exclamation mark where they are significant."""
    cells = figures(rows[f"{measure}_difference_percent"], 1)
    return [
        f"{cell}{'!' if sure else ' '}"
        for cell, sure in zip(cells, rows[f"{measure}_significant"], strict=True)
    ]
