"""Measured against predicted: how far a model profile's forecasts are off, in latency and in throughput."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import fit_axis
from pareto.analysis.figures.drawing import Drawing, caption
from pareto.analysis.figures.labels import Label, place_labels, settle
from pareto.analysis.figures.style import entry
from pareto.analysis.naming import subject, time_unit
from pareto.analysis.prediction.compared import OBJECTIVES, Errors
from pareto.remote.link.units import percent

MARKER_PT = 4.5
WORST = 3
"""How many points are numbered: those farthest from what was predicted."""
OFF = 0.1
"""The dashed lines are this share off."""


def predicted_drawing(rows: pd.DataFrame, conditions: str) -> Drawing | None:
    """`predicted_figure` with its data and caption; None without a forecast. conditions: of `drawing.conditions`.

    rows: of one condition, of `analysis.prediction.compared.compared`.
    """
    if rows.empty:
        return None
    errors = {name: Errors.of(rows[f"{name}_off"].to_numpy(dtype=np.float64)) for name in OBJECTIVES}
    off = "; ".join(
        f"{name} off by {percent(each.median)} (median), {percent(each.worst)} (worst)"
        for name, each in errors.items()
        if math.isfinite(each.median)
    )
    text = caption(
        "Latency and throughput as measured, over what a model profile predicted without a trial",
        conditions,
        f"On the solid line a point is as predicted; between the dashed ones within {percent(OFF)} of it",
        "Bars: a standard deviation of the forecast",
        f"At {len(rows)} points: {off}",
        f"Numbered: the {WORST} points farthest from the forecast",
    )
    return Drawing("predicted", lambda width: predicted_figure(rows, width=width), rows, text)


def predicted_figure(rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """A panel for each objective: what was measured over what was predicted, with the forecast's error."""
    rows = rows.assign(on_backend_front=False, on_fronts_of="")  # series want them; no front is drawn here
    side_by_side = width == "page"
    with style.blank(width, 3.2 if side_by_side else 5.2) as figure:
        shape = (1, len(OBJECTIVES)) if side_by_side else (len(OBJECTIVES), 1)
        panels = figure.subplots(*shape, squeeze=False).ravel()
        for axes, objective in zip(panels, OBJECTIVES, strict=True):
            _draw(axes, _scaled(rows, objective)[0], objective, _scaled(rows, objective)[1])
        entries = [
            entry(one.label, **one.mark(MARKER_PT, markerfacecolor="none")) for one in style.scattered(rows)
        ]
        entries += [
            entry("as predicted", color="0.25", linewidth=0.9, linestyle="-"),
            entry(f"{percent(OFF)} off", color="0.45", linewidth=0.8, linestyle="--"),
        ]
        title = f"Measured against predicted: {subject(rows.iloc[0])}"
        heads.grow(figure, heads.figure_head(figure, title, entries))
        settle(figure)
        for axes, objective in zip(panels, OBJECTIVES, strict=True):
            _label(axes, _scaled(rows, objective)[0], objective)
    return figure


def _scaled(rows: pd.DataFrame, objective: str) -> tuple[pd.DataFrame, str]:
    """The rows that have the figure, with `x` (predicted), its `bar`, and `y` (measured) in the unit of the axes; and
    this unit.
    """
    column = OBJECTIVES[objective]
    rows = rows[rows[column].notna()]
    predicted = rows[f"predicted_{column}"]
    unit, scale = "images/s", 1.0
    if objective == "latency" and len(rows):
        unit, scale = time_unit(float(max(predicted.max(), rows[column].max())))
    bar = predicted * rows[f"{objective}_error"] * scale
    return rows.assign(x=predicted * scale, y=rows[column] * scale, bar=bar), unit


def _draw(axes: Axes, scaled: pd.DataFrame, objective: str, unit: str) -> None:
    if scaled.empty:
        axes.set_axis_off()
        return
    both = pd.concat([scaled["x"], scaled["y"]])
    fit_axis(axes, "x", both, 0.08)
    fit_axis(axes, "y", both, 0.08)
    axes.grid(True)
    axes.set_xlabel(f"predicted {objective} ({unit})")
    axes.set_ylabel(f"measured ({unit})")
    ends = np.array(axes.get_xlim())
    axes.plot(ends, ends, color="0.25", linewidth=0.9, zorder=1.5)
    for share in (1 - OFF, 1 + OFF):
        axes.plot(ends, ends * share, "--", color="0.45", linewidth=0.8, zorder=1.5)
    axes.set(xlim=ends, ylim=ends)
    for one in style.scattered(scaled):
        own = one.rows
        axes.errorbar(
            own["x"], own["y"], xerr=own["bar"], fmt="none", ecolor=one.colour, elinewidth=0.7, zorder=2.5
        )
        axes.plot(own["x"], own["y"], **one.mark(MARKER_PT, markerfacecolor="none"), zorder=3)


def _label(axes: Axes, scaled: pd.DataFrame, objective: str) -> None:
    if scaled.empty:
        return
    worst = scaled[f"{objective}_off"].abs().sort_values(ascending=False, kind="stable").index[:WORST]
    ends = np.array(axes.get_xlim())
    place_labels(
        axes,
        [
            Label(row["x"], row["y"], str(row["point"]), one.colour, 0.75 * np.pi)
            for one in style.scattered(scaled)
            for _, row in one.rows.iterrows()
            if row.name in worst
        ],
        markers=scaled[["x", "y"]].to_numpy(),
        marker_pt=MARKER_PT + 1,
        lines=[(ends, ends)],
    )
