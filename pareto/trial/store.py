"""A run's folder, results/<run>/: its manifest, a row for each trial, host and probe; requests and sensor readings.

trials.csv alone decides what is done: a row reaches the disk before the next trial starts, and one that a crash cut
short is dropped. One process at a time writes to a folder. A folder may come from anybody: no link in it is followed,
and whatever is read from it is checked.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from pareto import PROFILES
from pareto.analysis import schema
from pareto.analysis.runs.manifest import FILE as MANIFEST
from pareto.analysis.runs.manifest import read_json
from pareto.analysis.schema import CELL, LINKS, STAGES, STRUCK, TRIALS, Kind, Table, trial_name
from pareto.basics import files
from pareto.basics.escaping import no_formula
from pareto.basics.files import StoreError as StoreError
from pareto.protocol.errors import in_plain_words
from pareto.sweep.cell import Cell
from pareto.sweep.networks import ALONG

MOST_TABLE_BYTES = 1 << 30
REDONE = ("failed", "invalid")
"""Trials with such a status are done again by a session that goes on with a run."""
MOST_LETTERS = 2000
"""The most letters of a reason: a host may have said a page."""
_TABLES = {table.file: table for table in (TRIALS, STAGES, LINKS)}
Row = dict[str, Any]
Parts = Mapping[str, Mapping[str, list[Any]]]
"""Columns of a table, by what is in its first column."""


class _Manifest(BaseModel):
    """The parts of a manifest that decide what a run goes on with; the analysis reads others too."""

    model_config = ConfigDict(extra="allow", strict=True)

    sweep: dict[str, Any]
    models: dict[str, dict[str, Any]] = {}
    profiles: dict[str, dict[str, Any]] = {}
    testbed_hosts: dict[str, Any] | None = None
    sessions: list[dict[str, Any]] = []


def read_manifest(folder: Path) -> dict[str, Any]:
    """A run's manifest, as a mapping. Raises StoreError."""
    path = folder / MANIFEST
    with files.written(path, "read"):
        try:
            return _Manifest.model_validate(read_json(path)).model_dump()
        except StoreError:
            raise
        except ValidationError as error:
            fault = error.errors()[0]
            words = f"{'.'.join(map(str, fault['loc']))}: {in_plain_words(fault['msg'])}"
        except ValueError as error:
            words = str(error)
    raise StoreError(f"{path} is not a run's manifest: {words}")


class Store:
    """One run's folder, which this process alone may append to until it is closed.

    Every method raises StoreError where the folder cannot be read or written.
    """

    def __init__(self, folder: Path, lock: int | None = None, made: Sequence[Path] = ()) -> None:
        """lock: as `files.locked` returns it. made: the folders that were made for it, the innermost first."""
        self.folder, self._lock, self._made = folder, lock, made
        self._done: set[tuple[str, ...]] = set()

    @classmethod
    def create(cls, out: Path, run: str, manifest: Mapping[str, Any]) -> Store:
        """The store of a new run. A folder that cannot be written is removed again."""
        above = [path for path in (out, *out.parents) if not path.exists()]
        store = None
        try:
            if above:
                out.mkdir(parents=True, exist_ok=True)
            folder = _new_folder(out / run)
            store = cls(folder, None, (folder, *above))
            store._lock = files.locked(folder)
            (folder / "requests").mkdir()
            store.write_manifest(manifest)
            for name, table in _TABLES.items():
                files.append(folder / name, _csv([table.columns]), new=True)
        except BaseException as error:
            if store is not None:
                store.close()
            else:
                _remove_empty(above)
            if not isinstance(error, OSError | StoreError):
                raise
            words = (
                error if isinstance(error, StoreError) else f"cannot write results to {out}: {error.strerror}"
            )
            raise StoreError(f"{words} (choose another --out)") from None
        return store

    @classmethod
    def read(cls, folder: Path) -> Store:
        """The store of a run that was begun, for reading only."""
        store = cls(folder)
        store._check()
        return store

    @classmethod
    def resume(cls, folder: Path) -> Store:
        """The store of a run that was begun. Raises StoreError also where another process writes to it."""
        if not (folder / MANIFEST).is_file():
            raise StoreError(f"{folder} is not a run to resume: it has no {MANIFEST}")
        store = cls(folder, files.locked(folder))
        try:
            store._check()
            for name in _TABLES:
                files.drop_torn_line(folder / name)
            store._drop_drafts()
        except BaseException:
            store.close()
            raise
        return store

    def _check(self) -> None:
        """Raises StoreError unless it is a run's folder, and every row is one."""
        read_manifest(self.folder)
        for name in ("requests", "devices", PROFILES.name):
            with files.written(self.folder / name, "read"):
                for inner, kind in files.listing(self.folder, name).items():
                    if name == PROFILES.name and kind != "a folder":
                        raise StoreError(f"{self.folder / name / inner} is {kind}, no folder")
        for name in _TABLES:
            self._read(name)
        self.done()
        self.starts()
        self._done = {_trial(row) for row in self.rows() if row["status"] != "failed"}

    def _drop_drafts(self) -> None:
        """Remove the drafts of a process that was killed, or whose disk became read-only, while it wrote."""
        folder, names = self.folder.resolve(), (MANIFEST, *_TABLES, "requests/*.parquet", "devices/*.parquet")
        with files.written(self.folder):
            for draft in itertools.chain(*(folder.glob(f"{name}{files.DRAFT}") for name in names)):
                files.remove(draft)

    def close(self) -> None:
        """Release the folder; remove it if it was made for a run that measured nothing."""
        if self._made and not self.has_rows:
            shutil.rmtree(self.folder, ignore_errors=True)
            _remove_empty(self._made[1:])
        if self._lock is not None:
            with suppress(OSError):
                (self.folder / files.LOCK).unlink()
            os.close(self._lock)
            self._lock = None

    @property
    def has_rows(self) -> bool:
        """Whether any trial has a row, if only one that says that it failed; True also for a broken trials.csv."""
        try:
            return bool(self.rows())
        except StoreError:
            return (self.folder / "trials.csv").exists()

    @property
    def run(self) -> str:
        return self.folder.name

    def manifest(self) -> dict[str, Any]:
        return read_manifest(self.folder)

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        files.replace(self.folder, MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())

    def rows(self) -> list[dict[str, str]]:
        return self._read("trials.csv")

    def starts(self) -> int:
        with self._sound_rows() as rows:
            return max((int(row["restart"] or 0) for row in rows), default=0)

    def done(self) -> frozenset[tuple[Cell, int]]:
        """The cells and rounds that were measured. Trials of which no figure counts are done again."""
        with self._sound_rows() as rows:
            return frozenset((_cell(row), int(row["round"])) for row in rows if row["status"] not in REDONE)

    @contextmanager
    def _sound_rows(self) -> Iterator[list[dict[str, str]]]:
        rows = self.rows()
        try:
            yield rows
        except ValueError as error:
            path = self.folder / "trials.csv"
            raise StoreError(f"{path} has a row that is no trial's: {error}") from None

    def append_trial(self, row: Row) -> None:
        """Append a trial's row. Raises StoreError also for a trial that has one. A figure that no report would read is
        left out, and the trial does not count."""
        line, faults = checked(row, TRIALS)
        if faults and row["status"] not in ("invalid", "failed"):
            reason = "; ".join(filter(None, [row.get("reason"), *faults]))
            line, _ = checked({**row, "status": "invalid", "reason": reason}, TRIALS)
        trial = _trial(dict(zip(TRIALS.columns, line, strict=True)))
        if trial in self._done:
            raise StoreError(f"{self.folder} has a row already for {', '.join(trial)}: none is written twice")
        files.append(self.folder / "trials.csv", _csv([line]))
        if row["status"] != "failed":
            self._done.add(trial)

    def take_back(self, cell: Cell, number: int) -> bool:
        named = {name: _text(value) for name, value in cell.columns.items()} | {"round": str(number)}
        self._keep(lambda row: any(row[name] != value for name, value in named.items()))
        return True

    def append_stages(self, rows: Iterable[Row]) -> None:
        """Append each host's row of a trial, before the trial's own row: without that they do not count."""
        files.append(self.folder / "stages.csv", _csv([_line(row, STAGES) for row in rows]))

    def append_link(self, row: Row) -> None:
        files.append(self.folder / "link.csv", _csv([_line(row, LINKS)]))

    def write_struck(self, rows: Iterable[Row]) -> None:
        """Write what a search has struck off, in place of what it had before."""
        lines = [STRUCK.columns, *(_line(row, STRUCK) for row in rows)]
        files.replace(self.folder, STRUCK.file, _csv(lines))

    def write_parts(self, table: Table, cell: Cell, number: int, parts: Parts) -> None:
        """Write a trial's requests by phase, or its sensor readings by host, in order; nothing if there are none. A
        column that one has nothing for may be left out."""
        if parts:
            self.write_content(table, cell, number, parquet_of(table, parts))

    def write_content(self, table: Table, cell: Cell, number: int, content: bytes) -> None:
        """Write a trial's file, whose content is there already: requests/<cell>-r<round>.parquet, or devices/..."""
        name = f"{table.file}/{trial_name(cell.id, number)}.parquet"
        files.replace(self.folder, name, content, durable=False)

    def drop_unsound(self) -> None:
        """Remove the rows of trials that are done again, as none of their figures counts."""
        self._keep(lambda row: row["status"] not in REDONE)

    def _keep(self, is_kept: Callable[[Mapping[str, str]], bool]) -> None:
        """Keep these trials' rows, and the rows of their stages."""
        kept = self._keep_in("trials.csv", is_kept)
        self._done = {_trial(row) for row in kept if row["status"] != "failed"}
        self._keep_in("stages.csv", lambda row: _trial(row) in self._done)

    def _read(self, name: str) -> list[dict[str, str]]:
        """The whole rows, without one that a crash cut short or that is being written."""
        path, columns = self.folder / name, _TABLES[name].columns
        with files.written(path, "read"):
            content = files.read(self.folder, name, most_bytes=MOST_TABLE_BYTES)
        try:
            lines = csv.reader(io.StringIO(content[: content.rfind(b"\n") + 1].decode(), newline=""))
            if next(lines, None) != list(columns):
                raise StoreError(f"{path} has other columns than this version writes: start a new run")
            rows = []
            for line in lines:
                if (cells := len(line)) != len(columns):
                    has = f"{cells} cells, where a row has {len(columns)}"
                    raise StoreError(f"{path}:{lines.line_num}: damaged: {has}")
                rows.append(dict(zip(columns, line, strict=True)))
            return rows
        except (UnicodeDecodeError, csv.Error) as error:
            raise StoreError(f"{path} is damaged: {error}") from None

    def _keep_in(self, name: str, is_kept: Callable[[Mapping[str, str]], bool]) -> list[dict[str, str]]:
        rows = self._read(name)
        kept = [row for row in rows if is_kept(row)]
        if len(kept) < len(rows):
            files.replace(self.folder, name, _csv([_TABLES[name].columns, *(row.values() for row in kept)]))
        return kept


def parquet_of(table: Table, parts: Parts) -> bytes:
    """The content of a trial's file of requests or devices."""
    import pyarrow as pa
    from pyarrow import parquet

    types = {Kind.NAME: pa.string(), Kind.WHOLE: pa.int64(), Kind.NUMBERS: pa.list_(pa.float64())}
    typed = pa.schema([(name, types.get(table.kind(name), pa.float64())) for name in table.columns])
    first = table.columns[0]
    tables = []
    for name, columns in parts.items():
        if unknown := set(columns).difference(table.columns):
            raise KeyError(f"not a column: {', '.join(sorted(unknown))}")
        rows = len(next(iter(columns.values())))
        absent = dict.fromkeys(table.columns, [None] * rows)
        tables.append(pa.table({**absent, first: [name] * rows, **columns}, schema=typed))
    content = pa.BufferOutputStream()
    parquet.write_table(pa.concat_tables(tables), content)
    return bytes(content.getvalue())


def trial_of(row: Row) -> tuple[Cell, int]:
    """The cell and the round that a trial's row is of. Raises ValueError."""
    texts = dict(zip(TRIALS.columns, _line(row, TRIALS), strict=True))
    return _cell(texts), int(texts["round"])


def _trial(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[column] for column in (*CELL, "round"))


def _cell(row: Mapping[str, str]) -> Cell:
    cuts = tuple(map(int, row["point"].split(ALONG)))
    where = row["point_name"], row["backend"], row["netem"], int(row["batch_size"])
    by = row["codec"], row["engine"], row["in_flight_asked"], int(row["prefetch_asked"])
    return Cell(row["model"], cuts, *where, *by, row["allocator"], row["load"])


def _line(row: Row, table: Table) -> list[str]:
    return checked(row, table)[0]


def utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def checked(row: Row, table: Table) -> tuple[list[str], list[str]]:
    """A row as it is written, without the cells that no report would read, and what was wrong with these. Raises
    StoreError where such a cell must say something."""
    if unknown := set(row).difference(table.columns):
        raise KeyError(f"not a column: {', '.join(sorted(unknown))}")
    line, faults = [_text(row.get(column)) for column in table.columns], []
    for place, column in enumerate(table.columns):
        try:
            schema.check(column, line[place])
        except ValueError as error:
            faults.append(f"{column} {error}")
            if not schema.may_be_empty(column):
                raise StoreError(f"{table.file} cannot have such a row: {faults[-1]}") from None
            line[place] = ""
    return line, faults


def _text(value: Any) -> str:
    """A value as it is written: empty for what was not measured; six digits, which are more than a measurement has. A
    host's text becomes one line, and never a spreadsheet's formula."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = " ".join(str(value).split())[:MOST_LETTERS]
    return str(no_formula(text)) if isinstance(value, str) else text


def _csv(lines: Iterable[Iterable[str]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    return buffer.getvalue().encode(errors="backslashreplace")


def _remove_empty(folders: Iterable[Path]) -> None:
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _new_folder(folder: Path) -> Path:
    """Make a folder of that name, with a number after it if there is one already; returns it. Raises OSError."""
    candidate, number = folder, 1
    while True:
        with suppress(FileExistsError):
            candidate.mkdir()
            return candidate
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
