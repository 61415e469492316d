"""Where the time of a request goes at each point, beside the bound that physics sets."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.style import (
    COLOURS,
    WIDTH_IN,
    Series,
    add_caption,
    head,
    point_label,
    series,
    styled,
    time_unit,
)

# In the order in which a request meets them, but for the network, which it crosses twice.
PARTS = {
    "edge_s": ("edge compute", COLOURS[0], ""),
    "serialize_s": ("serialize", COLOURS[3], "xxxx"),
    "network_s": ("network", "0.82", "////"),
    "server_s": ("server compute", COLOURS[1], "...."),
}
NAMED_POINTS = 32
"""Up to this many points are named under their bars; of more, every second or third is numbered."""

_BOUND, _ABSENT = "latency bound", "no valid trial"
_LEGEND = [*(label for label, _, _ in PARTS.values()), _BOUND, _ABSENT]


def attribution_figure(rows: pd.DataFrame, caption: str) -> Figure:
    """Stacked bars of one model, profile and batch size, one panel a backend; rows of `analysis.front.front`.

    A bar is the sum of the medians (ms or s) of edge, serialize, network and server time, for one request in
    flight; the diamond is the latency bound. A point without any valid trial is marked by a cross.
    """
    drawn = list(series(rows))
    points = rows.drop_duplicates("point").set_index("point")["point_name"].sort_index()
    longest_s = float(max(rows[list(PARTS)].sum(axis=1).max(), rows["latency_bound_s"].max()))
    unit, scale = time_unit(longest_s)
    with styled():
        figure = Figure(figsize=(WIDTH_IN, 1.9 + 1.75 * len(drawn)), layout="constrained")
        panels = figure.subplots(len(drawn), sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, one in zip(panels, drawn, strict=True):
            _draw(axes, one, points.index, scale)
            axes.set_ylabel(f"{one.label}\nlatency ({unit})")
        first = rows.iloc[0]
        entries = {
            label: entry
            for axes in panels
            for entry, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        shown = [entries[label] for label in _LEGEND if label in entries]
        head(panels[0], f"Latency by part: {first['model']} at {first['netem']}", shown)
        _name_points(panels[-1], points)
        panels[-1].set_xlabel("partition point")
        add_caption(figure, caption)
    return figure


def _draw(axes: Axes, one: Series, points: pd.Index, scale: float) -> None:
    rows = one.rows.set_index("point").reindex(points)
    x = np.arange(len(points))
    base = np.zeros(len(points))
    for column, (label, colour, hatch) in PARTS.items():
        height = rows[column].fillna(0).to_numpy() * scale
        axes.bar(
            x, height, 0.72, base, label=label, color=colour, hatch=hatch, edgecolor="0.15", linewidth=0.4
        )
        base += height
    axes.plot(
        x, rows["latency_bound_s"] * scale, "D", color="white", markeredgecolor="black", markersize=3.4,
        markeredgewidth=0.8, label=_BOUND, zorder=4,
    )  # fmt: skip
    absent = rows["latency_s"].isna().to_numpy()
    if absent.any():
        axes.plot(
            x[absent], np.full(absent.sum(), 0.03), "x", color="0.4", markersize=4, label=_ABSENT,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
    axes.grid(True, axis="y")
    axes.set_xlim(-0.6, max(len(points), 6) - 0.4)  # few bars need not be wide


def _name_points(axes: Axes, points: pd.Series) -> None:
    if len(points) <= NAMED_POINTS:
        labels = [point_label(*named) for named in zip(points.index, points, strict=True)]
        axes.set_xticks(range(len(points)), labels, rotation=55, ha="right", rotation_mode="anchor")
    else:
        step = -(-len(points) // NAMED_POINTS)
        axes.set_xticks(range(0, len(points), step), [str(point) for point in points.index[::step]])
