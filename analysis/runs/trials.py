"""The trials of run folders: `trials.csv` as a typed frame."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import compute

from analysis.escaping import short
from analysis.keys import TRIAL
from analysis.runs import reading, setups
from analysis.runs.columns import Columns
from analysis.runs.folders import Runs, folders
from analysis.runs.manifest import read_manifest
from analysis.schema import TRIALS, Table
from pareto.errors import UserError

log = logging.getLogger(__name__)

ROW = [name for name in TRIAL if name != "setup"]
"""What of a trial is in a file, that names it."""


def load(runs: Runs) -> pd.DataFrame:
    """The trials of one or several runs, one row a trial, in the order of the files.

    `runs` is a path, a text, a pattern (`results/*`) or several of them: as `analysis.runs.folders.folders` takes them.
    Columns are `analysis.schema.COLUMNS`: text (empty text where nothing was written; `point` is text too, to be
    sorted by `analysis.points.order`), whole numbers for batch_size and round, floats for every measurement (NaN = not
    measured, nor by a run older than the column). A last line that a killed writer left unfinished is left out. An
    empty `run` becomes the folder's name. Then `setup`: empty, or which trials must not be pooled with others, as
    `analysis.runs.setups` tells them apart. What differs is logged, and where a file has a trial of a cell and round
    twice, as two writers may leave it: only the first counts that did not fail.

    Raises `UserError` if there is no such run, one comes twice, or a `trials.csv` is malformed.
    """
    found = told_apart(folders(runs))
    for note in found.notes:
        log.warning("%s", note)
    return found.trials


@dataclass(frozen=True)
class ToldApart:
    """The trials of some folders as `load` gives them, their setups, each folder's manifest, and what a reader must
    know of how they were read, a line each.
    """

    trials: pd.DataFrame
    setups: setups.Setups
    manifests: dict[Path, dict[str, Any]]
    notes: list[str]


def told_apart(where: Sequence[Path]) -> ToldApart:
    """The trials of these folders. Raises `UserError`."""
    trials, names, notes = frame(where, TRIALS)
    manifests = {}
    for folder in where:
        manifests[folder], faults = read_manifest(folder)
        notes += faults
    found = setups.setups({name: manifests[folder] for name, folder in names.items()}, trials)
    trials["setup"] = found.of(trials)
    return ToldApart(trials, found, manifests, [*found.notes, *notes])


def frame(where: Sequence[Path], table: Table) -> tuple[pd.DataFrame, dict[str, Path], list[str]]:
    """The rows of one file of each folder, typed, each cell and round once; each run's folder by the run's name; and
    where there were more, a line each.
    """
    columns = Columns(table)
    folder_of: dict[str, Path] = {}
    unknown: dict[str, None] = {}
    notes: list[str] = []
    for folder in where:
        rows, others = reading.read(folder, table)
        unknown |= dict.fromkeys(others)
        rows = _filled(_filled(rows, "run", folder.resolve().name), "in_flight_asked", "auto")
        for name in rows["run"].unique().to_pylist():
            first = folder_of.setdefault(name, folder)
            if first is not folder:
                raise UserError(f"{first} and {folder} are the same run, {name}: give each run once")
        once = _once(rows)
        if len(once) < len(rows):
            notes.append(
                f"{folder / table.file}: {len(rows) - len(once)} rows are of a cell and round that it has already, so "
                "they do not count: did two runs write into this folder?"
            )
        columns.append(once)
    if unknown:
        log.warning(
            "%s: columns unknown to this version are left out: %s", table.file, short(", ".join(unknown))
        )
    return columns.frame(), folder_of, notes


def _once(rows: pa.Table) -> pa.Table:
    """Of rows of the same cell and round (and place in the chain), the first; before it, any that did not fail."""
    key = [name for name in (*ROW, "position") if name in rows.column_names]
    if len(rows) < 2 or len(rows.group_by(key).aggregate([])) == len(rows):
        return rows
    frame = rows.select(key).to_pandas()
    failed = rows["status"].to_pandas().eq("failed") if "status" in rows.column_names else False
    first = frame.assign(failed=failed).sort_values("failed", kind="stable").drop_duplicates(key)
    return rows.take(pa.array(first.index.sort_values()))


def _filled(rows: pa.Table, column: str, instead: str) -> pa.Table:
    """`instead` where a text column is empty."""
    empty = compute.equal(rows[column], "")
    if not compute.any(empty).as_py():
        return rows
    filled = compute.if_else(empty, instead, rows[column])
    return rows.set_column(rows.column_names.index(column), column, filled)
