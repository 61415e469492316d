"""A run beside published results, in the terminal and as CSV: what is said, what was measured, whether it holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from pareto.analysis.comparing.published import ABSENT, SAME, UNSURE, Beside, Published
from pareto.analysis.naming import count
from pareto.analysis.statistics.significance import MEASURES
from pareto.analysis.tables.columns import UNKNOWN, Column, figure, framed
from pareto.analysis.tables.compare import listed
from pareto.basics import files
from pareto.remote.link.units import duration


def published_table(published: Published, found: Beside, run: str, command: str) -> RenderableType:
    """The run's answer to each conclusion, fronts and figures side by side, what differs, and the sources.

    run: how it is named. command: what starts this program.
    """
    parts: list[RenderableType] = [Text(f"{published.title}\n{published.link}\nrun: {run}\n")]
    again = f"{command} run {published.sweep}"
    for says, rows in found.conclusions.groupby("says", sort=False):
        parts.append(listed(str(says), _conclusion(rows, again), "bold", 2, 2))
    for says, rows in found.fronts.groupby("says", sort=False):
        parts.append(listed(str(says), _front(rows), "bold", 2, 2))
    if len(found.figures):
        rows = found.figures
        columns = [Column("published", [*rows["says"]])]
        for head, of in (("there", "published"), ("here", "ours")):
            pairs = zip(rows["column"], rows[of], strict=True)
            columns.append(Column(head, [_value(*pair) for pair in pairs]))
        named = (rows["cell"] + " " + rows["condition"]).str.strip().replace("", UNKNOWN)
        title = "figures side by side: other hardware, so no verdict"
        parts.append(framed([*columns, Column("of", [*named])], title))
    lines = [("differs", line) for line in published.differs]
    lines += [("left out", published.missing)] if published.missing else []
    lines += [("source", source) for source in pd.concat(frame["source"] for frame in found).unique()]
    return Group(*parts, listed("", lines, gap=2))


def write(found: Beside, folder: Path) -> list[Path]:
    """Write `conclusions.csv`, `fronts.csv` and `figures.csv`, those that have rows; returns their paths."""
    filled = {f"{name}.csv": table for name, table in found._asdict().items() if len(table)}
    files.claim(folder, *filled)
    return [files.write_table(folder / name, table) for name, table in filled.items()]


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
        text = f"{better} is the best of both sides"
        if row["verdict"] != SAME:
            is_better, times = row["times"] >= 1, max(row["times"], 1 / row["times"])
            text = (
                f"{better} against {than}: {times:.2f} times {'better' if is_better else 'worse'}; better in "
            )
            text += f"{row['wins']:.0f} of {count(int(row['rounds']), 'round')}"
            if row["verdict"] == UNSURE and row["rounds"] < row["needed"]:
                text += f" (it takes {row['needed']:.0f})"
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
    return f"{figure(value, 2)} images/s" if column == "throughput_ips" else f"{value / 1024:.4g} KiB"
