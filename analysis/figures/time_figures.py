"""Where time goes: the parts of a request's latency at each point, and how busy each host and link of a chain is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle

from pareto.analysis.costs import stage_times, steps
from pareto.analysis.figures import layout
from pareto.analysis.figures.drawing import POINT, Nothing, Told
from pareto.analysis.figures.layout import On
from pareto.analysis.figures.style import NEUTRAL, SMALL_PT, WHITE, Scheme, evenly, stage_look
from pareto.analysis.naming import subject
from pareto.analysis.runs.points import CELL, NONE, each_once, undivided

MOST_BARS = 64
"""With more bars only those of the points that matter are drawn."""
USED, BUSY = 0.02, "busy (share of the time)"
"""A link's way back that is busier than this somewhere has a line of its own; what its grey means."""
_LOOKS = {
    **{"encode": ("0.65", "\\\\\\\\"), "decode": ("0.95", "--")},
    **{"serialize": ("0.62", "xxxx"), "network": ("0.82", "////")},
}
"""Colour and hatch of the parts of the latency that no host computes."""


def attribution(on: On, rows: pd.DataFrame, scheme: Scheme, stages: pd.DataFrame | None = None) -> Told:
    """Stacked bars of one condition: the median latency of one request in flight, divided in proportion to the medians
    of its parts; the diamond is the latency bound, the number the lowest median.

    Backends and codecs have a bar each at every point, with their mark beneath. A cell without any valid trial is a
    cross. A chain has a part for each host, by `stages` of `costs.stage_medians`. Beyond `MOST_BARS` bars only those of
    one host alone and of some points on a front are drawn, and the caption says so.
    """
    rows = rows if stages is None else stage_times(rows, stages)
    shown, per_s = _that_matter(rows), scheme.per_s
    points, every, parts = layout.in_order(shown), rows["point"].nunique(), _parts(shown)
    (axes,) = layout.panels(on, 1, 1, 2.0 if layout.is_narrow(on) else 2.6)
    layout.label_points(axes, points)
    axes.set_ylabel(scheme.label("latency_s"))
    bars = pd.concat(own.assign(series=one.label) for one, own in scheme.of_each(shown))
    bars = each_once(bars.reset_index(drop=True)).reset_index(drop=True)
    crossing = [one for one, _ in scheme.of_each(shown) if one is not NEUTRAL]
    # Those of one point stand side by side.
    breadth, of_point = min(0.72, 0.86 / max(len(crossing), 1)), bars.groupby("point")["point"]
    x = layout.places(bars, points) + breadth * (of_point.cumcount() - (of_point.transform("size") - 1) / 2)
    beneath: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False}
    if len(crossing) > 1:
        axes.tick_params(axis="x", length=0, pad=8)
        for one in crossing:
            at, look = x[bars["series"] == one.label], one.mark(min(3.4, 200 / len(bars)))
            axes.plot(at, np.full(len(at), -0.03), **look, **beneath, label=one.label, zorder=5)
    medians = bars[parts].astype(float).fillna(0).clip(lower=0)
    # The medians of parts do not add up to that of their sum: theirs are shares of it.
    stretch = (bars["latency_s"] / medians.sum(axis=1)).replace(np.inf, np.nan).fillna(0)
    heights = medians.mul(stretch * per_s, axis=0)
    bases = heights.cumsum(axis=1) - heights
    for column in parts:
        part = column.removesuffix("_s")
        colour, hatch = _LOOKS.get(part) or stage_look(part)
        look = {"color": colour, "hatch": hatch, "edgecolor": "0.15", "linewidth": 0.4}
        label = part if part in _LOOKS else f"{part} compute"
        axes.bar(x, heights[column], breadth, bases[column], label=label, **look)
    bound, absent = bars["latency_bound_s"].astype(float) * per_s, bars["latency_s"].isna()
    look = {"color": "white", "markeredgecolor": "black", "markeredgewidth": 0.7, "label": "bound"}
    axes.plot(x, bound, "D", markersize=3.2 if breadth > 0.2 else 2.2, **look, zorder=4)
    if absent.any():
        look = {"color": "0.4", "markersize": 4, "label": "no valid trial"}
        axes.plot(x[absent], np.full(absent.sum(), 0.04), "x", **look, **beneath)
    tops = np.fmax(heights.sum(axis=1), bound.fillna(0))
    if not absent.all():
        best = bars["latency_s"].idxmin()
        look = {"textcoords": "offset points", "ha": "center", "fontsize": SMALL_PT + 0.5, "bbox": WHITE}
        number = f"{bars['latency_s'][best] * per_s:.3g}"
        axes.annotate(number, (x[best], tops[best]), (0, 4), fontweight="bold", **look)
    axes.set_ylim(0, 1.12 * (float(tops.max()) or 1))
    words = (
        "Where the time of a request goes at each point, one in flight",
        f"Shown: {len(points)} of {every} points" if len(points) < every else "",
        "Bars: median latency, shared out by its parts' medians; diamonds: the bound",
    )
    data = shown[[*POINT, "latency_s", "latency_bound_s", *parts]]
    return Told(f"Latency by part: {subject(rows.iloc[0])}", words, data, rows, scheme.testbed)


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


def _parts(rows: pd.DataFrame) -> list[str]:
    """The columns of the parts in the order in which a request meets them. The network, crossed twice, stands once."""
    between = sorted(rows.filter(regex=r"^middle\d+_s$"))
    if not between and rows["middle_s"].notna().any():
        between = ["middle_s"]
    coded = [name for name in ("encode_s", "decode_s") if name in rows and rows[name].notna().any()]
    return ["edge_s", *coded, "serialize_s", "network_s", *between, "server_s"]


def utilization(on: On, rows: pd.DataFrame, scheme: Scheme, stages: pd.DataFrame) -> Told:
    """How busy each host and link of a chain is with many requests in flight, at the points on the front by latency: a
    panel for each backend, a line for each step. The step that sets the throughput's bound is framed.

    stages: of `costs.stage_medians`. Raises `Nothing`.
    """
    if not rows["point"].str.contains("+", regex=False).any():
        raise Nothing("utilization: for chains of three hosts or more")
    column = "on_backend_front" if rows["codec"].nunique() == 1 else "on_codec_front"
    front, most = each_once(rows[rows[column].astype(bool)]), 4 if layout.is_narrow(on) else 9
    every, shown = steps(front, stages), {}
    for one, own in scheme.of_each(front):
        if one is not NEUTRAL:
            # Where nothing crosses belongs to every backend's front.
            corner = front["on_fronts_of"].str.split("; ").map(lambda names, one=one: one.backend in names)
            whole = front[corner & (front["backend"] == NONE)].drop_duplicates("point")
            own = pd.concat([own, whole]).sort_values("latency_s")
            shown[one.label] = own.iloc[evenly(range(len(own)), most)].reset_index(drop=True)
    if not shown or every.loc[~every["step"].str.contains("-"), "share"].isna().all():
        raise Nothing("utilization: it is not known how busy hosts are at the points on the front")
    back = every["step"].str.endswith(" back")
    kept = every[~back | every["step"].isin(every.loc[back & (every["share"] > USED), "step"])]
    lines = list(kept.sort_values("place")["step"].unique())
    widest = max(map(len, shown.values()))
    panels = layout.panels(on, len(shown), 1, (0.24 * len(lines) + 0.5) * len(shown))
    for axes, (label, points) in zip(panels, shown.items(), strict=True):
        layout.entry(axes, BUSY, marker="s", color="0.6", markersize=7)
        cells = kept.merge(points[[*CELL, "bound_by"]].assign(x=points.index), on=CELL)
        share = cells.pivot(index="step", columns="x", values="share").reindex(lines)
        # As light as black letters on it need.
        axes.pcolormesh(share, cmap="Greys", vmin=0, vmax=1.7, edgecolors="white", linewidth=1.5)
        axes.set(xlim=(0, widest), ylim=(len(lines), 0), ylabel=label)
        for step, x, busy, bound_by in cells[["step", "x", "share", "bound_by"]].itertuples(index=False):
            text, y = "not measured" if np.isnan(busy) else f"{100 * busy:.0f} %", lines.index(step)
            weight = "bold" if step == bound_by else "normal"
            axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=SMALL_PT, fontweight=weight)
            if step == bound_by:
                look: dict[str, Any] = {"fill": False, "linewidth": 1.4, "clip_on": False}
                axes.add_patch(Rectangle((x, y), 1, 1, label="sets the bound", **look))
        names = [f"{point}\n{rate:.3g}/s" for point, rate in points[["point", "throughput_ips"]].to_numpy()]
        axes.xaxis.tick_top()
        axes.set_xticks(np.arange(len(names)) + 0.5, names)
        axes.set_yticks(np.arange(len(lines)) + 0.5, map(_named, lines))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    words = (
        "How busy each host and link is at points on the front, many requests in flight",
        "Above: point, images/s; framed: what bounds the throughput",
    )
    data = every.merge(front[[*CELL, "throughput_ips", "bound_by"]], how="left", on=CELL)
    return Told(f"Busy along the chain: {subject(rows.iloc[0])}", words, data, rows, scheme.testbed)


def _named(step: str) -> str:
    """`edge → middle1` or `edge ← middle1`; a host as it is."""
    hosts, _, way = step.rpartition(" ")
    return hosts.replace("-", " → " if way == "out" else " ← ") if hosts else step
