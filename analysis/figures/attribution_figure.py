"""Where the time of a request goes at each point, beside the bound that physics sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import label_points
from pareto.analysis.figures.drawing import POINT, Drawing, caption
from pareto.analysis.figures.style import Series, entry
from pareto.analysis.naming import subject, time_unit
from pareto.analysis.points import NONE, cuts, each_once, order, undivided

MOST_SPLITS = 32
"""Up to this many splits of a chain have a bar each; if there are more, only those that matter have one."""
MOST_BARS = 64
"""Up to this many bars of more than two backends and codecs are drawn; if there are more, only those of the points that
matter."""

_BOUND, _BEST, _ABSENT = "latency bound", "lowest latency", "no valid trial"


@dataclass(frozen=True)
class Part:
    """A share of the latency: its column, and how it is drawn."""

    column: str
    label: str
    colour: str
    hatch: str


_CODEC = (Part("encode_s", "encode", "0.65", "\\\\\\\\"), Part("decode_s", "decode", "0.95", "--"))
"""The parts of a codec, on all hosts together: only where a codec was measured."""


def attribution_figure(rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """Stacked bars of one model, profile and batch size; rows of `analysis.front`.

    A bar is the median latency (ms or s) of one request in flight, divided in proportion to the medians of its parts:
    each stage's compute, what codecs take, serialize and network time. The diamond is the latency bound, the arrow
    points to the lowest median latency. Backends and codecs have a bar each at every point, with their mark beneath;
    one that has no cell there has none, and codecs that come to the same there have one. A cell without any valid trial
    is marked by a cross. A chain of hosts has a part for each, if `costs.stages.stage_times` has added their columns.
    Beyond `MOST_SPLITS` splits of a chain, or `MOST_BARS` bars, only those that leave the model to one host and some
    of those on a front are drawn, and the caption says so.
    """
    shown, _ = _selected(rows)
    with style.blank(width, 2.9 if width == "page" else 2.3, rows) as figure:
        title = f"Latency by part: {subject(rows.iloc[0])}"
        heads.grow(figure, draw_attribution(figure.add_subplot(), shown, title))
    return figure


def draw_attribution(axes: Axes, rows: pd.DataFrame, title: str) -> float:
    """Draw the bars on axes of the caller's. Returns the head's height (inches)."""
    parts = _parts(rows)
    points = rows.drop_duplicates("point").sort_values("point", key=order).set_index("point")["point_name"]
    longest_s = float(rows[["latency_s", "latency_bound_s"]].max(axis=None))
    unit, scale = time_unit(longest_s)
    drawn = list(style.scattered(rows))
    bars = _bars(drawn, points.index)
    label_points(axes, points)
    _draw(axes, bars, parts, scale, len(points))
    crossing = [one for one in drawn if one.label != style.NEUTRAL]
    if len(crossing) > 1:
        _mark_bars(axes, bars, crossing)
        axes.tick_params(axis="x", pad=2 * _MARK_PT + 1)
    axes.set_ylabel(f"latency ({unit})")
    axes.set_ylim(0, None if longest_s == 0 else 1.14 * longest_s * scale)  # room for the arrow
    handles, labels = axes.get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    shown = [*(part.label for part in parts), _BOUND, _BEST, _ABSENT]
    marks = [entry(one.label, **one.mark(_MARK_PT)) for one in crossing]
    return heads.head(
        axes,
        title,
        [*(marks if len(crossing) > 1 else []), *(entries[label] for label in shown if label in entries)],
    )


def attribution_drawing(rows: pd.DataFrame, conditions: str) -> Drawing:
    """`attribution_figure` with its data and caption; `conditions` as of `drawing.conditions`."""
    shown, selection = _selected(rows)
    text = caption(
        "Where the time of a request goes at each partition point, with one request in flight",
        conditions,
        "A bar is the median latency, divided in proportion to the medians of its parts. Network is what remains: "
        "links, kernels, backends, and every wait between the stages",
        "The mark beneath a bar is that of its backend and codec; codecs that come to the same at a point have one "
        "bar. Where nothing crosses there is one, without a mark"
        if len(shown.loc[shown["backend"] != NONE, ["backend", "codec"]].drop_duplicates()) > 1
        else "",
        "The diamond is the bound that the stages' own times and the link set; the arrow points to the lowest median "
        "latency",
        "A cross is a point without any valid trial" if shown["latency_s"].isna().any() else "",
        "Bars have no error bars: see the figure of the front",
        selection,
    )
    data = shown[[*POINT, "latency_s", "latency_bound_s", *(part.column for part in _parts(shown))]]
    return Drawing("attribution", lambda width: attribution_figure(rows, width=width), data, text)


def _selected(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows to draw, and a sentence on those left out."""
    every = rows["point"].nunique()
    bars = len(rows.loc[rows["backend"] != NONE, ["backend", "codec"]].drop_duplicates())
    is_chain = len(cuts(rows["point"].iloc[0])) > 1
    most = min(MOST_SPLITS if is_chain else every, MOST_BARS // bars if bars > 2 else every)
    if every <= most:
        return rows, ""
    whole = rows.loc[undivided(rows), "point"].unique()
    front = (
        rows.loc[rows["on_backend_front"], ["point", "latency_s"]].sort_values("latency_s")["point"].unique()
    )
    others = [point for point in front if point not in whole]
    kept = {*whole, *style.evenly(others, max(most - len(whole), 0))}
    what = "splits" if is_chain else "points"
    text = f"Shown: {len(kept)} of {every} {what}, those on a backend's front and those of one host alone"
    return rows[rows["point"].isin(kept)], text


def _parts(rows: pd.DataFrame) -> list[Part]:
    """The parts in the order in which a request meets them. The network, crossed twice, stands once."""
    between = [column for column in rows if column.startswith("middle") and column[6:-2].isdigit()]
    if not between and rows["middle_s"].notna().any():
        between = ["middle_s"]
    codec = [part for part in _CODEC if part.column in rows and rows[part.column].notna().any()]
    return [
        _stage("edge_s"),
        *codec,
        Part("serialize_s", "serialize", "0.62", "xxxx"),
        Part("network_s", "network", "0.82", "////"),
        *(_stage(column) for column in sorted(between)),
        _stage("server_s"),
    ]


def _stage(column: str) -> Part:
    role = column.removesuffix("_s")
    return Part(column, f"{role} compute", *style.stage_look(role))


def _bars(drawn: Sequence[Series], points: pd.Index) -> pd.DataFrame:
    """A row for each bar, with its `x`, its `breadth` and its `number` in `drawn`; bars of one point stand side
    by side, in this order.
    """
    every = [one.rows.assign(number=number) for number, one in enumerate(drawn)]
    bars = each_once(pd.concat(every, ignore_index=True)).reset_index(drop=True)
    breadth = (
        0.72 if len(drawn) == 1 else 0.86 / len({one.label for one in drawn if one.label != style.NEUTRAL})
    )
    of_point = bars.groupby("point")["point"]
    rank, beside = of_point.cumcount(), of_point.transform("size")
    place = bars["point"].map({point: place for place, point in enumerate(points)}).astype(float)
    return bars.assign(x=place + breadth * (rank - (beside - 1) / 2), breadth=breadth)


def _draw(axes: Axes, bars: pd.DataFrame, parts: list[Part], scale: float, points: int) -> None:
    x = bars["x"].to_numpy()
    medians = bars[[part.column for part in parts]].fillna(0).clip(lower=0)
    # The medians of parts do not add up to that of their sum: theirs are shares of it.
    stretch = (bars["latency_s"] / medians.sum(axis=1)).replace(np.inf, np.nan).fillna(0)
    base = np.zeros(len(bars))
    for part in parts:
        height = (medians[part.column] * stretch * scale).to_numpy()
        axes.bar(
            x, height, bars["breadth"], base, label=part.label, color=part.colour, hatch=part.hatch, edgecolor="0.15",
            linewidth=0.4,
        )  # fmt: skip
        base += height
    axes.plot(
        x, bars["latency_bound_s"] * scale, "D", color="white", markeredgecolor="black",
        markersize=3.4 if bars["breadth"].max() > 0.2 else 2.4, markeredgewidth=0.8, label=_BOUND, zorder=4,
    )  # fmt: skip
    latency_s = bars["latency_s"].to_numpy()
    absent = np.isnan(latency_s)
    if absent.any():
        axes.plot(
            x[absent], np.full(absent.sum(), 0.03), "x", color="0.4", markersize=4, label=_ABSENT,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
    if not absent.all():
        best = int(np.nanargmin(latency_s))
        top = np.nanmax([base[best], bars["latency_bound_s"].iloc[best] * scale])
        _mark_best(axes, float(x[best]), top, f"{latency_s[best] * scale:.3g}", points)
    axes.grid(True, axis="y")


_MARK_PT = 3.6
MANY_POINTS = 14
"""With more points a text over the first or the last bar would go beyond the axes."""


def _mark_bars(axes: Axes, bars: pd.DataFrame, crossing: Sequence[Series]) -> None:
    """Draw the mark of each bar's backend and codec beneath it; none where nothing crosses."""
    below = ScaledTranslation(0, -_MARK_PT / 72, style.root(axes).dpi_scale_trans)
    breadth_pt = bars["breadth"].max() * axes.bbox.width * 72 / style.root(axes).dpi / np.ptp(axes.get_xlim())
    for number, one in enumerate(crossing):
        own = bars[bars["number"] == number]
        axes.plot(
            own["x"], np.zeros(len(own)), **one.mark(min(_MARK_PT, breadth_pt)), clip_on=False, zorder=5,
            transform=axes.get_xaxis_transform() + below,
        )  # fmt: skip
    axes.tick_params(axis="x", length=0)


def _mark_best(axes: Axes, bar: float, top: float, text: str, points: int) -> None:
    """Draw an arrow head a little above a bar, and over it the latency, within the ends of the axes."""
    place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "zorder": 5}
    axes.annotate("\N{BLACK DOWN-POINTING TRIANGLE}", (bar, top), (0, 7), fontsize=7, ha="center", **place)
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6}
    x, side = {0: (-0.5, "left"), points - 1: (points - 0.5, "right")}.get(
        round(bar) if points > MANY_POINTS else -1, (bar, "center")
    )
    axes.annotate(text, (x, top), (0, 15), fontsize=6.5, fontweight="bold", bbox=box, ha=side, **place)
    axes.plot([], [], "v", color="black", markersize=4.5, label=_BEST)
