"""The rounds of many cells as one array: a row a cell, a column a round, NaN where a cell has no more rounds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from analysis.statistics import median
from analysis.statistics.median import Floats

Ints = npt.NDArray[np.int64]


def padded(values: Floats, cells: Ints, count: int) -> Floats:
    """`values` sorted into `count` rows, each by its number in `cells`, in their order; rows are filled up with NaN."""
    order = np.argsort(cells, kind="stable")
    sizes = np.bincount(cells, minlength=count)
    rows = cells[order]
    places = np.arange(len(cells)) - (np.cumsum(sizes) - sizes)[rows]
    table = np.full((count, int(sizes.max(initial=0))), np.nan)
    table[rows, places] = values[order]
    return table


def rounds(table: Floats) -> Ints:
    """How many values each row has."""
    return np.asarray(np.count_nonzero(~np.isnan(table), axis=1), dtype=np.int64)


def alike(*tables: Floats) -> Iterator[tuple[Ints, tuple[Floats, ...]]]:
    """Rows that have as many values as each other, in every table: their numbers, and the values without NaN.

    Rows without any value in one of the tables are left out. So what is vectorised over rows needs no masks.
    """
    packed = [np.sort(table, axis=1) for table in tables]  # NaN last
    sizes = np.column_stack([rounds(table) for table in tables])
    for size in np.unique(sizes, axis=0):
        if (size > 0).all():
            members = np.flatnonzero((sizes == size).all(axis=1))
            yield members, tuple(table[members, :n] for table, n in zip(packed, size, strict=True))


def medians(table: Floats) -> Floats:
    """The median of each row; NaN without values."""
    found = np.full(len(table), np.nan)
    for members, (values,) in alike(table):
        found[members] = np.median(values, axis=1)
    return found


def median_intervals(table: Floats) -> tuple[Floats, Floats]:
    """The median's 95 % interval of each row (`analysis.statistics.median`); NaN with fewer than 6 values."""
    low, high = np.full(len(table), np.nan), np.full(len(table), np.nan)
    for members, (values,) in alike(table):
        if values.shape[1] >= median.LEAST_VALUES:
            low[members], high[members] = median.intervals(values)
    return low, high
