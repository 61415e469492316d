"""Measured against bound: how far each point is from what physics allows, in latency and in throughput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.figures import style
from analysis.figures.axes import fit_axis
from analysis.figures.drawing import POINT, Drawing, caption
from analysis.figures.labels import DOWN_RIGHT, UP_LEFT, Label, place_labels, settle
from analysis.figures.style import entry
from analysis.naming import cell_name, subject, time_unit

MARKER_PT = 4.5
WORST = 3
"""How many points are numbered: those farthest from their bound. Every point beyond its bound is numbered too."""
NAMED = 8
"""Up to this many points beyond their bound are named in the caption."""
ROUNDING = 1e-6
"""Medians are written with nine digits: one that is beyond its bound by less than this share may be within it."""


@dataclass(frozen=True)
class Measure:
    """A figure that has a bound. `nine_tenths`: measured over bound where it is 90 % of what is possible."""

    name: str
    column: str
    bound: str
    efficiency: str
    nine_tenths: float


MEASURES = (
    Measure("latency", "latency_s", "latency_bound_s", "latency_efficiency", 1 / 0.9),
    Measure("throughput", "throughput_ips", "throughput_bound_ips", "throughput_efficiency", 0.9),
)


def bound_figure(rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """Latency and throughput of one model, profile and batch size, each over its bound; rows of `analysis.front`.

    A point on the diagonal is at its bound; the dashed line is 90 % of what is possible. A point beyond its bound,
    which cannot be, is ringed and numbered, as are the `WORST` farthest from it. Both scales of a panel are the same,
    logarithmic if the figures differ by more than `axes.LOG_RANGE`.
    """
    shown = [measure for measure in MEASURES if len(known(rows, measure))]
    side_by_side = width == "page"
    with style.blank(width, 3.2 if side_by_side else 2.6 * len(shown), rows) as figure:
        shape = (1, len(shown)) if side_by_side else (len(shown), 1)
        panels = figure.subplots(*shape, squeeze=False).ravel()
        for axes, measure in zip(panels, shown, strict=True):
            _draw(axes, rows, measure)
        title = f"Measured against bound: {subject(rows.iloc[0])}"
        style.grow(figure, style.figure_head(figure, title, _legend(rows, shown)))
        settle(figure)
        for axes, measure in zip(panels, shown, strict=True):
            _label(axes, rows, measure)
    return figure


def draw_bound(axes: Axes, rows: pd.DataFrame, measure: Measure) -> None:
    """Draw one of the panels on axes of the caller's."""
    _draw(axes, rows, measure)
    title = f"{measure.name.capitalize()} against bound: {subject(rows.iloc[0])}"
    style.head(axes, title, _legend(rows, [measure]))
    style.root(axes).draw_without_rendering()
    _label(axes, rows, measure)


def bound_drawing(rows: pd.DataFrame, conditions: str) -> Drawing | None:
    """`bound_figure` with its data and caption; None if no bound is known. `conditions` as of `drawing.conditions`."""
    if not any(len(known(rows, measure)) for measure in MEASURES):
        return None
    text = caption(
        "Latency and throughput as measured, over the bound that the stages' own times and the link set",
        conditions,
        "On the solid line a point is at its bound, on the dashed one at 90 % of what is possible",
        "Latencies are above the line, throughputs below it",
        f"Numbered: the {WORST} points farthest from their bound",
        *(_impossible(rows, measure) for measure in MEASURES),
    )
    data = rows[[*POINT, *(column for of in MEASURES for column in (of.column, of.bound, of.efficiency))]]
    return Drawing("bound", lambda width: bound_figure(rows, width=width), data, text)


def beyond(rows: pd.DataFrame, measure: Measure) -> pd.Series:
    """Return which points are better than their bound: a fault of the measurement or of the bound."""
    better: pd.Series = rows[measure.efficiency] > 1 + ROUNDING
    return better


def _impossible(rows: pd.DataFrame, measure: Measure) -> str:
    those = rows[beyond(rows, measure)]
    if those.empty:
        return ""
    named = ", ".join(cell_name(row) for row in those.head(NAMED).to_dict("records"))
    named += f" and {len(those) - NAMED} more" if len(those) > NAMED else ""
    by = float(those[measure.efficiency].max()) - 1
    return (
        f"Ringed: beyond its bound in {measure.name}, which cannot be ({named}; by up to {100 * by:.2g} %)."
    )


def known(rows: pd.DataFrame, measure: Measure) -> pd.DataFrame:
    """Return the rows of which both the figure and its bound are known."""
    both = rows.dropna(subset=[measure.column, measure.bound])
    return both[np.isfinite(both[measure.bound])]


def _scaled(rows: pd.DataFrame, measure: Measure) -> tuple[pd.DataFrame, str]:
    """Return the rows with `x` (bound) and `y` (measured) in the unit of the axes, and this unit."""
    those = known(rows, measure)
    unit, scale = "images/s", 1.0
    if measure.name == "latency":
        unit, scale = time_unit(float(those[[measure.column, measure.bound]].max(axis=None)))
    return those.assign(x=those[measure.bound] * scale, y=those[measure.column] * scale), unit


def _draw(axes: Axes, rows: pd.DataFrame, measure: Measure) -> None:
    scaled, unit = _scaled(rows, measure)
    both = pd.concat([scaled["x"], scaled["y"]])
    for name in ("x", "y"):
        fit_axis(axes, name, both, 0.08)
    axes.grid(True)
    axes.set_xlabel(f"bound ({unit})")
    axes.set_ylabel(f"{measure.name} ({unit})")
    ends = np.array(axes.get_xlim())
    beyond_it = ends[0] if measure.nine_tenths > 1 else ends[1]
    axes.fill_between(ends, ends, [beyond_it] * 2, zorder=0.5, **_IMPOSSIBLE)
    axes.plot(ends, ends, color="0.25", linewidth=0.9, zorder=1.5)
    axes.plot(ends, ends * measure.nine_tenths, "--", color="0.45", linewidth=0.8, zorder=1.5)
    axes.set(xlim=ends, ylim=ends)
    for one in style.scattered(scaled, rows):
        axes.plot(one.rows["x"], one.rows["y"], **one.mark(MARKER_PT, markerfacecolor="none"), zorder=3)
    those = scaled[beyond(scaled, measure)]
    axes.plot(those["x"], those["y"], **_RING, zorder=4)


_IMPOSSIBLE: dict[str, Any] = {"facecolor": "0.93", "hatch": "////", "edgecolor": "0.86", "linewidth": 0}
_RING: dict[str, Any] = {
    "linestyle": "", "marker": "o", "markersize": 2.2 * MARKER_PT, "markerfacecolor": "none",
    "markeredgecolor": "black", "markeredgewidth": 1.1,
}  # fmt: skip


def _legend(rows: pd.DataFrame, shown: Sequence[Measure]) -> list[Artist]:
    return [
        *(entry(one.label, **one.mark(MARKER_PT, markerfacecolor="none")) for one in style.scattered(rows)),
        entry("bound", color="0.25", linewidth=0.9, linestyle="-"),
        entry("90 % of it", color="0.45", linewidth=0.8, linestyle="--"),
        Patch(**_IMPOSSIBLE, label="cannot be"),
        *([entry("beyond its bound", **_RING)] if any(beyond(rows, each).any() for each in shown) else []),
    ]


def _label(axes: Axes, rows: pd.DataFrame, measure: Measure) -> None:
    scaled, _ = _scaled(rows, measure)
    worst = scaled.sort_values(measure.efficiency, kind="stable").index[:WORST]
    named = scaled.index.isin(worst) | beyond(scaled, measure)
    away = UP_LEFT if measure.name == "latency" else DOWN_RIGHT
    ends = np.array(axes.get_xlim())
    place_labels(
        axes,
        [
            Label(row["x"], row["y"], str(row["point"]), one.colour, away)
            for one in style.scattered(scaled, rows)
            for _, row in one.rows.iterrows()
            if named[row.name]
        ],
        markers=scaled[["x", "y"]].to_numpy(),
        marker_pt=np.where(beyond(scaled, measure), _RING["markersize"], MARKER_PT) + 1,
        lines=[(ends, ends), (ends, ends * measure.nine_tenths)],
    )
