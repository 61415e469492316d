"""How sure it is that a point is on the front."""

from __future__ import annotations

import numpy as np

from analysis.fronts.dominance import Floats, nondominated_in_each
from analysis.fronts.draws import Draws

MIN_ROUNDS = 3
"""With fewer rounds nothing is known of their spread. With 3 it is calibrated where the noise is small, as simulation
shows, and where it is not, no probability is stated; an interval needs more."""


def probabilities(draws: Draws) -> tuple[Floats, Floats]:
    """For each cell, the probability to be on its backend's front, and on that of all backends.

    It is the share of draws of what the figures may be in truth (`analysis.statistics.posterior`) in which no point
    dominates it. NaN for a cell with fewer than `MIN_ROUNDS` rounds; where so few cells and rounds were measured that
    their noise is not known; and where it is too large for any probability to hold. docs/analysis.md has the table of
    what was stated and what was so.
    """
    backend = draws.rows["backend"].to_numpy()
    unknown = np.full(len(backend), np.nan)
    if draws.true is None:
        return unknown, unknown
    values, enough = draws.true.values, draws.rows["rounds"].to_numpy() >= MIN_ROUNDS
    overall = nondominated_in_each(values, draws.maximise).mean(axis=0)
    within = nondominated_in_each(values, draws.maximise, backend[:, None] == backend).mean(axis=0)
    for name in np.unique(backend):
        mine = backend == name
        within[mine] = draws.true.of(mine).stated(within[mine])
    return np.where(enough, within, np.nan), np.where(enough, draws.true.stated(overall), np.nan)
