"""Where the time of a request goes at each point, beside the bound that physics sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.style import (
    COLOURS,
    WIDTH_IN,
    Series,
    add_caption,
    evenly,
    head,
    series,
    stage_look,
    styled,
)
from analysis.naming import point_label, time_unit
from analysis.points import cuts, order, undivided

NAMED_POINTS = 32
"""Up to this many points are named under their bars; of more, every second or third is numbered."""
MOST_SPLITS = 32
"""Up to this many splits of a chain have a bar each; of more, only those that matter."""

_BOUND, _BEST, _ABSENT = "latency bound", "lowest latency", "no valid trial"


@dataclass(frozen=True)
class Part:
    """A share of the latency: its column, and how it is drawn."""

    column: str
    label: str
    colour: str
    hatch: str


def attribution_figure(rows: pd.DataFrame, caption: str) -> Figure:
    """Stacked bars of one model, profile and batch size, one panel a backend; rows of `analysis.front`.

    A bar is the sum of the medians (ms or s) of each stage's compute, serialize and network time, for one request in
    flight; the diamond is the latency bound, the arrow points to the lowest median latency. A point without any valid
    trial is marked by a cross. A chain of hosts has a part for each, if `costs.stages.stage_times` has added their
    columns. Of more than `MOST_SPLITS` splits of a chain, only those on a front and those that leave the model to one
    host are drawn, and the caption says so.
    """
    rows, selection = _selected(rows)
    parts = _parts(rows)
    drawn = list(series(rows))
    points = rows.drop_duplicates("point").sort_values("point", key=order).set_index("point")["point_name"]
    columns = [part.column for part in parts]
    longest_s = float(max(rows[columns].sum(axis=1).max(), rows["latency_bound_s"].max()))
    unit, scale = time_unit(longest_s)
    with styled():
        figure = Figure(figsize=(WIDTH_IN, 1.9 + 1.75 * len(drawn)), layout="constrained")
        panels = figure.subplots(len(drawn), sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, one in zip(panels, drawn, strict=True):
            _draw(axes, one, parts, points.index, scale)
            axes.set_ylabel(f"{one.label}\nlatency ({unit})")
        panels[0].set_ylim(0, None if longest_s == 0 else 1.14 * longest_s * scale)  # room for the arrow
        first = rows.iloc[0]
        entries = {
            label: entry
            for axes in panels
            for entry, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        legend = [*(part.label for part in parts), _BOUND, _BEST, _ABSENT]
        shown = [entries[label] for label in legend if label in entries]
        head(panels[0], f"Latency by part: {first['model']} at {first['netem']}", shown)
        _name_points(panels[-1], points)
        panels[-1].set_xlabel("partition point")
        add_caption(figure, f"{caption} {selection}" if selection else caption)
    return figure


def _selected(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows to draw, and what to say of those left out."""
    every = rows["point"].nunique()
    if len(cuts(rows["point"].iloc[0])) == 1 or every <= MOST_SPLITS:
        return rows, ""
    whole = rows.loc[undivided(rows), "point"].unique()
    front = (
        rows.loc[rows["on_backend_front"], ["point", "latency_s"]].sort_values("latency_s")["point"].unique()
    )
    kept = {*whole, *evenly([point for point in front if point not in whole], MOST_SPLITS - len(whole))}
    chosen = rows[rows["point"].isin(kept)]
    return (
        chosen,
        f"Shown: {len(kept)} of {every} splits, those on a backend's front and those of one host alone.",
    )


def _parts(rows: pd.DataFrame) -> list[Part]:
    """In the order in which a request meets them, but for the network, which it crosses twice."""
    between = [column for column in rows if column.startswith("middle") and column[6:-2].isdigit()]
    if not between and rows["middle_s"].notna().any():
        between = ["middle_s"]
    return [
        _stage("edge_s"),
        Part("serialize_s", "serialize", COLOURS[3], "xxxx"),
        Part("network_s", "network", "0.82", "////"),
        *(_stage(column) for column in sorted(between)),
        _stage("server_s"),
    ]


def _stage(column: str) -> Part:
    role = column.removesuffix("_s")
    return Part(column, f"{role} compute", *stage_look(role))


def _draw(axes: Axes, one: Series, parts: list[Part], points: pd.Index, scale: float) -> None:
    rows = one.rows.set_index("point").reindex(points)
    x = np.arange(len(points))
    base = np.zeros(len(points))
    for part in parts:
        height = rows[part.column].fillna(0).to_numpy() * scale
        axes.bar(
            x, height, 0.72, base, label=part.label, color=part.colour, hatch=part.hatch, edgecolor="0.15",
            linewidth=0.4,
        )  # fmt: skip
        base += height
    axes.plot(
        x, rows["latency_bound_s"] * scale, "D", color="white", markeredgecolor="black", markersize=3.4,
        markeredgewidth=0.8, label=_BOUND, zorder=4,
    )  # fmt: skip
    latency_s = rows["latency_s"].to_numpy()
    absent = np.isnan(latency_s)
    if absent.any():
        axes.plot(
            x[absent], np.full(absent.sum(), 0.03), "x", color="0.4", markersize=4, label=_ABSENT,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
    if not absent.all():
        best = int(np.nanargmin(latency_s))
        top = np.nanmax([base[best], rows["latency_bound_s"].iloc[best] * scale])
        number = "" if len(points) <= NAMED_POINTS else f"{points[best]}: "
        _mark_best(axes, x[best], top, f"{number}{latency_s[best] * scale:.3g}")
    axes.grid(True, axis="y")
    axes.set_xlim(-0.6, max(len(points), 6) - 0.4)  # few bars need not be wide


def _mark_best(axes: Axes, x: float, top: float, text: str) -> None:
    """An arrow head a little above a bar, and over it the latency."""
    place: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "center", "zorder": 5}
    axes.annotate("\N{BLACK DOWN-POINTING TRIANGLE}", (x, top), (0, 7), fontsize=7, **place)
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6}
    axes.annotate(text, (x, top), (0, 15), fontsize=6.5, fontweight="bold", bbox=box, **place)
    axes.plot([], [], "v", color="black", markersize=4.5, label=_BEST)


def _name_points(axes: Axes, points: pd.Series) -> None:
    if len(points) <= NAMED_POINTS:
        labels = [point_label(*named) for named in zip(points.index, points, strict=True)]
        axes.set_xticks(range(len(points)), labels, rotation=55, ha="right", rotation_mode="anchor")
    else:
        step = -(-len(points) // NAMED_POINTS)
        axes.set_xticks(range(0, len(points), step), [str(point) for point in points.index[::step]])
