"""The cells that searches struck off: their files, their trials, and their rows beside those of the front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from pareto.analysis.fronts.cells import cells
from pareto.analysis.naming import USUAL
from pareto.analysis.runs import reading
from pareto.analysis.runs.points import CELL, MEASURED, NONE, SETTLED, is_struck, order, pooled, sorted_cells
from pareto.analysis.runs.setups import Setups
from pareto.analysis.schema import STRUCK

BOUNDS = {"least_latency_s": "latency_s", "most_throughput_ips": "throughput_ips"}
"""Columns beside the front: the bound of a cell without a trial."""
_OF_RUN = ["run", *(name for name in CELL if name != "setup")]


def struck(where: Sequence[Path], setups: Setups) -> pd.DataFrame:
    """One row for each cell that a search of these runs struck off: the columns of `STRUCK`, and `setup`.

    Raises UserError for a file that is no such table.
    """
    parts = []
    for folder in (folder for folder in where if reading.is_there(folder, STRUCK)):
        part = reading.read(folder, STRUCK)[0].to_pandas()
        usual = {column: {"": value} for column, value in USUAL.items()}
        parts.append(part.replace({"run": {"": folder.resolve().name}, **usual}))
    if not any(map(len, parts)):
        return pd.DataFrame(columns=[*STRUCK.columns, "setup"])
    return setups.on(pd.concat(filter(len, parts), ignore_index=True)[list(STRUCK.columns)])


def marked(trials: pd.DataFrame, folders: Mapping[str, Path], struck_off: pd.DataFrame) -> pd.DataFrame:
    """The trials with the column `SETTLED`; as they are where no run was a search. folders: by the run's name."""
    searches = [run for run, folder in folders.items() if reading.is_there(folder, STRUCK)]
    if not searches:
        return trials
    how = struck_off.drop_duplicates(_OF_RUN)[[*_OF_RUN, "how"]]
    settled = trials[_OF_RUN].merge(how, on=_OF_RUN, how="left")["how"].set_axis(trials.index)
    of_others = trials["run"].isin(searches).map({True: "", False: MEASURED})
    return trials.assign(**{SETTLED: settled.fillna(of_others).astype("str")})


def with_struck(front: pd.DataFrame, trials: pd.DataFrame, struck_off: pd.DataFrame) -> pd.DataFrame:
    """The rows of a front, and one for each cell that was struck off: on no front, with what was measured of it.

    Further columns: `SETTLED`, and `BOUNDS` of cells without a trial. A cell that another run has on its front, or
    among what that dominates, keeps that row. As it is where nothing was struck off.
    """
    if struck_off.empty:
        return front
    bounds = struck_off["how"].eq("physics")
    named = struck_off.assign(
        backend=struck_off["backend"].where(struck_off["payload_bytes"] > 0, NONE),
        **{SETTLED: struck_off["how"]},
        **{column: struck_off[of].where(bounds) for column, of in BOUNDS.items()},
    ).drop_duplicates(CELL)[[*CELL, "point_name", SETTLED, *BOUNDS]]
    measured = cells(pooled(trials[is_struck(trials)])).drop(columns="point_name")
    rows = named.merge(measured, on=CELL, how="left")
    rows = rows.merge(front[CELL].assign(there=True), on=CELL, how="left")
    rows = rows[rows["there"].isna()].drop(columns="there")
    counts = ["rounds", "excluded", "trials", "left_out"]
    rows[counts] = rows[counts].fillna(0).astype("int64")
    empty = {"bool": False, "str": ""}
    for name in (name for name in front if name not in rows):
        rows[name] = empty.get(str(front[name].dtype), float("nan"))
    rows["feasible"] = True
    for name in front.select_dtypes("str"):
        rows[name] = rows[name].fillna("").astype("str")
    both = pd.concat([front.assign(**{SETTLED: MEASURED}), rows], ignore_index=True)
    both["point_order"] = order(both["point"])
    return sorted_cells(both)[[*front.columns, SETTLED, *BOUNDS]]
