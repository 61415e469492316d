"""Cells without a valid figure that could be on a front, and the probabilities that they leave open."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.advice.observed import needed
from pareto.analysis.advice.rivals import FIGURES, MOST_NAMED, Tried, with_bytes
from pareto.analysis.fronts.objectives import chosen
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import condition_title, some
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import BUT_CODEC, CELL, CONDITION, NONE, in_every_codec
from pareto.analysis.statistics.doubt import Doubt
from pareto.analysis.statistics.posterior import FAIR_CHANCE
from pareto.analysis.statistics.samples import Bools, Floats
from pareto.analysis.wording import place

_BOUNDS = dict(FIGURES.values())
_STATED = (("probability", "probability_all"), CONDITION), (("codec_probability",), BUT_CODEC)
"""The columns of probabilities, and what is the same for all points that compete in them."""


def lacking(
    front: pd.DataFrame,
    trials: pd.DataFrame,
    objectives: Sequence[str],
    where: str,
    networks: Mapping[str, Network] | None = None,
) -> tuple[pd.DataFrame, list[Doubt]]:
    """The front without the probabilities that do not hold; and at most one doubt: which cells lack a valid figure, and
    could be on the front of their condition.

    A cell that lacks a figure is at its best as good as its bounds (`analysis.advice.rivals`), or as what was measured
    of it; in an objective without a bound, better than all. It could not be on the front if a measured cell is no worse
    than that. No probability holds of a cell that it would dominate, unless below `FAIR_CHANCE`.
    """
    wanted = chosen(objectives)
    columns = [each.column for each in wanted]
    signs = np.array([-1.0 if each.maximise else 1.0 for each in wanted])
    lost = _lost(trials, where, networks or {})
    keys = [tuple(key) for key in front[CELL].astype("str").itertuples(index=False, name=None)]
    is_allowed, is_lost = (
        front["feasible"].to_numpy(bool),
        np.array([key in lost for key in keys], dtype=bool),
    )
    losses: Floats = signs * front[columns].to_numpy(float)
    lacks: Bools = np.isnan(losses).any(axis=1) & (is_lost | is_allowed)
    if not lacks.any():
        return front, []
    best = losses.copy()
    for number, column in enumerate(columns):
        if column in _BOUNDS:
            bounds = np.array([lost.get(key, {}).get(_BOUNDS[column]) for key in keys], dtype=float)
            best[is_lost, number] = signs[number] * bounds[is_lost]
    best = np.where(np.isnan(best), -np.inf, best)
    front = front.copy()
    backend, codec = (front[name].astype("str").to_numpy() for name in ("backend", "codec"))
    could: list[int] = []
    for names, same in _STATED:
        for members in front.groupby(same, dropna=False, observed=True).indices.values():
            whole = members[is_allowed[members] & ~np.isnan(losses[members]).any(axis=1)]
            tried = members[lacks[members]]
            # Another codec may cost more accuracy: it keeps nothing off.
            alike = codec[whole] == codec[tried][:, None]
            is_open = ~(alike & (losses[whole] <= best[tried][:, None]).all(axis=2)).any(axis=1)
            left = tried[is_open & (len(whole) > 0)]
            could += [*left] if same is CONDITION else []
            beaten = (best[left][:, None] <= losses[whole]).all(axis=2)
            mine = (backend[left][:, None] == backend[whole]) | (backend[left] == NONE)[:, None]
            for name in names:
                rivals = mine | (backend[whole] == NONE) if name == "probability" else np.True_
                unsettled = whole[(beaten & rivals).any(axis=0)]
                # A rival more makes it no likelier to be on a front.
                unsettled = unsettled[~(front[name].to_numpy(float)[unsettled] < FAIR_CHANCE)]
                front.loc[front.index[unsettled], name] = np.nan
    if not could:
        return front, []
    several = len(front[CONDITION].drop_duplicates()) > 1
    rows = [front.iloc[number].to_dict() | {"engine": ""} | lost.get(keys[number], {}) for number in could]
    found = [f"{place(row)}{f' ({condition_title(row)})' * several}" for row in rows]
    points = "a point lacks" if len(found) == 1 else f"{len(found)} points lack"
    head = f"{points} a valid {' or '.join(objectives)} and could be on the front"
    return front, [Doubt(head, some(found, MOST_NAMED))]


def _lost(
    trials: pd.DataFrame, where: str, networks: Mapping[str, Network]
) -> dict[tuple[str, ...], dict[Hashable, Any]]:
    """The cells without a valid latency or throughput, by `CELL`."""
    found: dict[tuple[str, ...], dict[Hashable, Any]] = {}
    every = in_every_codec(with_bytes(needed(trials, *Where.parse(where).columns)))
    for condition, rows in every.groupby(CONDITION, dropna=False, observed=True):
        tried = Tried(rows, where, networks.get(str(condition[CONDITION.index("netem")])))
        for cell in (cell for figure in FIGURES for cell in tried.lost(figure).to_dict("records")):
            found.setdefault((*map(str, condition), str(cell["backend"]), str(cell["point"])), cell)
    return found
