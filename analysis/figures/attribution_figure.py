"""Where the time of a request goes at each point, beside the bound that physics sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.figures.axes import name_points
from analysis.figures.drawing import POINT, Drawing, caption
from analysis.figures.style import COLOURS, Series
from analysis.naming import subject, time_unit
from analysis.points import cuts, order, undivided

NAMED_POINTS = {"column": 23, "page": 32}
"""Up to this many points are named under their bars; if there are more, every second or third is numbered."""
MOST_SPLITS = 32
"""Up to this many splits of a chain have a bar each; if there are more, only those that matter have one."""

_BOUND, _BEST, _ABSENT = "latency bound", "lowest latency", "no valid trial"


@dataclass(frozen=True)
class Part:
    """A share of the latency: its column, and how it is drawn."""

    column: str
    label: str
    colour: str
    hatch: str


_CODEC = (Part("encode_s", "encode", COLOURS[6], "\\\\\\\\"), Part("decode_s", "decode", "0.95", "--"))
"""What a codec takes, on all hosts together: only where a codec was measured."""


def attribution_figure(rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """Stacked bars of one model, profile and batch size, one panel a backend; rows of `analysis.front`.

    A bar is the sum of the medians (ms or s) of each stage's compute, serialize and network time, for one request in
    flight; the diamond is the latency bound, the arrow points to the lowest median latency. A point without any valid
    trial is marked by a cross. A chain of hosts has a part for each, if `costs.stages.stage_times` has added their
    columns. Of more than `MOST_SPLITS` splits of a chain, only those on a front and those that leave the model to one
    host are drawn, and the caption says so.
    """
    shown, _ = _selected(rows)
    count = len(list(style.series(shown)))
    named = shown["point"].nunique() <= NAMED_POINTS[width]
    with style.blank(width, 0.4 + 0.6 * named + (1.75 if width == "page" else 1.3) * count, rows) as figure:
        panels = figure.subplots(count, sharex=True, sharey=True, squeeze=False)[:, 0]
        title = f"Latency by part: {subject(rows.iloc[0])}"
        style.grow(figure, draw_attribution(list(panels), shown, title, NAMED_POINTS[width]))
    return figure


def draw_attribution(panels: Sequence[Axes], rows: pd.DataFrame, title: str, named: int) -> float:
    """Draw one backend on each axes, in order; name up to `named` points. Returns the head's height (inches)."""
    parts = _parts(rows)
    points = rows.drop_duplicates("point").sort_values("point", key=order).set_index("point")["point_name"]
    columns = [part.column for part in parts]
    longest_s = float(max(rows[columns].sum(axis=1).max(), rows["latency_bound_s"].max()))
    unit, scale = time_unit(longest_s)
    entries: dict[str, Any] = {}
    for axes, one in zip(panels, style.series(rows), strict=True):
        _draw(axes, one, parts, points.index, scale, numbered=len(points) > named)
        room_pt = 0.8 * axes.bbox.height * 72 / style.root(axes).dpi
        axes.set_ylabel(f"{style.wrapped(one.label, room_pt, rcParams['axes.labelsize'])}\nlatency ({unit})")
        handles, labels = axes.get_legend_handles_labels()
        entries |= zip(labels, handles, strict=True)
    panels[0].set_ylim(0, None if longest_s == 0 else 1.14 * longest_s * scale)  # room for the arrow
    name_points(panels[-1], points, named, -(-len(points) // named))
    legend = [*(part.label for part in parts), _BOUND, _BEST, _ABSENT]
    return style.head(panels[0], title, [entries[label] for label in legend if label in entries])


def attribution_drawing(rows: pd.DataFrame, conditions: str) -> Drawing:
    """`attribution_figure` with its data and caption; `conditions` as of `drawing.conditions`."""
    shown, selection = _selected(rows)
    text = caption(
        "Where the time of a request goes at each partition point, with one request in flight",
        conditions,
        "A bar is the sum of the medians of its parts. Network is what remains: links, kernels, backends, and every "
        "wait between the stages",
        "The diamond is the bound that the stages' own times and the link set; the arrow points to the lowest median "
        "latency of the backend",
        "A cross is a point without any valid trial" if shown["latency_s"].isna().any() else "",
        "Bars have no error bars: see the figure of the front",
        selection,
    )
    data = shown[[*POINT, "latency_s", "latency_bound_s", *(part.column for part in _parts(shown))]]
    return Drawing("attribution", lambda width: attribution_figure(rows, width=width), data, text)


def _selected(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the rows to draw, and a sentence on those left out."""
    every = rows["point"].nunique()
    if len(cuts(rows["point"].iloc[0])) == 1 or every <= MOST_SPLITS:
        return rows, ""
    whole = rows.loc[undivided(rows), "point"].unique()
    front = (
        rows.loc[rows["on_backend_front"], ["point", "latency_s"]].sort_values("latency_s")["point"].unique()
    )
    others = [point for point in front if point not in whole]
    kept = {*whole, *style.evenly(others, MOST_SPLITS - len(whole))}
    text = f"Shown: {len(kept)} of {every} splits, those on a backend's front and those of one host alone"
    return rows[rows["point"].isin(kept)], text


def _parts(rows: pd.DataFrame) -> list[Part]:
    """Return the parts in the order in which a request meets them. The network, crossed twice, stands once."""
    between = [column for column in rows if column.startswith("middle") and column[6:-2].isdigit()]
    if not between and rows["middle_s"].notna().any():
        between = ["middle_s"]
    codec = [part for part in _CODEC if part.column in rows and rows[part.column].notna().any()]
    return [
        _stage("edge_s"),
        *codec,
        Part("serialize_s", "serialize", COLOURS[3], "xxxx"),
        Part("network_s", "network", "0.82", "////"),
        *(_stage(column) for column in sorted(between)),
        _stage("server_s"),
    ]


def _stage(column: str) -> Part:
    role = column.removesuffix("_s")
    return Part(column, f"{role} compute", *style.stage_look(role))


def _draw(
    axes: Axes, one: Series, parts: list[Part], points: pd.Index, scale: float, *, numbered: bool
) -> None:
    rows = one.rows.set_index("point").reindex(points)
    x = np.arange(len(points))
    base = np.zeros(len(points))
    for part in parts:
        height = rows[part.column].fillna(0).clip(lower=0).to_numpy() * scale
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
        number = f"{points[best]}: " if numbered else ""
        _mark_best(axes, best, top, f"{number}{latency_s[best] * scale:.3g}", len(points))
    axes.grid(True, axis="y")


def _mark_best(axes: Axes, bar: int, top: float, text: str, bars: int) -> None:
    """Draw an arrow head a little above a bar, and over it the latency, within the ends of the axes."""
    place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "zorder": 5}
    axes.annotate("\N{BLACK DOWN-POINTING TRIANGLE}", (bar, top), (0, 7), fontsize=7, ha="center", **place)
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6}
    x, side = {0: (-0.5, "left"), bars - 1: (bars - 0.5, "right")}.get(
        bar if bars > 6 else -1, (bar, "center")
    )
    axes.annotate(text, (x, top), (0, 15), fontsize=6.5, fontweight="bold", bbox=box, ha=side, **place)
    axes.plot([], [], "v", color="black", markersize=4.5, label=_BEST)
