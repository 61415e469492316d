"""Where time goes: the parts of a request's latency at each point, and how busy each host and link of a chain is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from pareto.analysis.costs import stage_times, steps
from pareto.analysis.figures import layout
from pareto.analysis.figures.drawing import POINT, Nothing, Told, told
from pareto.analysis.figures.layout import On, Scheme
from pareto.analysis.figures.style import NEUTRAL, SMALL_PT, Series, entry, evenly, stage_look
from pareto.analysis.naming import subject
from pareto.analysis.runs.points import CELL, NONE, each_once, undivided

MOST_BARS = 64
"""With more bars only those of the points that matter are drawn."""
USED = 0.02
"""A link's way back that is busier than this somewhere has a line of its own."""
_MARK_PT = 3.4
_THIN: dict[str, Any] = {"edgecolor": "0.15", "linewidth": 0.4}


@dataclass(frozen=True)
class Part:
    """A share of the latency: its column, and how it is drawn."""

    column: str
    label: str
    colour: str
    hatch: str


_CODEC = (Part("encode_s", "encode", "0.65", "\\\\\\\\"), Part("decode_s", "decode", "0.95", "--"))
_SENT = (Part("serialize_s", "serialize", "0.62", "xxxx"), Part("network_s", "network", "0.82", "////"))


def attribution(
    on: On, rows: pd.DataFrame, scheme: Scheme, stages: pd.DataFrame | None = None, title: str | None = None
) -> Told:
    """Stacked bars of one condition: the median latency of one request in flight, divided in proportion to the medians
    of its parts; the diamond is the latency bound, the number the lowest median.

    Backends and codecs have a bar each at every point, with their mark beneath. A cell without any valid trial is a
    cross. A chain has a part for each host, by `stages` of `costs.stage_medians`. Beyond `MOST_BARS` bars only those of
    one host alone and of some points on a front are drawn, and the caption says so.
    """
    rows = rows if stages is None else stage_times(rows, stages)
    shown = _that_matter(rows)
    parts, points, every = _parts(shown), layout.in_order(shown), rows["point"].nunique()
    (axes,) = layout.panels(on, 1, 1, 2.0 if layout.is_narrow(on) else 2.6)
    layout.label_points(axes, points)
    crossing = [one for one in scheme.series if len(one.of(shown))]
    bars = _bars(shown, [*crossing, NEUTRAL], points)
    entries: list[Any] = []
    if len(crossing) > 1:
        axes.tick_params(axis="x", length=0, pad=2 * _MARK_PT + 1)
        beneath: dict[str, Any] = {"clip_on": False, "zorder": 5, "transform": axes.get_xaxis_transform()}
        for one in crossing:
            own = bars.loc[bars["series"] == one.label, "x"]
            axes.plot(own, np.full(len(own), -0.03), **one.mark(min(_MARK_PT, 200 / len(bars))), **beneath)
            entries.append(entry(one.label, **one.mark(_MARK_PT)))
    entries += _stack(axes, bars, parts, scheme.per_s)
    axes.set_ylabel(scheme.label("latency_s"))
    axes.grid(True, axis="y")
    title = f"Latency by part: {subject(rows.iloc[0])}" if title is None else title
    layout.head(on, axes, title, entries, rows)
    what = "Where the time of a request goes at each point, one in flight"
    some = f"Shown: {len(points)} of {every} points" if len(points) < every else ""
    bar = "Bars: median latency, shared out by its parts' medians; diamonds: the bound"
    columns = [*POINT, "latency_s", "latency_bound_s", *(part.column for part in parts)]
    return told(what, rows, scheme.testbed, some, bar), shown[columns]


def _that_matter(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows to draw: of all points, or of those of one host alone and some on a front."""
    beside = max(len(rows.loc[rows["backend"] != NONE, ["backend", "codec"]].drop_duplicates()), 1)
    if rows["point"].nunique() * beside <= MOST_BARS:
        return rows
    whole = rows.loc[undivided(rows), "point"].unique()
    front = rows[rows["on_backend_front"].astype(bool)].sort_values("latency_s")["point"].unique()
    others = [point for point in front if point not in whole]
    kept = {*whole, *evenly(others, max(MOST_BARS // beside - len(whole), 1))}
    return rows[rows["point"].isin(kept or rows["point"].head(1))]


def _parts(rows: pd.DataFrame) -> list[Part]:
    """The parts in the order in which a request meets them. The network, crossed twice, stands once."""
    between = sorted(name for name in rows if str(name).startswith("middle") and str(name)[6:-2].isdigit())
    if not between and rows["middle_s"].notna().any():
        between = ["middle_s"]
    edge, *others = [
        Part(f"{role}_s", f"{role} compute", *stage_look(role))
        for role in ("edge", *(name.removesuffix("_s") for name in between), "server")
    ]
    codec = [part for part in _CODEC if part.column in rows and rows[part.column].notna().any()]
    return [edge, *codec, *_SENT, *others]


def _bars(rows: pd.DataFrame, drawn: list[Series], points: pd.Series) -> pd.DataFrame:
    """A row for each bar, with its `series`, `x` and `breadth`; those of one point stand side by side."""
    every = [one.of(rows).assign(series=one.label) for one in drawn]
    bars = each_once(pd.concat(every, ignore_index=True)).reset_index(drop=True)
    breadth, of_point = min(0.72, 0.86 / max(len(drawn) - 1, 1)), bars.groupby("point")["point"]
    aside = of_point.cumcount() - (of_point.transform("size") - 1) / 2
    return bars.assign(x=layout.places(bars, points) + breadth * aside, breadth=breadth)


def _stack(axes: Axes, bars: pd.DataFrame, parts: list[Part], per_s: float) -> list[Any]:
    """Draw the bars, bounds, crosses and the lowest latency. Returns the legend's entries."""
    medians = bars[[part.column for part in parts]].astype(float).fillna(0).clip(lower=0)
    # The medians of parts do not add up to that of their sum: theirs are shares of it.
    stretch = (bars["latency_s"] / medians.sum(axis=1)).replace(np.inf, np.nan).fillna(0)
    base, bound, entries = np.zeros(len(bars)), bars["latency_bound_s"].astype(float) * per_s, list[Any]()
    for part in parts:
        height = (medians[part.column] * stretch * per_s).to_numpy()
        axes.bar(bars["x"], height, bars["breadth"], base, color=part.colour, hatch=part.hatch, **_THIN)
        entries.append(Patch(facecolor=part.colour, hatch=part.hatch, label=part.label, **_THIN))
        base += height
    diamond: dict[str, Any] = {"marker": "D", "color": "white", "markeredgecolor": "black", "linestyle": ""}
    diamond |= {"markersize": 3.2 if bars["breadth"].max() > 0.2 else 2.2, "markeredgewidth": 0.7}
    axes.plot(bars["x"], bound, **diamond, zorder=4)
    entries.append(entry("bound", **diamond))
    absent, tops = bars["latency_s"].isna(), np.fmax(base, bound.fillna(0))
    if absent.any():
        cross: dict[str, Any] = {"marker": "x", "color": "0.4", "markersize": 4, "linestyle": ""}
        low = axes.get_xaxis_transform()
        axes.plot(bars.loc[absent, "x"], np.full(absent.sum(), 0.04), transform=low, **cross)
        entries.append(entry("no valid trial", **cross))
    if not absent.all():
        best = bars["latency_s"].idxmin()
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.4}
        look: dict[str, Any] = {"ha": "center", "fontsize": SMALL_PT + 0.5, "fontweight": "bold", "bbox": box}
        where = (bars["x"][best], tops[best]), (0, 4)
        axes.annotate(f"{bars['latency_s'][best] * per_s:.3g}", *where, textcoords="offset points", **look)
    axes.set_ylim(0, 1.12 * (float(tops.max()) or 1))
    return entries


def utilization(
    on: On, rows: pd.DataFrame, stages: pd.DataFrame, scheme: Scheme, title: str | None = None
) -> Told:
    """How busy each host and link of a chain is with many requests in flight, at the points on the front by latency: a
    panel for each backend, a line for each step. The step that sets the throughput's bound is framed.

    stages: of `costs.stage_medians`. Raises `Nothing`.
    """
    if not rows["point"].str.contains("+", regex=False).any():
        raise Nothing("utilization: for chains of three hosts or more")
    column = "on_backend_front" if rows["codec"].nunique() == 1 else "on_codec_front"
    front, most = each_once(rows[rows[column].astype(bool)]), 4 if layout.is_narrow(on) else 9
    shown, every = {}, steps(front, stages)
    for one in scheme.series:
        # Where nothing crosses belongs to every backend's front.
        corner = front["on_fronts_of"].str.split("; ").map(lambda names, one=one: one.backend in names)
        own = pd.concat([one.of(front), NEUTRAL.of(front[corner])]).sort_values("latency_s")
        if (own["backend"] != NONE).any():
            shown[one.label] = own.iloc[evenly(range(len(own)), most)].to_dict("records")
    if not shown or every.loc[~every["step"].str.contains("-"), "share"].isna().all():
        raise Nothing("utilization: it is not known how busy hosts are at the points on the front")
    back = every["step"].str.endswith(" back")
    kept = every[~back | every["step"].isin(every.loc[back & (every["share"] > USED), "step"])]
    lines = list(kept.sort_values("place")["step"].unique())
    panels = layout.panels(on, len(shown), 1, (0.24 * len(lines) + 0.5) * len(shown))
    for axes, (label, points) in zip(panels, shown.items(), strict=True):
        for place, point in enumerate(points):
            own = every[every[CELL].eq(pd.Series(point)[CELL]).all(axis=1)].set_index("step")
            for line, step in enumerate(step for step in lines):
                if step in own.index:
                    _cell(axes, place, line, own.loc[step], bounds=step == point["bound_by"])
        names = [f"{point['point']}\n{point['throughput_ips']:.3g}/s" for point in points]
        axes.xaxis.tick_top()
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(lines)), [_named(step) for step in lines])
        widest = max(map(len, shown.values()))
        axes.set(xlim=(-0.5, widest - 0.5), ylim=(len(lines) - 0.5, -0.5), ylabel=label)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    entries = [
        Patch(facecolor="0.55", label="busy (share of the time)"),
        Patch(facecolor="none", edgecolor="black", linewidth=1.4, label="sets the bound"),
    ]
    title = f"Busy along the chain: {subject(rows.iloc[0])}" if title is None else title
    layout.head(on, panels[0], title, entries, rows)
    what = "How busy each host and link is at points on the front, many requests in flight"
    text = told(what, rows, scheme.testbed, "Above: point, images/s; framed: what bounds the throughput")
    return text, every.merge(front[[*CELL, "throughput_ips", "bound_by"]], how="left", on=CELL)


def _cell(axes: Axes, place: int, line: int, step: pd.Series, *, bounds: bool) -> None:
    """Draw the share of the time in which a step is busy, as a number on its grey."""
    share = float(step["share"])
    look: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.8}
    if bounds:
        look = {"edgecolor": "black", "linewidth": 1.4, "zorder": 3}
    grey = str(1 - 0.6 * float(np.clip(np.nan_to_num(share), 0, 1)))
    axes.add_patch(Rectangle((place - 0.46, line - 0.44), 0.92, 0.88, facecolor=grey, **look))
    text = "not measured" if np.isnan(share) else f"{100 * share:.0f} %"
    weight = "bold" if bounds else "normal"
    axes.text(place, line, text, ha="center", va="center", fontsize=SMALL_PT, fontweight=weight, zorder=4)


def _named(step: str) -> str:
    """`edge → middle1` or `edge ← middle1`; a host as it is."""
    hosts, _, way = step.rpartition(" ")
    return hosts.replace("-", " → " if way == "out" else " ← ") if hosts else step
