"""The front of cells that do not all have the same rounds, as after a search."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse.csgraph import connected_components

from pareto.analysis.statistics.samples import Bools, Floats, Ints


def nondominated(measured: Floats, maximise: Sequence[bool] = (False, True)) -> Bools:
    """Mask of the cells that no other one dominates, each pair by its medians over the rounds that both have.

    measured: rounds x cells x objectives, NaN where there is none. Whatever a round does to all its cells, as a
    drift, cannot decide. Two cells without a common round are compared by all that each has; one without a whole round
    is on no front. Where all cells have the same rounds, this is the front of their medians. Else dominance need not be
    transitive: a cell off the front keeps no other off it (the kernel of the relation), and cells that dominate each
    other in a circle do not keep each other off.
    """
    losses = np.where(np.asarray(maximise), -measured, measured)
    on_front: Bools = np.asarray(~np.isnan(losses).any(axis=2).all(axis=0))
    dominates = np.zeros((len(on_front), len(on_front)), dtype=bool)
    for ours, theirs, mine, other in _pairs(losses):
        dominates[np.ix_(ours, theirs)] = (mine <= other).all(axis=2) & (mine < other).any(axis=2)
    open_ = np.flatnonzero(on_front)
    while len(open_):
        among = dominates[np.ix_(open_, open_)]
        ahead = ~among.any(axis=0)
        if not ahead.any():
            _, circle = connected_components(among, directed=True, connection="strong")
            beaten = (among & (circle[:, None] != circle[None])).any(axis=0)
            ahead = ~np.isin(circle, circle[beaten])
        beaten = dominates[np.ix_(open_[ahead], open_)].any(axis=0) & ~ahead
        on_front[open_[beaten]] = False
        open_ = open_[~ahead & ~beaten]
    return on_front


def least_excess(losses: Floats) -> Floats:
    """The excess of each cell over each other one in the objective where it is least, by the medians of the rounds
    that both have: cells x cells; above 0: the other dominates it. -inf where one has no whole round.

    losses: rounds x cells x objectives, less is better, NaN where there is none.
    """
    result = np.full((losses.shape[1], losses.shape[1]), -np.inf)
    for ours, theirs, mine, other in _pairs(losses):
        result[np.ix_(ours, theirs)] = (mine - other).min(axis=2)
    return result


def _pairs(losses: Floats) -> Iterator[tuple[Ints, Ints, Floats, Floats]]:
    """Cells with one set of rounds, and cells with another one; the medians of the ones and of the others, over the
    rounds that both have, as arrays that broadcast to ones x others x objectives.
    """
    known: Bools = np.asarray(~np.isnan(losses).any(axis=2))
    cells = np.flatnonzero(known.any(axis=0))
    rounds, kind = np.unique(known[:, cells], axis=1, return_inverse=True)
    members = [cells[kind.ravel() == each] for each in range(rounds.shape[1])]
    for (a, ours), (b, theirs) in itertools.product(enumerate(members), repeat=2):
        both = rounds[:, a] & rounds[:, b]
        first, second = (both, both) if both.any() else (rounds[:, a], rounds[:, b])
        mine, other = np.median(losses[first][:, ours], axis=0), np.median(losses[second][:, theirs], axis=0)
        yield ours, theirs, mine[:, None], other[None]
