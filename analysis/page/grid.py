"""Tables of the page: one look, sortable by a script that reads nothing but what is written in the cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import pandas as pd

from analysis.page.markup import Html, element, joined

UNKNOWN = "-"
"""In a cell: not measured, or not known."""


@dataclass(frozen=True)
class Column:
    """A head with its unit, and each row's cell.

    kind: how the script sorts it: as a number (the first in the cell), as text, or as a partition point. detail: what
    the cell is called beside a point of the chart, and under which head; empty where it is not told there.
    """

    head: str
    cells: Sequence[str]
    unit: str = ""
    kind: Literal["number", "text", "point"] = "text"
    detail: str = ""
    group: str = ""


def table(columns: Sequence[Column], caption: str, **attributes: str | bool) -> Html:
    """A table that scrolls within itself where it is wider than the page."""
    heads = [
        element(
            "th",
            column.head,
            *((" ", element("small", column.unit)) if column.unit else ()),
            scope="col",
            data_kind=column.kind,
            data_detail=column.detail,
            data_group=column.group,
            data_unit=column.unit if column.detail else "",
        )
        for column in columns
    ]
    # Not by `element`: there are many cells, and all of them are alike.
    opened = ["<td class=n>" if column.kind != "text" else "<td>" for column in columns]
    rows = [
        element("tr", Html("".join(map(_cell, opened, row))))
        for row in zip(*(column.cells for column in columns), strict=True)
    ]
    made = element(
        "table",
        element("thead", element("tr", *heads)),
        element("tbody", *rows),
        aria_label=caption,
        **attributes,
    )
    scrolled = element("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return joined([element("p", caption, class_="caption"), scrolled])  # a caption within would scroll away


def figure(value: Any, digits: int) -> str:
    """So many digits behind the point; `UNKNOWN` for what was not measured."""
    return UNKNOWN if pd.isna(value) else f"{value:.{digits}f}"


def figures(values: Iterable[Any], digits: int) -> list[str]:
    return [figure(value, digits) for value in values]


def intervals(low: Iterable[float], high: Iterable[float], digits: int) -> list[str]:
    """`1.28..1.40`: a dash would read as a sign."""
    return [
        UNKNOWN if math.isnan(least + most) else f"{least:.{digits}f}..{most:.{digits}f}"
        for least, most in zip(low, high, strict=True)
    ]


def places(values: pd.Series, least: int = 2, most: int = 4) -> int:
    """How many digits behind the point leave the smallest value three that mean something."""
    positive = values[values > 0]
    if positive.empty:
        return least
    return min(most, max(least, 2 - math.floor(math.log10(positive.min()))))


def spanned(values: pd.Series, show: Callable[[float], str]) -> str:
    """The median, and from where to where: `200 ms (199 ms to 201 ms)`; `UNKNOWN` without a value."""
    known = values.dropna()
    if known.empty:
        return UNKNOWN
    median, least, most = (show(float(value)) for value in (known.median(), known.min(), known.max()))
    return median if least == most else f"{median} ({least} to {most})"


def _cell(opened: str, value: str) -> str:
    return f"{opened}{value if isinstance(value, Html) else escape(value)}</td>"
