"""A table: heads over texts, numbers and intervals, in the terminal, as Markdown, on the page and in LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pandas as pd
from rich import box
from rich.table import Table as Shown
from rich.text import Text

from pareto.analysis.naming import backends, time_unit
from pareto.analysis.runs.points import order
from pareto.basics.escaping import markdown

UNKNOWN = "-"
"""The cell of what was not measured or is not known."""
ELLIPSIS = {"min_width": 4, "overflow": "ellipsis"}
"""The look of a column whose texts are cut where a line has no room for them."""


@dataclass(frozen=True)
class Column:
    """A head with its unit, and the value of each row: a text, a number, or the two ends of an interval.

    kind: how cells are aligned and sorted: as text, as a number (the first in the cell), or as a partition point.
    digits: decimals of numbers. look: what rich does with the column, where its kind alone does not say it.
    """

    head: str
    values: Sequence[Any]
    unit: str = ""
    kind: Literal["number", "text", "point"] = "text"
    digits: int = 2
    look: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def cells(self) -> list[str]:
        return [written(value, self.digits) for value in self.values]

    @property
    def width(self) -> int:
        return max(map(len, (self.head, self.unit, *self.cells)))

    @property
    def says_something(self) -> bool:
        return bool(set(self.cells) - {"", UNKNOWN})


def written(value: Any, digits: int) -> str:
    """`1.28`, or `1.28..1.40`, as a dash would read as a sign; `UNKNOWN` for what is not known; a text as it is."""
    if isinstance(value, str):
        return value
    ends = value if isinstance(value, tuple) else (value,)
    return UNKNOWN if any(map(pd.isna, ends)) else "..".join(f"{end:.{digits}f}" for end in ends)


def numbers(
    rows: pd.DataFrame, head: str, of: str, unit: str = "", digits: int = 2, scale: float = 1.0
) -> Column:
    """The column of a frame's numbers, times `scale`; of `latency_{}_s`, of the intervals from low to high."""
    ends = [rows[of.format(end)] * scale for end in (("low", "high") if "{}" in of else ("",))]
    values = list(zip(*ends, strict=True)) if len(ends) > 1 else list(ends[0])
    return Column(head, values, unit, "number", digits)


def times(longest_s: float) -> tuple[str, int, float]:
    """The unit of times up to `longest_s`, their decimals, and how many of it make a second."""
    unit, scale = time_unit(longest_s)
    return unit, 3 if unit == "s" else 2, scale


def by_backend(rows: pd.DataFrame, then: str) -> pd.DataFrame:
    """The rows in the order of all tables: backend by backend, then by a column, points by their cuts."""
    places = {backend: place for place, backend in enumerate(backends(rows))}
    keys = {"backend": lambda column: column.map(places), "point": order}
    return rows.sort_values(
        ["backend", then], key=lambda column: keys.get(column.name, lambda same: same)(column)
    )


def starts(values: pd.Series) -> list[bool]:
    """The rows that begin a group of equal values, as a mask."""
    return list(values.ne(values.shift()))


def once(values: pd.Series) -> list[str]:
    """Each value where its group begins, and empty text in the rest of the group."""
    return list(values.astype("str").where(starts(values), ""))


def sureness(share: float) -> str:
    """A probability as whole percent: `71`; `>99` and `<1`, as no draw says more; `UNKNOWN` where none holds."""
    if pd.isna(share):
        return UNKNOWN
    return ">99" if share >= 0.995 else "<1" if share < 0.005 else f"{100 * share:.0f}"


class Table:
    """A title, the columns that say something, and notes on what they mean; of no columns the title says why.

    notes: each with whether it is needed. groups: which rows begin a group, as `starts` finds them: a little room is
    left above these.
    """

    def __init__(
        self,
        title: str,
        columns: Iterable[Column] = (),
        notes: Mapping[str, object] = {},
        groups: Sequence[bool] = (),
    ) -> None:
        self.title, self.groups = title, groups
        self.columns = [column for column in columns if column.says_something]
        self.notes = "; ".join(note for note, is_needed in notes.items() if note and is_needed)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return list(zip(*(column.cells for column in self.columns), strict=True))

    def __rich__(self) -> Shown | Text:
        if not self.columns:
            return Text(f"{self.title}\n")
        table = Shown(title=Text(self.title, "bold"), title_justify="left", caption_justify="left")
        table.box, table.padding, table.pad_edge = box.SIMPLE_HEAD, 0, False
        table.caption = Text(self.notes) if self.notes else None
        for column in self.columns:
            look = {"overflow": "fold"} if column.kind == "text" else {"justify": "right", "no_wrap": True}
            head = f"{column.head}\n{column.unit}" if column.unit else column.head
            table.add_column(head, **{**look, **column.look})
        for place, cells in enumerate(self.rows):
            if place and self.groups and self.groups[place]:
                table.add_section()
            # A text that is cut stays on its line, while its column may shrink.
            cut = [column.look.get("overflow") == "ellipsis" or None for column in self.columns]
            table.add_row(*(Text(cell, no_wrap=each) for cell, each in zip(cells, cut, strict=True)))
        return table

    def markdown(self) -> str:
        """The title in bold, the table, and the notes in a paragraph."""
        if not self.columns:
            return f"{markdown(self.title)}\n"
        heads = [f"{column.head} {column.unit}".strip() for column in self.columns]
        ruler = [":--" if column.kind == "text" else "--:" for column in self.columns]
        rows = [[markdown(cell.strip()) for cell in cells] for cells in self.rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ruler, *rows))
        parts = f"**{markdown(self.title)}**", table, markdown(self.notes)
        return "\n\n".join(filter(None, parts)) + "\n"
