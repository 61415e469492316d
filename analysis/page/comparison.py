"""`compare.html`: two runs beside each other, on the same axes, and every point that both have."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.comparing.between_runs import Comparison
from pareto.analysis.naming import backend_name, backends, cell_names, condition_title
from pareto.analysis.page.chart import LATENCY, THROUGHPUT, Plane, chart
from pareto.analysis.page.conditions import MOST_CELLS
from pareto.analysis.page.document import rendered
from pareto.analysis.page.tables import plain
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.tables.columns import by_backend
from pareto.analysis.tables.compare import front_marks
from pareto.basics import files

FILE = "compare.html"
_SIDES = (("A", "first", "*-"), ("B", "other", "*+"))
"""Each run: its name, how its columns begin, and the marks (`analysis.tables.compare`) of what is on its front."""
_FIRST = [
    *("backend", "point", "point_name", "A_latency_s", "B_latency_s", "latency_difference_percent"),
    *("latency_significant", "throughput_difference_percent"),
]
"""The columns that the table shows at first."""


def write(comparison: Comparison, folder: Path) -> Path:
    """Write the page of two runs and return its path; it is as self-contained as a report's.

    Raises `files.StoreError`, OSError.
    """
    return files.write(files.claim(folder, FILE) / FILE, html(comparison))


def html(comparison: Comparison) -> str:
    """The page: the conclusion, both charts, what differs otherwise, and every point."""
    rows = comparison.differences.head(MOST_CELLS)
    fronts = {tuple(row[key] for key in CONDITION): row for row in comparison.fronts.to_dict("records")}
    shown: list[dict[str, Any]] = []
    first = 0
    for _, group in rows.groupby(CONDITION, dropna=False, observed=True, sort=False):
        of = by_backend(group, "point")
        on_fronts = dict(front_marks(fronts.get(tuple(of.iloc[0][CONDITION]), {})))
        sides = {name: _side(of, on_fronts, side, on) for name, side, on in _SIDES}
        plane = Plane.of(pd.concat(sides.values()))
        named = of.assign(backend=of["backend"].map(backend_name)).rename(columns=_by_run)
        names = dict.fromkeys([*_FIRST, *named.columns.difference(CONDITION, sort=False)])
        shown.append(
            {
                "name": condition_title(of.iloc[0]),
                "title": condition_title(of.iloc[0]),
                "significant": int((of["latency_significant"] | of["throughput_significant"]).sum()),
                "rounds": [int(of[f"{side}_rounds"].median()) for _, side, _ in _SIDES],
                "charts": [
                    (name, chart(each, backends(rows), first, "all", plane)) for name, each in sides.items()
                ],
                "columns": list(plain(named, names, plane.unit)),
                "first": first,
            }
        )
        first += len(of)
    return rendered(
        "comparison.html",
        comparison=comparison,
        names=[Path(name).name for name in comparison.names],
        # A sentence a condition, in the same order.
        answers=[(line, [place] * (place < len(shown))) for place, line in enumerate(comparison.sentences)],
        conditions=shown,
        most=MOST_CELLS,
        data=[],
    )


def _by_run(column: str) -> str:
    """The column's name on the page: `A_latency_s` of `first_latency_s`."""
    side, _, rest = column.partition("_")
    names = {begins: name for name, begins, _ in _SIDES}
    return f"{names[side]}_{rest}" if side in names else column


def _side(rows: pd.DataFrame, on_fronts: dict[str, str], side: str, on: str) -> pd.DataFrame:
    """The rows of one run's chart."""
    found = cell_names(rows).map(lambda cell: on_fronts.get(cell, " "))
    is_on = found.str[0].isin(list(on))
    figures = {name: rows[f"{side}_{name}"] for name in (LATENCY[0], THROUGHPUT[0])}
    return rows[["backend", "point", "point_name"]].assign(
        **dict.fromkeys((*LATENCY[1:], *THROUGHPUT[1:]), math.nan),
        **figures,
        on=is_on,
        state=np.where(is_on, np.where(found.str.endswith("?"), "unsure", "front"), "dominated"),
        feasible=True,
    )
