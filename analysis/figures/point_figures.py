"""Figures over the points: what crosses and where it computes; one backend, codec or engine against another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import PercentFormatter

from pareto.analysis.comparing.paired import ALL, KEYS, MIN_BLOCKS, What, compared
from pareto.analysis.figures import layout
from pareto.analysis.figures.drawing import Nothing, Told
from pareto.analysis.figures.layout import MANY, On, Printed, entry
from pareto.analysis.figures.style import GREY, Scheme, Series, level, stage_look
from pareto.analysis.fronts.quality import codec_name, is_none
from pareto.analysis.naming import backends, levels, subject
from pareto.analysis.runs.manifest import within
from pareto.analysis.runs.points import AT_WORK, CELL, EAGER, NO_CODEC, cuts, hosts
from pareto.analysis.runs.standing import stands

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
_GREYS = ("0.15", "0.5", "0.7")
_WIRE = "wire_bytes_"


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
    shares = "below: share of all measured compute time before each link"
    words = [f"Above: tensor bytes that a request sends; {shares}"]
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
    """One row a point, in order: what it sends, and which share of the computing lies before each link.

    Columns: model, netem, point, point_name; payload_bytes (in a chain payload1_bytes, ..., of each link), NaN where
    nobody measured it, 0 where nothing crosses; share (share1, ...), of the hosts before that link in all hosts'
    compute time, mean of the backends' medians; input_bytes of a request; flops_share, if the manifest's points have
    `edge_flops`; wire_bytes_<codec>: what is sent through each codec, on the first link. Raises `Nothing`.
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
    point: in latency above and in throughput (%) below.

    rows: trials of `analysis.load`; pairs: of `comparing.paired.paired`, the same conditions. Raises `Nothing`.
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
        look = _mark(every[0][0] if alone else Series("", GREY, "o"), kind, 4)
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
        of_pairs = [(each, {"other": each}) for each in levels(counted[what], (NO_CODEC, EAGER))]
        within_each = [(f" over {each}", {"backend": each}) for each in backends(data)]
    several, places = len(within_each) > 1, product(enumerate(of_pairs), enumerate(within_each))
    for place, ((number, (label, same)), (inner, (more, also))) in enumerate(places):
        own = data[data[[*same, *also]].eq(pd.Series(same | also)).all(axis=1)]
        if len(own):
            colour = inner if several and what == "backend" else number
            yield level(label + more * several, colour, place), own
