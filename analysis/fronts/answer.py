"""The cost of an answer: how much of the front was known after how much measuring, run by run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.fronts import shared_rounds
from pareto.analysis.fronts.indicators import PLANE, nondominated, reference_for, volume
from pareto.analysis.fronts.objectives import DEFAULT, chosen
from pareto.analysis.runs.manifest import sessions, within
from pareto.analysis.runs.points import (
    CELL,
    CONDITION,
    NONE,
    STANDS_FOR,
    controls,
    in_every_codec,
    pooled,
    sorted_cells,
)
from pareto.analysis.runs.standing import stands
from pareto.analysis.statistics.samples import Floats, Ints

COLUMNS = [*CONDITION, "run", "search", "trials", "took_s", "cells", "on_front", "hypervolume_share"]
_NEEDED = [*CELL, STANDS_FOR, "point_name", "run", "round", "status", "payload_bytes", "wall_s", *PLANE]
KNOWN = 0.99
"""The front is known that is worth this share of the final one."""
MOST_STEPS = 200
"""The most rows of a run and condition: with more trials some are left out, more and more towards the end,
where little changes.
"""


def answers(trials: pd.DataFrame, manifests: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """One row for each trial of each condition and run, in the order in which they were made; columns `COLUMNS`.

    took_s: what all trials of the condition in this run took so far, valid or not, and its model profiles.
    hypervolume_share: the worth of the front by the medians of the run so far, at the medians that all runs of the
    condition end with, as a share of the final one: luck in a first trial is worth nothing. cells, on_front: how many
    were measured so far, and are on that front. search: whether the run was one.

    Latency and throughput count, without a constraint. No rows for a condition without anything valid, or without
    `wall_s`. manifests: by the run's name.
    """
    # Columns first: half a million rows of all of them are half a gigabyte.
    needed = in_every_codec(trials.reindex(columns=_NEEDED))
    ok = pooled(needed)
    known = ok[stands(ok)].groupby(CELL, dropna=False, observed=True)[PLANE].median().dropna().reset_index()
    finals = dict(iter(sorted_cells(known).groupby(CONDITION, dropna=False, observed=True)))
    needed["backend"] = needed["backend"].astype("str").where(~controls(needed), NONE)
    made = [
        _of_run(rows, manifests.get(str(run), {}), finals[condition])
        for condition, of_condition in needed.groupby(CONDITION, dropna=False, observed=True, sort=False)
        if condition in finals and of_condition["wall_s"].gt(0).any()
        for run, rows in of_condition.groupby("run", observed=True, sort=False)
    ]
    return pd.concat(made, ignore_index=True)[COLUMNS] if made else pd.DataFrame(columns=COLUMNS)


def summaries(progress: pd.DataFrame) -> pd.DataFrame:
    """One row for each condition and run: the last of `answers`, and `known_s`, when the front was known.

    known_s: what trials took until the share reached `KNOWN` and stayed there; NaN if it does not.
    """
    of_runs = progress.groupby([*CONDITION, "run"], dropna=False, observed=True, sort=False)
    rows = of_runs.tail(1)
    known_s = [known_after(of["hypervolume_share"].to_numpy(), of["took_s"].to_numpy()) for _, of in of_runs]
    return rows.assign(known_s=np.array(known_s, dtype=float)).reset_index(drop=True)


def _of_run(rows: pd.DataFrame, manifest: Mapping[str, Any], known: pd.DataFrame) -> pd.DataFrame:
    """The rows of `answers` of one condition of a run. known: the condition's cells with their final medians."""
    place = known[CELL].assign(place=range(len(known)))
    at = rows[CELL].merge(place, on=CELL, how="left")["place"].fillna(-1)
    at = np.where(stands(rows), at, -1).astype(np.int64)
    measured = rows[PLANE].assign(
        cell=at, round=rows["round"].rank(method="dense").to_numpy(dtype=np.int64) - 1
    )
    steps = _steps(len(rows))
    is_search = bool(within(manifest, "sweep", "search"))
    shares, counts = _shares(
        measured.reset_index(drop=True), known[PLANE].to_numpy(dtype=float), steps, is_search
    )
    began_s = sum(float(session.get("profiling_s") or 0) for session in sessions(manifest))
    return pd.DataFrame(
        {
            **{name: rows[name].iloc[0] for name in CONDITION},
            "run": rows["run"].iloc[0],
            "search": is_search,
            "trials": steps + 1,
            "took_s": began_s + rows["wall_s"].fillna(0).cumsum().to_numpy()[steps],
            "cells": counts[:, 0],
            "on_front": counts[:, 1],
            "hypervolume_share": shares,
        }
    )


def _shares(trials: pd.DataFrame, finals: Floats, steps: Ints, is_search: bool) -> tuple[Floats, Ints]:
    """Shares of the hypervolume after each of these trials; and how many cells were measured, and on the front.

    trials: in their order, with the place of each one's `cell` among the condition's (-1: none counts) and the `round`,
    from 0. finals: each cell's last medians, cells x 2. is_search: fronts compare each two cells by the rounds that
    both have.
    """
    objectives = chosen(DEFAULT)
    bound, _ = reference_for(finals, objectives, {})
    every = volume(finals, bound, objectives)
    shape = int(trials["round"].max()) + 1, len(finals)
    shares, counts = np.zeros(len(steps)), np.zeros((len(steps), 2), dtype=np.int64)
    for number, step in enumerate(steps):
        so_far = trials.iloc[: step + 1]
        # Where nothing crosses, a round has a trial under each backend: their mean counts, as in `pooled`.
        by_round = so_far[so_far["cell"] >= 0].groupby(["cell", "round"])[PLANE].mean()
        medians = by_round.groupby("cell").median().reindex(range(len(finals))).to_numpy()
        if is_search:
            measured = np.full((*shape, 2), np.nan)
            cells, rounds = (by_round.index.get_level_values(name) for name in ("cell", "round"))
            measured[rounds, cells] = by_round.to_numpy()
            # As front.csv has it: another front would not end as that one.
            front = shared_rounds.nondominated(measured)
        else:
            front = nondominated(*medians.T)
        shares[number] = volume(finals[front], bound, objectives) / every if every else np.nan
        counts[number] = (~np.isnan(medians).any(axis=1)).sum(), front.sum()
    return shares, counts


def _steps(trials: int) -> Ints:
    """The places of the trials after which the front is looked at."""
    if trials <= MOST_STEPS:
        return np.arange(trials)
    return np.unique(np.geomspace(1, trials, MOST_STEPS).round().astype(np.int64)) - 1


def known_after(shares: Floats, took_s: Floats, share: float = KNOWN) -> float:
    """The seconds after which the front was worth that share, and stayed so; NaN if it never did."""
    short = np.flatnonzero(shares < share)
    first = short[-1] + 1 if len(short) else 0
    return float(took_s[first]) if first < len(took_s) else float("nan")
