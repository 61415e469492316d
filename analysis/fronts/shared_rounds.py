"""The front of cells that do not all have the same rounds, as after a search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.sparse.csgraph import connected_components

from analysis.points import CELL
from analysis.statistics.samples import Bools, Floats, Ints


def in_rounds(trials: pd.DataFrame, cells: pd.DataFrame, columns: Sequence[str]) -> dict[str, Floats]:
    """What each round measured of these cells, by column: rounds x cells, NaN where there is none.

    trials: those that are valid, each cell once in a round of a run.
    """
    place = cells[CELL].assign(place=range(len(cells)))
    mine = trials.merge(place, on=CELL)
    number = mine.groupby(["run", "round"], observed=True).ngroup().to_numpy()
    tables = np.full((len(columns), number.max(initial=-1) + 1, len(cells)), np.nan)
    tables[:, number, mine["place"]] = mine[[*columns]].to_numpy(dtype=float).T
    return dict(zip(columns, tables, strict=True))


def nondominated(measured: Floats, maximise: Sequence[bool] = (False, True)) -> Bools:
    """Which cells no other one dominates, each pair by its medians over the rounds that both have.

    measured: rounds x cells x objectives, NaN where there is none. A cell dominates another if it is no worse in every
    objective and better in one. So whatever a round does to all its cells, such as a drift, cannot decide; two cells
    without a common round are compared by the medians of all that each has. A cell without a whole round is on no
    front. Where all cells have the same rounds, this is the front of their medians. Where they do not, it may be that a
    dominates b, b dominates c, and c dominates a: such cells do not keep each other off the front.
    """
    losses = np.where(np.asarray(maximise), -measured, measured)
    known: Bools = np.asarray(~np.isnan(losses).any(axis=2))
    on_front: Bools = np.asarray(known.any(axis=0))
    cells = np.flatnonzero(on_front)
    if not len(cells):
        return on_front
    rounds, kind = np.unique(known[:, cells], axis=1, return_inverse=True)
    members = [cells[kind.ravel() == each] for each in range(rounds.shape[1])]
    place = np.argsort(np.concatenate(members))
    dominates = np.block(
        [
            [_dominates(losses, ours, rounds[:, a], theirs, rounds[:, b]) for b, theirs in enumerate(members)]
            for a, ours in enumerate(members)
        ]
    )[np.ix_(place, place)]
    if rounds.shape[1] == 1:
        beaten = dominates.any(axis=0)
    else:
        _, circle = connected_components(dominates, directed=True, connection="strong")
        beaten = (dominates & (circle[:, None] != circle[None])).any(axis=0)
    on_front[cells[beaten]] = False
    return on_front


def _dominates(losses: Floats, ours: Ints, our_rounds: Bools, theirs: Ints, their_rounds: Bools) -> Bools:
    """Whether each of ours dominates each of theirs: both have one set of rounds."""
    both = our_rounds & their_rounds
    first, second = (both, both) if both.any() else (our_rounds, their_rounds)
    mine = np.median(losses[first][:, ours], axis=0)[:, None]
    other = np.median(losses[second][:, theirs], axis=0)[None]
    return np.asarray((mine <= other).all(axis=2) & (mine < other).any(axis=2))
