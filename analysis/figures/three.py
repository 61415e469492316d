"""Two of three objectives as a panel: points on the front of all three are filled and numbered, the others hollow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pareto.analysis.figures import style
from pareto.analysis.figures.axes import fit_axis
from pareto.analysis.figures.labels import DOWN_LEFT, UP_LEFT, UP_RIGHT, Label, place_labels
from pareto.analysis.figures.style import Series, entry
from pareto.analysis.statistics.samples import Floats

MARKER_PT = 4.5
COLUMN_LABELS = 8
"""How many points are numbered in a panel at column width."""
HOLLOW: dict[str, Any] = {"markerfacecolor": "none", "alpha": 0.5}
_ARROWS = {
    UP_LEFT: "\N{NORTH WEST ARROW}",
    UP_RIGHT: "\N{NORTH EAST ARROW}",
    DOWN_LEFT: "\N{SOUTH WEST ARROW}",
}


def grid(
    figure: Figure, rows: pd.DataFrame, third: str, label: str, unit: str, *, shares: bool = False
) -> tuple[Axes, Axes, Axes, Axes]:
    """Panels of latency and throughput, third objective and throughput, latency and third objective; and a free one.

    A column shares its horizontal axis and a row its vertical one, so that a point is found again. rows: have
    `latency` (in `unit`), `throughput_ips` and the column `third`, whose axis is labelled so. shares: of
    `fit_axis`.
    """
    plane, by_throughput, by_latency, free = figure.subplots(2, 2).ravel()
    plane.sharex(by_latency)
    plane.sharey(by_throughput)
    plane.tick_params(labelbottom=False)
    by_throughput.tick_params(labelleft=False)
    by_latency.set_xlabel(f"latency ({unit})")
    by_throughput.set_xlabel(label)
    plane.set_ylabel("throughput (images/s)")
    by_latency.set_ylabel(label)
    fit_axis(plane, "y", rows["throughput_ips"])
    fit_axis(by_latency, "x", rows["latency"])
    fit_axis(by_latency, "y", rows[third], shares=shares)
    fit_axis(by_throughput, "x", rows[third], shares=shares)
    return plane, by_throughput, by_latency, free


def fills(on_front: pd.Series, words: str) -> list[Line2D]:
    """Entries of a legend: a filled mark is on the front, in these words; a hollow one is dominated."""
    looks: dict[str, dict[str, Any]] = {words: {"markerfacecolor": "0.35"}, "dominated": HOLLOW}
    return [
        entry(text, marker="o", color="0.35", markersize=MARKER_PT, **look)
        for (text, look), is_on in zip(looks.items(), (True, False), strict=True)
        if on_front.astype(bool).eq(is_on).any()
    ]


class Panel:
    """A panel: two of the three objectives, as columns of the rows."""

    def __init__(
        self,
        axes: Axes,
        x: str,
        y: str,
        best: float,
        on_front: str,
        diameter: Callable[[pd.DataFrame], Floats] | None = None,
    ) -> None:
        """`best`: where the best corner lies (radians), beyond which there is room for labels. `on_front`: the column
        that says which points are filled and numbered. `diameter`: of markers (points), by rows.
        """
        self._axes, self._x, self._y, self._best, self._on_front = axes, x, y, best, on_front
        self._diameter = diameter or (lambda rows: np.full(len(rows), MARKER_PT))

    def draw(self, drawn: Sequence[Series]) -> None:
        self._axes.grid(True)
        self._axes.set_title(
            f"{_ARROWS[self._best]} better", loc="left", fontsize=7, fontweight="normal", color="0.4"
        )
        for one in drawn:
            for on_front, rows in one.rows.groupby(self._on_front):
                self._axes.scatter(
                    rows[self._x],
                    rows[self._y],
                    s=self._diameter(rows) ** 2,
                    marker=one.marker,
                    facecolors=one.colour if on_front else HOLLOW["markerfacecolor"],
                    edgecolors=one.colour,
                    linewidths=0.9,
                    alpha=1 if on_front else HOLLOW["alpha"],
                    zorder=4 if on_front else 3,
                )

    def number(self, drawn: Sequence[Series], most: int | None) -> None:
        front = [(one, row) for one in drawn for _, row in one.rows.iterrows() if row[self._on_front]]
        every = pd.concat([one.rows for one in drawn])
        place_labels(
            self._axes,
            [
                Label(row[self._x], row[self._y], str(row["point"]), one.colour, self._best)
                for one, row in (style.evenly(front, most) if most else front)
            ],
            markers=every[[self._x, self._y]].to_numpy(),
            marker_pt=self._diameter(every) + 1,
        )
