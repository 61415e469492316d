"""What crosses at each point of a model, and how much of the model lies before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from analysis.figures.style import COLOURS, MARKERS, WIDTH_IN, add_caption, head, styled
from analysis.naming import point_label

NAMED_POINTS = 36
"""Up to this many points are named under the axis; of more, some are numbered."""
NUMBERS = 30
TENSORS = ("1 tensor", "2 tensors", "3 tensors", "more")
_MARKER_PT = 3.8
_SHARES = (("edge_flops", "FLOPs", "0.15", "-"), ("edge_parameters", "parameters", COLOURS[4], "--"))


def partitions_figure(rows: pd.DataFrame, input_bytes: int, caption: str) -> Figure:
    """Two panels over the points of one model, from one row a point, in order.

    Columns: model, point, point_name, tensors and payload_bytes (that cross there, at batch 1; 0 at the last),
    edge_flops and edge_parameters (of all that runs before the point; the last row is the whole model).
    input_bytes: of one float32 image. Above: payload (KiB, logarithmic), marked by how many tensors it is, beside
    the image as float32 and as bytes. Below: the share of FLOPs and of parameters before each point.
    """
    named = len(rows) <= NAMED_POINTS
    with styled():
        figure = Figure(figsize=(WIDTH_IN, 5.0 if named else 4.4), layout="constrained")
        above, below = figure.subplots(2, sharex=True, height_ratios=(3, 2))
        _payloads(above, rows, input_bytes)
        _shares(below, rows)
        below.set_xlim(-0.6, max(len(rows), 6) - 0.4)
        below.set_xlabel("partition point")
        _name(below, rows, named=named)
        head(
            above,
            f"What crosses at each point: {rows['model'].iloc[0]}",
            above.get_legend_handles_labels()[0],
        )
        add_caption(figure, caption)
    return figure


def _payloads(axes: Axes, rows: pd.DataFrame, input_bytes: int) -> None:
    sent = rows[rows["payload_bytes"] > 0]
    x, kib = sent.index.to_numpy() - rows.index[0], sent["payload_bytes"].to_numpy() / 1024
    axes.set_yscale("log")
    axes.step(x, kib, where="mid", color="0.75", linewidth=0.8, zorder=2)
    for number, label in enumerate(TENSORS):
        those = (sent["tensors"].clip(upper=len(TENSORS)) == number + 1).to_numpy()
        if those.any():
            style: dict[str, Any] = {"color": COLOURS[number], "marker": MARKERS[number], "linestyle": ""}
            axes.plot(x[those], kib[those], markersize=_MARKER_PT, label=label, zorder=3, **style)
    least = int(np.argmin(kib))
    axes.plot(
        x[least], kib[least], "o", markersize=9, markerfacecolor="none", markeredgecolor="black",
        markeredgewidth=0.9, label="smallest payload", zorder=4,
    )  # fmt: skip
    for bytes_, line, label in (
        (input_bytes, "--", "input, float32"),
        (input_bytes // 4, ":", "input, uint8"),
    ):
        axes.axhline(bytes_ / 1024, color="0.3", linestyle=line, linewidth=0.9, label=label, zorder=1)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("payload (KiB)")
    axes.grid(True, axis="y")


def _shares(axes: Axes, rows: pd.DataFrame) -> None:
    x = np.arange(len(rows))
    for column, label, colour, line in _SHARES:
        share = rows[column] / max(rows[column].iloc[-1], 1)
        axes.step(x, share, where="post", color=colour, linestyle=line, linewidth=1.2, label=label)
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_ylabel("share on the edge")
    axes.grid(True, axis="y")
    axes.legend(loc="upper left")


def _name(axes: Axes, rows: pd.DataFrame, *, named: bool) -> None:
    if named:
        labels = [point_label(*of) for of in zip(rows["point"], rows["point_name"], strict=True)]
        axes.set_xticks(range(len(rows)), labels, rotation=55, ha="right", rotation_mode="anchor")
    else:
        step = next(step for step in (2, 5, 10, 20, 50, 100, 200) if len(rows) / step <= NUMBERS)
        axes.set_xticks(range(0, len(rows), step), [str(point) for point in rows["point"][::step]])
