"""Medians over whole rounds: over all, over each alone, of very many over several together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from analysis.advice.observed import MEASURES, Ints, Observed
from analysis.fronts.dominance import Floats

MIN_ROUNDS = 3
"""With fewer nothing is said of how sure a ranking is."""
MOST_ROUNDS = 100
"""Of more rounds, those that follow each other are taken together: thousands take long and tell no more."""


def together(observed: Observed) -> Observed:
    """With at most about `MOST_ROUNDS` rounds: medians of several, all of one stratum, in place of each by itself."""
    rounds = len(observed.stratum)
    if rounds <= MOST_ROUNDS:
        return observed
    parts: list[Ints] = []
    for stratum in np.unique(observed.stratum):
        members = np.flatnonzero(observed.stratum == stratum)
        parts += np.array_split(
            members, min(len(members), max(MIN_ROUNDS, MOST_ROUNDS * len(members) // rounds))
        )
    arrays: dict[str, Any] = {}
    for name in MEASURES:
        last = np.moveaxis(getattr(observed, name), 0, -1)
        arrays[name] = np.stack([_medians(last[..., part], np.nan) for part in parts])
    return replace(observed, stratum=observed.stratum[[part[0] for part in parts]], **arrays)


def medians(values: Floats, draws: Ints | None = None) -> Floats:
    """Of rounds x places x cells, over all rounds and places: cells. Over the drawn rounds: resamples x cells.

    A missing trial is left out; a draw that has none of a cell's trials gets the median of all of them.
    """
    if draws is None:
        every: Floats = medians(values, np.arange(len(values))[None])[0]
        return every
    found = np.full((len(draws), values.shape[2]), np.nan)
    for cell in range(values.shape[2]):
        of_cell = values[:, :, cell]
        of_cell = of_cell[:, ~np.isnan(of_cell).all(axis=0)]
        if of_cell.size:
            middle = float(np.median(of_cell[~np.isnan(of_cell)]))
            found[:, cell] = _medians(of_cell[draws].reshape(len(draws), -1), middle)
    return found


def _medians(values: Floats, otherwise: float) -> Floats:
    """Along the last axis, without NaN; many times as fast as `numpy.nanmedian`."""
    count = np.count_nonzero(~np.isnan(values), axis=-1)
    if (count == values.shape[-1]).all():
        return np.asarray(np.median(values, axis=-1))
    ordered = np.sort(values, axis=-1)  # NaN last
    one, other = (
        np.take_along_axis(ordered, place[..., None], axis=-1)[..., 0]
        for place in (np.maximum(count - 1, 0) // 2, count // 2)
    )
    return np.where(count > 0, (one + other) / 2, otherwise)
