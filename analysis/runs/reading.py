"""A run's CSV files as typed tables, quickly: 50 000 rows are 30 MB of text."""

from __future__ import annotations

import csv
import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv as arrow_csv

from pareto.analysis import schema
from pareto.analysis.schema import CELL, KINDS, TEXT, Kind, Table
from pareto.basics import files
from pareto.basics.escaping import short
from pareto.protocol.errors import UserError

log = logging.getLogger(__name__)

# Strings of small tables are quicker as Python's than as Arrow's, where every comparison costs microseconds: a report
# of 216 trials takes a quarter less time (9.4 s of processor time before, 6.9 s now), a front of 50 000 trials 40 %.
pd.set_option("mode.string_storage", "python")

# Arrow's own pool keeps as much again as a table needs, in its threads.
pa.set_memory_pool(pa.system_memory_pool())
LARGE = 50_000
"""Rows of a table from which on its `KEYS` are categories: to group a million texts takes seconds, again and again."""
KEYS = (*CELL, "run", "testbed", "status", "host")
csv.field_size_limit(1 << 24)  # a worker that failed may have had much to say


def is_there(folder: Path, table: Table) -> bool:
    """Whether a run has this file. A link, or what is not a plain file, is skipped, and that is logged."""
    there = files.kind(folder / table.file)
    if there not in ("", "a file"):
        log.warning("%s is %s, not a plain file: skipped", folder / table.file, there)
    return there == "a file"


def read(folder: Path, table: Table) -> tuple[pa.Table, list[str]]:
    """The finished rows of a run's CSV file, and which of its columns are not known and were left out.

    A column that may be empty may be missing. Text is never null; a number is, where it was not measured; all others
    are finite. Names are short and of characters that are seen; only a reason is free. Raises `UserError`, with file
    and line, for what is no such table.
    """
    path = folder / table.file
    try:
        raw = files.read(folder, table.file)
        header = next(csv.reader([raw[: raw.find(b"\n") + 1].decode("utf-8-sig")]), [])
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: not a CSV file: {error}") from error
    absent = [column for column in table.columns if column not in header]
    if missing := [column for column in absent if not schema.may_be_empty(column)]:
        raise UserError(f"{path}: no column {', '.join(missing[:3])}{' ...' if missing[3:] else ''}")
    end = _end(raw, len(header))
    if end < len(raw):
        log.warning("%s: the last line is unfinished and left out", path)
    try:
        rows = arrow_csv.read_csv(
            pa.py_buffer(raw).slice(0, end),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=b'"' in raw),
            convert_options=arrow_csv.ConvertOptions(
                column_types={column: _type(column) for column in table.columns},
                include_columns=table.columns,
                include_missing_columns=True,
                null_values=[""],
            ),
        )
        for place, column in enumerate(table.columns):
            if column in TEXT and rows[column].null_count:  # the file lacks it
                rows = rows.set_column(place, column, rows[column].fill_null(""))
            _check_all(column, rows[column])
    except ValueError as error:
        raise UserError(_fault(path, raw[:end], table) or f"{path}: {short(str(error))}") from error
    return rows, [column for column in header if column not in table.columns]


def _end(raw: bytes, fields: int) -> int:
    """Where the finished rows end. A row is finished once its newline is on disk: even its last field may be cut.

    A newline inside quotes, as in the traceback of a reason, ends no row: there the quotes before it are odd. So they
    are, too, where a hand wrote one quote inside a field without quotes, which means nothing: then the text from there
    on is not one row with too few fields.
    """
    last = end = raw.rfind(b"\n") + 1
    odd = raw.count(b'"', 0, end) % 2
    while odd:
        start = raw.rfind(b"\n", 0, end - 1) + 1
        odd ^= raw.count(b'"', start, end) % 2
        end = start
    try:
        torn = list(csv.reader(io.StringIO(raw[end:last].decode("utf-8", "replace"), newline="")))
    except csv.Error:
        return last
    return end if len(torn) == 1 and len(torn[0]) < fields else last


def _type(column: str) -> pa.DataType:
    if column in TEXT:
        return pa.large_string()
    return pa.int64() if KINDS[column] is Kind.WHOLE else pa.float64()


def _check_all(column: str, values: pa.ChunkedArray) -> None:
    """Check each different text once, and numbers together. Raises ValueError."""
    if KINDS[column] is not Kind.FREE:
        for text in values.unique().to_pylist() if column in TEXT else [""] * bool(values.null_count):
            schema.check(column, text)
    if column not in TEXT:
        least, most = schema.span(column)
        numbers = values.drop_null().to_numpy()
        if np.any((numbers < least) | (numbers > most)):  # NaN is no measurement, and no fault
            raise ValueError(f"column {column} has values that cannot have been measured")


def _fault(path: Path, raw: bytes, table: Table) -> str:
    """The fault of a file that was refused, with its line, found the slow way; empty if there is none."""
    try:
        lines = csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline=""))
        header = next(lines)
        for fields in filter(None, lines):
            where = f"{path}, line {lines.line_num}"
            if len(fields) != len(header):
                return f"{where}: {len(fields)} fields instead of {len(header)}"
            for column, text in zip(header, fields, strict=True):
                try:
                    if column in table.columns:
                        schema.check(column, text)
                except ValueError as error:
                    return f"{where}: column {column}: {error}"
    except (UnicodeDecodeError, csv.Error) as error:
        return f"{path}: not a CSV file: {error}"
    return ""


def frame(parts: list[pa.Table], table: Table) -> pd.DataFrame:
    """The rows of many files below each other; `parts` are gone afterwards.

    Column by column, each freed when it is copied: at once, this would need twice the memory.
    """
    chunks = {name: [chunk for part in parts for chunk in part[name].iterchunks()] for name in table.columns}
    parts.clear()
    columns: dict[str, Any] = {}
    for name in table.columns:
        own = chunks.pop(name)
        if name in TEXT:
            # In one piece: from many, pandas would make one anew with every selection of rows.
            whole = pa.chunked_array(own, _type(name)).combine_chunks()
            if len(whole) >= LARGE and name in KEYS:
                coded = whole.dictionary_encode().to_pandas().astype("category")
                # In the order of texts, by which frames are sorted.
                columns[name] = coded.cat.reorder_categories(sorted(coded.cat.categories))
            else:
                columns[name] = whole.to_pandas().astype("str")
        else:
            empty = np.empty(0, dtype=_type(name).to_pandas_dtype())
            columns[name] = np.concatenate([empty, *(chunk.to_numpy(zero_copy_only=False) for chunk in own)])
        del own
        pa.default_memory_pool().release_unused()  # else as much again stays with what was read
    return pd.DataFrame(columns, copy=False)
