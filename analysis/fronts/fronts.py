"""Fronts, hypervolumes and attainment of the same trials at once: what they share is made once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.fronts import attainment, draws, front, hypervolume
from analysis.fronts.cells import cells
from analysis.fronts.objectives import DEFAULT, chosen
from analysis.fronts.where import Where
from analysis.neutral import pooled
from analysis.statistics.floor import floors


@dataclass(frozen=True)
class Fronts:
    """Frames as from the functions `front`, `hypervolumes` and `attainment` of this package."""

    front: pd.DataFrame
    hypervolumes: pd.DataFrame
    attainment: pd.DataFrame


def fronts(
    trials: pd.DataFrame, objectives: Sequence[str] = DEFAULT, where: str = "", seed: int = 0
) -> Fronts:
    """What the three say with their own defaults, from the same cells and resamples of them.

    The attainment is always that of latency and throughput, which is what figures draw. One condition's resamples are
    held at a time. Raises `UserError` as the three do.
    """
    wanted, constraint = chosen(objectives), Where.parse(where)
    is_plane = wanted == chosen(DEFAULT)
    known = floors(trials, [objective.column for objective in wanted])
    trials = pooled(trials)
    rows = cells(trials)
    certain: list[pd.DataFrame] = []
    volumes: list[dict[str, Any]] = []
    corners: list[pd.DataFrame] = []
    for drawn in draws.conditions(trials, rows, wanted, constraint, draws.RESAMPLES, seed, known):
        certain.append(front.certainty(drawn))
        volumes += hypervolume.of_condition(drawn, {})
        if is_plane:
            corners += attainment.of_condition(drawn.first(attainment.RESAMPLES))
    return Fronts(
        front.judged(rows, wanted, constraint, certain),
        hypervolume.framed(volumes, wanted),
        attainment.framed(corners, wanted)
        if is_plane
        else attainment.attainment(trials, where=where, seed=seed),
    )
