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

from analysis import files
from analysis.comparing.between_runs import Comparison
from analysis.naming import (
    ANY_NOTE,
    backend_name,
    backends,
    cell_name,
    cell_names,
    condition_title,
    count,
    time_unit,
)
from analysis.points import CONDITION
from analysis.tables.look import figure, framed

MOST_ROWS = 24
"""Points that a table shows before it keeps to those that matter."""
MOST_TABLES = 12


def compare_table(comparison: Comparison) -> RenderableType:
    """The conclusion, doubts and differing settings, what is not compared, and a table for each condition.

    Columns: backend, point (+ enters the front, - leaves it, * is on both; ? where resamples do not all say so), the
    median latency of A and B, B - A with its 95 % interval and in percent, images/s in percent with its interval; an
    exclamation mark: significant. Of more than `MOST_ROWS` points only those that are on a front or differ
    significantly; of more than `MOST_TABLES` conditions no tables.
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
    files.make(folder)
    tables = {"compare.csv": comparison.differences, "compare-fronts.csv": comparison.fronts}
    for name in tables:
        files.refuse_link(folder / name)
    return [files.write_table(folder / name, table) for name, table in tables.items()]


def _listed(head: str, lines: Sequence[str]) -> RenderableType:
    """Each line in a paragraph of its own, told apart by what follows the first being indented."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row("-", Text(line))
    return Padding(Group(*([Text(head)] if head else []), grid), (0, 0, 1, 0))


def _table(rows: pd.DataFrame, front: Mapping[Hashable, Any]) -> RenderableType:
    marks = dict(_marks(front))
    named = cell_names(rows)
    matters = rows["latency_significant"] | rows["throughput_significant"] | named.isin(marks)
    shown = rows if len(rows) <= MOST_ROWS else rows[matters]
    has_throughput = rows["throughput_difference_percent"].notna().any()
    hidden = len(rows) - len(shown)
    unit, scale = time_unit(float(rows[["first_latency_s", "other_latency_s"]].max(axis=None)))
    digits = 3 if unit == "s" else 2
    notes = [
        "B-A = median difference, with its 95 % interval"
        if rows["latency_low_s"].notna().any()
        else "B-A = median difference",
        f"! = significant, corrected for {count(int(rows['tests'].iloc[0]), 'test')} (Holm)",
        "* on both fronts, + enters, - leaves; ? = may" if marks else "",
        ANY_NOTE if (shown["backend"] == "").any() else "",
        "; ".join(sorted(set(rows["note"]) - {""})),
        f"{count(hidden, 'point')} that {'neither differ' if hidden > 1 else 'neither differs'} significantly nor "
        f"{'are' if hidden > 1 else 'is'} on a front: see compare.csv"
        if hidden
        else "",
    ]
    table = framed(f"{condition_title(rows.iloc[0])}: B against A", "; ".join(note for note in notes if note))
    table.add_column("backend", overflow="fold")
    table.add_column("point", no_wrap=True)
    for header in (f"A\n{unit}", f"B\n{unit}", f"B-A\n{unit}", "95 %", "%"):
        table.add_column(header, justify="right", no_wrap=True)
    if has_throughput:
        for header in ("images/s\n%", "95 %"):
            table.add_column(header, justify="right", no_wrap=True)
    for backend in backends(shown):
        for number, row in enumerate(shown[shown["backend"] == backend].to_dict("records")):
            table.add_row(
                "" if number else backend_name(backend),
                str(row["point"]) + marks.get(cell_name(row), ""),
                figure(row["first_latency_s"] * scale, digits),
                figure(row["other_latency_s"] * scale, digits),
                figure(row["latency_difference_s"] * scale, digits),
                _interval(row["latency_low_s"] * scale, row["latency_high_s"] * scale, digits),
                _judged(row, "latency"),
                *(
                    [
                        _judged(row, "throughput"),
                        _interval(row["throughput_low_percent"], row["throughput_high_percent"], 1),
                    ]
                    if has_throughput
                    else []
                ),
            )
        table.add_section()
    return table


def _marks(front: Mapping[Hashable, Any]) -> Iterator[tuple[str, str]]:
    """What becomes of a point of one of the fronts, by backend and point."""
    for change, mark in (("stay", "*"), ("enter", "+"), ("leave", "-")):
        for column, sure in ((change, ""), (f"may_{change}", "?")):
            for named in filter(None, str(front.get(column, "")).split("; ")):
                yield named, mark + sure


def _judged(row: Mapping[Hashable, Any], measure: str) -> str:
    return figure(row[f"{measure}_difference_percent"], 1) + ("!" if row[f"{measure}_significant"] else " ")


def _interval(low: float, high: float, digits: int) -> str:
    """`1.28..1.40`: a dash would read as a sign."""
    return "-" if pd.isna(low) else f"{figure(low, digits)}..{figure(high, digits)}"
