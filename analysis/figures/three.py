"""Two of three objectives as a panel: points on the front of all three are filled and numbered, the others hollow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figures import style
from analysis.figures.labels import DOWN_LEFT, UP_LEFT, UP_RIGHT, Label, place_labels
from analysis.figures.style import Series
from analysis.statistics.samples import Floats

MARKER_PT = 4.5
COLUMN_LABELS = 8
"""How many points are numbered in a panel at column width."""
HOLLOW: dict[str, Any] = {"markerfacecolor": "none", "alpha": 0.5}
_ARROWS = {
    UP_LEFT: "\N{NORTH WEST ARROW}",
    UP_RIGHT: "\N{NORTH EAST ARROW}",
    DOWN_LEFT: "\N{SOUTH WEST ARROW}",
}


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
