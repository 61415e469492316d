"""Where the front lies, and how sure that is: attainment surfaces over resampled fronts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import moocore
import numpy as np
import pandas as pd

from analysis.fronts import draws
from analysis.fronts.cells import cells
from analysis.fronts.dominance import Bools, Floats, nondominated_in_each
from analysis.fronts.draws import Draws
from analysis.fronts.objectives import DEFAULT, Objective, chosen
from analysis.fronts.where import Where
from analysis.keys import CONDITION
from analysis.neutral import pooled
from analysis.statistics.median import LEAST_VALUES
from pareto.errors import UserError

PERCENT = (5, 50, 95)
RESAMPLES = 400
"""A few hundred suffice for the band."""


def attainment(
    trials: pd.DataFrame,
    objectives: Sequence[str] = DEFAULT,
    where: str = "",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """The corners of the surfaces that 5, 50 and 95 % of the resampled fronts attain: a band in which the front lies.

    Columns: CONDITION, backend (a name, or `all` of them together), percent, and those of the two objectives; in the
    order of the first within a surface. `analysis.fronts.dominance.staircase` makes lines of them.

    What a front attains is all that one of its points equals or beats. The surface of 95 % bounds what nearly all
    resamples attain, that of 5 % what hardly any surpasses (empirical attainment function: Grunert da Fonseca, Fonseca
    & Hall, EMO 2001; computed by moocore): in any direction, the front lies between them in 90 % of cases. That is
    said of each direction by itself, not of the whole line at once.

    The fronts are those of resampled medians (`analysis.fronts.resampling`), because the question is where the front
    of the medians lies. The fronts of the single rounds would answer another one, how much rounds differ: their
    surfaces do not narrow with more rounds, and their middle is not the front of the medians but better, as every
    round's front is made of what was lucky in it.

    No rows for a group where a point that may be on its front (in 5 % of the resamples) has fewer than 6 rounds, or
    where none is feasible. Raises `UserError` for other than two objectives, or what can't be read.
    """
    wanted, constraint = chosen(objectives), Where.parse(where)
    if len(wanted) != 2:
        raise UserError(f"attainment: two objectives make a band, not {len(wanted)}")
    trials = pooled(trials)
    every = draws.conditions(trials, cells(trials), wanted, constraint, resamples, seed)
    return framed((corners for drawn in every for corners in of_condition(drawn)), wanted)


def of_condition(drawn: Draws) -> Iterator[pd.DataFrame]:
    """The rows of `attainment` of each group of one condition that has any."""
    for backend, members in drawn.groups():
        admitted = drawn.admitted[:, members]
        on_front = nondominated_in_each(admitted, drawn.maximise)
        if drawn.rounds_of_front(members, on_front) >= LEAST_VALUES:
            key = {name: drawn.rows[name].iloc[0] for name in CONDITION} | {"backend": backend}
            surfaces = _surfaces(admitted, on_front, np.where(drawn.maximise, -1.0, 1.0))
            corners = pd.DataFrame(surfaces, columns=[*(each.column for each in drawn.objectives), "percent"])
            yield corners.astype({"percent": int}).assign(**key)


def framed(corners: Iterable[pd.DataFrame], objectives: Sequence[Objective]) -> pd.DataFrame:
    """The frame of `attainment`, of the rows of all groups."""
    columns = [*CONDITION, "backend", "percent", *(each.column for each in objectives)]
    found = list(corners)
    return pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)


def _surfaces(values: Floats, on_front: Bools, sign: Floats) -> Floats:
    """The corners of the surfaces, with the percentage as a third column; `sign` is -1 for what is maximised."""
    sets = np.nonzero(on_front)[0]
    losses = values[on_front] * sign
    # A resample without a feasible point attains nothing: it counts as one far behind all others.
    empty = np.flatnonzero(~on_front.any(axis=1))
    behind = losses.max(axis=0) + 1
    losses = np.concatenate([losses, np.tile(behind, (len(empty), 1))])
    sets = np.concatenate([sets, empty])
    ordered = np.argsort(sets, kind="stable")  # moocore takes the sets one after the other
    corners = moocore.eaf(losses[ordered], sets[ordered], percentiles=PERCENT)
    corners = corners[(corners[:, :2] < behind).all(axis=1)]
    return np.column_stack([corners[:, :2] * sign, corners[:, 2]])[
        np.lexsort([corners[:, 0] * sign[0], corners[:, 2]])
    ]
