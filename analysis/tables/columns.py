"""Columns of tables as text, the same for the terminal, for LaTeX and for the page; and a table in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
from rich import box
from rich.table import Table
from rich.text import Text

from pareto.analysis.naming import backends
from pareto.analysis.runs.points import order
from pareto.basics.escaping import markdown

UNKNOWN = "-"
"""The cell of what was not measured or is not known."""


@dataclass(frozen=True)
class Column:
    """A head with its unit, and the text of each row's cell.

    kind: how cells are aligned and sorted: as text, as a number (the first in the cell), or as a partition point. look:
    what rich does with the column, where its kind alone does not say it.
    """

    head: str
    cells: Sequence[str]
    unit: str = ""
    kind: Literal["number", "text", "point"] = "text"
    look: Mapping[str, Any] = field(default_factory=dict)


def number(head: str, values: Iterable[float], digits: int, unit: str = "") -> Column:
    """A column of numbers with so many decimals."""
    return Column(head, figures(values, digits), unit, "number")


def figure(value: float, digits: int) -> str:
    """The value with so many decimals; `UNKNOWN` for what was not measured."""
    return UNKNOWN if pd.isna(value) else f"{value:.{digits}f}"


def figures(values: Iterable[float], digits: int) -> list[str]:
    return [figure(value, digits) for value in values]


def spans(low: Iterable[float], high: Iterable[float], digits: int) -> list[str]:
    """`1.28..1.40` for each row, as a dash would read as a sign; `UNKNOWN` where there is no interval."""
    return [
        UNKNOWN if pd.isna(least) or pd.isna(most) else f"{least:.{digits}f}..{most:.{digits}f}"
        for least, most in zip(low, high, strict=True)
    ]


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
    return [str(value) if start else "" for value, start in zip(values, starts(values), strict=True)]


def sureness(share: float) -> str:
    """A probability as whole percent: `71`; `>99` and `<1`, as no draw says more; `UNKNOWN` where none holds."""
    if pd.isna(share):
        return UNKNOWN
    return ">99" if share >= 0.995 else "<1" if share < 0.005 else f"{100 * share:.0f}"


@dataclass(frozen=True)
class Framed:
    """A table with its title and what its columns mean: in the terminal, or as Markdown.

    groups: which rows begin a group, as `starts` finds them: a little room is left above these.
    """

    columns: Sequence[Column]
    title: str
    notes: Sequence[str] = ()
    groups: Sequence[bool] = ()

    def __rich__(self) -> Table:
        table = Table(
            title=Text(self.title, "bold"),
            caption=Text("; ".join(self.notes)) or None,
            title_justify="left",
            caption_justify="left",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            padding=0,
        )
        for column in self.columns:
            look = {"overflow": "fold"} if column.kind == "text" else {"justify": "right", "no_wrap": True}
            head = f"{column.head}\n{column.unit}" if column.unit else column.head
            table.add_column(head, **{**look, **column.look})
        for place, cells in enumerate(self._rows):
            if place and self.groups and self.groups[place]:
                table.add_section()
            table.add_row(*cells)
        return table

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        return list(zip(*(column.cells for column in self.columns), strict=True))

    def markdown(self) -> str:
        """The title in bold, the table, and the notes in a paragraph."""
        heads = [f"{column.head} {column.unit}".strip() for column in self.columns]
        ruler = [":--" if column.kind == "text" else "--:" for column in self.columns]
        lines = [f"**{markdown(self.title)}**", "", _row(heads), _row(ruler)]
        lines += [_row([markdown(str(cell).strip()) for cell in cells]) for cells in self._rows]
        if self.notes:
            lines += ["", markdown("; ".join(self.notes))]
        return "\n".join([*lines, ""])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def framed(
    columns: Sequence[Column], title: str, notes: Iterable[str] = (), groups: Sequence[bool] = ()
) -> Framed:
    """The columns as a table, with those notes below it that say something."""
    return Framed(columns, title, [note for note in notes if note], groups)
