"""Where the time of a request goes at each point, beside the bound that physics sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from analysis.figures import style
from analysis.figures.axes import name_points
from analysis.figures.drawing import POINT, Drawing, caption
from analysis.figures.style import COLOURS, Series, entry
from analysis.fronts.quality import codec_name
from analysis.naming import subject, time_unit
from analysis.points import NONE, cuts, each_once, order, undivided

NAMED_POINTS = {"column": 23, "page": 32}
"""Up to this many points are named under their bars; if there are more, every second or third is numbered."""
MOST_SPLITS = 32
"""Up to this many splits of a chain have a bar each; if there are more, only those that matter have one."""
MOST_BARS = 64
"""Up to this many bars, one a codec, stand in a panel; if there are more, only the points that matter have some."""

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

    A bar is the median latency (ms or s) of one request in flight, divided in proportion to the medians of its parts:
    each stage's compute, what codecs take, serialize and network time. The diamond is the latency bound, the arrow
    points to the lowest median latency. Several codecs have a bar each at every point, with the codec's mark beneath; a
    codec that has no cell there has none, and codecs that come to the same there have one. A cell without any valid
    trial is marked by a cross. A chain of hosts has a part for each, if `costs.stages.stage_times` has added their
    columns. Of more than `MOST_SPLITS` splits of a chain, or `MOST_BARS` bars, only those on a front and those that
    leave the model to one host are drawn, and the caption says so.
    """
    shown, _ = _selected(rows)
    count = len(style.by_backend(shown))
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
    longest_s = float(rows[["latency_s", "latency_bound_s"]].max(axis=None))
    unit, scale = time_unit(longest_s)
    looks = style.codec_looks(rows)
    entries: dict[str, Any] = {}
    for axes, kinds in zip(panels, style.by_backend(rows), strict=True):
        bars = _bars(kinds, points.index, len(looks))
        _draw(axes, bars, parts, scale, len(points), numbered=len(points) > named)
        if len(looks) > 1:
            _mark_codecs(axes, bars, looks)
        room_pt = 0.8 * axes.bbox.height * 72 / style.root(axes).dpi
        label = kinds[0].backend or kinds[0].label
        axes.set_ylabel(f"{style.wrapped(label, room_pt, rcParams['axes.labelsize'])}\nlatency ({unit})")
        handles, labels = axes.get_legend_handles_labels()
        entries |= zip(labels, handles, strict=True)
    panels[0].set_ylim(0, None if longest_s == 0 else 1.14 * longest_s * scale)  # room for the arrow
    name_points(panels[-1], points, named, -(-len(points) // named))
    if len(looks) > 1:
        panels[-1].tick_params(axis="x", pad=2 * _MARK_PT + 1)
    shown = [*(part.label for part in parts), _BOUND, _BEST, _ABSENT]
    legend = [entries[label] for label in shown if label in entries]
    marks = [
        entry(codec_name(codec), marker=look.marker, color=look.colour, markersize=_MARK_PT)
        for codec, look in looks.items()
    ]
    return style.head(panels[0], title, [*(marks if len(looks) > 1 else []), *legend])


def attribution_drawing(rows: pd.DataFrame, conditions: str) -> Drawing:
    """`attribution_figure` with its data and caption; `conditions` as of `drawing.conditions`."""
    shown, selection = _selected(rows)
    text = caption(
        "Where the time of a request goes at each partition point, with one request in flight",
        conditions,
        "A bar is the median latency, divided in proportion to the medians of its parts. Network is what remains: "
        "links, kernels, backends, and every wait between the stages",
        "The mark beneath a bar is its codec's; codecs that come to the same at a point have one bar, without a mark "
        "where nothing crosses"
        if shown["codec"].nunique() > 1
        else "",
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
    every, codecs = rows["point"].nunique(), rows["codec"].nunique()
    is_chain = len(cuts(rows["point"].iloc[0])) > 1
    most = min(MOST_SPLITS if is_chain else every, MOST_BARS // codecs if codecs > 1 else every)
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


def _bars(kinds: Sequence[Series], points: pd.Index, codecs: int) -> pd.DataFrame:
    """Return a row for each bar of one backend, with its `x`, its `breadth` and its `number` of codec; bars of one
    point stand side by side, in the order of the codecs.
    """
    bars = each_once(pd.concat([one.rows for one in kinds], ignore_index=True)).reset_index(drop=True)
    breadth = 0.72 if codecs == 1 else 0.86 / codecs
    of_point = bars.groupby("point")["point"]
    rank, beside = of_point.cumcount(), of_point.transform("size")
    place = bars["point"].map({point: place for place, point in enumerate(points)}).astype(float)
    return bars.assign(x=place + breadth * (rank - (beside - 1) / 2), breadth=breadth)


def _draw(
    axes: Axes, bars: pd.DataFrame, parts: list[Part], scale: float, points: int, *, numbered: bool
) -> None:
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
        number = f"{bars['point'].iloc[best]}: " if numbered else ""
        _mark_best(axes, float(x[best]), top, f"{number}{latency_s[best] * scale:.3g}", points)
    axes.grid(True, axis="y")


_MARK_PT = 3.6


def _mark_codecs(axes: Axes, bars: pd.DataFrame, looks: Mapping[str, style.CodecLook]) -> None:
    """Draw each bar's codec beneath it; none where nothing crosses."""
    below = ScaledTranslation(0, -_MARK_PT / 72, style.root(axes).dpi_scale_trans)
    for codec, own in bars[bars["backend"] != NONE].groupby("codec"):
        look = looks[str(codec)]
        axes.plot(
            own["x"], np.zeros(len(own)), linestyle="", marker=look.marker, color=look.colour, markersize=_MARK_PT,
            transform=axes.get_xaxis_transform() + below, clip_on=False, zorder=5,
        )  # fmt: skip
    axes.tick_params(axis="x", length=0)


def _mark_best(axes: Axes, bar: float, top: float, text: str, points: int) -> None:
    """Draw an arrow head a little above a bar, and over it the latency, within the ends of the axes."""
    place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "zorder": 5}
    axes.annotate("\N{BLACK DOWN-POINTING TRIANGLE}", (bar, top), (0, 7), fontsize=7, ha="center", **place)
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6}
    x, side = {0: (-0.5, "left"), points - 1: (points - 0.5, "right")}.get(
        round(bar) if points > 6 else -1, (bar, "center")
    )
    axes.annotate(text, (x, top), (0, 15), fontsize=6.5, fontweight="bold", bbox=box, ha=side, **place)
    axes.plot([], [], "v", color="black", markersize=4.5, label=_BEST)
