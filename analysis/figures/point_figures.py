"""Figures over the points: what crosses and where it computes; one backend, codec or engine against another."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from pareto.analysis.comparing.paired import ALL, KEYS, MIN_BLOCKS, What, compared
from pareto.analysis.figures import layout, style
from pareto.analysis.figures.drawing import Nothing, Told, told
from pareto.analysis.figures.layout import MANY, On, Scheme
from pareto.analysis.figures.style import LEVEL_COLOURS, LINES, MARKERS, Series, entry
from pareto.analysis.fronts.quality import codec_name, is_none
from pareto.analysis.naming import backends, levels, subject
from pareto.analysis.runs.manifest import within
from pareto.analysis.runs.points import AT_WORK, CELL, EAGER, cuts, hosts
from pareto.analysis.runs.standing import stands

SIGNIFICANT, INTERVAL, RANGE = "significant", "95 % interval", "range"
MARKS = {
    SIGNIFICANT: ("significant", True, "-"),
    INTERVAL: ("median and 95 % interval", False, "-"),
    RANGE: ("too few rounds: median and range", False, ":"),
}
"""The marks of a difference, by what is known of it: words of the legend, whether it is filled, its whiskers."""
THROUGHPUT = "throughput_%s_percent"
_GREYS = ("0.15", "0.5", "0.7")
_WIRE = "wire_bytes_"


def payload(
    on: On,
    rows: pd.DataFrame,
    scheme: Scheme,
    stages: pd.DataFrame | None = None,
    manifest: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> Told:
    """Above the payload of each point (KiB), what codecs send of it, and the input; below the share of the computing
    before each link. stages: of `costs.stage_medians`, for chains. manifest: for input and FLOPs. Raises `Nothing`.
    """
    data = payload_data(rows, stages, manifest)
    above, entries = _payload(on, data, levels(rows["codec"].fillna("")))
    title = f"Payload and compute by point: {subject(rows.iloc[0])}" if title is None else title
    layout.head(on, above, title, entries, rows)
    what = (
        "Above: tensor bytes that a request sends; below: share of all measured compute time before each link"
    )
    return told(what, rows, scheme.testbed), data


def partitions_figure(rows: pd.DataFrame, input_bytes: int, text: str) -> style.Printed:
    """The payload of each point of a model beside its input, and the shares of FLOPs and parameters before it.

    rows: one a point, in order: model, point, point_name, payload_bytes (at batch 1; 0 at the last), edge_flops and
    edge_parameters. text: a caption under it.
    """
    shares = {
        f"{name}_share": rows[f"edge_{name}"] / max(rows[f"edge_{name}"].iloc[-1], 1)
        for name in ("flops", "parameters")
    }
    data = rows.assign(point=rows["point"].astype("str"), input_bytes=input_bytes, **shares)
    with style.styled():
        figure = style.Printed()
        above, entries = _payload(figure, data.reset_index(drop=True), [])
        layout.head(figure, above, f"What crosses at each point: {rows['model'].iloc[0]}", entries)
        words = textwrap.fill(text, 136)
        figure.supxlabel(words, x=0.01, ha="left", fontsize=style.SMALL_PT + 1, color="0.25")
    return figure


def _payload(on: On, data: pd.DataFrame, codecs: list[str]) -> tuple[Axes, list[Any]]:
    """Draw the bytes above, the shares below, of the columns of `payload_data`. Returns the upper axes, and the
    legend's entries.
    """
    above, below = layout.panels(
        on, 2, 1, 2.7 if layout.is_narrow(on) else 3.2, sharex=True, height_ratios=(3, 2)
    )
    size, x = 4.0 if len(data) <= MANY else 2.0, np.arange(len(data))
    sent = data[[name for name in data if str(name).startswith("payload")]] / 1024
    for number, name in enumerate(sent):
        label = "payload" if sent.shape[1] == 1 else f"payload on link {number + 1}"
        look = _link_look(number, _GREYS[number % 3], size)
        above.plot(x, sent[name].where(sent[name] > 0), label=label, linewidth=0.7, **look)
    input_kib = float(data["input_bytes"].iloc[0]) / 1024
    if math.isfinite(input_kib):
        above.axhline(input_kib, color="0.2", linestyle="--", linewidth=1, label="input", zorder=2)
    wire = data[[name for name in data if str(name).startswith(_WIRE)]] / 1024
    for name in wire:
        codec = str(name).removeprefix(_WIRE)
        mark = Series("", LEVEL_COLOURS[codecs.index(codec) % 8], MARKERS[codecs.index(codec) % 12]).mark(
            size
        )
        above.plot(x, wire[name], label=f"sent by {codec}", **mark)
    nothing = (sent == 0).all(axis=1)
    if nothing.any():
        cross: dict[str, Any] = {"color": "0.4", "markersize": 4, "transform": above.get_xaxis_transform()}
        above.plot(x[nothing], np.full(nothing.sum(), 0.03), "x", label="nothing crosses", **cross)
    sizes = np.array([*sent.to_numpy().ravel(), *wire.to_numpy().ravel(), input_kib])
    layout.fit_axis(above, "y", sizes[sizes > 0], room=0.08)
    above.set_ylabel("payload (KiB)")
    for number, name in enumerate(name for name in data if str(name).startswith("share")):
        label = f"time, edge to middle{number}" if number else "time on the edge"
        colour, _ = style.stage_look(f"middle{number}" if number else "edge")
        below.plot(x, data[name], label=label, clip_on=False, **_link_look(number, colour, 0.8 * size))
    for name, line in (("flops_share", ":"), ("parameters_share", "--")):
        if name in data and data[name].notna().any():
            label = "FLOPs on the edge" if name == "flops_share" else "parameters on the edge"
            below.plot(x, data[name], line, color="0.15", linewidth=1.2, label=label)
    below.set(ylim=(0, 1.04), ylabel="on the edge" if "share" not in data else "share of compute")
    below.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    layout.label_points(below, layout.in_order(data))
    for axes in (above, below):
        axes.grid(True, axis="y")
    return above, [*above.get_legend_handles_labels()[0], *below.get_legend_handles_labels()[0]]


def _link_look(number: int, colour: str, size_pt: float) -> dict[str, Any]:
    """The look of a link's line, by its number."""
    line = {"linestyle": LINES[number % len(LINES)], "marker": MARKERS[number % len(MARKERS)]}
    return {"color": colour, "markersize": size_pt, "zorder": 3, **line}


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
    points = layout.in_order(rows)
    made = rows.iloc[[0]][["model", "netem"]].merge(points.reset_index(), how="cross")
    payloads, shares = _by_link(known, stages)
    for number in payloads:
        suffix = "" if payloads.shape[1] == 1 else str(number)
        made[f"payload{suffix}_bytes"] = payloads[number].reindex(points.index).to_numpy()
        made[f"share{suffix}"] = shares[number].reindex(points.index).to_numpy()
    listed = within(manifest, "models", str(rows["model"].iloc[0]), "points")
    listed = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    at_input = known.loc[known["point"].map(lambda point: not any(cuts(point))), "payload_bytes"]
    of_model = float(listed[0].get("payload_bytes", math.nan)) if listed else math.nan
    made["input_bytes"] = at_input.median() if len(at_input) else known["batch_size"].iloc[0] * of_model
    flops = pd.to_numeric(pd.Series([each.get("edge_flops") for each in listed]), errors="coerce")
    of_cut = flops / flops.iloc[-1] if len(flops) and flops.notna().all() and flops.iloc[-1] else pd.Series()
    made["flops_share"] = [of_cut.get(cuts(point)[0], math.nan) for point in points.index]
    coded = known[~is_none(known["codec"]) & known["wire_bytes"].notna()]
    for codec, own in coded[coded["codec"] == coded[AT_WORK]].groupby("codec", observed=True):
        made[f"{_WIRE}{codec}"] = own.groupby("point")["wire_bytes"].median().reindex(points.index).to_numpy()
    return made


def _by_link(known: pd.DataFrame, stages: pd.DataFrame | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Bytes on each link, and the share of computing before it: a row a point, a column a link (1, 2, ...)."""
    roles = hosts(known["point"].iloc[0])
    if len(roles) == 2 or stages is None or stages.empty:
        of_point = known.groupby("point")[["payload_bytes", "edge_s", "server_s"]].mean()
        sent, compute_s = of_point[["payload_bytes"]], of_point[["edge_s", "server_s"]]
        is_whole = compute_s["server_s"].notna() | (sent["payload_bytes"] == 0)
        has_share = compute_s["edge_s"].notna() & is_whole
    else:
        of_host = stages[stages["point"].isin(known["point"])].groupby(["point", "host"])
        sent, compute_s = (
            of_host[column].mean().unstack("host").reindex(columns=list(which))
            for column, which in (("payload_bytes", roles[:-1]), ("compute_s", roles))
        )
        has_share, sent = compute_s.iloc[:, 0].notna(), sent.fillna(0.0)
    # A host that a request does not reach has no figures: nothing is sent to it, and it computes nothing.
    until = compute_s[has_share].fillna(0.0).cumsum(axis=1)
    shares = until.iloc[:, :-1].div(until.iloc[:, -1], axis=0)
    links = range(1, sent.shape[1] + 1)
    return sent.set_axis(links, axis=1), shares.set_axis(links, axis=1)


def paired(
    on: On,
    pairs: pd.DataFrame,
    trials: pd.DataFrame,
    scheme: Scheme,
    what: What = "backend",
    title: str | None = None,
) -> Told:
    """The differences, other - first, of two backends, each codec and none, or each engine and eager (`what`), at each
    point: in latency above and in throughput (%) below.

    pairs: of `comparing.paired.paired`; trials: of `analysis.load`, the same conditions. Raises `Nothing`.
    """
    data, counted = paired_data(pairs, trials, what), _counted(trials)
    points, first, every = layout.in_order(data), data.iloc[0], list(_pairs(data, counted, what))
    above, below = layout.panels(on, 2, 1, 3.2 if layout.is_narrow(on) else 3.6, sharex=True)
    base = codec_name(first["first"])
    alone = f"{first['other']} \N{MINUS SIGN} {base}" if len(every) == 1 else "difference"
    for axes, columns in ((above, _latency(what)), (below, THROUGHPUT)):
        per_s, unit = (scheme.per_s, scheme.unit) if columns.endswith("_s") else (1.0, "%")
        axes.axhline(0, color="0.25", linewidth=0.8, zorder=1.5)
        for place, (one, own) in enumerate(every):
            shift = 0.7 * (place - (len(every) - 1) / 2) / len(every)
            _differences(axes, one, own, layout.places(own, points) + shift, columns, per_s)
        axes.set_ylabel(f"{columns.partition('_')[0]}:\n{alone} ({unit})")
        axes.grid(True, axis="y")
        axes.margins(y=0.1)
    layout.label_points(below, points)
    present = {*data["latency_mark"], *data["throughput_mark"]}
    grey = Series("", style.GREY, "o") if len(every) > 1 else every[0][0]
    entries = [entry(one.label, **one.mark(4)) for one, _ in every if len(every) > 1]
    for kind, (label, is_filled, line) in MARKS.items():
        if kind in present:
            fill = {
                "markerfacecolor": grey.colour if is_filled else "white",
                "linestyle": line,
                "linewidth": 0.9,
            }
            entries.append(entry(label, **grey.mark(4) | fill))
    several = "Backends against each other" if what == "backend" else f"{what.capitalize()}s against {base}"
    versus = several if len(every) > 1 else f"{first['other']} against {base}"
    layout.head(on, above, f"{versus}: {subject(first)}" if title is None else title, entries, counted)
    meanings = {
        SIGNIFICANT: "Filled: significant, tested at the best point alone",
        INTERVAL: "Each interval holds by itself",
        RANGE: f"Dotted: the range, of fewer than {MIN_BLOCKS} rounds",
    }
    marks = dict.fromkeys(meanings[kind] for kind in MARKS if kind in present)
    return told(f"{versus}: differences of trials of one round", counted, scheme.testbed, *marks), data


def _latency(what: What) -> str:
    """The columns of the difference in latency: of codecs and engines, which differ by most of it here and little
    there, in %.
    """
    return "latency_%s_s" if what == "backend" else "latency_%s_percent"


def paired_data(pairs: pd.DataFrame, trials: pd.DataFrame, what: What = "backend") -> pd.DataFrame:
    """The data of the figure, one row a point and pair: the columns of `pairs`, point_name, and latency_mark and
    throughput_mark: what is known of the difference, one of `MARKS`. With `RANGE`, the low and high columns are the
    least and the greatest difference of a round. Raises `Nothing`.
    """
    points = pairs[(pairs["point"] != ALL) & (pairs["pairs"] > 0)].reset_index(drop=True)
    if points.empty:
        raise Nothing(f"paired: no two {what}s have valid trials of one point in one round")
    points = points.merge(_ranges(trials, what), how="left", on=[*KEYS[what], "first", "other", "point"])
    for columns in (_latency(what), THROUGHPUT):
        ends = [columns % "low", columns % "high"]
        has_interval = points[ends].notna().all(axis=1)
        for end in ends:
            points[end] = points[end].where(has_interval, points.pop(f"{end}_range"))
        name = columns.partition("_")[0]
        points[f"{name}_mark"] = np.where(has_interval, INTERVAL, RANGE)
    points.loc[points["latency_significant"].astype(bool), "latency_mark"] = SIGNIFICANT
    return points.iloc[layout.places(points, layout.in_order(points)).argsort(kind="stable")].reset_index(
        drop=True
    )


def _ranges(trials: pd.DataFrame, what: What) -> pd.DataFrame:
    """The least and the greatest difference of a round, for each pair and point, and its name."""
    latency, ranges = _latency(what), []
    for pair, rounds in compared(trials, what):
        by_point, ends = rounds.groupby("point"), {}
        for columns, column in ((latency, latency.replace("_%s", "")), (THROUGHPUT, "throughput_percent")):
            ends[f"{columns % 'low'}_range"] = by_point[column].min()
            ends[f"{columns % 'high'}_range"] = by_point[column].max()
        ranges.append(pd.DataFrame(ends).reset_index().assign(**{str(key): pair[key] for key in pair}))
    keys = [*KEYS[what], "point"]
    names = trials.groupby(keys, dropna=False)["point_name"].max().reset_index()
    return pd.concat(ranges, ignore_index=True).merge(names, how="left", on=keys)


def _pairs(data: pd.DataFrame, counted: pd.DataFrame, what: What) -> Iterator[tuple[Series, pd.DataFrame]]:
    """Yield each series with its rows: a pair of backends codec by codec, or a codec or engine backend by backend, in
    the codec's or engine's colour.
    """
    codecs, over = (
        levels(data["codec"].fillna("") if "codec" in data else []),
        backends(data) if "backend" in data else [],
    )
    wanted: list[tuple[str, dict[str, str], int]] = []
    if what == "backend":
        for place, (first, other) in enumerate(data[["first", "other"]].drop_duplicates().to_numpy()):
            for number, codec in enumerate(codecs):
                label = f"{other} \N{MINUS SIGN} {first}" + (
                    f", {codec_name(codec)}" if len(codecs) > 1 else ""
                )
                same = {"first": first, "other": other, "codec": codec}
                wanted.append((label, same, number if len(codecs) > 1 else place))
    else:
        for number, level in enumerate(levels(counted[what], ("", "none", EAGER))):
            for backend in over:
                label = f"{level} over {backend}" if len(over) > 1 else level
                wanted.append((label, {"other": level, "backend": backend}, number))
    for place, (label, same, colour) in enumerate(wanted):
        own = data[data[list(same)].eq(pd.Series(same)).all(axis=1)]
        if len(own):
            yield (
                Series(label, LEVEL_COLOURS[colour % len(LEVEL_COLOURS)], MARKERS[place % len(MARKERS)]),
                own,
            )


def _differences(
    axes: Axes, one: Series, own: pd.DataFrame, x: pd.Series, columns: str, factor: float
) -> None:
    for kind, those in own.groupby(f"{columns.partition('_')[0]}_mark"):
        _, is_filled, line = MARKS[str(kind)]
        middle, low, high = (those[columns % end] * factor for end in ("difference", "low", "high"))
        mark = one.mark(4 if len(own) <= MANY else 2, markerfacecolor=one.colour if is_filled else "white")
        spread = np.vstack([middle - low, high - middle]).clip(min=0)
        bars = axes.errorbar(x[those.index], middle, yerr=spread, elinewidth=0.9, zorder=3, **mark)
        bars[2][0].set_linestyle(line)


def _counted(trials: pd.DataFrame) -> pd.DataFrame:
    """One row a cell, with the number of its valid trials and of the others."""
    ok = stands(trials)
    both = stands(trials, "latency") & stands(trials, "throughput")
    cells = trials[CELL].assign(rounds=ok, left_out=~ok, excluded=~both, trials=True)
    return cells.groupby(CELL, dropna=False, observed=True).sum().reset_index()
