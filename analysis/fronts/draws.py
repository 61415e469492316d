"""The cells of a condition in the space of the objectives: as measured, and as they might have been."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.fronts import energy
from analysis.fronts.cells import EFFICIENCIES, ENERGIES, MEDIANS
from analysis.fronts.dominance import Bools, Floats
from analysis.fronts.objectives import Objective
from analysis.fronts.resampling import Ints, Resampled, resampled
from analysis.fronts.where import Where
from analysis.keys import CONDITION
from analysis.naming import backends

RESAMPLES = 2000
FAIR_CHANCE = 0.05
"""What is on a front in fewer resamples is not counted among the points that make it."""
ALL = "all"
"""In the place of a backend: all of them together."""


@dataclass(frozen=True)
class Draws:
    """The cells of one condition that have a valid trial.

    rows: as in `analysis.fronts.cells.cells`, with `feasible`. values: resamples x cells x objectives. feasible:
    resamples x cells, whether a cell satisfies the constraint in that resample.
    """

    rows: pd.DataFrame
    objectives: tuple[Objective, ...]
    values: Floats
    feasible: Bools

    @property
    def medians(self) -> Floats:
        """As measured: cells x objectives, NaN where infeasible."""
        figures = self.rows[[each.column for each in self.objectives]].to_numpy(dtype=float)
        return np.where(self.rows["feasible"].to_numpy()[:, None], figures, np.nan)

    @property
    def admitted(self) -> Floats:
        """The values, NaN where infeasible: such a point is on no front."""
        return np.where(self.feasible[:, :, None], self.values, np.nan)

    @property
    def maximise(self) -> list[bool]:
        return [each.maximise for each in self.objectives]

    def first(self, resamples: int) -> Draws:
        """Of these many resamples: the same that would have been drawn, had no more been asked for."""
        return replace(self, values=self.values[:resamples], feasible=self.feasible[:resamples])

    def groups(self) -> Iterator[tuple[str, Ints]]:
        """Each backend and the places of its cells; at last `ALL` and those of all."""
        backend = self.rows["backend"].astype(str).to_numpy()
        for name in backends(self.rows):
            yield name, np.flatnonzero(backend == name)
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
) -> Iterator[Draws]:
    """The draws of each condition of these trials; `rows` are their cells.

    Objectives and what the constraint asks are computed of the same resample, where they are medians or made of them;
    all else in a constraint (a name, an interval, a number of rounds) is the same in every resample.
    """
    asked = {*(objective.column for objective in objectives), *where.columns}
    parts = {column for made in asked for column in {"energy_j": ENERGIES, **EFFICIENCIES}.get(made, [made])}
    drawn = [column for column in (*MEDIANS, *ENERGIES) if column in parts]
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
        values = found.values | _made(found, members, asked)
        stacked = np.stack([values[objective.column] for objective in objectives], axis=2)
        constants = {name: members[name].to_numpy() for name in where.columns}
        feasible = np.broadcast_to(where.within(constants | values), stacked.shape[:2])
        yield Draws(members, objectives, stacked, feasible)


def _made(found: Resampled, members: pd.DataFrame, asked: set[str]) -> dict[str, Floats]:
    """What is asked for and made of medians."""
    made = {
        column: found.values[above] / found.values[below]
        for column, (above, below) in EFFICIENCIES.items()
        if column in asked
    }
    if "energy_j" in asked:
        made["energy_j"] = energy.charged(str(members["energy_of"].iloc[0]), members, found.values)
    return made
