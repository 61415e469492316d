"""A run beside another, or beside published results, in the terminal and as CSV: at 80 columns and without colour."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from pareto.analysis.comparing.between_runs import Comparison
from pareto.analysis.comparing.published import ABSENT, FIGURES, PIPELINING, SAME, UNSURE, Beside, Published
from pareto.analysis.naming import ANY_NOTE, backend_name, cell_names, condition_title, count
from pareto.analysis.runs.points import CONDITION, NONE
from pareto.analysis.tables.table import UNKNOWN, Column, Table, by_backend, numbers, once, starts, times
from pareto.analysis.wording import interval
from pareto.basics import files
from pareto.remote.link.units import duration, percent

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
        parts += [_listed(head, [("-", line) for line in lines])] if lines else []
    marks, notes = front_marks(comparison.fronts), [*comparison.notes]
    if len(comparison.fronts) > MOST_TABLES:
        notes.append("every point is in compare.csv")
    else:
        each = comparison.differences.groupby(CONDITION, dropna=False, observed=True, sort=False)
        parts += [_compared(rows, marks.get(tuple(rows.iloc[0][CONDITION]), {})) for _, rows in each]
    return Group(*parts, *map(Text, notes))


def front_marks(fronts: pd.DataFrame) -> dict[tuple[Hashable, ...], dict[str, str]]:
    """By condition the marks of the cells that are on a front (`*`), enter it (`+`) or leave it (`-`); `?`: may."""
    marks = {"stay": "*", "enter": "+", "leave": "-"}
    return {
        tuple(row[key] for key in CONDITION): {
            cell: mark + sure
            for change, mark in marks.items()
            for column, sure in ((change, ""), (f"may_{change}", "?"))
            for cell in filter(None, str(row[column]).split("; "))
        }
        for row in fronts.to_dict("records")
    }


def _compared(rows: pd.DataFrame, marks: Mapping[str, str]) -> Table:
    """The median latency of A and B, B - A with its interval and in percent, images/s in percent with its interval."""
    mark = cell_names(rows).map(marks)
    matters = rows["latency_significant"] | rows["throughput_significant"] | mark.notna()
    rows = rows.assign(marked=rows["point"] + mark.fillna(""))
    shown = by_backend(rows if len(rows) <= MOST_ROWS else rows[matters], "point")
    hidden = len(rows) - len(shown)
    neither = "neither differ significantly nor are" if hidden > 1 else "neither differs significantly nor is"
    interval = ", with its 95 % interval" if rows["latency_low_s"].notna().any() else ""
    notes = {
        f"B-A = median difference{interval}": True,
        f"! = significant, corrected for {count(int(rows['tests'].iloc[0]), 'test')} (Holm)": True,
        "* on both fronts, + enters, - leaves; ? = may": marks,
        ANY_NOTE: (shown["backend"] == NONE).any(),
        "; ".join(sorted(set(rows["note"]) - {""})): True,
        f"{count(hidden, 'point')} that {neither} on a front: see compare.csv": hidden,
    }
    time = times(float(rows[["first_latency_s", "other_latency_s"]].max(axis=None)))
    columns = [
        Column("backend", once(shown["backend"].map(backend_name))),
        Column("point", [*shown["marked"]], look={"no_wrap": True, "overflow": "ellipsis"}),
        numbers(shown, "A", "first_latency_s", *time),
        numbers(shown, "B", "other_latency_s", *time),
        numbers(shown, "B-A", "latency_difference_s", *time),
        numbers(shown, "95 %", "latency_{}_s", *time),
        _judged(shown, "latency", ""),
        _judged(shown, "throughput", "images/s"),
        numbers(shown, "95 %", "throughput_{}_percent", "%", 1),
    ]
    return Table(f"{condition_title(rows.iloc[0])}: B against A", columns, notes, starts(shown["backend"]))


def _judged(rows: pd.DataFrame, measure: str, head: str) -> Column:
    """The differences in percent, with an exclamation mark where they are significant."""
    cells = numbers(rows, head, f"{measure}_difference_percent", digits=1).cells
    told = zip(cells, rows[f"{measure}_significant"], strict=True)
    known = [UNKNOWN if cell == UNKNOWN else f"{cell}{'!' if sure else ' '}" for cell, sure in told]
    return Column(head, known, "%", "number")


def published_table(published: Published, found: Beside, run: str, command: str) -> RenderableType:
    """The run's answer to each conclusion, fronts and figures side by side, what cannot be judged or differs, sources.

    run: how it is named. command: what starts this program.
    """
    parts: list[RenderableType] = [Text(f"{published.title}\n{published.link}\nrun: {run}\n")]
    again = f"{command} run {published.sweep}"
    parts += [_listed(says, lines, "bold", 2, 2) for says, lines in verdicts(found, again)]
    for says, rows in found.fronts.groupby("says", sort=False):
        parts.append(_listed(str(says), _front(rows), "bold", 2, 2))
    if len(rows := found.figures[found.figures["sign"] == ""]):
        there, here = (map(_value, rows["column"], rows[of]) for of in ("published", "ours"))
        of = (rows["cell"] + " " + rows["condition"]).str.strip().replace("", UNKNOWN)
        shown = {"published": rows["says"], "there": there, "here": here, "of": of}
        columns = [Column(head, [*cells]) for head, cells in shown.items()]
        parts.append(Table("figures side by side: other hardware, so no verdict", columns))
    if reasons := [("-", f"{row.says}: {row.because}") for row in found.cannot.itertuples()]:
        parts.append(_listed("cannot be judged here", reasons, "bold", 1, 2))
    lines = [("differs", line) for line in published.differs]
    lines += [("left out", published.missing)] if published.missing else []
    sources = filter(None, pd.concat(frame["source"] for frame in found).unique())
    lines += [("source", source) for source in sources]
    return Group(*parts, _listed("", lines, gap=2))


def verdicts(found: Beside, again: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each conclusion, and each figure of which something is claimed, with the lines of its verdicts.

    again: the command that measures it.
    """
    claimed = found.figures[found.figures["sign"] != ""]
    for frame, lines in ((found.conclusions, _conclusion), (claimed, _claim)):
        for says, rows in frame.groupby("says", sort=False):
            yield str(says), [*lines(rows, again)]


def _claim(rows: pd.DataFrame, again: str) -> Iterator[tuple[str, str]]:
    for row in rows.to_dict("records"):
        if row["verdict"] == ABSENT:
            yield ABSENT, again
            continue
        say = partial(_value, row["column"])
        sure = interval(row["low"], row["high"], say) if row["low"] != row["high"] else ""
        claimed = f"claimed {row['sign']} {say(row['published'])}{_within(row)}"
        yield row["verdict"], f"{row['condition']}: {row['cell']} {say(row['ours'])}{sure}; {claimed}"


def _within(row: Mapping[Hashable, Any]) -> str:
    return f" within {percent(row['within'])}" if row["within"] else ""


def _conclusion(rows: pd.DataFrame, again: str) -> Iterator[tuple[str, str]]:
    """Yield what is published of a conclusion, then what each condition says of it."""
    if published := rows.iloc[0]["published"]:
        yield "published", published
    for row in rows.to_dict("records"):
        if row["verdict"] == ABSENT:
            yield ABSENT, again
            continue
        better, than = (
            f"{row[side]} {_value(column, row[f'{side}_value'])}"
            for side, column in zip(("better", "than"), FIGURES[row["by"]], strict=True)
        )
        than += " one at a time" if row["by"] == PIPELINING else ""
        text = f"{better} is the best of both sides"
        if row["verdict"] != SAME:
            factor, wins = row["times"], f"{row['wins']:.0f} of {count(int(row['rounds']), 'round')}"
            times_better = f"{max(factor, 1 / factor):.2f} times {'better' if factor >= 1 else 'worse'}"
            text = f"{better} against {than}: {times_better}; better in {wins}"
            if pd.notna(row["low"]):
                text += f"; 95 % interval {row['low']:.2f} to {row['high']:.2f} times as good"
            if row["verdict"] == UNSURE and row["rounds"] < row["needed"]:
                text += f" (it takes {row['needed']:.0f})"
            if row["within"]:
                sure = interval(row["low_percent"], row["high_percent"], "{:+.1f} %".format)
                text += f"{sure}; claimed alike{_within(row)}"
        yield row["verdict"], f"{row['condition']}: {text}"


def _front(rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    yield "published", rows.iloc[0]["published"]
    for row in rows.to_dict("records"):
        both = f"in both {row['both']}" if row["both"] else "none in both"
        lacking = f"; not measured here: {row['unmeasured']}" if row["unmeasured"] else ""
        yield "here", f"{row['condition']}: {row['ours']} by the medians; {both}{lacking}"


def _value(column: str, value: float) -> str:
    if pd.isna(value):
        return UNKNOWN
    if column == "latency_s":
        return duration(value)
    return f"{value:.2f} images/s" if column.endswith("_ips") else f"{value / 1024:.4g} KiB"


def _listed(
    head: str, lines: Iterable[tuple[str, str]], style: str = "", gap: int = 1, indent: int = 0
) -> RenderableType:
    """Items under a head, each with its mark or word; lines that continue one are indented."""
    grid = Grid.grid(padding=(0, gap))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for mark, line in lines:
        grid.add_row(mark, Text(line))
    return Group(*([Text(head, style)] if head else []), Padding(grid, (0, 0, 1, indent)))


def write(comparison: Comparison | Beside, folder: Path) -> list[Path]:
    """Write the frames that have rows, and of two runs both: every point, and every condition; returns their paths."""
    if isinstance(comparison, Comparison):
        tables = {"compare.csv": comparison.differences, "compare-fronts.csv": comparison.fronts}
    else:
        tables = {f"{name}.csv": table for name, table in comparison._asdict().items() if len(table)}
    files.claim(folder, *tables)
    return [files.write_table(folder / name, table) for name, table in tables.items()]
