"""A predicted front in the plane of latency and throughput, with error bars, beside what simpler rules choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import fit_axis
from pareto.analysis.figures.drawing import Drawing, caption
from pareto.analysis.figures.labels import Label, place_labels, settle
from pareto.analysis.figures.style import LEVEL_COLOURS, MARKERS, entry, evenly
from pareto.analysis.fronts.indicators import staircase
from pareto.analysis.naming import time_unit
from pareto.analysis.prediction.forecast import NONE
from pareto.analysis.prediction.predicted import FRONT, RULES
from pareto.analysis.tables.predicted import title

LABELLED = 16
"""The most splits of a front that are labelled."""
_LOOKS = dict(zip((FRONT, *RULES), zip(LEVEL_COLOURS, MARKERS, strict=False), strict=False))


def forecast_drawing(rows: pd.DataFrame, testbed: str, splits: int) -> Drawing:
    """`forecast_figure` with its data and caption. rows: of `analysis.prediction.predicted.predicted`, of one case."""
    text = caption(
        f"The predicted front among all {splits} splits: {title(rows.iloc[0])}",
        f"Made from a model profile: testbed {testbed}; no trial was run",
        "Bars: a standard deviation of the forecast",
        "Greedy: cuts move from even places as long as that balances the stages; even: as many units on each host",
    )
    name = (str(rows["model"].iloc[0]), str(rows["netem"].iloc[0]), *_variants(rows.iloc[0]))
    return Drawing("forecast", lambda width: forecast_figure(rows, width=width), rows, text, name)


def forecast_figure(rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """Each split with a bar of a standard deviation either way, and the staircase of those on the front."""
    unit, scale = time_unit(float(rows["latency_s"].max()))
    front = rows[rows["chosen_by"] == FRONT]
    with style.blank(width, 3.6 if width == "page" else 2.9) as figure:
        axes = figure.subplots()
        axes.grid(True)
        fit_axis(axes, "x", rows["latency_s"] * scale)
        fit_axis(axes, "y", rows["throughput_ips"])
        stairs = staircase(
            front["latency_s"].to_numpy() * scale,
            front["throughput_ips"].to_numpy(),
            right=axes.get_xlim()[1],
            bottom=axes.get_ylim()[0],
        )
        axes.plot(*stairs, color=_LOOKS[FRONT][0], linewidth=1.1, zorder=2)
        for by, own in rows.groupby("chosen_by", sort=False):
            look = _look(str(by))
            axes.errorbar(
                own["latency_s"] * scale, own["throughput_ips"], fmt="none", ecolor=look["color"], elinewidth=0.7,
                xerr=own["latency_s"] * own["latency_error"] * scale,
                yerr=own["throughput_ips"] * own["throughput_error"], zorder=2.5,
            )  # fmt: skip
            axes.plot(own["latency_s"] * scale, own["throughput_ips"], **look, zorder=4 if by == FRONT else 3)
        axes.set_xlabel(f"latency ({unit})")
        axes.set_ylabel("throughput (images/s)")
        entries = [entry("predicted front", **_look(FRONT) | {"linestyle": "-"})]
        entries += [entry(rule, **_look(rule)) for rule in RULES]
        heads.grow(figure, heads.head(axes, f"Predicted: {title(rows.iloc[0])}", entries))
        settle(figure)
        shown = evenly(list(front.to_dict("records")), LABELLED)
        place_labels(
            axes,
            [
                Label(
                    row["latency_s"] * scale,
                    row["throughput_ips"],
                    str(row["point"]),
                    _LOOKS[FRONT][0],
                    0.75 * np.pi,
                )
                for row in shown
            ],
            markers=np.column_stack([rows["latency_s"] * scale, rows["throughput_ips"]]),
            marker_pt=np.full(len(rows), _LARGE_PT + 1),
            lines=[stairs],
        )
    return figure


_LARGE_PT = 7.0


def _look(by: str) -> dict[str, Any]:
    colour, marker = _LOOKS[by]
    filled = by == FRONT
    return {
        "linestyle": "", "marker": marker, "color": colour, "markersize": 5.0 if filled else _LARGE_PT,
        "markerfacecolor": colour if filled else "none", "markeredgewidth": 1.1,
    }  # fmt: skip


def _variants(row: pd.Series) -> tuple[str, ...]:
    """Batch size, codec and depth, where they are not the usual ones, for a file's name."""
    batch, codec, depth = row["batch_size"], row["codec"], row["in_flight_asked"]
    parts = (
        f"b{batch}" if batch != 1 else "",
        codec if codec != NONE else "",
        f"d{depth}" if depth != "auto" else "",
    )
    return tuple(filter(None, parts))
