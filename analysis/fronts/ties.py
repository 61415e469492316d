"""Points that can't be told apart."""

from __future__ import annotations

import numpy as np

from analysis.fronts.dominance import Floats
from analysis.fronts.draws import FAIR_CHANCE, Draws
from analysis.statistics.median import LEAST_VALUES, OUTSIDE


def named(draws: Draws, probability: Floats) -> list[str]:
    """For each cell, those it can't be told apart from: `rpc 21; tcp 17`, empty if there is none or if it is unknown.

    Two points can't be told apart if the 95 % interval of their difference holds 0 in every objective. Differences
    are taken within a resample, so that what all points of a round have in common does not blur them. Points with
    fewer than 6 rounds are not compared: their intervals would be too narrow. Nor are points that are on the front of
    all backends with less than 5 % `probability`: of two that are far behind it nobody asks which is better.
    """
    enough = draws.rows["rounds"].to_numpy() >= LEAST_VALUES
    fair = np.flatnonzero(enough & (probability >= FAIR_CHANCE))
    values = draws.values[:, fair]
    # The interval holds 0 unless one sign has less than 2.5 % of the resamples.
    not_more = (values[:, :, None] <= values[:, None, :]).mean(axis=0)
    alike = (np.minimum(not_more, not_more.transpose(1, 0, 2)) >= OUTSIDE).all(axis=2)
    np.fill_diagonal(alike, False)
    names = (draws.rows["backend"].astype(str) + " " + draws.rows["point"].astype(str)).to_numpy()
    found = [""] * len(names)
    for cell, others in zip(fair, alike, strict=True):
        found[cell] = "; ".join(names[fair[others]])
    return found
