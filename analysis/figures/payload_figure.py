"""The payload of each point, and the shares of the computing that lie before it, measured or counted."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import MANY, fit_axis, in_order, label_points, places
from pareto.analysis.figures.drawing import Drawing, caption, conditions, origin
from pareto.analysis.figures.style import LEVEL_COLOURS, LINES, MARKERS, CodecLook, codec_looks
from pareto.analysis.fronts.quality import is_none
from pareto.analysis.naming import subject
from pareto.analysis.points import AT_WORK, cuts, hosts
from pareto.analysis.runs.manifest import within

TENSORS = ("1 tensor", "2 tensors", "3 tensors", "more")
_COUNTED = (("edge_flops", "FLOPs", "0.15", "-"), ("edge_parameters", "parameters", "0.5", "--"))
_GREYS = ("0.15", "0.5", "0.7")
_INPUT, _NOTHING = "input", "nothing crosses"
_WIRE = "wire_bytes_"


def payload_drawing(
    rows: pd.DataFrame, stages: pd.DataFrame, manifest: Mapping[str, Any] | None = None
) -> Drawing | None:
    """The drawing of one condition; None where no payload is known.

    `rows`: of `analysis.fronts.front.front`; `stages`: of `analysis.costs.stage_medians`, for chains of hosts;
    `manifest`: for the model's input and FLOPs, and the testbed.
    """
    data = payload_data(rows, stages, manifest)
    if data.empty:
        return None
    text = caption(*_sentences(data), conditions(rows, origin([manifest or {}])))
    return Drawing("payload", lambda width: payload_figure(data, rows, width=width), data, text)


def payload_data(
    rows: pd.DataFrame, stages: pd.DataFrame, manifest: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """One row a point, in order: what it sends, and which share of the computing lies before each link.

    Columns: model, netem, point, point_name; payload_bytes (in a chain payload1_bytes, payload2_bytes, ..., of each
    link), NaN where nobody measured it, 0 where nothing crosses; input_bytes of a request, NaN if unknown; share
    (share1, ...), of the hosts before that link in all hosts' compute time, mean of the backends' medians; flops_share,
    NaN without `edge_flops` among the manifest's points; wire_bytes_<codec>: what is sent of it through each codec that
    has a cell there, of the first link.
    """
    known = rows.dropna(subset=["payload_bytes"])
    if known.empty:
        return pd.DataFrame()
    points = in_order(rows)
    made = rows.iloc[[0]][["model", "netem"]].merge(points.reset_index(), how="cross")
    payloads, shares = _by_link(known, stages)
    for number in payloads:
        suffix = "" if len(payloads.columns) == 1 else str(number)
        made[f"payload{suffix}_bytes"] = payloads[number].reindex(points.index).to_numpy()
        made[f"share{suffix}"] = shares[number].reindex(points.index).to_numpy()
    listed = _points(manifest, str(rows["model"].iloc[0]))
    made["input_bytes"] = _input_bytes(known, listed)
    flops_share = _flops_shares(listed)
    made["flops_share"] = [flops_share.get(cuts(point)[0], math.nan) for point in points.index]
    coded = known[~is_none(known["codec"]) & known["wire_bytes"].notna()]
    coded = coded[coded["codec"] == coded[AT_WORK]]
    for codec in codec_looks(rows):
        if (own := coded[coded["codec"] == codec]).shape[0]:
            of_point = own.groupby("point")["wire_bytes"].median()
            made[f"{_WIRE}{codec}"] = of_point.reindex(points.index).to_numpy()
    return made


def payload_figure(data: pd.DataFrame, rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """Draw dots of the payload (KiB) and a line at the input's size; below, shares of the computing.

    `data`: of `payload_data`; `rows`: of the front, for the footnote. A chain has a dot and a line for each link.
    """
    points = in_order(data)
    with style.blank(width, 3.9 if width == "page" else 3.3, rows) as figure:
        above, below = figure.subplots(2, sharex=True, height_ratios=(3, 2))
        _payloads(above, data, codec_looks(rows))
        _shares(below, data, places(data, points))
        label_points(below, points)
        title = f"Payload and compute by point: {subject(rows.iloc[0])}"
        entries = dict(zip(*reversed(above.get_legend_handles_labels()), strict=True))
        last = [label for label in (_INPUT, _NOTHING) if label in entries]
        heads.head(
            above,
            title,
            [entries[label] for label in (*(name for name in entries if name not in last), *last)],
        )
    return figure


def _by_link(known: pd.DataFrame, stages: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Bytes on each link, and the share of computing before it: a row a point, a column a link (1, 2, ...)."""
    roles = hosts(known["point"].iloc[0])
    if len(roles) == 2:
        of_point = known.groupby("point")[["payload_bytes", "edge_s", "server_s"]].mean()
        sent, compute_s = of_point[["payload_bytes"]], of_point[["edge_s", "server_s"]]
        has_share = compute_s["edge_s"].notna() & (
            compute_s["server_s"].notna() | (sent["payload_bytes"] == 0)
        )
    else:
        of_host = stages[stages["point"].isin(known["point"])].groupby(["point", "host"])
        sent, compute_s = (
            of_host[column].mean().unstack("host").reindex(columns=list(which))
            for column, which in (("payload_bytes", roles[:-1]), ("compute_s", roles))
        )
        has_share, sent = compute_s.iloc[:, 0].notna(), sent.fillna(0.0)
    # What a request does not reach has no figures: nothing is sent to it, and it computes nothing.
    until = compute_s[has_share].fillna(0.0).cumsum(axis=1)
    shares = until.iloc[:, :-1].div(until.iloc[:, -1], axis=0)
    links = range(1, len(roles))
    return sent.set_axis(links, axis=1), shares.set_axis(links, axis=1)


def _points(manifest: Mapping[str, Any] | None, model: str) -> list[Mapping[str, Any]]:
    """The manifest's list of the points of a model; nothing if it has no such list."""
    points = within(manifest, "models", model, "points")
    return [point for point in points if isinstance(point, Mapping)] if isinstance(points, list) else []


def _input_bytes(known: pd.DataFrame, points: Sequence[Mapping[str, Any]]) -> float:
    """The bytes of a request's input: what point 0 sends, or else what the manifest says."""
    sent = known.loc[known["point"].map(lambda point: not any(cuts(point))), "payload_bytes"]
    if len(sent):
        return float(sent.median())
    return (
        float(known["batch_size"].iloc[0] * points[0].get("payload_bytes", math.nan)) if points else math.nan
    )


def _flops_shares(points: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """The share of the model's FLOPs before each point; empty if the manifest has none."""
    flops = [point.get("edge_flops") for point in points]
    known = [float(each) for each in flops if isinstance(each, int | float)]
    if not known or len(known) < len(flops) or not known[-1]:
        return {}
    return {point: each / known[-1] for point, each in enumerate(known)}


def _payloads(axes: Axes, data: pd.DataFrame, looks: Mapping[str, CodecLook]) -> None:
    columns = [column for column in data if str(column).startswith("payload")]
    x = np.arange(len(data))
    sent = data[columns].where(data[columns] > 0) / 1024
    size = 4.5 if len(data) <= MANY else 2
    for number, column in enumerate(columns):
        axes.plot(
            x, sent[column], color=_GREYS[number % 3], linestyle=LINES[number % len(LINES)], linewidth=0.6,
            marker=MARKERS[number % len(MARKERS)], markersize=size, label=_link(number, columns, "payload"), zorder=3,
        )  # fmt: skip
    nothing = (data[columns] == 0).all(axis=1).to_numpy()
    if nothing.any():
        axes.plot(
            x[nothing], np.full(nothing.sum(), 0.03), "x", color="0.4", markersize=4, label=_NOTHING,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
    if not math.isnan(input_bytes := float(data["input_bytes"].iloc[0])):
        axes.axhline(input_bytes / 1024, color="0.2", linestyle="--", linewidth=1, label=_INPUT, zorder=3)
    wire = data[[column for column in data if str(column).startswith(_WIRE)]] / 1024
    for column in wire:
        codec = str(column).removeprefix(_WIRE)
        axes.plot(
            x, wire[column], linestyle="", marker=looks[codec].marker, color=looks[codec].colour, markersize=size,
            markeredgecolor="white", markeredgewidth=0.4, label=f"sent by {codec}", zorder=4,
        )  # fmt: skip
    sizes = pd.Series([*sent.min(), *sent.max(), *wire.min(), input_bytes / 1024]).dropna()
    if len(sizes):
        fit_axis(axes, "y", sizes, room=0.08)
    axes.set_ylabel("payload (KiB)")
    axes.grid(True, axis="y")


def _shares(axes: Axes, data: pd.DataFrame, x: pd.Series) -> None:
    columns = [column for column in data if str(column).startswith("share")]
    size = 3.5 if len(data) <= MANY else 0
    for number, column in enumerate(columns):
        colour, _ = style.stage_look(f"middle{number}" if number else "edge")
        axes.plot(
            x, data[column], color=colour, linestyle=LINES[number % len(LINES)], linewidth=1.2,
            marker=MARKERS[number % len(MARKERS)], markersize=size, label=_link(number, columns, "share"), zorder=3,
        )  # fmt: skip
    if data["flops_share"].notna().any():
        axes.plot(
            x, data["flops_share"], color="0.15", linestyle=":", linewidth=1.2, marker="D", markersize=0.7 * size,
            markerfacecolor="white", label="FLOPs on the edge", zorder=2,
        )  # fmt: skip
    _label_shares(axes, "share of compute")
    axes.legend(loc="best")


def _label_shares(axes: Axes, label: str) -> None:
    axes.set_ylim(0, 1.04)
    for line in axes.lines:
        line.set_clip_on(False)  # marks at 0 and at 100 % are whole
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    axes.set_ylabel(label)
    axes.grid(True, axis="y")


def _link(number: int, columns: Sequence[str], what: str) -> str:
    if what == "payload":
        return "payload" if len(columns) == 1 else f"payload on link {number + 1}"
    return "time on the edge" if not number else f"edge to middle{number}"


def _sentences(data: pd.DataFrame) -> Iterator[str]:
    several = sum(str(column).startswith("payload") for column in data) > 1
    dots, before = ("each link", "before each link") if several else ("the link", "on the edge")
    yield f"Above: the tensor bytes that a request puts on {dots} at each partition point"
    if any(str(column).startswith(_WIRE) for column in data):
        yield f"Marks: what each codec sends of them{' on the first link' if several else ''}"
    if data["input_bytes"].notna().any():
        yield "Dashed: the input as it would be sent"
    yield (
        f"Below: the share of the measured compute time of all hosts that is spent {before}, one request in flight; "
        "mean of the backends' medians. Hosts differ in speed, so this is not the share of the model"
    )
    if data["flops_share"].notna().any():
        yield "Dotted: the share of the model's FLOPs before the point"


def partitions_figure(rows: pd.DataFrame, inputs: Mapping[str, int], text: str) -> Figure:
    """Draw two panels over the points of one model, from one row a point, in order.

    Columns: model, point, point_name, tensors and payload_bytes (that cross there, at batch 1; 0 at the last),
    edge_flops and edge_parameters (of all that runs before the point; the last row is the whole model).
    inputs: the bytes of one input, by each way to send it; text: the caption. Above: payload (KiB), marked
    by how many tensors it is, beside the input. Below: the share of FLOPs and of parameters before each point.
    """
    with style.blank("page", 4.4) as figure:
        above, below = figure.subplots(2, sharex=True, height_ratios=(3, 2))
        _payloads_by_tensors(above, rows, inputs)
        _counted(below, rows)
        points = pd.Series(list(rows["point_name"]), index=list(rows["point"]))
        label_points(below, points)
        title = f"What crosses at each point: {rows['model'].iloc[0]}"
        heads.head(above, title, above.get_legend_handles_labels()[0])
        figure.supxlabel(
            textwrap.fill(text, 136), x=0.01, ha="left", fontsize=7, color="0.25", linespacing=1.3
        )
    return figure


def _payloads_by_tensors(axes: Axes, rows: pd.DataFrame, inputs: Mapping[str, int]) -> None:
    sent = rows[rows["payload_bytes"] > 0]
    x, kib = sent.index.to_numpy() - rows.index[0], sent["payload_bytes"].to_numpy() / 1024
    axes.step(x, kib, where="mid", color="0.75", linewidth=0.8, zorder=2)
    for number, label in enumerate(TENSORS):
        those = (sent["tensors"].clip(upper=len(TENSORS)) == number + 1).to_numpy()
        if those.any():
            look: dict[str, Any] = {
                "color": LEVEL_COLOURS[number],
                "marker": MARKERS[number],
                "linestyle": "",
            }
            axes.plot(x[those], kib[those], markersize=3.8, label=label, zorder=3, **look)
    least = int(np.argmin(kib))
    axes.plot(
        x[least], kib[least], "o", markersize=9, markerfacecolor="none", markeredgecolor="black",
        markeredgewidth=0.9, label="smallest payload", zorder=4,
    )  # fmt: skip
    for (label, bytes_), line in zip(inputs.items(), ("--", ":"), strict=False):
        axes.axhline(bytes_ / 1024, color="0.3", linestyle=line, linewidth=0.9, label=label, zorder=1)
    fit_axis(axes, "y", pd.Series([*kib, *(bytes_ / 1024 for bytes_ in inputs.values())]), room=0.08)
    axes.set_ylabel("payload (KiB)")
    axes.grid(True, axis="y")


def _counted(axes: Axes, rows: pd.DataFrame) -> None:
    x = np.arange(len(rows))
    for column, label, colour, line in _COUNTED:
        share = rows[column] / max(rows[column].iloc[-1], 1)
        axes.step(x, share, where="post", color=colour, linestyle=line, linewidth=1.2, label=label)
    _label_shares(axes, "share on the edge")
    axes.legend(loc="upper left")
