"""The trials of run folders: `trials.csv` as a typed frame."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import compute

from analysis.runs import reading, setups
from analysis.runs.columns import Columns
from analysis.runs.folders import Runs, folders
from analysis.runs.manifest import manifest
from analysis.runs.schema import TRIALS, DatasetError, Table

log = logging.getLogger(__name__)


def load(runs: Runs) -> pd.DataFrame:
    """The trials of one or several runs, one row a trial, in the order of the files.

    `runs` is a path, a text, a pattern (`results/*`) or several of them: as `analysis.runs.folders.folders` takes them.
    Columns are `analysis.runs.schema.COLUMNS`: text (empty text where nothing was written; `point` is text too, to be
    sorted by `analysis.points.order`), whole numbers for batch_size and round, floats for every measurement (NaN = not
    measured, nor by a run older than the column). A last line that a killed writer left unfinished is left out. An
    empty `run` becomes the folder's name. Then `setup`: empty, or which trials must not be pooled with others, as
    `analysis.runs.setups` tells them apart; what differs is logged.

    Raises `DatasetError` if there is no such run, one comes twice, or a `trials.csv` is malformed.
    """
    trials, found = told_apart(folders(runs))
    for note in found.notes:
        log.warning("%s", note)
    return trials


def told_apart(where: Sequence[Path]) -> tuple[pd.DataFrame, setups.Setups]:
    """The trials of these folders as `load` gives them, and their setups."""
    trials, names = frame(where, TRIALS)
    manifests = {name: manifest(folder) for name, folder in names.items()}
    found = setups.setups(manifests, trials)
    trials["setup"] = found.of(trials)
    return trials, found


def frame(where: Sequence[Path], table: Table) -> tuple[pd.DataFrame, dict[str, Path]]:
    """The rows of one file of each folder, typed; and each run's folder by the run's name."""
    columns = Columns(table)
    folder_of: dict[str, Path] = {}
    unknown: dict[str, None] = {}
    for folder in where:
        rows, others = reading.read(folder / table.file, table)
        unknown |= dict.fromkeys(others)
        rows = _filled(_filled(rows, "run", folder.resolve().name), "in_flight_asked", "auto")
        for name in rows["run"].unique().to_pylist():
            first = folder_of.setdefault(name, folder)
            if first is not folder:
                raise DatasetError(f"{first} and {folder} are the same run, {name}: give each run once")
        columns.append(rows)
    if unknown:
        log.warning("%s: columns unknown to this version are left out: %s", table.file, ", ".join(unknown))
    return columns.frame(), folder_of


def _filled(rows: pa.Table, column: str, instead: str) -> pa.Table:
    """`instead` where a text column is empty."""
    empty = compute.equal(rows[column], "")
    if not compute.any(empty).as_py():
        return rows
    filled = compute.if_else(empty, instead, rows[column])
    return rows.set_column(rows.column_names.index(column), column, filled)
