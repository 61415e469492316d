"""The cells that enter and leave the front from one run to another, of those that both have."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.fronts.draws import Draws, prepared
from pareto.analysis.fronts.front import probabilities
from pareto.analysis.fronts.indicators import (
    nondominated,
    nondominated_in_each,
    reference_for,
    volume,
    volumes_of_each,
    without_bias,
)
from pareto.analysis.fronts.objectives import DEFAULT
from pareto.analysis.naming import cell_names
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.statistics.samples import LEAST_VALUES, Bools

CHANGES = ["enter", "may_enter", "leave", "may_leave", "stay", "may_stay"]
COLUMNS = [
    *CONDITION,
    *("objectives", "points", "reference", "first_hypervolume", "other_hypervolume"),
    *("hypervolume_ratio", "ratio_low", "ratio_high", *CHANGES, "note"),
]
RESAMPLES = 1000
SURE = 0.95


def changes(
    first: pd.DataFrame,
    other: pd.DataFrame,
    objectives: Sequence[str] = DEFAULT,
    where: str = "",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """One row a condition, from the trials of two runs that have valid trials of the same cells.

    results/README.md has the columns, under compare-fronts.csv. Both hypervolumes are of the front of all backends,
    against one `reference`. The interval of their ratio is by resampling whole rounds, of each run by itself
    (`analysis.fronts.draws`). A point enters, leaves or stays that has a probability (`analysis.fronts.front`) of at
    least 95 % in one run and at most 5 % in the other (to stay: of at least 95 % in both), and may enter, leave or stay
    if only the medians say so. Raises `UserError` for objectives or a constraint that can't be read.
    """
    sides = (
        prepared(trials, objectives, where, resamples, seed + number).draws
        for number, trials in enumerate((first, other))
    )
    changed = [
        one.rows.iloc[0][CONDITION].to_dict() | _change((one, two)) for one, two in zip(*sides, strict=True)
    ]
    return pd.DataFrame(changed, columns=COLUMNS)


def _change(sides: Sequence[Draws]) -> dict[Hashable, Any]:
    objectives = sides[0].objectives
    on_front = [nondominated(*side.medians.T, maximise=side.maximise) for side in sides]
    row: dict[Hashable, Any] = {
        "objectives": ", ".join(objective.name for objective in objectives),
        "points": len(sides[0].rows),
        "reference": "",
    }
    if fault := _incomparable(sides, on_front):
        return row | dict.fromkeys(CHANGES, "") | {"note": fault}
    reference, row["reference"] = reference_for(
        np.concatenate([side.medians for side in sides]), objectives, {}
    )
    volumes = [volume(side.medians, reference, side.objectives) for side in sides]
    row["first_hypervolume"], row["other_hypervolume"] = volumes
    row |= _moves(sides, on_front)
    if not all(volumes):
        # As where no point sends anything, and the objective is less payload.
        return row | {"note": "no volume: an objective is 0 everywhere"}
    row["hypervolume_ratio"] = volumes[1] / volumes[0]
    every = np.arange(row["points"])
    in_each = [nondominated_in_each(side.admitted, side.maximise) for side in sides]
    rounds = min(side.rounds_of_front(every, drawn) for side, drawn in zip(sides, in_each, strict=True))
    if rounds < LEAST_VALUES:
        return row | {"note": f"too few rounds for an interval: {rounds:.0f}, it needs {LEAST_VALUES}"}
    # Of more rounds fewer resamples are made.
    many = min(len(side.values) for side in sides)
    drawn = [volumes_of_each(side.admitted[:many], reference, side.objectives) for side in sides]
    if not np.all(drawn):
        # A ratio to nothing is no number, and without these resamples it would seem that there always is a front.
        always_feasible = all(side.feasible.any(axis=1).all() for side in sides)
        return row | {"note": f"some resamples have no {'volume' if always_feasible else 'feasible point'}"}
    ends = without_bias(np.log(drawn[1]) - np.log(drawn[0]), np.log(row["hypervolume_ratio"]))
    row["ratio_low"], row["ratio_high"] = np.exp(ends)
    return row | {"note": ""}


def _incomparable(sides: Sequence[Draws], on_front: Sequence[Bools]) -> str:
    """Why there is nothing to compare; empty if there is."""
    devices = [str(side.rows["energy_of"].iloc[0]) or "nothing" for side in sides]
    if devices[0] != devices[1] and any("energy" in each.name for each in sides[0].objectives):
        return f"energy is of other devices: {devices[0]} in A, {devices[1]} in B"
    empty = [name for name, on in zip("AB", on_front, strict=True) if not on.any()]
    return f"no point on the front of {' or '.join(empty)}" if empty else ""


def _moves(sides: Sequence[Draws], on_front: Sequence[Bools]) -> dict[Hashable, Any]:
    """The cells that enter, leave and stay, surely or by the medians alone."""
    both_sure = np.logical_and(
        *(  # NaN, where no probability holds, is never sure
            np.where(on, (probability := probabilities(side)[1]) >= SURE, probability <= 1 - SURE)
            for side, on in zip(sides, on_front, strict=True)
        )
    )
    was, now = on_front
    names = cell_names(sides[0].rows).to_numpy()
    moves: dict[Hashable, Any] = {}
    for change, moved in (("enter", ~was & now), ("leave", was & ~now), ("stay", was & now)):
        moves[change] = "; ".join(names[moved & both_sure])
        moves[f"may_{change}"] = "; ".join(names[moved & ~both_sure])
    return moves
