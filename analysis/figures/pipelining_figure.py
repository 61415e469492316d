"""What it gains to keep many requests in flight: images a second with one of them and with many, point by point."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures import style
from analysis.figures.axes import MANY, NAMED, fit_axis, in_order, label_points, places, strip
from analysis.figures.drawing import Drawing, caption, conditions
from analysis.figures.style import NEUTRAL_COLOUR, NEUTRAL_MARKER, Series, entry
from analysis.fronts.quality import codec_name
from analysis.naming import subject
from analysis.points import AT_WORK, CELL, NONE

_DRAWN = ["sequential_ips", "throughput_ips", "throughput_bound_ips", "pipeline_gain"]
_BOUND: dict[str, Any] = {"marker": "_", "color": "black", "markersize": 7, "markeredgewidth": 1.1}


def pipelining_drawing(rows: pd.DataFrame, testbed: str = "") -> Drawing | None:
    """Return the drawing of one condition; None where nothing was measured with one request in flight.

    `rows`: of `analysis.fronts.front.front`.
    """
    measured = rows.dropna(subset=["sequential_ips", "throughput_ips"])
    if measured.empty:
        return None
    text = caption(
        "Images a second at each partition point, per backend: with one request in flight (hollow) and with many "
        "(filled)",
        "Figures above the panels: how many times as many, median of the rounds"
        if measured["codec"].nunique() == 1
        else "Codecs stand side by side",
        "Dashes: the throughput's bound, what the slowest host or link allows",
        conditions(rows, testbed),
    )
    data = measured[[*CELL, "point_name", "rounds", *_DRAWN]].reset_index(drop=True)
    return Drawing("pipelining", lambda width: pipelining_figure(rows, width=width), data, text)


def pipelining_figure(rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """Draw one panel a backend over the points: images/s sequential, pipelined, and the bound; rows of the front.

    Above a panel stands the gain, pipelined over sequential; several codecs stand side by side at each point instead.
    Logarithmic if the figures span much.
    """
    measured = rows.dropna(subset=["sequential_ips", "throughput_ips"])
    points = in_order(rows)
    drawn = style.by_backend(measured)
    codecs = measured["codec"].nunique()
    every = pd.concat([measured[column] for column in _DRAWN[:3]]).dropna()
    with style.blank(width, 1.25 + (1.6 if width == "page" else 1.45) * len(drawn), rows) as figure:
        panels = figure.subplots(len(drawn), sharex=True, sharey=True, squeeze=False)[:, 0]
        strip_pt = 0.0
        for axes, kinds in zip(panels, drawn, strict=True):
            for place, one in enumerate(kinds if codecs == 1 else _crossing(kinds)):
                _draw(axes, one, points, 0.7 * (place - (len(kinds) - 1) / 2) / len(kinds))
            if codecs > 1:
                _draw(axes, _nothing_crosses(kinds), points)
            if codecs == 1 and len(points) <= NAMED[width]:
                shown = kinds[0].rows
                gains = [_gain(gain) for gain in shown["pipeline_gain"]]
                at = list(places(shown, points))
                strip_pt = max(strip_pt, strip(axes, at, gains, len(points), width))
            axes.set_ylabel(f"{kinds[0].backend or kinds[0].label}\nimages/s")
        fit_axis(panels[0], "y", every, room=0.06)
        if panels[0].get_yscale() == "linear":
            panels[0].set_ylim(bottom=0)
        label_points(panels[-1], points, width)
        title = f"Pipelined against sequential: {subject(rows.iloc[0])}"
        marks = [entry(codec_name(one.codec), **one.mark(4.2)) for one in drawn[0] if codecs > 1]
        style.head(panels[0], title, [*marks, *_legend()], strip_pt)
    return figure


def _crossing(kinds: list[Series]) -> list[Series]:
    """Return the points that were measured with these codecs, not with others that come to the same."""
    own = [(one.rows["backend"] != NONE) & (one.rows["codec"] == one.rows[AT_WORK]) for one in kinds]
    return [replace(one, rows=one.rows[which]) for one, which in zip(kinds, own, strict=True)]


def _nothing_crosses(kinds: list[Series]) -> Series:
    """Return the points where nothing crosses, which are the same for each codec, once."""
    nothing = kinds[0].rows[kinds[0].rows["backend"] == NONE]
    return replace(kinds[0], rows=nothing, colour=NEUTRAL_COLOUR, marker=NEUTRAL_MARKER)


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
