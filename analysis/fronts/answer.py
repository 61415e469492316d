"""The cost of an answer: how much of the front was known after how much measuring, run by run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.fronts.indicators import PLANE, reference_for, volume
from pareto.analysis.fronts.objectives import DEFAULT, chosen
from pareto.analysis.fronts.shared_rounds import nondominated
from pareto.analysis.runs.manifest import sessions, within
from pareto.analysis.runs.points import CELL, CONDITION, sorted_cells
from pareto.analysis.runs.standing import stands
from pareto.analysis.runs.treatments import STANDS_FOR, backend_of, in_every_codec, pooled

_OF_STEP = ["trials", "took_s", "cells", "on_front", "hypervolume_share"]
COLUMNS = [*CONDITION, "run", "search", *_OF_STEP]
_NEEDED = [*CELL, STANDS_FOR, "point_name", "run", "round", "status", "payload_bytes", "wall_s", *PLANE]
KNOWN = 0.99
"""The front is known that is worth this share of the final one."""
MOST_STEPS = 200
"""The most rows of a run and condition: of more trials fewer and fewer are looked at towards the end."""


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
    needed["backend"] = backend_of(needed)
    made = [
        _of_run(rows, manifests.get(str(run), {}), finals[condition])
        for condition, of_condition in needed.groupby(CONDITION, dropna=False, observed=True, sort=False)
        if condition in finals and of_condition["wall_s"].gt(0).any()
        for run, rows in of_condition.groupby("run", observed=True, sort=False)
    ]
    return pd.concat(made, ignore_index=True) if made else pd.DataFrame(columns=COLUMNS)


def summaries(progress: pd.DataFrame) -> pd.DataFrame:
    """One row for each condition and run: the last of `answers`, and `known_s`, when the front was known.

    known_s: what trials took until the share reached `KNOWN` and stayed there; NaN if it does not.
    """
    of_runs = progress.groupby([*CONDITION, "run"], dropna=False, observed=True, sort=False)
    known_s = [
        [*of["took_s"], np.nan][max(np.flatnonzero(of["hypervolume_share"] < KNOWN), default=-1) + 1]
        for _, of in of_runs
    ]
    return of_runs.tail(1).assign(known_s=np.array(known_s, dtype=float)).reset_index(drop=True)


def _of_run(rows: pd.DataFrame, manifest: Mapping[str, Any], known: pd.DataFrame) -> pd.DataFrame:
    """The rows of `answers` of one condition of a run. known: the condition's cells with their final medians."""
    objectives, finals = chosen(DEFAULT), known[PLANE].to_numpy(dtype=float)
    bound, _ = reference_for(finals, objectives, {})
    every, is_search = volume(finals, bound, objectives), bool(within(manifest, "sweep", "search"))
    began_s = sum(float(session.get("profiling_s") or 0) for session in sessions(manifest))
    took_s = began_s + rows["wall_s"].fillna(0).cumsum().to_numpy()
    steps = np.unique(np.geomspace(1, len(rows), MOST_STEPS).round().astype(np.int64)) - 1
    if len(rows) <= MOST_STEPS:
        steps = np.arange(len(rows))

    cell = rows[CELL].merge(known[CELL].assign(cell=range(len(known))), on=CELL, how="left")["cell"]
    counts_from = np.flatnonzero(stands(rows).to_numpy() & cell.notna())
    in_round = rows["round"].rank(method="dense").to_numpy(dtype=np.int64) - 1
    figures = rows[PLANE].to_numpy(dtype=float)
    sums, numbers = np.zeros((2, in_round.max() + 1, *finals.shape))
    made, seen = [], 0
    for step in steps:
        new = counts_from[(counts_from >= seen) & (counts_from <= step)]
        seen, place = step + 1, (in_round[new], cell[new].astype(int))
        # Where nothing crosses, a round has a trial under each backend: their mean counts, as in `pooled`.
        np.add.at(sums, place, np.nan_to_num(figures[new]))
        np.add.at(numbers, place, ~np.isnan(figures[new]))
        measured = np.divide(sums, numbers, out=np.full_like(sums, np.nan), where=numbers > 0)
        medians = pd.DataFrame(measured.reshape(len(measured), -1)).median().to_numpy().reshape(finals.shape)
        # A search compares two cells by the rounds that both have, as front.csv does, which it is to end as.
        front = nondominated(measured if is_search else medians[None])
        share = volume(finals[front], bound, objectives) / every if every else np.nan
        made.append((seen, took_s[step], (~np.isnan(medians).any(axis=1)).sum(), front.sum(), share))
    same = {**{name: rows[name].iloc[0] for name in (*CONDITION, "run")}, "search": is_search}
    return pd.DataFrame(made, columns=_OF_STEP).assign(**same)[COLUMNS]
