"""How sure it is that a point is on the front."""

from __future__ import annotations

import numpy as np

from analysis.fronts.dominance import Floats, nondominated_in_each
from analysis.fronts.draws import Draws
from analysis.neutral import NONE

MIN_ROUNDS = 3
"""With fewer rounds nothing is known of their spread. With 3 it is calibrated where the noise is small, as simulation
shows, and where it is not, no probability is stated; an interval needs more."""


def probabilities(draws: Draws) -> tuple[Floats, Floats]:
    """For each cell, the probability to be on its backend's front, and on that of all backends.

    A cell without a backend, as nothing crosses there, is every backend's rival, and has one probability: the latter.

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
    overall = draws.true.stated(nondominated_in_each(values, draws.maximise).mean(axis=0))
    within = overall.copy()
    for name in set(backend) - {NONE}:
        own = (backend == name) | (backend == NONE)
        shares = nondominated_in_each(values[:, own], draws.maximise).mean(axis=0)
        stated = draws.true.of(own).stated(shares)
        within[backend == name] = stated[backend[own] == name]
    return np.where(enough, within, np.nan), np.where(enough, overall, np.nan)
