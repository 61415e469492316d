"""Figures over the points: where time goes, what crosses, how busy hosts are; one backend against another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from pareto.analysis.comparing.paired import ALL, KEYS, MIN_BLOCKS, What, compared
from pareto.analysis.costs import stage_times, steps
from pareto.analysis.figures import layout
from pareto.analysis.figures.drawing import POINT, Nothing, Told
from pareto.analysis.figures.layout import MANY, On, Printed, entry
from pareto.analysis.figures.look import evenly
from pareto.analysis.figures.style import NEUTRAL, SMALL_PT, WHITE, Scheme, Series, level, stage_look
from pareto.analysis.fronts.quality import codec_name, is_none
from pareto.analysis.naming import USUAL, backends, levels, subject
from pareto.analysis.runs.manifest import within
from pareto.analysis.runs.points import CELL, NONE, cuts, hosts, undivided
from pareto.analysis.runs.standing import stands
from pareto.analysis.runs.treatments import AT_WORK, each_once

SIGNIFICANT, INTERVAL, RANGE = "significant", "95 % interval", "range"
MARKS = {
    SIGNIFICANT: ("significant", True, "-", "Filled: significant, tested at the best point alone"),
    INTERVAL: ("median and 95 % interval", False, "-", "Each interval holds by itself"),
    RANGE: ("too few rounds: median and range", False, ":", f"Dotted: the range, of fewer than {MIN_BLOCKS} rounds"),
}  # fmt: skip
"""The marks of a difference, by what is known of it: words of the legend, whether it is filled, its whiskers, and a
sentence of the caption."""
LATENCY: dict[What, str] = {"backend": "latency_%s_s"}
"""The columns of the difference in latency: else in %, as codecs and engines take most of it, or little."""
PERCENT, THROUGHPUT = "latency_%s_percent", "throughput_%s_percent"
MOST_BARS = 64
"""With more bars only those of the points that matter are drawn."""
USED = 0.02
"""A link's way back that is busier than this somewhere has a line of its own."""
_LOOKS = {
    **{"encode": ("0.65", "\\\\\\\\"), "decode": ("0.95", "--")},
    **{"serialize": ("0.62", "xxxx"), "network": ("0.82", "////")},
}
"""Colour and hatch of the parts of the latency that no host computes."""
_GREYS = ("0.15", "0.5", "0.7")
_WIRE = "wire_bytes_"


def attribution(on: On, rows: pd.DataFrame, scheme: Scheme, stages: pd.DataFrame | None = None) -> Told:
    """Stacked bars of the median latency of one request in flight, divided in proportion to the medians of its parts:
    at each point one for each backend and codec, with its mark beneath and its bound as a diamond; a cross where no
    trial is valid. stages: of `costs.stage_medians`, for a part of each host of a chain.
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
    panel for each backend, a line for each step. stages: of `costs.stage_medians`. Raises `Nothing`.
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
        entry(axes, "busy (share of the time)", marker="s", color="0.6", markersize=7)
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
    what = "How busy each host and link is at points on the front, many requests in flight"
    words = (what, "Above: point, images/s; framed: what bounds the throughput")
    data = every.merge(front[[*CELL, "throughput_ips", "bound_by"]], how="left", on=CELL)
    return Told(f"Busy along the chain: {subject(rows.iloc[0])}", words, data, rows, scheme.testbed)


def _named(step: str) -> str:
    """`edge → middle1` or `edge ← middle1`; a host as it is."""
    hosts, _, way = step.rpartition(" ")
    return hosts.replace("-", " → " if way == "out" else " ← ") if hosts else step


def payload(
    on: On,
    rows: pd.DataFrame,
    scheme: Scheme,
    stages: pd.DataFrame | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> Told:
    """Above the payload of each point (KiB), what codecs send of it, and the input; below the share of the computing
    before each link. stages: of `costs.stage_medians`, for chains. manifest: for input and FLOPs. Raises `Nothing`.
    """
    data = payload_data(rows, stages, manifest)
    _payload(on, data, levels(rows["codec"]))
    words = [
        "Above: tensor bytes that a request sends; below: share of all measured compute time before each link"
    ]
    return Told(f"Payload and compute by point: {subject(rows.iloc[0])}", words, data, rows, scheme.testbed)


def partitions_figure(rows: pd.DataFrame, input_bytes: int, text: str) -> Printed:
    """The payload of each point of a model beside its input, and the shares of FLOPs and parameters before it.

    rows: one a point, in order: model, point, point_name, payload_bytes (at batch 1; 0 at the last), edge_flops and
    edge_parameters. text: a caption under it.
    """
    data = rows.assign(point=rows["point"].astype("str"), input_bytes=input_bytes)
    for name in ("flops", "parameters"):
        data[f"{name}_share"] = rows[f"edge_{name}"] / max(rows[f"edge_{name}"].iloc[-1], 1)

    def draw(on: Printed) -> Told:
        _payload(on, data, [])
        return Told(f"What crosses at each point: {rows['model'].iloc[0]}", [], data, note=text)

    return layout.printed(draw)[0]


def _payload(on: On, data: pd.DataFrame, codecs: list[str]) -> None:
    """Draw the bytes above, the shares below, of the columns of `payload_data`."""
    above, below = layout.panels(
        on, 2, 1, 2.7 if layout.is_narrow(on) else 3.2, sharex=True, height_ratios=(3, 2)
    )
    size, kib = 4.0 if len(data) <= MANY else 2.0, data.filter(regex="_bytes") / 1024
    sent, wire, shares = kib.filter(regex="^payload"), kib.filter(regex=_WIRE), data.filter(regex="^share")
    layout.label_points(below, layout.in_order(data))
    for number, name in enumerate(sent):
        one = level("payload" if sent.shape[1] == 1 else f"payload on link {number + 1}", number, number)
        look = one.mark(size, color=_GREYS[number % 3], linestyle=one.line, label=one.label)
        above.plot(sent[name].where(sent[name] > 0), linewidth=0.7, zorder=3, **look)
    if math.isfinite(input_kib := kib["input_bytes"].iloc[0]):
        above.axhline(input_kib, color="0.2", linestyle="--", linewidth=1, label="input", zorder=2)
    for name in wire:
        codec = str(name).removeprefix(_WIRE)
        number = codecs.index(codec)
        above.plot(wire[name], **level("", number, number).mark(size, label=f"sent by {codec}"))
    nothing = np.flatnonzero((sent == 0).all(axis=1))
    if len(nothing):
        look = {"color": "0.4", "markersize": 4, "transform": above.get_xaxis_transform()}
        above.plot(nothing, np.full(len(nothing), 0.03), "x", label="nothing crosses", **look)
    layout.fit_axis(above, "y", kib.where(kib > 0), room=0.08)
    for number, name in enumerate(shares):
        role = f"middle{number}" if number else "edge"
        one = level(f"time, edge to {role}" if number else "time on the edge", number, number)
        look = one.mark(0.8 * size, color=stage_look(role)[0], linestyle=one.line, label=one.label)
        below.plot(shares[name], clip_on=False, zorder=3, **look)
    for name, what, line in (("flops_share", "FLOPs", ":"), ("parameters_share", "parameters", "--")):
        if name in data and data[name].notna().any():
            below.plot(data[name], line, color="0.15", linewidth=1.2, label=f"{what} on the edge")
    below.set(ylim=(0, 1.04), ylabel="on the edge" if shares.empty else "share of compute")
    below.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    above.set_ylabel("payload (KiB)")
    above.grid(True, axis="y")


def payload_data(
    rows: pd.DataFrame, stages: pd.DataFrame | None = None, manifest: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """One row a point, in order: payload_bytes (of a chain's links payload1_bytes, ...), NaN where nobody measured
    it; share (share1, ...) of the computing before that link, mean of the backends' medians; input_bytes of a request;
    flops_share; wire_bytes_<codec>: what is sent through each codec, on the first link. Raises `Nothing`.
    """
    known = rows.dropna(subset=["payload_bytes"])
    if known.empty:
        raise Nothing("payload: no payload is known")
    model, netem = rows.iloc[0][["model", "netem"]]
    made = pd.DataFrame({"model": model, "netem": netem, "point_name": layout.in_order(rows)})
    sent, shares = _by_link(known, stages)
    for number, name in enumerate(sent, 1):
        suffix = "" if sent.shape[1] == 1 else str(number)
        made[f"payload{suffix}_bytes"], made[f"share{suffix}"] = sent[name], shares.iloc[:, number - 1]
    listed = within(manifest, "models", str(model), "points")
    listed = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    at_input = known.loc[known["point"].map(lambda point: not any(cuts(point))), "payload_bytes"]
    of_model = float(listed[0].get("payload_bytes", math.nan)) if listed else math.nan
    made["input_bytes"] = at_input.median() if len(at_input) else known["batch_size"].iloc[0] * of_model
    flops = pd.to_numeric(pd.Series([each.get("edge_flops") for each in listed]), errors="coerce")
    of_cut = flops / flops.iloc[-1] if len(flops) and flops.notna().all() and flops.iloc[-1] else pd.Series()
    made["flops_share"] = [of_cut.get(cuts(point)[0], math.nan) for point in made.index]
    coded = known[~is_none(known["codec"]) & known["wire_bytes"].notna()]
    for codec, own in coded[coded["codec"] == coded[AT_WORK]].groupby("codec", observed=True):
        made[f"{_WIRE}{codec}"] = own.groupby("point")["wire_bytes"].median()
    return made.reset_index(names="point")[["model", "netem", "point", *made.columns[2:]]]


def _by_link(known: pd.DataFrame, stages: pd.DataFrame | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Bytes on each link, and the share of computing before it: a row a point, a column a link."""
    roles = list(hosts(known["point"].iloc[0]))
    if len(roles) == 2 or stages is None or stages.empty:
        means = known.groupby("point")[["payload_bytes", "edge_s", "server_s"]].mean()
        sent, compute_s = means[["payload_bytes"]], means[["edge_s", "server_s"]]
        has_share = compute_s.notna().all(axis=1) | (
            compute_s["edge_s"].notna() & (sent["payload_bytes"] == 0)
        )
    else:
        of_host = stages[stages["point"].isin(known["point"])].groupby(["point", "host"])
        means = of_host[["payload_bytes", "compute_s"]].mean().unstack("host")
        sent, compute_s = means["payload_bytes"].reindex(columns=roles[:-1]).fillna(0.0), means["compute_s"]
        compute_s = compute_s.reindex(columns=roles)
        has_share = compute_s["edge"].notna()
    # A host that a request does not reach has no figures: nothing is sent to it, and it computes nothing.
    until = compute_s[has_share].fillna(0.0).cumsum(axis=1)
    return sent, until.iloc[:, :-1].div(until.iloc[:, -1], axis=0)


def paired(on: On, rows: pd.DataFrame, scheme: Scheme, pairs: pd.DataFrame, what: What = "backend") -> Told:
    """The differences, other - first, of two backends, each codec and none, or each engine and eager (`what`), at each
    point: in latency above and in throughput (%) below. rows: trials; pairs: of `comparing.paired`. Raises `Nothing`.
    """
    data, ok = paired_data(pairs, rows, what), stands(rows)
    # A row a cell, with the number of its valid trials and of the others.
    both = stands(rows, "latency") & stands(rows, "throughput")
    cells = rows[CELL].assign(rounds=ok, left_out=~ok, excluded=~both, trials=True)
    counted = cells.groupby(CELL, dropna=False, observed=True).sum().reset_index()
    points, first, every = layout.in_order(data), data.iloc[0], list(_pairs(data, counted, what))
    above, below = layout.panels(on, 2, 1, 3.2 if layout.is_narrow(on) else 3.6, sharex=True)
    layout.label_points(below, points)
    base, alone = codec_name(first["first"]), len(every) == 1
    difference = f"{first['other']} \N{MINUS SIGN} {base}" if alone else "difference"
    for axes, columns in ((above, LATENCY.get(what, PERCENT)), (below, THROUGHPUT)):
        name, in_seconds = columns.partition("_")[0], columns.endswith("_s")
        axes.axhline(0, color="0.25", linewidth=0.8, zorder=1.5)
        for place, (one, own) in enumerate(every):
            shift = 0.7 * (place - (len(every) - 1) / 2) / len(every)
            for kind, those in own.groupby(f"{name}_mark"):
                ends = [those[columns % end] for end in ("difference", "low", "high")]
                middle, low, high = (end * (scheme.per_s if in_seconds else 1) for end in ends)
                look = _mark(one, str(kind), 4 if len(own) <= MANY else 2)
                spread = np.vstack([middle - low, high - middle]).clip(min=0)
                x, line = layout.places(those, points) + shift, look.pop("linestyle")
                bars = axes.errorbar(x, middle, yerr=spread, elinewidth=0.9, zorder=3, linestyle="", **look)
                bars[2][0].set_linestyle(line)
        axes.set_ylabel(f"{name}:\n{difference} ({scheme.unit if in_seconds else '%'})")
        axes.grid(True, axis="y")
        axes.margins(y=0.1)
    for one, _ in every if not alone else ():
        entry(below, one.label, **one.mark(4))
    kinds = [kind for kind in MARKS if kind in {*data["latency_mark"], *data["throughput_mark"]}]
    for kind in kinds:
        look = _mark(every[0][0] if alone else Series("", "0.35", "o"), kind, 4)
        entry(below, MARKS[kind][0], **look, linewidth=0.9)
    several = "Backends against each other" if what == "backend" else f"{what.capitalize()}s against {base}"
    versus = f"{first['other']} against {base}" if alone else several
    words = [f"{versus}: differences of trials of one round", *(MARKS[kind][3] for kind in kinds)]
    return Told(f"{versus}: {subject(first)}", words, data, counted, scheme.testbed)


def _mark(one: Series, kind: str, size_pt: float) -> dict[str, Any]:
    _, is_filled, line, _ = MARKS[kind]
    return one.mark(size_pt, markerfacecolor=one.colour if is_filled else "white", linestyle=line)


def paired_data(pairs: pd.DataFrame, trials: pd.DataFrame, what: What = "backend") -> pd.DataFrame:
    """The data of the figure, one row a point and pair: the columns of `pairs`, point_name, and latency_mark and
    throughput_mark: what is known of the difference, one of `MARKS`. With `RANGE`, the low and high columns are the
    least and the greatest difference of a round. Raises `Nothing`.
    """
    points = pairs[(pairs["point"] != ALL) & (pairs["pairs"] > 0)]
    if points.empty:
        raise Nothing(f"paired: no two {what}s have valid trials of one point in one round")
    measures, ranges = (LATENCY.get(what, PERCENT), THROUGHPUT), []
    for pair, rounds in compared(trials, what):
        of_point = rounds.groupby("point")[[columns.replace("_%s", "") for columns in measures]]
        spans = of_point.agg(["min", "max"])
        spans.columns = [f"{columns % end}_range" for columns in measures for end in ("low", "high")]
        ranges.append(spans.reset_index().assign(**{str(key): pair[key] for key in pair}))
    keys = [*KEYS[what], "point"]
    names = trials.groupby(keys, dropna=False)["point_name"].max().reset_index()
    spread = pd.concat(ranges, ignore_index=True).merge(names, how="left", on=keys)
    points = points.merge(spread, how="left", on=[*keys, "first", "other"])
    for columns in measures:
        ends = [columns % "low", columns % "high"]
        has_interval = points[ends].notna().all(axis=1)
        for end in ends:
            points[end] = points[end].where(has_interval, points.pop(f"{end}_range"))
        points[f"{columns.partition('_')[0]}_mark"] = np.where(has_interval, INTERVAL, RANGE)
    points.loc[points["latency_significant"].astype(bool), "latency_mark"] = SIGNIFICANT
    place = layout.places(points, layout.in_order(points))
    return points.iloc[place.argsort(kind="stable")].reset_index(drop=True)


def _pairs(data: pd.DataFrame, counted: pd.DataFrame, what: What) -> Iterator[tuple[Series, pd.DataFrame]]:
    """Yield each series with its rows: pairs of backends codec by codec, or codecs or engines backend by backend."""
    if what == "backend":
        both = data[["first", "other"]].drop_duplicates().to_dict("records")
        of_pairs = [(f"{pair['other']} \N{MINUS SIGN} {pair['first']}", pair) for pair in both]
        within_each = [(f", {codec_name(each)}", {"codec": each}) for each in levels(data["codec"])]
    else:
        of_pairs = [(each, {"other": each}) for each in levels(counted[what], (USUAL[what],))]
        within_each = [(f" over {each}", {"backend": each}) for each in backends(data)]
    several, places = len(within_each) > 1, product(enumerate(of_pairs), enumerate(within_each))
    for place, ((number, (label, same)), (inner, (more, also))) in enumerate(places):
        own = data[data[[*same, *also]].eq(pd.Series(same | also)).all(axis=1)]
        if len(own):
            colour = inner if several and what == "backend" else number
            yield level(label + more * several, colour, place), own
