"""Measured against bound: how far each point is from what physics allows, in latency and in throughput."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import MANY, in_order, label_points, places
from pareto.analysis.figures.drawing import POINT, Drawing, caption
from pareto.analysis.figures.style import entry
from pareto.analysis.naming import subject

MARKER_PT = 4.5


@dataclass(frozen=True)
class Measure:
    """A figure that has a bound."""

    name: str
    column: str
    bound: str
    efficiency: str


MEASURES = (
    Measure("latency", "latency_s", "latency_bound_s", "latency_efficiency"),
    Measure("throughput", "throughput_ips", "throughput_bound_ips", "throughput_efficiency"),
)


def bound_figure(rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """Draw how much of what is possible each point reaches, latency above throughput; rows of `analysis.front`.

    At 100 % a point is at its bound. None is beyond it: such a trial does not count (`analysis.standing`).
    """
    shown = [measure for measure in MEASURES if len(known(rows, measure))]
    with style.blank(width, 0.9 + 1.3 * len(shown), rows) as figure:
        panels = figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
        for axes, measure in zip(panels, shown, strict=True):
            _draw(axes, rows, measure)
        label_points(panels[-1], in_order(rows))
        title = f"Share of the bound: {subject(rows.iloc[0])}"
        heads.grow(figure, heads.head(panels[0], title, _legend(rows)))
    return figure


def draw_bound(axes: Axes, rows: pd.DataFrame, measure: Measure) -> None:
    """Draw one of the panels on axes of the caller's."""
    _draw(axes, rows, measure)
    label_points(axes, in_order(rows))
    title = f"{measure.name.capitalize()}, share of the bound: {subject(rows.iloc[0])}"
    heads.head(axes, title, _legend(rows))


def bound_drawing(rows: pd.DataFrame, conditions: str) -> Drawing | None:
    """`bound_figure` with its data and caption; None if no bound is known. `conditions` as of `drawing.conditions`."""
    if not any(len(known(rows, measure)) for measure in MEASURES):
        return None
    text = caption(
        "How much each partition point reaches of the bound that the stages' own times and the link set: the latency's "
        "bound over the latency, and the throughput over its bound",
        conditions,
        "On the solid line a point is at its bound, on the dashed one at 90 % of what is possible",
    )
    data = rows[[*POINT, *(column for of in MEASURES for column in (of.column, of.bound, of.efficiency))]]
    return Drawing("bound", lambda width: bound_figure(rows, width=width), data, text)


def known(rows: pd.DataFrame, measure: Measure) -> pd.DataFrame:
    """The rows of which both the figure and its bound are known."""
    both = rows.dropna(subset=[measure.column, measure.bound])
    return both[np.isfinite(both[measure.bound])]


def _draw(axes: Axes, rows: pd.DataFrame, measure: Measure) -> None:
    those, points = known(rows, measure), in_order(rows)
    share = 100 * those[measure.efficiency]
    top = max(100.0, float(share.max()))
    axes.set_ylim(0, 1.06 * top)
    axes.grid(True, axis="y")
    axes.set_ylabel(f"{measure.name}\n(% of its bound)")
    axes.axhspan(100, 1.06 * top, zorder=0.5, **_IMPOSSIBLE)
    axes.axhline(100, color="0.25", linewidth=0.9, zorder=1.5)
    axes.axhline(90, color="0.45", linewidth=0.8, linestyle="--", zorder=1.5)
    axes.set_yticks([0, 25, 50, 75, 100])
    drawn = list(style.scattered(those, rows))
    size = MARKER_PT if len(points) <= MANY else 0.5 * MARKER_PT
    crossing = [one for one in drawn if one.label != style.NEUTRAL]
    for number, one in enumerate(drawn):
        aside = 0.7 * (number - (len(crossing) - 1) / 2) / len(crossing) if one in crossing else 0.0
        x = places(one.rows, points) + aside
        axes.plot(x, share[one.rows.index], **one.mark(size), zorder=3)


_IMPOSSIBLE: dict[str, Any] = {"facecolor": "0.93", "hatch": "////", "edgecolor": "0.86", "linewidth": 0}


def _legend(rows: pd.DataFrame) -> list[Artist]:
    return [
        *(entry(one.label, **one.mark(MARKER_PT)) for one in style.scattered(rows)),
        entry("bound", color="0.25", linewidth=0.9, linestyle="-"),
        entry("90 % of it", color="0.45", linewidth=0.8, linestyle="--"),
    ]
