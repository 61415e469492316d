"""What each point sends and where it computes: the payload, and the edge's share of the measured compute time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from analysis.figures.drawing import Drawing, conditions
from analysis.figures.point_axis import MANY, in_order, label_points, places
from analysis.figures.style import COLOURS, LINES, MARKERS, blank, footnote, head, styled
from analysis.points import cuts, hosts

_HATCHES = ("", "////", "....", "xxxx")
_GREYS = ("0.62", "0.8", "0.3")
_BAR = 0.74
_INPUT, _NOTHING = "input", "nothing crosses"


def payload_drawing(
    rows: pd.DataFrame,
    stages: pd.DataFrame,
    manifest: Mapping[str, Any] | None = None,
    name: Sequence[str] = (),
) -> Drawing | None:
    """Of one model, profile, batch size and depth; None where no trial tells a payload.

    `rows`: of `analysis.fronts.front.front`; `stages`: of `analysis.costs.stage_medians`, for chains of hosts;
    `manifest`: for the model's input and FLOPs, and the testbed. `name`: as in the names of the files, by default model
    and profile.
    """
    data = payload_data(rows, stages, manifest)
    if data.empty:
        return None
    named = tuple(name) or tuple(map(str, rows.iloc[0][["model", "netem"]]))

    def draw(width: str) -> Figure:
        return payload_figure(data, rows, width=width)

    testbed = str((manifest or {}).get("testbed") or "")
    return Drawing("payload", named, draw, data, f"{_told(data)} {conditions(rows, testbed)}")


def payload_data(
    rows: pd.DataFrame, stages: pd.DataFrame, manifest: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """One row a point, in order: what it sends, and which share of the computing lies before each link.

    Columns: model, netem, point, point_name; payload_bytes (in a chain payload1_bytes, payload2_bytes, ..., of each
    link), NaN where nobody measured it, 0 where nothing crosses; input_bytes of a request, NaN if unknown; share
    (share1, ...), of the hosts before that link in all hosts' compute time, mean of the backends' medians; flops_share,
    NaN without `edge_flops` among the manifest's points.
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
    told = _told_of(manifest, str(rows["model"].iloc[0]))
    made["input_bytes"] = _input_bytes(known, told)
    flops_share = _flops_shares(told)
    made["flops_share"] = [flops_share.get(cuts(point)[0], math.nan) for point in points.index]
    return made


def payload_figure(data: pd.DataFrame, rows: pd.DataFrame | None = None, *, width: str = "page") -> Figure:
    """Above, bars of the payload (KiB, logarithmic) and the input's size as a line; below, shares of the computing.

    `data`: of `payload_data`; `rows`: of the front, for the footnote. A chain has a bar and a line for each link.
    """
    points = in_order(data)
    first = data.iloc[0]
    with styled(width):
        figure = blank(width, 4.6 if width == "page" else 3.8)
        above, below = figure.subplots(2, sharex=True, height_ratios=(3, 2))
        _payloads(above, data)
        _shares(below, data, places(data, points))
        label_points(below, points, width)
        title = f"Payload and compute by point: {first['model']}"
        entries = dict(zip(*reversed(above.get_legend_handles_labels()), strict=True))
        last = [label for label in (_INPUT, _NOTHING) if label in entries]
        head(above, title, [entries[label] for label in (*(it for it in entries if it not in last), *last)])
        if rows is not None:
            footnote(figure, rows)
    return figure


def _by_link(known: pd.DataFrame, stages: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Bytes on each link, and the share of the computing before it: a row a point, a column a link (1, 2, ...)."""
    roles = hosts(known["point"].iloc[0])
    if len(roles) == 2:
        of_point = known.groupby("point")[["payload_bytes", "edge_s", "server_s"]].mean()
        sent = of_point[["payload_bytes"]]
        compute_s = of_point[["edge_s", "server_s"]]
    else:
        of_host = stages[stages["point"].isin(known["point"])].groupby(["point", "host"])
        sent, compute_s = (
            of_host[column].mean().unstack("host").reindex(columns=list(which))
            for column, which in (("payload_bytes", roles[:-1]), ("compute_s", roles))
        )
    # What a request does not reach has no figures: nothing is sent to it, and it computes nothing.
    if len(roles) > 2:
        known, sent = compute_s.iloc[:, 0].notna(), sent.fillna(0.0)
    else:
        known = compute_s["edge_s"].notna() & (compute_s["server_s"].notna() | (sent["payload_bytes"] == 0))
    until = compute_s[known].fillna(0.0).cumsum(axis=1)
    shares = until.iloc[:, :-1].div(until.iloc[:, -1], axis=0)
    links = range(1, len(roles))
    return sent.set_axis(links, axis=1), shares.set_axis(links, axis=1)


def _input_bytes(known: pd.DataFrame, told: Sequence[Mapping[str, Any]]) -> float:
    """Of a request: what the point sends that leaves all to the server; else what the manifest says of it."""
    sent = known.loc[known["point"].map(lambda point: not any(cuts(point))), "payload_bytes"]
    if len(sent):
        return float(sent.median())
    return float(known["batch_size"].iloc[0] * told[0].get("payload_bytes", math.nan)) if told else math.nan


def _flops_shares(told: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """By point, the share of the model's FLOPs before it; empty if the manifest does not tell them."""
    flops = [point.get("edge_flops") for point in told]
    known = [float(each) for each in flops if isinstance(each, int | float)]
    if not known or len(known) < len(flops) or not known[-1]:
        return {}
    return {point: each / known[-1] for point, each in enumerate(known)}


def _payloads(axes: Axes, data: pd.DataFrame) -> None:
    columns = [column for column in data if str(column).startswith("payload")]
    x = np.arange(len(data))
    axes.set_yscale("log")
    sent = data[columns].where(data[columns] > 0) / 1024
    for number, column in enumerate(columns):
        label = _link(number, columns, "payload")
        if len(data) > MANY:
            line = LINES[number % len(LINES)]
            axes.step(
                x,
                sent[column],
                where="mid",
                color=_GREYS[-1 - number % 3],
                linestyle=line,
                linewidth=1,
                label=label,
            )
            continue
        axes.bar(
            x + _BAR * ((number + 0.5) / len(columns) - 0.5), sent[column], _BAR / len(columns), label=label,
            edgecolor="0.15", color=_GREYS[number % 3], hatch=_HATCHES[number % len(_HATCHES)], linewidth=0.4,
        )  # fmt: skip
    nothing = (data[columns] == 0).all(axis=1).to_numpy()
    if nothing.any():
        axes.plot(
            x[nothing], np.full(nothing.sum(), 0.03), "x", color="0.4", markersize=4, label=_NOTHING,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
    if not math.isnan(input_bytes := float(data["input_bytes"].iloc[0])):
        axes.axhline(input_bytes / 1024, color="0.2", linestyle="--", linewidth=1, label=_INPUT, zorder=3)
    sizes = [*sent.min(), *sent.max(), input_bytes / 1024]
    if not np.isnan(sizes).all():
        axes.set_ylim(np.nanmin(sizes) / 1.6, np.nanmax(sizes) * 1.3)  # so that the least has a bar too
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("payload (KiB)")
    axes.grid(True, axis="y")


def _shares(axes: Axes, data: pd.DataFrame, x: pd.Series) -> None:
    columns = [column for column in data if str(column).startswith("share")]
    size = 3.5 if len(data) <= MANY else 0
    for number, column in enumerate(columns):
        axes.plot(
            x, data[column], color=COLOURS[(0, 4, 5)[number % 3]], linestyle=LINES[number % len(LINES)], linewidth=1.2,
            marker=MARKERS[number % len(MARKERS)], markersize=size, label=_link(number, columns, "share"), zorder=3,
        )  # fmt: skip
    if data["flops_share"].notna().any():
        axes.plot(
            x, data["flops_share"], color="0.15", linestyle=":", linewidth=1.2, marker="D", markersize=0.7 * size,
            markerfacecolor="white", label="FLOPs on the edge", zorder=2,
        )  # fmt: skip
    axes.set_ylim(-0.04, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_ylabel("share of compute")
    axes.grid(True, axis="y")
    axes.legend(loc="best")


def _link(number: int, columns: Sequence[str], what: str) -> str:
    if what == "payload":
        return "payload" if len(columns) == 1 else f"payload on link {number + 1}"
    return "time on the edge" if not number else f"edge to middle{number}"


def _told_of(manifest: Mapping[str, Any] | None, model: str) -> list[Mapping[str, Any]]:
    """What the manifest tells of each point of a model; nothing for a run older than that."""
    models = (manifest or {}).get("models")
    entry = models.get(model) if isinstance(models, Mapping) else None
    points = entry.get("points") if isinstance(entry, Mapping) else None
    return [point for point in points if isinstance(point, Mapping)] if isinstance(points, list) else []


def _told(data: pd.DataFrame) -> str:
    links = sum(str(column).startswith("payload") for column in data)
    bars = "each link" if links > 1 else "the link"
    sentences = [
        f"Above: the tensor bytes that a request puts on {bars} at each partition point, logarithmic",
        "Below: the share of the measured compute time of all hosts that is spent "
        + ("before each link" if links > 1 else "on the edge")
        + ", one request in flight; mean of the backends' medians. Hosts differ in speed, so this is not the share of "
        "the model",
    ]
    if data["input_bytes"].notna().any():
        sentences.insert(1, "Dashed: the input as it would be sent")
    if data["flops_share"].notna().any():
        sentences.append("Dotted: the share of the model's FLOPs before the point")
    return " ".join(f"{sentence}." for sentence in sentences)
