"""The values that columns of a run's files may hold, and a file as a table of columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class Kind(Enum):
    """The values of a column. In a CSV file every number but a whole one may be empty: it was not measured."""

    NAME = "name"
    """Short printable text."""
    FREE = "free"
    """Text of any length and lines."""
    WHOLE = "whole"
    NUMBER = "number"
    POSITIVE = "positive"
    NOT_NEGATIVE = "not negative"
    """Zero or more; a difference, which is a NUMBER, may be a little below 0 by the clocks' grain."""
    NUMBERS = "numbers"


@dataclass(frozen=True)
class Column:
    """A column; an empty meaning is that of the column before it."""

    name: str
    kind: Kind
    meaning: str


@dataclass(frozen=True)
class Table:
    """A file of a run, or a folder with a file for each trial."""

    file: str
    described: tuple[Column, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.described)

    def markdown(self) -> Iterator[str]:
        """A row for each meaning, with the columns that share it."""
        yield "| column | meaning |\n|---|---|\n"
        rows: list[tuple[str, list[str]]] = []
        for column in self.described:
            if column.meaning:
                rows.append((column.meaning, []))
            rows[-1][1].append(f"`{column.name}`")
        for meaning, names in rows:
            yield f"| {' '.join(names)} | {meaning} |\n"


def table(file: str, columns: str) -> Table:
    """A table of these columns.

    columns: lines `kind: names`, each with the meaning of these names indented below it.
    """
    described: list[Column] = []
    for block in re.split(r"\n {4}(?=\S)", columns.rstrip())[1:]:
        first, _, meaning = block.partition("\n")
        kind, _, names = first.partition(": ")
        for name in names.split():
            described.append(Column(name, Kind(kind), " ".join(meaning.split())))
            meaning = ""
    return Table(file, tuple(described))
