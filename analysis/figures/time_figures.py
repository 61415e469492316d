"""Where time goes: the parts of a request's latency at each point, and how busy each host and link of a chain is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.costs import stage_times, steps
from pareto.analysis.figures import layout
from pareto.analysis.figures.drawing import POINT, Nothing, Told
from pareto.analysis.figures.layout import On, Scheme
from pareto.analysis.figures.style import NEUTRAL, SMALL_PT, WHITE, evenly, stage_look
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
    points, every = layout.in_order(shown), rows["point"].nunique()
    (axes,) = layout.panels(on, 1, 1, 2.0 if layout.is_narrow(on) else 2.6)
    layout.label_points(axes, points)
    axes.set_ylabel(scheme.label("latency_s"))
    axes.grid(True, axis="y")
    beneath = axes.get_xaxis_transform()
    crossing = [one for one, _ in scheme.of_each(shown) if one is not NEUTRAL]
    drawn = pd.concat(own.assign(series=one.label) for one, own in scheme.of_each(shown))
    bars = each_once(drawn.reset_index(drop=True)).reset_index(drop=True)
    # Those of one point stand side by side.
    breadth, of_point = min(0.72, 0.86 / max(len(crossing), 1)), bars.groupby("point")["point"]
    aside = of_point.cumcount() - (of_point.transform("size") - 1) / 2
    bars["x"] = layout.places(bars, points) + breadth * aside
    if len(crossing) > 1:
        axes.tick_params(axis="x", length=0, pad=8)
        for one in crossing:
            x, look = bars.loc[bars["series"] == one.label, "x"], one.mark(min(3.4, 200 / len(bars)))
            look |= {"label": one.label, "transform": beneath, "clip_on": False, "zorder": 5}
            axes.plot(x, np.full(len(x), -0.03), **look)
    parts = _parts(shown)
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
        axes.bar(bars["x"], heights[column], breadth, bases[column], label=label, **look)
    bound, absent = bars["latency_bound_s"].astype(float) * per_s, bars["latency_s"].isna()
    look = {
        "color": "white",
        "markeredgecolor": "black",
        "markeredgewidth": 0.7,
        "label": "bound",
        "zorder": 4,
    }
    axes.plot(bars["x"], bound, "D", markersize=3.2 if breadth > 0.2 else 2.2, **look)
    if absent.any():
        look = {"color": "0.4", "markersize": 4, "transform": beneath, "label": "no valid trial"}
        axes.plot(bars.loc[absent, "x"], np.full(absent.sum(), 0.04), "x", **look)
    tops = np.fmax(heights.sum(axis=1), bound.fillna(0))
    if not absent.all():
        best = bars["latency_s"].idxmin()
        text, at = f"{bars['latency_s'][best] * per_s:.3g}", (bars["x"][best], tops[best])
        look = {"textcoords": "offset points", "ha": "center", "fontsize": SMALL_PT + 0.5}
        look |= {"fontweight": "bold", "bbox": WHITE}
        axes.annotate(text, at, (0, 4), **look)
    axes.set_ylim(0, 1.12 * (float(tops.max()) or 1))
    words = (
        "Where the time of a request goes at each point, one in flight",
        f"Shown: {len(points)} of {every} points" if len(points) < every else "",
        "Bars: median latency, shared out by its parts' medians; diamonds: the bound",
    )
    data = shown[[*POINT, "latency_s", "latency_bound_s", *parts]]
    return Told(f"Latency by part: {subject(rows.iloc[0])}", words, data, rows=rows, testbed=scheme.testbed)


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
    between = sorted(name for name in rows if str(name).startswith("middle") and str(name)[6:-2].isdigit())
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
    for one in scheme.series:
        # Where nothing crosses belongs to every backend's front.
        corner = front["on_fronts_of"].str.split("; ").map(lambda names, one=one: one.backend in names)
        own = pd.concat([one.of(front), NEUTRAL.of(front[corner])]).sort_values("latency_s")
        if (own["backend"] != NONE).any():
            own = own.iloc[evenly(range(len(own)), most)]
            shown[one.label] = own.assign(x=range(len(own)))[[*CELL, "throughput_ips", "bound_by", "x"]]
    if not shown or every.loc[~every["step"].str.contains("-"), "share"].isna().all():
        raise Nothing("utilization: it is not known how busy hosts are at the points on the front")
    back = every["step"].str.endswith(" back")
    kept = every[~back | every["step"].isin(every.loc[back & (every["share"] > USED), "step"])]
    lines = list(kept.sort_values("place")["step"].unique())
    panels = layout.panels(on, len(shown), 1, (0.24 * len(lines) + 0.5) * len(shown))
    for axes, (label, points) in zip(panels, shown.items(), strict=True):
        cells = kept.merge(points, on=CELL)
        cells["y"] = cells["step"].map(lines.index)
        cells["grey"] = (1 - 0.6 * cells["share"].fillna(0).clip(0, 1)).astype("str")
        for bounds, of in cells.groupby(cells["step"] == cells["bound_by"]):
            edge, width, what = ("black", 1.4, "sets the bound") if bounds else ("white", 0.8, BUSY)
            look: dict[str, Any] = {"color": list(of["grey"]), "edgecolor": edge, "linewidth": width}
            axes.bar(of["x"], 0.88, 0.92, of["y"] - 0.44, label=what, zorder=3 if bounds else 1, **look)
            look = {"ha": "center", "va": "center", "fontsize": SMALL_PT}
            look["fontweight"] = "bold" if bounds else "normal"
            for x, y, share in of[["x", "y", "share"]].itertuples(index=False):
                text = "not measured" if np.isnan(share) else f"{100 * share:.0f} %"
                axes.text(x, y, text, zorder=4, **look)
        axes.xaxis.tick_top()
        names = [f"{point}\n{rate:.3g}/s" for point, rate in points[["point", "throughput_ips"]].to_numpy()]
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(lines)), map(_named, lines))
        widest = max(map(len, shown.values()))
        axes.set(xlim=(-0.5, widest - 0.5), ylim=(len(lines) - 0.5, -0.5), ylabel=label)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    words = (
        "How busy each host and link is at points on the front, many requests in flight",
        "Above: point, images/s; framed: what bounds the throughput",
    )
    data = every.merge(front[[*CELL, "throughput_ips", "bound_by"]], how="left", on=CELL)
    title = f"Busy along the chain: {subject(rows.iloc[0])}"
    return Told(title, words, data, rows=rows, testbed=scheme.testbed)


def _named(step: str) -> str:
    """`edge → middle1` or `edge ← middle1`; a host as it is."""
    hosts, _, way = step.rpartition(" ")
    return hosts.replace("-", " → " if way == "out" else " ← ") if hosts else step
