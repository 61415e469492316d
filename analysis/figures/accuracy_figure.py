"""Latency, throughput and accuracy of every codec's points: each against each, in panels that share their axes."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import end_at_all
from pareto.analysis.figures.drawing import POINT, Drawing, caption
from pareto.analysis.figures.labels import UP_LEFT, UP_RIGHT, settle
from pareto.analysis.figures.style import Series, entry
from pareto.analysis.figures.three import COLUMN_LABELS, MARKER_PT, Panel, fills, grid
from pareto.analysis.fronts import quality
from pareto.analysis.naming import subject, time_unit
from pareto.analysis.points import NONE, each_once

FRONT = "on_codec_front"
_DRAWN = ["latency_s", "throughput_ips", "accuracy"]
_DATA = [
    *(*POINT, *_DRAWN, "accuracy_of", "accuracy_images", "accuracy_low", "accuracy_high", quality.LEVEL),
    *("wire_bytes_per_image", FRONT, "codec_probability", "codec_ties"),
]


def accuracy_drawing(rows: pd.DataFrame, conditions: str, objectives: str) -> Drawing | None:
    """`accuracy_figure` with its data and caption; None where fewer than two codecs have an accuracy.

    `conditions` as of `drawing.conditions`; `objectives`: of the front over all codecs, in words.
    """
    measured = rows.dropna(subset=_DRAWN)
    if measured.loc[measured["backend"] != NONE, "codec"].nunique() < 2:
        return None
    unknown = sorted(set(rows.loc[rows["accuracy"].isna() & (rows["rounds"] > 0), "codec"]))
    text = caption(
        "Latency, throughput and accuracy of every partition point and codec, each against each",
        f"Accuracy is {quality.name_of(measured)}: {_MEANING[str(measured['accuracy_of'].iloc[0])]}",
        conditions,
        f"Filled and numbered: on the front over all backends and codecs in {objectives}; hollow: dominated",
        "Accuracies that so many images do not tell apart count as equal",
        "Medians over rounds, without intervals",
        f"Not drawn, as what they cost in accuracy was not measured: {', '.join(unknown)}" if unknown else "",
    )
    data = measured.reindex(columns=_DATA).reset_index(drop=True)
    return Drawing("accuracy", lambda width: accuracy_figure(rows, width=width), data, text)


_MEANING = {
    quality.TOP1: "the share whose label is the top class",
    quality.AGREEMENT: "the share whose top class is that of the whole model without a codec; it needs no labels",
    quality.MEAN_IOU: "the overlap of each class's pixels with those of the whole model without a codec",
    quality.MAP50: "the precision of the boxes, where those of the whole model without a codec are the truth",
}


def accuracy_figure(rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """The points of one model, profile and batch size over all codecs, from rows of `analysis.front`.

    Latency (ms or s, less is better), throughput (images/s, more is better) and accuracy (%, more is better). Points
    on the front over all codecs are filled and numbered; the others are hollow. A point where nothing crosses has no
    codec, and is drawn once.
    """
    measured = each_once(rows.dropna(subset=_DRAWN))
    unit, scale = time_unit(float(measured["latency_s"].max()))
    measured = measured.assign(latency=measured["latency_s"] * scale, percent=measured["accuracy"] * 100)
    drawn = list(style.scattered(measured))
    label = f"{quality.WORDS[str(measured['accuracy_of'].iloc[0])]} (%)"
    with style.blank(width, 4.6 if width == "page" else 3.6, rows) as figure:
        plane, by_throughput, by_latency, nothing = grid(
            figure, measured, "percent", label, unit, shares=True
        )
        nothing.set_axis_off()
        panels = [
            Panel(plane, "latency", "throughput_ips", UP_LEFT, FRONT),
            Panel(by_throughput, "percent", "throughput_ips", UP_RIGHT, FRONT),
            Panel(by_latency, "latency", "percent", UP_LEFT, FRONT),
        ]
        for panel in panels:
            panel.draw(drawn)
        title = f"Latency, throughput and {quality.name_of(measured)}: {subject(rows.iloc[0])}"
        heads.grow(figure, heads.figure_head(figure, title, _legend(drawn, measured)))
        end_at_all(figure, by_latency.yaxis, by_throughput.xaxis)
        settle(figure)
        for panel in panels:
            panel.number(drawn, COLUMN_LABELS if width == "column" else None)
    return figure


def _legend(drawn: list[Series], measured: pd.DataFrame) -> list[Line2D]:
    """The entries of backends and codecs, with what each codec costs, and of what is filled."""
    entries = [
        entry(f"{one.label}: {quality.span(one.rows['accuracy'])}", **one.mark(MARKER_PT)) for one in drawn
    ]
    return [*entries, *fills(measured[FRONT], "on the front over all codecs")]
