"""Latency against throughput: every point, and the front of each backend as a staircase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from analysis.figures.labels import label, place_labels, settle
from analysis.figures.style import WIDTH_IN, Series, add_caption, fit_axis, head, series, styled
from analysis.fronts.dominance import Floats, staircase
from analysis.naming import point_label, time_unit
from analysis.points import cuts, undivided

MARKER_PT = 5.0
UP_LEFT, DOWN_RIGHT = 0.75 * np.pi, -0.25 * np.pi
NAMED_LABELS = 16
"""Up to this many labels carry the point's name; more would not be legible, and the number says it all. Nor would the
names of a chain's points, which are of several cuts."""


def front_figure(rows: pd.DataFrame, caption: str) -> Figure:
    """The points of one model, profile and batch size, from rows of `analysis.front`.

    Latency (ms or s) to the right, throughput (images/s) upwards: the best corner is the upper left. Points
    on the front of their backend are filled and labelled; so are, without being filled, those that leave the
    whole model to one host (all on the server, all on the edge), which a split has to beat. Whiskers are 95 %
    intervals of the median, for the points that are on the front in at least one resample.
    """
    measured = rows.dropna(subset=["latency_s", "throughput_ips"])
    unit, scale = time_unit(float(measured["latency_s"].max()))
    with styled():
        figure = Figure(figsize=(WIDTH_IN, 4.4), layout="constrained")
        axes = figure.add_subplot()
        first = rows.iloc[0]
        axes.set_xlabel(f"latency ({unit})")
        axes.set_ylabel("throughput (images/s)")
        axes.grid(True)
        # Fixed before the staircases are drawn, which end at the limits.
        fit_axis(axes, "x", measured["latency_s"] * scale)
        fit_axis(axes, "y", measured["throughput_ips"])
        drawn = list(series(measured))
        for one in drawn:
            _draw(axes, one, scale)
        head(axes, f"Latency and throughput: {first['model']} at {first['netem']}", _legend(drawn))
        add_caption(figure, caption)
        _label(figure, axes, drawn, scale)
    return figure


def _draw(axes: Axes, one: Series, scale: float) -> None:
    for on_front, rows in one.rows.groupby("on_backend_front"):
        strong = bool(on_front)
        axes.errorbar(
            rows["latency_s"] * scale,
            rows["throughput_ips"],
            xerr=scale * _whiskers(rows, "latency_s", "latency_low_s", "latency_high_s"),
            yerr=_whiskers(rows, "throughput_ips", "throughput_low_ips", "throughput_high_ips"),
            fmt=one.marker,
            color=one.colour,
            markersize=MARKER_PT if strong else 0.8 * MARKER_PT,
            markerfacecolor=one.colour if strong else "none",
            markeredgewidth=0.9,
            elinewidth=0.7,
            alpha=1 if strong else 0.45,
            zorder=4 if strong else 3,
        )
    axes.plot(*_steps(axes, one, scale), one.line, color=one.colour, linewidth=1.1, alpha=0.9, zorder=2)


def _steps(axes: Axes, one: Series, scale: float) -> tuple[Floats, Floats]:
    return staircase(
        one.rows["latency_s"].to_numpy() * scale,
        one.rows["throughput_ips"].to_numpy(),
        right=axes.get_xlim()[1],
        bottom=axes.get_ylim()[0],
    )


def _whiskers(rows: pd.DataFrame, median: str, low: str, high: str) -> Floats:
    """Lengths below and above the median; none where there is no interval or no chance to be on the front."""
    lengths = np.vstack([rows[median] - rows[low], rows[high] - rows[median]])
    return np.where(rows["probability"] > 0, np.nan_to_num(lengths), 0.0).clip(min=0)


def _legend(drawn: Iterable[Series]) -> list[Line2D]:
    entries = []
    for one in drawn:
        style: dict[str, Any] = {"color": one.colour, "marker": one.marker}
        entries.append(
            Line2D([], [], **style, linestyle=one.line, markersize=MARKER_PT, label=f"{one.label} front")
        )
        if not one.rows["on_backend_front"].all():
            style |= {"linestyle": "", "markerfacecolor": "none"}
            entries.append(
                Line2D([], [], **style, markersize=0.8 * MARKER_PT, alpha=0.6, label=f"{one.label} dominated")
            )
    return entries


def _label(figure: Figure, axes: Axes, drawn: Sequence[Series], scale: float) -> list[Text]:
    """Label the points on a front, and those that leave the model to one host."""
    every = pd.concat([one.rows for one in drawn])
    ends = set(every.loc[undivided(every), "point"])
    labelled = [
        (one, row)
        for one in drawn
        for _, row in one.rows.iterrows()
        if row["on_backend_front"] or row["point"] in ends
    ]
    named = len(labelled) <= NAMED_LABELS and len(cuts(labelled[0][1]["point"])) == 1
    texts = [
        label(
            axes,
            row["latency_s"] * scale,
            row["throughput_ips"],
            point_label(row["point"], str(row["point_name"]) if named else ""),
            one.colour,
        )
        for one, row in labelled
    ]
    settle(figure)
    return place_labels(
        axes,
        texts,
        # Up and left of a front lies nothing of its backend; the second's labels keep to the other side.
        [UP_LEFT if one is drawn[0] else DOWN_RIGHT for one, _ in labelled],
        markers=np.concatenate([one.rows[["latency_s", "throughput_ips"]] * [scale, 1] for one in drawn]),
        marker_pt=MARKER_PT,
        lines=[_steps(axes, one, scale) for one in drawn],
    )
