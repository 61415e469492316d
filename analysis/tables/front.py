"""The front over all codecs, and the latency beyond the bound: legible at 80 columns, without colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.console import RenderableType
from rich.text import Text

from pareto.analysis.costs import MIN_PAYLOADS, MIN_POINTS, NOISE
from pareto.analysis.fronts.front import over_codecs
from pareto.analysis.fronts.objectives import ACCURACY, DEFAULT
from pareto.analysis.fronts.quality import LEVEL, codec_name, in_words, name_of
from pareto.analysis.naming import ANY_NOTE, backend_name, condition_title, time_unit
from pareto.analysis.runs.points import AT_WORK, BUT_CODEC, CONDITION, NONE, each_once
from pareto.analysis.tables.columns import (
    UNKNOWN,
    Column,
    by_backend,
    figure,
    figures,
    framed,
    number,
    spans,
    sureness,
)
from pareto.analysis.tables.overview import why_empty

_MS, _MS_PER_MB = 1e3, 1e9
"""From seconds, and from seconds a byte."""


def codecs_tables(
    front: pd.DataFrame, objectives: Sequence[str] = DEFAULT, where: str = ""
) -> list[RenderableType]:
    """A table for each condition that was measured with several codecs, of the front over all of them.

    front: of `analysis.front`; objectives, where: those that it was made with. Accuracy is among the objectives,
    unless the constraint says how much is enough.
    """
    return [
        _codecs_table(rows, over_codecs(objectives, where), where)
        for _, rows in front.groupby(BUT_CODEC, dropna=False)
        if (rows.loc[rows["backend"] != NONE, ["codec", AT_WORK]].nunique() > 1).all()
    ]


def _codecs_table(rows: pd.DataFrame, objectives: Sequence[str], where: str) -> RenderableType:
    title = condition_title({**rows.iloc[0].to_dict(), "codec": ""})
    rows = each_once(rows)
    points = rows[rows["on_codec_front"].astype(bool)].sort_values("latency_s", kind="stable")
    if points.empty:
        return Text(f"{title}, over all codecs: {why_empty(rows, objectives, where)}\n")
    unit, scale = time_unit(float(points["latency_s"].max()))
    ties = points["accuracy"].ne(points[LEVEL]) & points["accuracy"].notna()
    unknown = sorted(set(rows.loc[rows["accuracy"].isna() & (rows["rounds"] > 0), "codec"]))
    notes = [
        f"front of {in_words(objectives, rows)}",
        f"where {where}" if where else "",
        "" if ACCURACY in objectives else f"accuracy = {name_of(rows) or 'not measured'}",
        "* the images cannot tell it from the best of those that are near" if ties.any() else "",
        f"not here, as what they cost in accuracy was not measured: {', '.join(unknown)}" if unknown else "",
        "95 % = interval of the accuracy by the number of images",
        "sure = probability of being on this front",
        ANY_NOTE if (points["backend"] == NONE).any() else "",
    ]
    names: list[Any] = [Text(str(name), no_wrap=True, overflow="ellipsis") for name in points["point_name"]]
    accuracies = [
        f"{figure(value * 100, 1)}{'*' if tied else ' '}"
        for value, tied in zip(points["accuracy"], ties, strict=True)
    ]
    codecs = [
        codec_name(codec) if backend != NONE else UNKNOWN
        for codec, backend in zip(points[AT_WORK], points["backend"], strict=True)
    ]
    columns = [
        Column("codec", codecs),
        Column("backend", [backend_name(backend) for backend in points["backend"]]),
        Column("point", list(points["point"].astype(str)), kind="point"),
        Column("name", names, look={"min_width": 4, "overflow": "ellipsis"}),
        number("latency", points["latency_s"] * scale, 3 if unit == "s" else 2, unit),
        number("img", points["throughput_ips"], 2, "/s"),
        number("wire", points["wire_bytes_per_image"] / 1e3, 1, "kB/img"),
        Column("accuracy", accuracies, "%", "number"),
        Column("95 %", spans(points["accuracy_low"] * 100, points["accuracy_high"] * 100, 1), "%", "number"),
        Column("sure", [sureness(share) for share in points["codec_probability"]], "%", "number"),
    ]
    return framed(columns, f"{title}: Pareto front over all codecs", notes)


def overhead_tables(rows: pd.DataFrame) -> list[RenderableType]:
    """A table for each condition, with a line for each backend, from the frame of `analysis.costs.overhead`; and what
    their columns mean.
    """
    tables: list[RenderableType] = []
    for _, group in rows.groupby(CONDITION, dropna=False):
        ordered = by_backend(group, "points")
        columns = [
            Column("backend", list(ordered["backend"]), look={"min_width": 7}),
            *overhead_columns(ordered),
            number("resid.", ordered["residual_s"] * _MS, 2, "ms"),
            number("eff", ordered["latency_efficiency"] * 100, 1, "%"),
        ]
        if ordered["goodput_efficiency"].notna().any():
            columns.append(number("TCP", ordered["goodput_efficiency"] * 100, 1, "%"))
        tables.append(framed(columns, f"{condition_title(group.iloc[0])}: overhead beyond the bound"))
    return [*tables, Text(f"{_overhead_notes(rows)}\n")] if tables else []


def overhead_columns(rows: pd.DataFrame) -> list[Column]:
    """The columns that terminal and page share: points, a (ms), b (ms/MB), their intervals, TCP's headers."""
    columns = [number("points", rows["points"], 0)]
    for head, column, scale, unit in (("a", "a_s", _MS, "ms"), ("b", "b_s_per_byte", _MS_PER_MB, "ms/MB")):
        name, _, per = column.partition("_")
        low, high = (rows[f"{name}_{end}_{per}"] * scale for end in ("low", "high"))
        cells = zip(figures(rows[column] * scale, 2), rows["note"].fillna(""), strict=True)
        hidden = ["noise" if NOISE[column] in note else cell for cell, note in cells]
        columns.append(Column(head, hidden, unit, "number"))
        columns.append(Column("95 %", spans(low, high, 2), unit, "number"))
    if rows["headers_s_per_byte"].notna().any():
        columns.append(number("headers", rows["headers_s_per_byte"] * _MS_PER_MB, 2, "ms/MB"))
    return columns


def _overhead_notes(rows: pd.DataFrame) -> str:
    """The meaning of the columns, once for all tables."""
    efficiency = "eff = share of the physical bound, median"
    if rows["goodput_efficiency"].notna().any():
        efficiency += "; TCP = of that at TCP's goodput"
    notes = {
        "latency over its bound = a + b x bytes, of payload and result": True,
        "headers = what TCP's headers make of b": rows["headers_s_per_byte"].notna().any(),
        "resid. = median distance from the line": True,
        efficiency: True,
        "noise: hidden by the noise of the rounds": any(
            rows["note"].fillna("").str.contains(hidden).any() for hidden in NOISE.values()
        ),
        f"-: no line through fewer than {MIN_PAYLOADS} payloads, no interval with fewer than {MIN_POINTS} points": (
            (rows["points"] < MIN_POINTS) | (rows["payloads"] < MIN_PAYLOADS)
        ).any(),
    }
    return "; ".join(note for note, is_needed in notes.items() if is_needed)
