"""The latency of single requests: `requests/*.parquet` of runs, read one cell after another."""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute
from pyarrow.parquet import ParquetFile

from pareto.analysis.runs.load import Runs, folders, load
from pareto.analysis.runs.points import CELL, sorted_cells
from pareto.analysis.runs.standing import stands
from pareto.analysis.schema import LEAST, MOST, TRIALS, cell_name
from pareto.analysis.statistics.samples import Floats, flagged, quantile, quantile_interval
from pareto.basics import files
from pareto.basics.escaping import short
from pareto.protocol.errors import UserError

QUANTILES = {"latency_p50_s": 0.5, "latency_p90_s": 0.9, "latency_p95_s": 0.95, "latency_p99_s": 0.99}
RARE = ("latency_p95_s", "latency_p99_s")
"""The quantiles that have an interval, `latency_p95_low_s` and `latency_p95_high_s`."""
_ENDS = [name.replace("_s", f"_{end}_s") for name in RARE for end in ("low", "high")]
COLUMNS = [*CELL, "trials", "without_requests", "requests", *QUANTILES, *_ENDS, "slowest_s", "slow"]
READ = {"phase": pa.string(), "started_s": pa.float64(), "finished_s": pa.float64()}
READ_OF_LOAD = {"phase": pa.string(), "scheduled_s": pa.float64(), "finished_s": pa.float64()}
"""The columns of a file that are read, and their types."""
MOST_REQUESTS = 10_000_000
"""Requests of one trial at most: a small file may claim any number."""
MOST_BYTES = 1 << 28
MOST_SEEN = 200
"""Trials that are read to see how the requests of one differ: more take time and say the same."""
Files = dict[str, dict[tuple[str, int], Path]]
"""By the cell that a file's name begins with, then by run and round."""
_NAME = re.compile(r"(.+)-r([0-9]{1,6})\.parquet")

log = logging.getLogger(__name__)


def request_latencies(runs: Runs, trials: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row a cell that has a latency that can be trusted: that of its requests, one in flight; columns `COLUMNS`.

    `trials`: of these runs, as `analysis.runs.load.load` gives them; some of them, if only those are to count. A
    request's latency is `finished_s - started_s` in the latency phase, in seconds. All requests of a cell's rounds
    are pooled, so what slows a whole round shows in the upper quantiles.

    - trials: how many those are; without_requests: of these, how many have no file.
    - requests: how many. latency_p50_s, ..., latency_p99_s: empty where they are too few to state that quantile
      (`sweep.load.NEEDED`: 11, 64, 130, 662). slowest_s: the longest of all.
    - slow: how many are far above the others (`analysis.statistics.samples.flagged`). They count everywhere else too.

    The latencies of one cell are held at a time. Raises `UserError` for what is no run or cannot be read.
    """
    where = folders(runs)
    trials = load(where) if trials is None else trials
    files_of = request_files(where)
    ok, rows = stands(trials, "latency").to_numpy(), []
    for key, members in trials.groupby(CELL, dropna=False, observed=True).indices.items():
        counted = trials[["run", "round"]].iloc[members[ok[members]]]
        if len(counted):
            cell = dict(zip(CELL, key, strict=True))
            here = files_of.get(cell_name(cell), {})
            kept = [here[each] for each in counted.itertuples(index=False, name=None) if each in here]
            counts = {"trials": len(counted), "without_requests": len(counted) - len(kept)}
            rows.append(cell | counts | _figures([latencies_s(file) for file in kept]))
    return sorted_cells(pd.DataFrame(rows, columns=COLUMNS))


def spread_within(files_of: Files, trials: pd.DataFrame) -> tuple[float, float]:
    """The usual variance of the logarithms of the latencies in a trial, and how many requests a trial has.

    From `MOST_SEEN` of the valid trials, evenly spaced; NaN without files. files_of: as from `request_files`.
    """
    ok = np.flatnonzero(stands(trials, "latency"))
    variances, counts = [], []
    for row in trials.iloc[ok[:: max(1, len(ok) // MOST_SEEN)]].to_dict("records"):
        file = files_of.get(cell_name(row), {}).get((row["run"], row["round"]))
        if file is not None and len(latencies := latencies_s(file)) > 1:
            variances.append(np.log(latencies).var(ddof=1))
            counts.append(len(latencies))
    return (float(np.mean(variances)), float(np.median(counts))) if counts else (np.nan, np.nan)


def request_files(where: Sequence[Path]) -> Files:
    """Every file of requests of these run folders.

    A link, or what is not a plain file, is skipped, and that is logged.
    """
    result: Files = {}
    for run, folder in _named(where).items():
        try:
            held = files.listing(folder, "requests")
        except files.StoreError as error:
            log.warning("%s: skipped", error)
            continue
        for name, what in held.items():
            if (called := _NAME.fullmatch(name)) and what != "a file":
                log.warning("%s is %s, not a plain file: skipped", folder / "requests" / name, what)
            elif called:
                result.setdefault(called[1], {})[run, int(called[2])] = folder / "requests" / name
    return result


def _named(where: Sequence[Path]) -> dict[str, Path]:
    """The folders by the names of their runs, as in `analysis.runs.load.load`; without those that have no trial."""
    named: dict[str, Path] = {}
    for folder in where:
        with files.opened(folder, TRIALS.file) as file:
            text = io.TextIOWrapper(file, "utf-8-sig", newline="")
            for row in islice(csv.DictReader(text), 1):
                named[row.get("run") or folder.resolve().name] = folder
    return named


def latencies_s(file: Path, phase: str = "latency", skipped: int = 0) -> Floats:
    """The latencies of a phase of a trial, but for its first `skipped` requests. Raises `UserError`."""
    return _passed_s(file, READ, phase, skipped)


def load_latencies_s(file: Path) -> Floats:
    """The latencies of a trial's load phase, from when requests should have arrived; infinite for those that were
    dropped. Raises `UserError`."""
    served, dropped = (_passed_s(file, READ_OF_LOAD, phase) for phase in ("load", "dropped"))
    return np.append(served, np.full(len(dropped), np.inf))


def _passed_s(file: Path, columns: Mapping[str, pa.DataType], phase: str, skipped: int = 0) -> Floats:
    """Seconds from the second column to the third one, of a phase; zeros for what was dropped, as it has no end."""
    try:
        # A trial's file is small: opening it costs more than reading it, and a dataset of them twice as much.
        content = files.read(file.parent.parent, file.parent.name, file.name, most_bytes=MOST_BYTES)
        source = ParquetFile(pa.BufferReader(content), pre_buffer=False)
        about = source.metadata  # which may claim what no memory holds
        size = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
        if about.num_rows > MOST_REQUESTS or size > MOST_BYTES:
            raise ValueError(f"it says that it has {about.num_rows} requests")
        rows = source.read(list(columns), use_threads=False)
        if (types := rows.schema.types) != list(columns.values()):
            raise ValueError(f"its columns are of the types {', '.join(map(str, types))}")
        rows = rows.filter(compute.equal(rows["phase"], phase))
        if phase == "dropped":
            return np.zeros(len(rows))
        _, began, ended = columns
        passed_s = compute.subtract(rows[ended], rows[began]).slice(skipped).drop_null()
    except (pa.ArrowException, KeyError, OSError, ValueError) as error:
        raise UserError(f"{file}: not a file of requests: {short(str(error))}") from error
    values = np.asarray(passed_s.to_numpy(), dtype=float)
    if not np.all((values > LEAST) & (values < MOST)):
        raise UserError(f"{file}: not a file of requests: it has latencies that cannot have been measured")
    return values


def _figures(by_trial: Sequence[Floats]) -> dict[str, float]:
    latencies_s = np.concatenate(by_trial) if by_trial else np.empty(0)
    if not len(latencies_s):
        return {"requests": 0}
    above = latencies_s > np.median(latencies_s)
    ends = [end for name in RARE for end in quantile_interval(latencies_s, QUANTILES[name])]
    return {
        "requests": len(latencies_s),
        **{name: quantile(latencies_s, q) for name, q in QUANTILES.items()},
        **dict(zip(_ENDS, ends, strict=True)),
        "slowest_s": latencies_s.max(),
        "slow": int(np.count_nonzero(flagged(latencies_s) & above)),
    }
