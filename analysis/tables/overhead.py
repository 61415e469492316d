"""The latency beyond the bound, for each backend: legible in a terminal of 80 columns and without colour."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.costs import MIN_PAYLOADS, MIN_POINTS, NOISE
from analysis.naming import backends, condition_title
from analysis.points import CONDITION
from analysis.tables.look import figure, framed

_MS_PER_MB = 1e9
"""From seconds a byte."""


def overhead_table(rows: pd.DataFrame) -> RenderableType:
    """One table per condition, a line for each backend, from the frame of `analysis.costs`.

    Columns: backend, points, a (ms) and b (ms/MB) with their 95 % intervals, what TCP's headers make of b where that is
    known, residual (ms), and what share of the latency the bound is, and the bound at TCP's goodput.
    """
    tables = [_table(of_condition) for _, of_condition in rows.groupby(CONDITION, dropna=False)]
    return Group(*tables, Text(f"{_notes(rows)}\n")) if tables else Group()


def _notes(rows: pd.DataFrame) -> str:
    """What the columns mean: once for all tables."""
    has_headers = rows["headers_s_per_byte"].notna().any()
    has_goodput = rows["goodput_efficiency"].notna().any()
    notes = [
        "latency over its bound = a + b x bytes, of payload and result",
        "headers = what TCP's headers make of b" if has_headers else "",
        "resid. = median distance from the line",
        "eff = share of the physical bound, median"
        + ("; TCP = of that at TCP's goodput" if has_goodput else ""),
        "noise: hidden by the noise of the rounds"
        if any(rows["note"].fillna("").str.contains(hidden).any() for hidden in NOISE.values())
        else "",
        f"-: no line through fewer than {MIN_PAYLOADS} payloads, no interval with fewer than {MIN_POINTS} points"
        if (rows["points"] < MIN_POINTS).any() or (rows["payloads"] < MIN_PAYLOADS).any()
        else "",
    ]
    return "; ".join(note for note in notes if note)


def _table(rows: pd.DataFrame) -> Table:
    has_headers = rows["headers_s_per_byte"].notna().any()
    has_goodput = rows["goodput_efficiency"].notna().any()
    table = framed(f"{condition_title(rows.iloc[0])}: overhead beyond the bound")
    table.add_column("backend", min_width=7, overflow="fold")
    headers = ["points", "a\nms", "95 %\nms", "b\nms/MB", "95 %\nms/MB"]
    headers += ["headers\nms/MB"] if has_headers else []
    headers += ["resid.\nms", "eff\n%", *(["TCP\n%"] if has_goodput else [])]
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    for backend in backends(rows):
        for row in rows[rows["backend"] == backend].to_dict("records"):
            table.add_row(
                backend,
                str(row["points"]),
                _cost(row, "a_s", 1e3),
                _interval(row, "a_low_s", "a_high_s", 1e3, 2),
                _cost(row, "b_s_per_byte", _MS_PER_MB),
                _interval(row, "b_low_s_per_byte", "b_high_s_per_byte", _MS_PER_MB, 2),
                *([figure(row["headers_s_per_byte"] * _MS_PER_MB, 2)] if has_headers else []),
                figure(row["residual_s"] * 1e3, 2),
                figure(row["latency_efficiency"] * 100, 1),
                *([figure(row["goodput_efficiency"] * 100, 1)] if has_goodput else []),
            )
    return table


def _cost(row: Mapping[Hashable, Any], name: str, scale: float) -> str:
    return "noise" if NOISE[name] in str(row["note"]) else figure(row[name] * scale, 2)


def _interval(row: Mapping[Hashable, Any], low: str, high: str, scale: float, digits: int) -> str:
    """`1.28..1.40`: a dash would read as a sign."""
    if pd.isna(row[low]):
        return "-"
    return "..".join(figure(row[end] * scale, digits) for end in (low, high))
