"""The cells of a condition in the space of the objectives: as measured, and as they might have been."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.fronts import energy
from analysis.fronts.cells import ACTIVES, EFFICIENCIES, ENERGIES, MEDIANS
from analysis.fronts.dominance import Bools, Floats
from analysis.fronts.objectives import Objective
from analysis.fronts.resampling import Ints, resampled
from analysis.fronts.where import Where
from analysis.keys import CONDITION
from analysis.naming import backends
from analysis.neutral import NONE
from analysis.statistics import levels, posterior
from analysis.statistics.floor import OF, UNKNOWN, Floor, Floors
from analysis.statistics.posterior import FAIR_CHANCE

RESAMPLES = 2000
TRUTHS = 1000
"""Draws that probabilities are made of: their standard error is 1.6 % or less."""
ALL = "all"
"""In the place of a backend: all of them together."""


@dataclass(frozen=True)
class Draws:
    """The cells of one condition that have a valid trial.

    rows: as in `analysis.fronts.cells.cells`, with `feasible`. values: resamples x cells x objectives, for intervals of
    what a whole front is worth and where it lies. feasible: resamples x cells, whether a cell satisfies the constraint
    in that resample. measured: rounds x cells x objectives. may_hold: for so many draws, whether it satisfies the
    constraint in truth. floor: of each objective, what identical treatments differ by (`analysis.statistics.floor`),
    and what whole runs do, where there are several (`analysis.statistics.levels`).
    """

    rows: pd.DataFrame
    objectives: tuple[Objective, ...]
    values: Floats
    feasible: Bools
    measured: Floats
    may_hold: Callable[[int], Bools]
    floor: Floats
    seed: int = 0

    @property
    def medians(self) -> Floats:
        """As measured: cells x objectives, NaN where infeasible."""
        figures = self.rows[[each.column for each in self.objectives]].to_numpy(dtype=float)
        return np.where(self.rows["feasible"].to_numpy()[:, None], figures, np.nan)

    @property
    def admitted(self) -> Floats:
        """The values, NaN where infeasible: such a point is on no front."""
        return np.where(self.feasible[:, :, None], self.values, np.nan)

    @cached_property
    def true(self) -> posterior.Draws | None:
        """What the objectives may be in truth, for probabilities (`analysis.statistics.posterior`).

        NaN where infeasible. None with too few rounds.
        """
        points = self.rows["point"].to_numpy(dtype=object)
        found = posterior.draws(self.measured, points, self.floor, count=TRUTHS, seed=self.seed)
        if found is None:
            return None
        holds = self.may_hold(len(found.values))
        return replace(found, values=np.where(holds[:, :, None], found.values, np.nan))

    @property
    def maximise(self) -> list[bool]:
        return [each.maximise for each in self.objectives]

    def first(self, resamples: int) -> Draws:
        """Of these many resamples: the same that would have been drawn, had no more been asked for."""
        return replace(self, values=self.values[:resamples], feasible=self.feasible[:resamples])

    def groups(self) -> Iterator[tuple[str, Ints]]:
        """Each backend and the places of its cells, and of those that are of none; at last `ALL` and those of all."""
        backend = self.rows["backend"].astype(str).to_numpy()
        for name in filter(None, backends(self.rows)):
            yield name, np.flatnonzero((backend == name) | (backend == NONE))
        yield ALL, np.arange(len(backend))

    def rounds_of_front(self, members: Ints, on_front: Bools) -> int:
        """The fewest rounds of a cell with a fair chance to be on the front of these; 0 if there is no front.

        on_front: resamples x members. What few rounds know of such a cell, nobody knows better of the front.
        """
        share = on_front.mean(axis=0)
        rounds = self.rows["rounds"].to_numpy()[members]
        return int(rounds[share >= min(FAIR_CHANCE, share.max())].min()) if on_front.any() else 0


def conditions(
    trials: pd.DataFrame,
    rows: pd.DataFrame,
    objectives: tuple[Objective, ...],
    where: Where,
    resamples: int,
    seed: int,
    floors: Floors | None = None,
) -> Iterator[Draws]:
    """The draws of each condition of these trials; `rows` are their cells. floors: what is known of the noise floor.

    Objectives and what the constraint asks are computed of the same resample, where they are medians or made of them;
    all else in a constraint (a name, an interval, a number of rounds) is the same in every resample.
    """
    asked = {*(objective.column for objective in objectives), *where.columns}
    made_of = {energy.WHOLE: ENERGIES, energy.ACTIVE: ACTIVES, **EFFICIENCIES}
    parts = {column for made in asked for column in made_of.get(made, [made])}
    drawn = [column for column in (*MEDIANS, *ENERGIES, *ACTIVES) if column in parts]
    # Columns first, rows then: the other way round, all that is measured would be copied.
    columns = [*CONDITION, "backend", "point", "run", "round", *drawn]
    ok = trials.reindex(columns=columns)[(trials["status"] == "ok").to_numpy()]
    measured = rows[rows["rounds"] > 0]
    measured = measured.assign(feasible=where.holds(measured))
    pairs = zip(
        *(frame.groupby(CONDITION, dropna=False, observed=True) for frame in (ok, measured)), strict=True
    )
    for (_, of_condition), (_, members) in pairs:
        found = resampled(of_condition, drawn, resamples, seed)
        values = found.values | _made(found.values, members, asked)
        measured = found.measured | _made(found.measured, members, asked)
        in_rounds = np.stack([measured[objective.column] for objective in objectives], axis=2)
        constants = {name: members[name].to_numpy() for name in where.columns}
        shape = values[objectives[0].column].shape
        yield Draws(
            members,
            objectives,
            np.stack([values[objective.column] for objective in objectives], axis=2),
            np.broadcast_to(where.within(where.over_backends(members, constants | values)), shape),
            in_rounds,
            partial(_may_hold, where, members, constants, measured, seed),
            np.hypot(
                _floor(floors or {}, members).of([objective.column for objective in objectives]),
                levels.of_runs(_logs(in_rounds), found.run),
            ),
            seed,
        )


def _logs(measured: Floats) -> Floats:
    return np.log(np.where(measured > 0, measured, np.nan))


def _floor(floors: Floors, members: pd.DataFrame) -> Floor:
    model, setup = (str(members[name].iloc[0]) for name in OF)
    return floors.get((model, setup), UNKNOWN)


def _may_hold(
    where: Where,
    members: pd.DataFrame,
    constants: Mapping[str, npt.NDArray[Any]],
    measured: Mapping[str, Floats],
    seed: int,
    count: int,
) -> Bools:
    """Whether each cell satisfies the constraint, in so many draws of what its figures may be in truth."""
    drawn = {
        name: posterior.alone(measured[name], count, seed + number)
        for number, name in enumerate(sorted(where.columns & set(measured)))
    }
    cells = len(next(iter(measured.values())).T)
    return np.broadcast_to(
        where.within(where.over_backends(members, dict(constants) | drawn)), (count, cells)
    )


def _made(values: Mapping[str, Floats], members: pd.DataFrame, asked: set[str]) -> dict[str, Floats]:
    """What is asked for and made of other figures, in each resample or round."""
    made = {
        column: values[above] / values[below]
        for column, (above, below) in EFFICIENCIES.items()
        if column in asked
    }
    for which in asked & {energy.WHOLE, energy.ACTIVE}:
        made[which] = energy.charged(str(members["energy_of"].iloc[0]), members, values, which)
    return made
