"""The areas of a map of delays and rates: where each point and backend is predicted to be the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from scipy import ndimage

from pareto.analysis.advice.predict import Predictor, best_on_grid, margin_on_grid
from pareto.analysis.figures.axes import Scale
from pareto.analysis.figures.style import SMALL_PT
from pareto.analysis.naming import family, transport
from pareto.analysis.statistics.samples import Floats

Cell = tuple[str, str]
"""Point and backend; the backend is empty where nothing crosses."""

FINENESS = (360, 420)
"""How many delays and how many rates are computed."""
UNDECIDED = "\\\\\\"
"""The hatch where two points are too close to call."""


def areas(
    predictor: Predictor, delays: Scale, rates: Scale, objective: str
) -> dict[Cell, npt.NDArray[np.bool_]]:
    """The cells that `predictor` puts first somewhere, with the way back not shaped, and where: on a grid of the steps
    of two scales (rows: delays, columns: rates).
    """
    which = best_on_grid(predictor, delays.values(FINENESS[0]), rates.values(FINENESS[1]), objective)
    points, backends = (predictor.cells[column].astype(str) for column in ("point", "backend"))
    return {(points.iloc[best], backends.iloc[best]): which == best for best in np.unique(which)}


def undecided(
    predictor: Predictor, delays: Scale, rates: Scale, objective: str, error: float
) -> npt.NDArray[np.bool_]:
    """The places, on the grid of `areas`, where the best of another point is behind by less than the prediction's
    `error`, a share.
    """
    behind = margin_on_grid(predictor, delays.values(FINENESS[0]), rates.values(FINENESS[1]), objective)
    close: npt.NDArray[np.bool_] = behind < error
    return close


def soften(axes: Axes, where: npt.NDArray[np.bool_]) -> None:
    """Let areas fade where they are `undecided`, their borders with them; hatched, as the palest is nearly white."""
    if where.any():
        height, width = FINENESS
        x, y = np.linspace(0, 1, width), np.linspace(0, 1, height)
        axes.contourf(x, y, where, levels=[0.5, 1.5], colors=["white"], alpha=0.6, zorder=1.4)
        close = axes.contourf(x, y, where, levels=[0.5, 1.5], colors="none", hatches=[UNDECIDED], zorder=1.5)
        close.set(edgecolor="0.6", linewidth=0)


def cell_name(cell: Cell) -> str:
    """`14 tcp`, or `21, all on the edge`."""
    return " ".join(cell) if cell[1] else f"{cell[0]}, all on the edge"


def hatch(cell: Cell) -> str:
    """The hatch that tells the backends of one point apart; tcp has none."""
    backend = cell[1].partition(" ")[0]
    if transport(backend) in ("", "tcp"):
        return ""
    return "...." if family(backend) == "tcp" else "////"


def colours_of(cells: Sequence[Cell]) -> dict[Cell, Any]:
    """A colour for each point and codec: the later the cut, the darker; light enough for black letters."""
    ordered = sorted(set(cells), key=lambda cell: cell[1])
    ordered.sort(key=lambda cell: int(cell[0]))
    places = {cell: (cell[0], cell[1].partition(" ")[2]) for cell in ordered}
    each = list(dict.fromkeys(places.values()))
    shade = dict(zip(each, np.linspace(0.04, 0.5, len(each)), strict=True))
    return {cell: colormaps["YlGnBu"](shade[places[cell]]) for cell in ordered}


def draw_areas(
    axes: Axes,
    of_cells: Mapping[Cell, npt.NDArray[np.bool_]],
    colours: Mapping[Cell, Any],
    dots: Floats,
    panel_pt: tuple[float, float],
) -> set[Cell]:
    """Draw the areas and name each where it is widest. Returns those that have no room for a name."""
    height, width = FINENESS
    x, y = (np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height
    # The outermost steps are half a step from the frame: the areas are to reach it.
    x[[0, -1]], y[[0, -1]] = (0, 1), (0, 1)
    step_pt = panel_pt[1] / height, panel_pt[0] / width
    small = set()
    for cell, inside in of_cells.items():
        if len(of_cells) == 1:
            axes.set_facecolor(colours[cell])
        else:
            area = axes.contourf(
                x, y, inside, levels=[0.5, 1.5], colors=[colours[cell]], hatches=[hatch(cell)], zorder=1
            )
            area.set(edgecolor="0.55", linewidth=0)
            axes.contour(x, y, inside, levels=[0.5], colors="0.35", linewidths=0.5, zorder=1.2)
        name = cell_name(cell)
        for angle in (0, 90):
            if place := _widest(inside, x, y, dots, step_pt, panel_pt, 3.4 * len(name), upright=angle > 0):
                look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL_PT + 0.5}
                axes.text(*place, name, rotation=angle, zorder=2, **look)
                break
        else:
            small.add(cell)
    return small


def _widest(
    inside: npt.NDArray[np.bool_],
    x: Floats,
    y: Floats,
    dots: Floats,
    step_pt: tuple[float, float],
    panel_pt: tuple[float, float],
    text_pt: float,
    *,
    upright: bool,
) -> tuple[float, float] | None:
    """The place where an area is widest (or, for a text that stands upright, highest), clear of marks and their names;
    None if a text this long does not fit.
    """
    free = inside.copy()
    for dot_x, dot_y in dots:
        near_x, near_y = (np.abs(x - dot_x) * panel_pt[0] < 34), (np.abs(y - dot_y) * panel_pt[1] < 20)
        free &= ~(near_y[:, None] & near_x[None, :])
    free[[0, -1], :] = free[:, [0, -1]] = False
    # Texts are long: what counts is the room before and behind them.
    along = (1.0, 2.2) if upright else (2.2, 1.0)
    room_pt = ndimage.distance_transform_edt(free, sampling=(along[0] * step_pt[0], along[1] * step_pt[1]))
    row, column = np.unravel_index(int(np.argmax(room_pt)), room_pt.shape)
    return (x[column], y[row]) if room_pt[row, column] > max(text_pt / 2, 9) else None
