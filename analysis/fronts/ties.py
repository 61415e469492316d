"""Points that can't be told apart."""

from __future__ import annotations

import numpy as np

from analysis.fronts.dominance import Floats
from analysis.fronts.draws import Draws
from analysis.naming import cell_names
from analysis.statistics.median import LEAST_VALUES, OUTSIDE
from analysis.statistics.posterior import FAIR_CHANCE


def named(draws: Draws, probability: Floats) -> list[str]:
    """For each cell, those it can't be told apart from: `any 21; tcp 17`, empty if there is none or if it is unknown.

    Two points can't be told apart if in every objective either may be the better one with 2.5 % or more (draws as in
    `analysis.fronts.membership`). Points with fewer than 6 rounds are not compared. Nor are points that are on the
    front of all backends with less than 5 % `probability`: of two that are far behind nobody asks which is better.
    """
    names = cell_names(draws.rows).to_numpy()
    found = [""] * len(names)
    if draws.true is None:
        return found
    enough = draws.rows["rounds"].to_numpy() >= LEAST_VALUES
    fair = np.flatnonzero(enough & ~(probability < FAIR_CHANCE))
    values = draws.true.values[:, fair]
    fair = fair[~np.isnan(values).all(axis=(0, 2))]
    values = draws.true.values[:, fair]
    not_more = (values[:, :, None] <= values[:, None, :]).mean(axis=0)
    alike = (np.minimum(not_more, not_more.transpose(1, 0, 2)) >= OUTSIDE).all(axis=2)
    np.fill_diagonal(alike, False)
    for cell, others in zip(fair, alike, strict=True):
        found[cell] = "; ".join(names[fair[others]])
    return found
