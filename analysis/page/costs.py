"""The latency beyond the bound, and how much each front is worth: a row for each condition and backend."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from analysis.costs import NOISE
from analysis.naming import condition_title
from analysis.page.grid import Column, figures, intervals, table
from analysis.page.markup import Html, element, joined
from analysis.points import CONDITION

MOST_ROWS = 500
_MS_PER_MB = 1e9
"""From seconds a byte."""


def overhead(rows: pd.DataFrame) -> Html:
    """From the frame of `analysis.costs`; nothing where nothing crossed the link."""
    if rows.empty:
        return Html()
    shown = rows.head(MOST_ROWS)
    columns = [
        *_named(shown),
        Column("points", figures(shown["points"], 0), kind="number"),
        Column("a", _costs(shown, "a_s", 1e3), "ms", "number"),
        Column("95 %", intervals(shown["a_low_s"] * 1e3, shown["a_high_s"] * 1e3, 2), "ms", "number"),
        Column("b", _costs(shown, "b_s_per_byte", _MS_PER_MB), "ms/MB", "number"),
        Column(
            "95 %",
            intervals(shown["b_low_s_per_byte"] * _MS_PER_MB, shown["b_high_s_per_byte"] * _MS_PER_MB, 2),
            "ms/MB",
            "number",
        ),
        Column("headers", figures(shown["headers_s_per_byte"] * _MS_PER_MB, 2), "ms/MB", "number"),
        Column("eff.", figures(shown["latency_efficiency"] * 100, 1), "%", "number"),
    ]
    about = (
        "Latency over its bound, as a line over the bytes that cross: a for every request, b for every megabyte. It is "
        "all that the bound leaves out, the backend and what the machine itself costs; "
        "headers is what of b the headers of TCP are; noise: hidden by the noise of the rounds."
    )
    return _told(
        "Latency beyond the bound",
        about,
        table(columns, _caption("Overhead beyond the bound", rows), class_="costs"),
        rows,
    )


def _costs(rows: pd.DataFrame, name: str, scale: float) -> list[str]:
    """Each row's cost; `noise` where the rounds' noise hides it."""
    cells = zip(figures(rows[name] * scale, 2), rows["note"].fillna(""), strict=True)
    return ["noise" if NOISE[name] in note else cell for cell, note in cells]


def hypervolumes(rows: pd.DataFrame) -> Html:
    """From the frame of `analysis.fronts.indicators.hypervolumes`; nothing without one."""
    if rows.empty:
        return Html()
    shown = rows.head(MOST_ROWS)
    columns = [
        *_named(shown),
        Column("hypervolume", [f"{value:.5g}" for value in shown["hypervolume"]], kind="number"),
        Column("95 %", _span(shown), kind="number"),
        Column("rounds", figures(shown["rounds"], 0), kind="number"),
        Column("reference", [str(reference) for reference in shown["reference"]]),
    ]
    about = "The hypervolume of a front is what it dominates up to the reference: the more, the better."
    return _told(
        "What the fronts are worth",
        about,
        table(columns, _caption("Hypervolume", rows), class_="costs"),
        rows,
    )


def _named(rows: pd.DataFrame) -> Iterator[Column]:
    keyed = rows[[key for key in CONDITION if key in rows]].to_dict("records")
    yield Column("condition", [condition_title(row) for row in keyed])
    yield Column("backend", [str(backend) for backend in rows["backend"]])


def _span(rows: pd.DataFrame) -> list[str]:
    pairs = zip(rows["hypervolume_low"], rows["hypervolume_high"], strict=True)
    return ["-" if pd.isna(low) or pd.isna(high) else f"{low:.5g}..{high:.5g}" for low, high in pairs]


def _caption(what: str, rows: pd.DataFrame) -> str:
    return what if len(rows) <= MOST_ROWS else f"{what}, the first {MOST_ROWS} of {len(rows)} rows"


def _told(head: str, about: str, made: Html, rows: pd.DataFrame) -> Html:
    return joined([element("h3", head), element("p", about), made, _rest(rows)])


def _rest(rows: pd.DataFrame) -> Html:
    return element("p", "The CSV files beside this page have them all.") if len(rows) > MOST_ROWS else Html()
