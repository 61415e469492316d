"""Run folders read into typed frames: trials, stages and links, of one run or of several joined."""

from __future__ import annotations

import glob
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute

from pareto.analysis.naming import SIMULATED, USUAL
from pareto.analysis.runs import reading
from pareto.analysis.runs.comparable import differing, recorded, remarks, told
from pareto.analysis.runs.manifest import read_manifest, within
from pareto.analysis.runs.setups import Setups, setups
from pareto.analysis.runs.standing import bounded, stands, trusted
from pareto.analysis.runs.struck import marked, struck
from pareto.analysis.schema import CELL, LINKS, STAGES, TRIALS, Table
from pareto.basics import files
from pareto.basics.escaping import short
from pareto.protocol.errors import UserError
from pareto.sweep.options import testbed_name

log = logging.getLogger(__name__)

Runs = str | Path | Iterable[str | Path]
"""A path, a text, a pattern such as `results/*`, or several of them."""
ROW = ["run", *CELL, "round"]
"""The columns that name a trial in a file."""
ONE_LINK = "edge-server"
"""The link of two hosts."""
VERSIONS = [("", "pareto"), ("driver", "packages"), ("driver", "hostname")]
"""The remarks on runs that `joined` notes where they differ."""


@dataclass(frozen=True)
class Run:
    """A run folder, its manifest (empty if it is missing), and what its trials call the run, as it may be renamed."""

    folder: Path
    manifest: Mapping[str, Any]
    names: Sequence[str] = ()


@dataclass(frozen=True)
class Joined:
    """Runs, their trials and stages, what a reader must know, a line each, and what a search struck off."""

    runs: list[Run]
    trials: pd.DataFrame
    stages: pd.DataFrame
    notes: list[str]
    struck: pd.DataFrame


def folders(runs: Runs) -> list[Path]:
    """The run folders that are meant, in the given order; those of a pattern, or inside a folder, by name.

    A run is a folder with a `trials.csv`; a folder without one stands for the runs directly in it. Paths of
    a pattern that are no runs are skipped. Raises `UserError` for what is not there, holds no run, or names one twice.
    """
    each = [runs] if isinstance(runs, str | Path) else list(runs)
    result = [folder for one in each for folder in _folders_of(one)]
    seen: dict[Path, Path] = {}
    for folder in result:
        first = seen.setdefault(folder.resolve(), folder)
        if first is not folder:
            also = "" if str(first) == str(folder) else f", also as {first}"
            raise UserError(f"{folder} is given twice{also}: give each run once")
    return result


def _folders_of(given: str | Path) -> list[Path]:
    path = Path(given).expanduser()
    if not path.exists() and glob.has_magic(str(path)):
        names = Path(path.anchor).glob(str(path.relative_to(path.anchor)))
        matches = [folder for name in sorted(names) for folder in _runs_in(name)]
        if not matches:
            raise UserError(f"{given}: no run folder has such a name")
        return matches
    if not path.is_dir():
        raise UserError(f"{path}: {'not a folder' if path.exists() else 'no such folder'}")
    if not (inside := _runs_in(path)):
        raise UserError(f"{path}: not a run, nor a folder of runs: there is no {TRIALS.file}")
    return inside


def _runs_in(path: Path) -> list[Path]:
    if _is_run(path) or not path.is_dir():
        return [path] if _is_run(path) else []
    # A link in a folder of runs leads to where its maker wants; one that is named itself to where the user does.
    return sorted(child for child in path.iterdir() if _is_run(child) and not child.is_symlink())


def _is_run(path: Path) -> bool:
    """Whether a folder has a `trials.csv`; whether that is a plain file shows when it is read."""
    return files.kind(path / TRIALS.file) in ("a file", "a link")


def load(runs: Runs) -> pd.DataFrame:
    """The trials of one or several runs, one row a trial, in the order of the files.

    `runs` is a path, a text, a pattern (`results/*`) or several of them: as `folders` takes them. Columns are those of
    `analysis.schema.TRIALS`: text (empty text where nothing was written; `point` is text too, to be sorted by
    `runs.points.order`), whole numbers for batch_size and round, floats for every measurement (NaN = not measured).
    Factors that an earlier version did not have are as it did (`USUAL`), and an empty `run` becomes the folder's name.
    Where a trial counts for one of its two figures alone, what must not be trusted is empty (`runs.standing`). A
    last line that a killed writer left unfinished is left out. Where a run was a search, `settled` says what it struck
    off (`analysis.runs.struck`). Then `setup`: empty, or which trials must not be pooled with others, as
    `analysis.runs.setups` tells them apart. Differences are logged, and where a file has a trial of a cell and round
    twice, as two writers may leave it: only the first counts that did not fail.

    Raises `UserError` if there is no such run, one comes twice, or a `trials.csv` is malformed.
    """
    trials, labels, _, names, notes = _trials(where := folders(runs))
    for note in notes:
        log.warning("%s", note)
    return marked(trials, names, struck(where, labels))


def stages(runs: Runs) -> pd.DataFrame:
    """One row for each host that took part in a trial, in the order of the files; none for a run without the file.

    Columns are those of `analysis.schema.STAGES` and `setup`, typed and named as in `load`. Raises `UserError` as
    that does.
    """
    trials, labels, *_ = _trials(where := folders(runs))
    return _stages(where, trials, labels)


def links(runs: Sequence[Path]) -> pd.DataFrame:
    """The probes of every link of these run folders with their verdicts, one row a probe, in the order of the files.

    Columns are `run`, the folder's name, and those of `analysis.schema.LINKS`: text (empty text where nothing was
    written), and floats for what was asked and measured (NaN = not asked, not measured). A run without the file has
    no rows; a last line that a killed writer left unfinished is left out. Raises `UserError` if a file is malformed.
    """
    parts, names = list[pa.Table](), list[str]()
    for run in runs:
        if reading.is_there(run, LINKS):
            parts.append(_filled(reading.read(run, LINKS)[0], run))
            names += [run.resolve().name] * len(parts[-1])
    frame = reading.frame(parts, LINKS)
    frame.insert(0, "run", pd.Series(names, dtype="str"))
    return frame


def joined(runs: Runs | Joined) -> Joined:
    """The runs joined, or as they are if they are joined already. Those with other settings are told apart by the
    column `setup` (`analysis.runs.setups`).

    Notes: what the setups differ in, what of the files does not count, and which versions the runs were made with, if
    with several. Raises `UserError` for what is no run, is malformed, or is the same run twice, under whatever path.
    """
    if isinstance(runs, Joined):
        return runs
    trials, labels, manifests, names, notes = _trials(where := folders(runs))
    each = [
        Run(folder, manifest, [name for name, of in names.items() if of == folder])
        for folder, manifest in manifests.items()
    ]
    if any(run.manifest.get(SIMULATED) for run in each):
        notes.append(
            f"{SIMULATED}: nothing of this was measured; compute times are stated, links are arithmetic"
        )
    sides = [(run.folder.name, recorded(remarks(run.manifest))) for run in each]
    versions = [fact for fact in differing([facts for _, facts in sides]) if fact in VERSIONS]
    off = struck(where, labels)
    notes += told(versions, sides)
    return Joined(each, marked(trials, names, off), _stages(where, trials, labels), notes, off)


def _trials(
    where: Sequence[Path],
) -> tuple[pd.DataFrame, Setups, dict[Path, dict[str, Any]], dict[str, Path], list[str]]:
    """The trials of these folders, their setups, each folder's manifest, each run's folder by the name that its trials
    have, and notes on how they were read.
    """
    trials, names, notes = _frame(where, TRIALS)
    manifests = {}
    for folder in where:
        manifests[folder], faults = read_manifest(folder)
        notes += faults
        if not manifests[folder]:
            beds = trials.loc[trials["run"].map(names) == folder, "testbed"]
            if len(beds) and beds.str.fullmatch(rf"{SIMULATED}(-\d+)?(@.*)?").all():
                manifests[folder] = {SIMULATED: True}  # which must never pass for measured
    labels = setups({name: manifests[folder] for name, folder in names.items()}, trials)
    trials, beyond = bounded(labels.on(trials))
    return trusted(trials), labels, manifests, names, [*labels.notes, *notes, *filter(None, [beyond])]


def _stages(where: Sequence[Path], trials: pd.DataFrame, labels: Setups) -> pd.DataFrame:
    rows, _, notes = _frame([folder for folder in where if reading.is_there(folder, STAGES)], STAGES)
    for note in notes:
        log.warning("%s", note)
    rows = labels.on(rows)
    if (stands(trials) & (trials["status"] != "ok")).any():
        rows = trusted(rows, rows[ROW].merge(trials[[*ROW, "status"]], how="left", on=ROW)["status"])
    return rows


def _frame(where: Sequence[Path], table: Table) -> tuple[pd.DataFrame, dict[str, Path], list[str]]:
    """The rows of one file of each folder, typed, each cell and round once; each run's folder by the run's name; and
    where there were more, a line each.
    """
    parts: list[pa.Table] = []
    folder_of: dict[str, Path] = {}
    unknown: dict[str, None] = {}
    notes: list[str] = []
    for folder in where:
        rows, others = reading.read(folder, table)
        unknown |= dict.fromkeys(others)
        rows = _filled(rows, folder, run=folder.resolve().name, **USUAL)
        for name in rows["run"].unique().to_pylist():
            if (first := folder_of.setdefault(name, folder)) is not folder:
                raise UserError(f"{first} and {folder} are the same run, {name}: give each run once")
        parts.append(_once(rows))
        if more := len(rows) - len(parts[-1]):
            notes.append(
                f"{folder / table.file}: {more} rows are of a cell and round that it has already, so "
                "they do not count: did two runs write into this folder?"
            )
        del rows  # `frame` frees them, column by column
    if unknown:
        log.warning(
            "%s: columns unknown to this version are left out: %s", table.file, short(", ".join(unknown))
        )
    return reading.frame(parts, table), folder_of, notes


def _once(rows: pa.Table) -> pa.Table:
    """The first of rows of the same cell and round (and place in the chain), before it any that did not fail."""
    number = np.zeros(len(rows), dtype=np.int64)
    for name in (name for name in (*ROW, "position") if name in rows.column_names):
        # Texts are told apart once each: to group a million rows by twelve columns takes ten seconds.
        coded = rows[name].dictionary_encode().combine_chunks()
        number = pd.factorize(number * len(coded.dictionary) + coded.indices.to_numpy())[0]
    if len(rows) == number.max(initial=-1) + 1:
        return rows
    failed = rows["status"].to_pandas().eq("failed") if "status" in rows.column_names else False
    each = pd.DataFrame({"number": number, "failed": failed}).sort_values("failed", kind="stable")
    return rows.take(pa.array(each.drop_duplicates("number").index.sort_values()))


def _filled(rows: pa.Table, folder: Path, **usual: str) -> pa.Table:
    """The rows with what is usual where a text is empty, and with the only testbed that their run had, where older
    versions did not write it."""
    empty = {name: compute.equal(rows[name], "") for name in ("testbed", *usual)}
    for name, where in empty.items():
        if compute.any(where).as_py():
            option = name == "testbed" and within(read_manifest(folder)[0], "sweep", "testbed")
            instead = usual[name] if name in usual else short(testbed_name(option or ""))
            rows = rows.set_column(
                rows.column_names.index(name), name, compute.if_else(where, instead, rows[name])
            )
    return rows
