"""How sure it is that a point is on the front."""

from __future__ import annotations

import numpy as np

from analysis.fronts.dominance import Floats, nondominated_in_each
from analysis.fronts.draws import Draws

MIN_ROUNDS = 3
"""With fewer rounds a bootstrap knows nothing about their spread, and a probability of 1 would be feigned. With 3 it is
calibrated as well as with 10, as simulation shows; an interval needs more."""


def probabilities(draws: Draws) -> tuple[Floats, Floats]:
    """For each cell, the probability to be on its backend's front, and on that of all backends.

    It is the share of resamples (`analysis.fronts.resampling`) in which no point dominates it; NaN for a cell with
    fewer than `MIN_ROUNDS` rounds. In simulations with known fronts, of the points with a stated probability about
    that share really is on the front, within 0.1, with 3 rounds and with 20; where noise is as large as the distance
    of neighbours, probabilities about one half are rather too low. Points that are equal in truth share it.
    """
    backend = draws.rows["backend"].to_numpy()
    admitted = draws.admitted
    within = nondominated_in_each(admitted, draws.maximise, backend[:, None] == backend).mean(axis=0)
    overall = nondominated_in_each(admitted, draws.maximise).mean(axis=0)
    enough = draws.rows["rounds"].to_numpy() >= MIN_ROUNDS
    return np.where(enough, within, np.nan), np.where(enough, overall, np.nan)
