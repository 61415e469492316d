"""The kinds of figures, and which conditions have them: known before any is drawn, and without matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from pareto.analysis.findings import FIGURE, Findings, figure_name
from pareto.analysis.points import CONDITION

KINDS = (
    *("front", "fronts", "attribution", "tail", "utilization", "cuts", "energy", "bound", "payload"),
    *("paired", "paired-codecs", "paired-engines", "pipelining", "best-map", "link-asked", "predicted"),
    *("answer", "accuracy", "rate-quality"),
)
"""The beginnings of the names of figures' and LaTeX tables' files."""
MOST_CONDITIONS = 12
"""With more conditions than this the figures of each are drawn only on request: they take seconds each."""


def worth_showing(front: pd.DataFrame) -> pd.DataFrame:
    """The rows of the conditions with a feasible point, and of those without a valid trial."""
    wanted = front["feasible"] | (front["rounds"] == 0)
    kept: pd.DataFrame = front[
        wanted.groupby([front[key] for key in CONDITION], dropna=False).transform("any")
    ]
    return kept


def latex_rows(findings: Findings) -> Iterator[tuple[tuple[str, ...], pd.DataFrame, pd.DataFrame]]:
    """Yield each condition that has a figure: its name, its rows of the front, and its rows of the pairs."""
    for key, rows in worth_showing(findings.front).groupby(CONDITION, dropna=False):
        if rows["rounds"].any():
            yield figure_name(rows, findings.front), rows, part_of(findings.paired, key, CONDITION)


def part_of(frame: pd.DataFrame, key: tuple[Any, ...], columns: list[str] = FIGURE) -> pd.DataFrame:
    """The rows of a frame that belong to one figure. key: the values of these columns."""
    return frame[frame[columns].eq(pd.Series(key, columns)).all(axis=1)]
