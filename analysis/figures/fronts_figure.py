"""The fronts of one model across profiles: small multiples."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.drawing import Drawing
from analysis.figures.front_figure import DATA, key
from analysis.figures.labels import settle
from analysis.figures.plane import OBJECTIVES, Plane, extent
from analysis.figures.style import LOG_RANGE, blank, figure_head, fit_axis, footnote, grow, styled
from analysis.naming import in_flight, time_unit

COLUMNS = {"column": 2, "page": 3}
"""Panels side by side."""
LABELS = {"column": 3, "page": 5}
"""Points numbered in a panel."""
LEAST_SHARE = 0.3
"""Axes are shared where the points of every panel take up at least this share of them."""

_PANEL_IN = {"column": 1.45, "page": 1.95}
_MARKER_PT = {"column": 3.0, "page": 4.0}


def fronts_figure(
    rows: pd.DataFrame, *, attainment: pd.DataFrame | None = None, width: str = "page"
) -> Figure:
    """A panel for each profile (and batch size, and depth), from rows of `analysis.front` of one model.

    Panels are in order of their points' median latency. They are drawn as `front_figure` is, and numbered are a few
    points that no backend's point dominates. Latency, and throughput, have the same axis in all panels if every
    panel's points fill enough of it (`LEAST_SHARE`), else an axis for each. A condition without a valid trial has an
    empty panel that says so.
    """
    found = panels(rows)
    measured = _measured(rows)
    columns = min(COLUMNS[width], len(found))
    lines = -(-len(found) // columns)
    with styled(width):
        figure = blank(width, 0.35 + _PANEL_IN[width] * lines)
        footnote(figure, rows)
        grid = figure.subplots(lines, columns, squeeze=False)
        # Of the quickest panel: seconds would make nothing but zeros of it.
        unit = time_unit(min(float(group["latency_s"].max()) for _, group in found if len(_measured(group))))
        whole, planes = Plane(grid[0, 0], measured, unit=unit), []
        common = {name: shared(rows, words, of) for name, words, of in OBJECTIVES}
        for axes, (title, group) in zip(grid.ravel(), found, strict=False):
            axes.set_title(title, loc="left", fontsize="medium", fontweight="bold", pad=3)
            own = _measured(group)
            if own.empty:
                _empty(axes)
                continue
            plane = Plane(axes, own, measured, unit)
            for name, words, of in OBJECTIVES:
                scale = plane.scale if name == "x" else 1
                fit_axis(axes, name, extent(measured if common[name] else own, words, of) * scale)
            plane.draw(attainment, marker_pt=_MARKER_PT[width], fit=False)
            planes.append(plane)
        _frame(grid, len(found), len(planes), common)
        figure.supylabel("throughput (images/s)", fontsize="medium")
        for axes in grid.ravel()[max(len(planes) - columns, 0) : len(planes)]:
            axes.set_xlabel(f"latency ({whole.unit})")
        entries = whole.legend()
        head_in = figure_head(figure, f"Fronts of {rows['model'].iloc[0]} across profiles", entries)
        grow(figure, head_in)
        settle(figure)
        for plane in planes:
            plane.label(LABELS[width])
    return figure


def fronts_drawing(
    rows: pd.DataFrame, name: tuple[str, ...], conditions: str, attainment: pd.DataFrame | None = None
) -> Drawing:
    """`fronts_figure` with its data and caption; `conditions` as of `drawing.conditions`."""
    free = [words for axis, words, of in OBJECTIVES if not shared(rows, words, of)]
    scales = (
        f"Mind the axes: each panel has its own for {' and '.join(free)}."
        if free
        else "All panels share their axes."
    )
    return Drawing(
        "fronts",
        name,
        lambda width: fronts_figure(rows, attainment=attainment, width=width),
        rows[[column for column in DATA if column in rows]],
        f"The fronts across profiles, a panel for each. {conditions} {scales} {key(rows, attainment)}",
    )


def panels(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Title and rows of each panel, from the quickest profile to the slowest."""
    by = [
        "netem",
        *(c for c in ("batch_size", "in_flight_asked", "setup") if c in rows and rows[c].nunique() > 1),
    ]
    groups = [group for _, group in rows.groupby(by, dropna=False, sort=True)]
    # Stable, and NaN (nothing measured) last.
    medians = pd.Series([group["latency_s"].median() for group in groups])
    ordered = [groups[place] for place in medians.sort_values(kind="stable").index]
    return [(_title(group.iloc[0], by), group) for group in ordered]


def shared(rows: pd.DataFrame, figure: str, unit: str) -> bool:
    """Whether all panels may have the same axis for `figure`."""
    measured = _measured(rows)
    column = f"{figure}_{unit}"
    every = measured[column]
    logarithmic = every.min() > 0 and every.max() / every.min() > LOG_RANGE
    spans = [_span(_measured(group)[column], logarithmic=logarithmic) for _, group in panels(measured)]
    spans = [span for span in spans if span > 0]
    return not spans or min(spans) / _span(every, logarithmic=logarithmic) >= LEAST_SHARE


def _span(values: pd.Series, *, logarithmic: bool) -> float:
    low, high = float(values.min()), float(values.max())
    return math.log(high / low) if logarithmic else high - low


def _title(first: pd.Series, by: list[str]) -> str:
    """`wifi`, or `wifi, batch size 8, 4 in flight` where profiles alone do not tell the panels apart."""
    parts = [str(first["netem"])]
    parts += [f"batch size {first['batch_size']}"] if "batch_size" in by else []
    parts += [in_flight(first["in_flight_asked"]) or "auto in flight"] if "in_flight_asked" in by else []
    parts += [str(first["setup"])] if "setup" in by else []
    return ", ".join(part for part in parts if part)


def _measured(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.dropna(subset=["latency_s", "throughput_ips"])


def _empty(axes: Axes) -> None:
    axes.text(0.5, 0.5, "no valid trial", transform=axes.transAxes, ha="center", color="0.4")
    axes.set(xticks=[], yticks=[])


def _frame(grid: npt.NDArray[Any], count: int, drawn: int, common: dict[Literal["x", "y"], bool]) -> None:
    """Take away panels that are not needed; label shared axes at the edge of those drawn, which come first."""
    columns = grid.shape[1]
    for number, axes in enumerate(grid.ravel()):
        if number >= count:
            axes.remove()
            continue
        if common["y"] and number % columns:
            axes.tick_params(labelleft=False)
        if common["x"] and number + columns < drawn:
            axes.tick_params(labelbottom=False)
