"""Run folders read into typed frames: trials, stages, links and what a search struck off, of one run or several."""

from __future__ import annotations

import glob
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute

from pareto.analysis.naming import SIMULATED, USUAL
from pareto.analysis.runs import reading
from pareto.analysis.runs.comparable import Trials, differing, recorded, remarks, setups, told, with_setup
from pareto.analysis.runs.manifest import read_manifest, within
from pareto.analysis.runs.standing import MEASURED, SETTLED, bounded, stands, trusted
from pareto.analysis.schema import CELL, LINKS, STAGES, STRUCK, TRIALS, Table
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
    each = [runs] if isinstance(runs, str | Path) else runs
    result = [folder for one in each for folder in _folders_of(Path(one).expanduser())]
    seen: dict[Path, Path] = {}
    for folder in result:
        first = seen.setdefault(folder.resolve(), folder)
        if first is not folder:
            also = "" if str(first) == str(folder) else f", also as {first}"
            raise UserError(f"{folder} is given twice{also}: give each run once")
    return result


def _folders_of(path: Path) -> list[Path]:
    if not path.exists() and glob.has_magic(str(path)):
        names = Path(path.anchor).glob(str(path.relative_to(path.anchor)))
        if matches := [folder for name in sorted(names) for folder in _runs_in(name)]:
            return matches
        raise UserError(f"{path}: no run folder has such a name")
    if not path.is_dir():
        raise UserError(f"{path}: {'not a folder' if path.exists() else 'no such folder'}")
    if inside := _runs_in(path):
        return inside
    raise UserError(f"{path}: not a run, nor a folder of runs: there is no {TRIALS.file}")


def _runs_in(path: Path) -> list[Path]:
    """The folder itself if it has a `trials.csv`, else those in it that do: whether it is a plain file shows later."""
    # A link in a folder of runs leads to where its maker wants; one that is named itself to where the user does.
    inside = sorted(child for child in path.iterdir() if not child.is_symlink()) if path.is_dir() else []
    there = [each for each in (path, *inside) if files.kind(each / TRIALS.file) in ("a file", "a link")]
    return [path] if path in there else there


def load(runs: Runs) -> pd.DataFrame:
    """The trials of one or several runs, one row a trial, in the order of the files.

    `runs` is a path, a text, a pattern (`results/*`) or several of them: as `folders` takes them. Columns are those of
    `analysis.schema.TRIALS`: text (empty text where nothing was written; `point` is text too, to be sorted by
    `runs.points.order`), whole numbers for batch_size and round, floats for every measurement (NaN = not measured).
    Factors that an earlier version did not have are as it did (`USUAL`), and an empty `run` becomes the folder's name.
    Where a trial counts for one of its two figures alone, what must not be trusted is empty (`runs.standing`). A
    last line that a killed writer left unfinished is left out. Where a run was a search, `settled` says what it struck
    off. Then `setup`: empty, or which trials must not be pooled with others, as `runs.comparable` tells them apart.
    Differences are logged, and where a file has a trial of a cell and round twice, as two writers may leave it: only
    the first counts that did not fail.

    Raises `UserError` if there is no such run, one comes twice, or a `trials.csv` is malformed.
    """
    known, _ = _read(folders(runs))
    for note in known.notes:
        log.warning("%s", note)
    return known.trials


def stages(runs: Runs) -> pd.DataFrame:
    """One row for each host that took part in a trial, in the order of the files; none for a run without the file.

    Columns are those of `analysis.schema.STAGES` and `setup`, typed and named as in `load`. Raises `UserError` as
    that does.
    """
    return _stages(*_read(folders(runs)))


def links(runs: Sequence[Path]) -> pd.DataFrame:
    """The probes of every link of these run folders with their verdicts, one row a probe, in the order of the files.

    Columns are `run`, the folder's name, and those of `analysis.schema.LINKS`: text (empty text where nothing was
    written), and floats for what was asked and measured (NaN = not asked, not measured). A run without the file has
    no rows; a last line that a killed writer left unfinished is left out. Raises `UserError` if a file is malformed.
    """
    there = [run for run in runs if reading.is_there(run, LINKS)]
    parts = [_filled(reading.read(run, LINKS)[0], run) for run in there]
    names = [run.resolve().name for run, part in zip(there, parts, strict=True) for _ in range(len(part))]
    frame = reading.frame(parts, LINKS)
    frame.insert(0, "run", pd.Series(names, dtype="str"))
    return frame


def struck(where: Sequence[Path], labels: Mapping[Trials, str] | None = None) -> pd.DataFrame:
    """One row for each cell that a search of these runs struck off: the columns of `STRUCK`, and `setup`.

    Raises UserError for a file that is no such table.
    """
    rows, *_ = _frame([folder for folder in where if reading.is_there(folder, STRUCK)], STRUCK)
    return with_setup(rows.astype(dict.fromkeys(rows.select_dtypes("category"), "str")), labels or {})


def joined(runs: Runs | Joined) -> Joined:
    """The runs joined, or as they are if they are joined already. Those with other settings are told apart by the
    column `setup` (`runs.comparable`).

    Notes: what the setups differ in, what of the files does not count, and which versions the runs were made with, if
    with several. Raises `UserError` for what is no run, is malformed, or is the same run twice, under whatever path.
    """
    if isinstance(runs, Joined):
        return runs
    known, labels = _read(folders(runs))
    notes = [*known.notes]
    if any(run.manifest.get(SIMULATED) for run in known.runs):
        notes.append(
            f"{SIMULATED}: nothing of this was measured; compute times are stated, links are arithmetic"
        )
    sides = [(run.folder.name, recorded(remarks(run.manifest))) for run in known.runs]
    versions = [fact for fact in differing([facts for _, facts in sides]) if fact in VERSIONS]
    return replace(known, stages=_stages(known, labels), notes=notes + told(versions, sides))


def _read(where: Sequence[Path]) -> tuple[Joined, dict[Trials, str]]:
    """The runs of these folders but for their stages, with notes on how they were read; and the trials' setups."""
    trials, names, notes = _frame(where, TRIALS)
    runs = []
    for folder in where:
        own = [name for name, of in names.items() if of == folder]
        manifest, faults = read_manifest(folder)
        notes += faults
        if not manifest:
            beds = trials.loc[trials["run"].isin(own), "testbed"]
            if len(beds) and beds.str.fullmatch(rf"{SIMULATED}(-\d+)?(@.*)?").all():
                manifest = {SIMULATED: True}  # which must never pass for measured
        runs.append(Run(folder, manifest, own))
    labels, differences = setups({name: run.manifest for run in runs for name in run.names}, trials)
    trials, beyond = bounded(with_setup(trials, labels))
    trials, off = trusted(trials), struck(where, labels)
    if searches := [name for name, folder in names.items() if files.kind(folder / STRUCK.file) == "a file"]:
        cell = ["run", *CELL]
        how = trials[cell].merge(off.drop_duplicates(cell)[[*cell, "how"]], on=cell, how="left")["how"]
        of_others = trials["run"].isin(searches).map({True: "", False: MEASURED})
        trials[SETTLED] = how.set_axis(trials.index).fillna(of_others).astype("str")
    return Joined(runs, trials, pd.DataFrame(), [*differences, *notes, *beyond], off), labels


def _stages(known: Joined, labels: Mapping[Trials, str]) -> pd.DataFrame:
    there = [run.folder for run in known.runs if reading.is_there(run.folder, STAGES)]
    rows, _, notes = _frame(there, STAGES)
    for note in notes:
        log.warning("%s", note)
    trials, rows = known.trials, with_setup(rows, labels)
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
        rows = _filled(rows, folder)
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


def _filled(rows: pa.Table, folder: Path) -> pa.Table:
    """The rows with what is usual where a text is empty, with the name of a folder that is the run's, and with the only
    testbed that the run had, where older versions did not write it."""
    for place, name in enumerate(rows.column_names):
        if name in ("run", "testbed", *USUAL) and compute.any(empty := compute.equal(rows[name], "")).as_py():
            if name == "testbed":
                option = within(read_manifest(folder)[0], "sweep", "testbed")
                usual = short(testbed_name(option or ""))
            else:
                usual = USUAL.get(name, folder.resolve().name)
            rows = rows.set_column(place, name, compute.if_else(empty, usual, rows[name]))
    return rows
