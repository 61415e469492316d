"""The latency beyond the bound, for each backend: legible in a terminal of 80 columns and without colour."""

from __future__ import annotations

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from analysis.costs import MIN_PAYLOADS, MIN_POINTS, NOISE
from analysis.naming import condition_title
from analysis.points import CONDITION
from analysis.tables.columns import Column, by_backend, figures, framed, number, spans

_MS, _MS_PER_MB = 1e3, 1e9
"""From seconds, and from seconds a byte."""


def overhead_table(rows: pd.DataFrame) -> RenderableType:
    """Return one table a condition, with a line for each backend, from the frame of `analysis.costs.overhead`."""
    tables = []
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
    return Group(*tables, Text(f"{_notes(rows)}\n")) if tables else Group()


def overhead_columns(rows: pd.DataFrame) -> list[Column]:
    """Return the columns that terminal and page share: points, a (ms), b (ms/MB), their intervals, TCP's headers."""
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


def _notes(rows: pd.DataFrame) -> str:
    """Return what the columns mean, once for all tables."""
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
