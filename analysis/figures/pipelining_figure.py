"""The gain of many requests in flight: images a second with one of them and with many, point by point."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import MANY, fit_axis, in_order, label_points, places, strip
from pareto.analysis.figures.drawing import Drawing, caption, conditions
from pareto.analysis.figures.style import NEUTRAL, Series, entry
from pareto.analysis.naming import subject
from pareto.analysis.points import AT_WORK, CELL

_BESIDE = 0.7
"""The share of a point's room over which its backends and codecs stand side by side."""
_DRAWN = ["sequential_ips", "throughput_ips", "throughput_bound_ips", "pipeline_gain"]
_BOUND: dict[str, Any] = {"marker": "_", "color": "black", "markersize": 7, "markeredgewidth": 1.1}


def pipelining_drawing(rows: pd.DataFrame, testbed: str = "") -> Drawing | None:
    """The drawing of one condition; None where nothing was measured with one request in flight.

    `rows`: of `analysis.fronts.front.front`.
    """
    measured = rows.dropna(subset=["sequential_ips", "throughput_ips"])
    if measured.empty:
        return None
    text = caption(
        "Images a second at each partition point: with one request in flight (hollow) and with many (filled)",
        "Backends and codecs stand side by side" if len(list(style.scattered(measured))) > 1 else "",
        "Figures above, where there is room: how many times as many, median of the rounds",
        "Dashes: the throughput's bound, what the slowest host or link allows",
        conditions(rows, testbed),
    )
    data = measured[[*CELL, "point_name", "rounds", *_DRAWN]].reset_index(drop=True)
    return Drawing("pipelining", lambda width: pipelining_figure(rows, width=width), data, text)


def pipelining_figure(rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """Draw images/s over the points, sequential and pipelined, and the bound; rows of the front.

    Backends and codecs stand side by side at each point. Above stands the gain, pipelined over sequential, where there
    is room. Logarithmic if the figures span much.
    """
    measured = rows.dropna(subset=["sequential_ips", "throughput_ips"])
    points = in_order(rows)
    drawn = [
        one if one.label == NEUTRAL else replace(one, rows=one.rows[one.rows["codec"] == one.rows[AT_WORK]])
        for one in style.scattered(measured)
    ]
    crossing = [one for one in drawn if one.label != NEUTRAL]
    every = pd.concat([measured[column] for column in _DRAWN[:3]]).dropna()
    with style.blank(width, 2.7 if width == "page" else 2.3, rows) as figure:
        axes = figure.add_subplot()
        at: list[float] = []
        for number, one in enumerate(drawn):
            aside = _BESIDE * (number - (len(crossing) - 1) / 2) / len(crossing) if one in crossing else 0.0
            _draw(axes, one, points, aside)
            at += list(places(one.rows, points) + aside)
        gains = [_gain(gain) for one in drawn for gain in one.rows["pipeline_gain"]]
        closest = len(crossing) / _BESIDE if len(crossing) > 1 else 1
        strip_pt = strip(axes, at, gains, math.ceil(len(points) * closest), width)
        axes.set_ylabel("images/s")
        fit_axis(axes, "y", every, room=0.06)
        label_points(axes, points)
        title = f"Pipelined against sequential: {subject(rows.iloc[0])}"
        marks = [entry(one.label, **one.mark(4.2)) for one in drawn if len(crossing) > 1]
        heads.grow(figure, heads.head(axes, title, [*marks, *_legend()], strip_pt))
    return figure


def _draw(axes: Axes, one: Series, points: pd.Series, aside: float = 0.0) -> None:
    x = places(one.rows, points) + aside
    sequential, pipelined = one.rows["sequential_ips"], one.rows["throughput_ips"]
    size = 4.2 if len(points) <= MANY else 1.8
    axes.vlines(x, sequential, pipelined, color=one.colour, linewidth=0.4 * size, alpha=0.55, zorder=2)
    axes.plot(
        x, one.rows["throughput_bound_ips"], linestyle="", zorder=3, **_BOUND | {"markersize": 1.7 * size}
    )
    axes.plot(x, pipelined, **one.mark(size), zorder=4)
    axes.plot(x, sequential, **one.mark(size, markerfacecolor="white"), zorder=5)
    axes.grid(True, axis="y")


def _legend() -> list[Line2D]:
    look: dict[str, Any] = {"color": "0.3", "marker": "o", "markersize": 4.2}
    return [
        entry("many requests in flight", **look),
        entry("one in flight", **look, markerfacecolor="white"),
        entry("throughput bound", **_BOUND),
    ]


def _gain(gain: float) -> str:
    return "" if np.isnan(gain) else f"{gain:.1f}\N{MULTIPLICATION SIGN}"
