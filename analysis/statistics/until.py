"""Which points of a front are not known well enough yet, and what more rounds could not tell of."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analysis.keys import CONDITION
from analysis.naming import cell_name, condition_title
from analysis.statistics.median import LEAST_VALUES
from analysis.statistics.stability import MEASURES, halves, widest

CHANCE = 0.02
"""A point is left aside once it was on the front in no more of the resamples."""
FAIR_TRIAL = 2 * LEAST_VALUES
"""Rounds in which a point that is valid in every other one has an interval."""


@dataclass(frozen=True)
class Standing:
    """What is known after some rounds.

    rounds: of the condition that has most. points: how many may be on a front. unsure: how many of these are not known
    within what was asked; widest: the worst of them in words, `` without intervals. conditions: those they belong to,
    as in `CONDITION` but its setup. lost: points without any valid trial in `LEAST_VALUES` rounds or more, in words.
    mostly_invalid: points that are not known and were valid in fewer than half of `FAIR_TRIAL` rounds or more.
    """

    rounds: int
    points: int
    unsure: int
    widest: str
    conditions: frozenset[tuple[str, str, int, str, str]]
    lost: tuple[str, ...]
    mostly_invalid: tuple[str, ...] = ()


def standing(front: pd.DataFrame, within: float) -> Standing:
    """Whether latency and throughput of all that may be on a front are known within a share of their medians.

    front: as from `analysis.fronts.front.front`, over one run. A point may be on the front of its condition if it is
    feasible and was on that of all backends in more than `CHANCE` of the resamples, or too few rounds tell. It is known
    if neither end of either 95 % interval is farther from its median than `within` (0.05: 5 %), which needs
    `LEAST_VALUES` rounds. A point that has as many rounds and no valid trial is lost, and so is one that is not known
    and mostly invalid: neither counts as unsure, as what it lacks is not rounds.
    """
    tried = front["rounds"] + front["excluded"]
    lost = front[(front["rounds"] == 0) & (tried >= LEAST_VALUES)]
    may_be = ~(front["probability_all"] <= CHANCE) | front["on_front"].astype(bool)
    chosen = front[front["feasible"].astype(bool) & may_be & ~front.index.isin(lost.index)]
    off = pd.DataFrame({measure: halves(chosen, measure) for measure in MEASURES}, index=chosen.index)
    unknown = chosen[~(off <= within).all(axis=1)]
    is_invalid = (tried[unknown.index] >= FAIR_TRIAL) & (2 * unknown["rounds"] < tried[unknown.index])
    unsure, mostly_invalid = unknown[~is_invalid], unknown[is_invalid]
    keys = unsure[CONDITION[:-1]].itertuples(index=False, name=None)
    return Standing(
        rounds=int(tried.max()) if len(front) else 0,
        points=len(chosen) - len(mostly_invalid),
        unsure=len(unsure),
        widest=_widest(front, off.loc[unsure.index]),
        conditions=frozenset(
            (model, netem, int(batch), codec, depth) for model, netem, batch, codec, depth in keys
        ),
        lost=tuple(_named(front, row) for _, row in lost.iterrows()),
        mostly_invalid=tuple(_named(front, row) for _, row in mostly_invalid.iterrows()),
    )


def _widest(front: pd.DataFrame, off: pd.DataFrame) -> str:
    if not off.notna().to_numpy().any():
        return ""
    index, measure, size = widest(off)
    return f"{_named(front, front.loc[index])} {measure} ±{100 * size:.1f} %"


def _named(front: pd.DataFrame, row: pd.Series) -> str:
    """Its condition too, where there are several."""
    where = f" ({condition_title(row)})" if len(front[CONDITION].drop_duplicates()) > 1 else ""
    return f"{cell_name(row)}{where}"
