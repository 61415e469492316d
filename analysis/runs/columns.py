"""The rows of many files below each other, in the memory that the frame needs, once."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from analysis.schema import TEXT, WHOLE, Table


class Columns:
    """What `analysis.runs.reading` reads, file after file.

    Joining frames would need twice their memory. Here numbers grow in place, which for arrays of this size moves pages
    and copies nothing; text stays in Arrow's buffers, which pandas takes as they are.
    """

    def __init__(self, table: Table) -> None:
        self._names = table.columns
        self._rows = 0
        self._numbers = {
            name: np.empty(0, dtype="int64" if name in WHOLE else "float64")
            for name in table.columns
            if name not in TEXT
        }
        self._text: dict[str, list[pa.Array]] = {name: [] for name in table.columns if name in TEXT}

    def append(self, rows: pa.Table) -> None:
        total = self._rows + len(rows)
        for name, numbers in self._numbers.items():
            numbers.resize(total, refcheck=False)  # nothing else refers to it before `frame`
            numbers[self._rows :] = rows[name].to_numpy()
        for name, chunks in self._text.items():
            chunks.append(rows[name].combine_chunks())
        self._rows = total

    def frame(self) -> pd.DataFrame:
        """All rows. Nothing is to be appended afterwards."""
        columns = {
            name: self._numbers[name] if name in self._numbers else self._series(name) for name in self._names
        }
        pa.default_memory_pool().release_unused()  # else a third of it stays with what was read
        return pd.DataFrame(columns, copy=False)

    def _series(self, name: str) -> pd.Series:
        # In one piece: from many, pandas would make one anew with every selection of rows.
        whole: pd.Series = (
            pa.chunked_array(self._text.pop(name), pa.large_string()).combine_chunks().to_pandas()
        )
        return whole.astype("str")
