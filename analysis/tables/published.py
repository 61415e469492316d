"""A run beside published results, in the terminal and as CSV: what is said, what was measured, whether it holds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pandas as pd
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pareto.analysis.comparing.published import ABSENT, SAME, UNSURE, Beside, Published
from pareto.analysis.naming import count
from pareto.analysis.statistics.significance import MEASURES
from pareto.analysis.tables.columns import UNKNOWN, Column, figure, framed
from pareto.basics import files
from pareto.remote.link.units import duration


def published_table(published: Published, found: Beside, run: str, command: str) -> RenderableType:
    """The run's answer to each conclusion, fronts and figures side by side, what differs, and the sources.

    run: how it is named. command: what starts this program.
    """
    parts: list[RenderableType] = [Text(f"{published.title}\n{published.link}\nrun: {run}\n")]
    again = f"{command} run {published.sweep}"
    for says, rows in found.conclusions.groupby("says", sort=False):
        parts += _said(str(says), _conclusion(rows, again))
    for says, rows in found.fronts.groupby("says", sort=False):
        parts += _said(str(says), _front(rows))
    if len(found.figures):
        parts.append(_figures(found.figures))
    listed = [("differs", line) for line in published.differs]
    listed += [("left out", published.missing)] if published.missing else []
    sources = (frame["source"] for frame in (found.conclusions, found.fronts, found.figures))
    listed += [("source", source) for source in dict.fromkeys(chain.from_iterable(sources))]
    return Group(*parts, _grid(iter(listed)))


def write(found: Beside, folder: Path) -> list[Path]:
    """Write `conclusions.csv`, `fronts.csv` and `figures.csv`, those that have rows; returns their paths."""
    tables = {name: getattr(found, name) for name in ("conclusions", "fronts", "figures")}
    filled = {f"{name}.csv": table for name, table in tables.items() if len(table)}
    files.claim(folder, *filled)
    return [files.write_table(folder / name, table) for name, table in filled.items()]


def _said(head: str, lines: Iterator[tuple[str, str]]) -> list[RenderableType]:
    return [Text(head, "bold"), Padding(_grid(lines), (0, 0, 1, 2))]


def _grid(lines: Iterator[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for head, text in lines:
        grid.add_row(head, Text(text))
    return grid


def _conclusion(rows: pd.DataFrame, again: str) -> Iterator[tuple[str, str]]:
    """Yield what is published of a conclusion, then what each condition says of it.

    again: the command that measures it.
    """
    if published := rows.iloc[0]["published"]:
        yield "published", published
    for row in rows.to_dict("records"):
        if row["verdict"] == ABSENT:
            yield ABSENT, again
            continue
        better, than = (
            f"{row[side]} {_value(MEASURES[row['by']], row[f'{side}_value'])}" for side in ("better", "than")
        )
        if row["verdict"] == SAME:
            yield SAME, f"{row['condition']}: {better} is the best of both sides"
            continue
        times = row["times"] if row["times"] >= 1 else 1 / row["times"]
        word = "better" if row["times"] >= 1 else "worse"
        too_few = row["verdict"] == UNSURE and row["rounds"] < row["needed"]
        few = f" (it takes {row['needed']:.0f})" if too_few else ""
        by = f"{times:.2f} times {word}; better in {row['wins']:.0f} of {count(int(row['rounds']), 'round')}{few}"
        yield row["verdict"], f"{row['condition']}: {better} against {than}: {by}"


def _front(rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    yield "published", rows.iloc[0]["published"]
    for row in rows.to_dict("records"):
        both = f"in both {row['both']}" if row["both"] else "none in both"
        lacking = f"; not measured here: {row['unmeasured']}" if row["unmeasured"] else ""
        yield "here", f"{row['condition']}: {row['ours']} by the medians; {both}{lacking}"


def _figures(rows: pd.DataFrame) -> RenderableType:
    """Published figures beside ours; of one that was not measured, the published one alone."""
    columns = [
        Column("published", list(rows["says"])),
        Column("there", [_value(*pair) for pair in zip(rows["column"], rows["published"], strict=True)]),
        Column("here", [_value(*pair) for pair in zip(rows["column"], rows["ours"], strict=True)]),
        Column(
            "of", [f"{row['cell']} {row['condition']}".strip() or UNKNOWN for row in rows.to_dict("records")]
        ),
    ]
    return framed(columns, "figures side by side: other hardware, so no verdict")


def _value(column: str, value: float) -> str:
    if pd.isna(value):
        return UNKNOWN
    if column == "latency_s":
        return duration(value)
    return f"{figure(value, 2)} images/s" if column == "throughput_ips" else f"{value / 1024:.4g} KiB"
