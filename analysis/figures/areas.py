"""The areas of a map over delay and rate in which one point (and backend) is the best, and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from scipy import ndimage

from analysis.advice.predict import Predictor, best_on_grid
from analysis.figures.log_scale import Scale
from analysis.figures.style import SMALL_PT
from analysis.fronts.dominance import Floats
from analysis.naming import family, transport

Cell = tuple[str, str]
"""Point and backend; the backend is empty where nothing crosses."""

FINENESS = (360, 420)
"""How many delays and rates are computed."""


@dataclass(frozen=True)
class Areas:
    """Which of `cells` is best at each delay (rows) and rate (columns)."""

    which: npt.NDArray[np.int64]
    cells: list[Cell]


def areas(predictor: Predictor, delays: Scale, rates: Scale, objective: str) -> Areas:
    """What `predictor` puts first in each step of two scales, the way back not shaped."""
    which = best_on_grid(predictor, delays.values(FINENESS[0]), rates.values(FINENESS[1]), objective)
    present, numbers = np.unique(which, return_inverse=True)
    cells = [_cell(row) for row in predictor.cells.iloc[present].to_dict("records")]
    return Areas(numbers.reshape(which.shape), cells)


def _cell(row: Mapping[Any, Any]) -> Cell:
    return str(row["point"]), str(row["backend"])


def cell_name(cell: Cell) -> str:
    """`14 tcp`; `21, all on the edge`."""
    return " ".join(cell) if cell[1] else f"{cell[0]}, all on the edge"


def hatch(cell: Cell) -> str:
    """Areas of one point look alike but for this, where another backend than tcp, or a variant of it, is the best."""
    if transport(cell[1]) in ("", "tcp"):
        return ""
    return "...." if family(cell[1]) == "tcp" else "////"


def colours_of(cells: Sequence[Cell]) -> dict[Cell, Any]:
    """The later the cut, the darker: what runs on the edge, in grey too; light enough for black letters."""
    ordered = sorted(set(cells), key=lambda cell: cell[1])
    ordered.sort(key=lambda cell: int(cell[0]))
    points = list(dict.fromkeys(point for point, _ in ordered))
    shade = dict(zip(points, np.linspace(0.04, 0.5, len(points)), strict=True))
    return {cell: colormaps["YlGnBu"](shade[cell[0]]) for cell in ordered}


def draw_areas(
    axes: Axes, one: Areas, colours: Mapping[Cell, Any], dots: Floats, panel_pt: tuple[float, float]
) -> set[Cell]:
    """Draw the areas, and name each where it is widest; returns those that have no room for a name."""
    height, width = one.which.shape
    x, y = (np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height
    # The outermost steps are half a step from the frame: the areas are to reach it.
    x[[0, -1]], y[[0, -1]] = (0, 1), (0, 1)
    step_pt = panel_pt[1] / height, panel_pt[0] / width
    small = set()
    for number, cell in enumerate(one.cells):
        inside = one.which == number
        if len(one.cells) == 1:
            axes.set_facecolor(colours[cell])
        else:
            area = axes.contourf(
                x, y, inside, levels=[0.5, 1.5], colors=[colours[cell]], hatches=[hatch(cell)], zorder=1
            )
            area.set(edgecolor="0.55", linewidth=0)
            axes.contour(x, y, inside, levels=[0.5], colors="0.35", linewidths=0.5, zorder=1.2)
        place = _widest(inside, x, y, dots, step_pt, panel_pt, 3.4 * len(cell_name(cell)))
        if place is None:
            small.add(cell)
        else:
            axes.text(*place, cell_name(cell), ha="center", va="center", fontsize=SMALL_PT + 0.5, zorder=2)
    return small


def _widest(
    inside: npt.NDArray[np.bool_],
    x: Floats,
    y: Floats,
    dots: Floats,
    step_pt: tuple[float, float],
    panel_pt: tuple[float, float],
    text_pt: float,
) -> tuple[float, float] | None:
    """Where an area is widest, marks and their names left free; None if it has no room for so long a text."""
    free = inside.copy()
    for dot_x, dot_y in dots:
        near_x, near_y = (np.abs(x - dot_x) * panel_pt[0] < 34), (np.abs(y - dot_y) * panel_pt[1] < 20)
        free &= ~(near_y[:, None] & near_x[None, :])
    free[[0, -1], :] = free[:, [0, -1]] = False
    # Texts are wide: what counts is the room to the left and right.
    room_pt = ndimage.distance_transform_edt(free, sampling=(2.2 * step_pt[0], step_pt[1]))
    row, column = np.unravel_index(int(np.argmax(room_pt)), room_pt.shape)
    return (x[column], y[row]) if room_pt[row, column] > max(text_pt / 2, 9) else None
