"""What the medians of a condition's cells might have been, had other rounds been measured: a bootstrap over rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.fronts.dominance import Floats
from analysis.points import order, order_backends

Ints = npt.NDArray[np.int64]

DRAWN_ROUNDS = 60_000
"""Of more than 30 rounds fewer than 2000 resamples are made, so that they draw no more rounds than this..."""
LEAST_RESAMPLES = 400
"""... down to as many (from 150 rounds on): the standard error of a share of them is 2.5 % or less, and what many
rounds decide is seldom near one half."""


@dataclass(frozen=True)
class Resampled:
    """`cells`: backend and point, sorted, one row a cell with an ok trial. `values`: by column, resamples x cells.

    `measured`: by column, rounds x cells; `run`: of which each is. `rounds`: how many each cell has. The same row of
    every array of `values` is the same draw of rounds: compare within it.
    """

    cells: pd.DataFrame
    values: dict[str, Floats]
    measured: dict[str, Floats]
    rounds: Ints
    run: Ints


def number(resamples: int, rounds: int) -> int:
    """How many resamples are made when so many are asked for."""
    return min(resamples, max(LEAST_RESAMPLES, DRAWN_ROUNDS // max(1, rounds)))


def resampled(ok: pd.DataFrame, columns: Sequence[str], resamples: int = 2000, seed: int = 0) -> Resampled:
    """Medians of every cell of one condition over reweighted rounds: the same for all cells and backends.

    `ok`: the trials of one condition with status ok. Rounds are blocks, because what slows one slows all its cells,
    and only their differences decide: a resample draws one weight for each round (the Bayesian bootstrap; Rubin, The
    Annals of Statistics 9, 1981: exponential weights, that is, Dirichlet shares), and a cell's value in it is its
    weighted median. Drawing rounds with replacement (Efron) would do the same in steps: of 3 rounds a median then has
    3 values, and a cell that missed rounds may have none. Two corrections make few rounds honest:

    - the median is interpolated between the two values at whose middle the weights reach one half, which with equal
      weights is the plain median;
    - its distance from the plain median is stretched by sqrt((n + 1) / (n - 1)), n the cell's rounds: the variance of a
      reweighted mean is by (n - 1) / (n + 1) too small.

    A cell with one round does not vary. NaN where a column has no value, or does not exist. A trial repeated within
    its round counts as a round more. With many rounds `resamples` is lowered: `number`.
    """
    numbered = ok.groupby(["backend", "point"], observed=True).ngroup().to_numpy()
    names = ok[["backend", "point"]].iloc[np.unique(numbered, return_index=True)[1]]
    places = np.lexsort([order(names["point"]), order_backends(names["backend"])])
    place = np.argsort(places)[numbered]
    block = _blocks(ok, place)

    count = block.max(initial=-1) + 1
    rng = np.random.default_rng(seed)
    weights = rng.standard_exponential((number(resamples, count), count))
    run = np.zeros(count, dtype=np.int64)
    run[block] = pd.factorize(ok["run"])[0]
    # What passed while one run was made slowed all of it: whole runs are drawn, and rounds in them.
    if run.any():
        weights *= rng.standard_exponential((len(weights), run.max() + 1))[:, run]
    values, tables = {}, {}
    for column in columns:
        table = np.full((len(places), count), np.nan)
        if column in ok:
            table[place, block] = ok[column].to_numpy(dtype=float)
        tables[column] = table.T
        values[column] = np.stack([_medians(measured, weights) for measured in table], axis=1)
    cells = names.iloc[places].reset_index(drop=True)
    return Resampled(cells, values, tables, np.bincount(place, minlength=len(places)), run)


def _blocks(ok: pd.DataFrame, cell: Ints) -> Ints:
    """Which round each trial is of, counted in the order of runs and rounds."""
    block = ok.groupby(["run", "round"], observed=True).ngroup().to_numpy()
    if len(np.unique(block * (cell.max(initial=0) + 1) + cell)) < len(ok):
        repeat = pd.Series(cell).groupby([block, cell]).cumcount().to_numpy()
        block = pd.Series(cell).groupby([block, repeat]).ngroup().to_numpy()
    return np.asarray(block)


def _medians(measured: Floats, weights: Floats) -> Floats:
    """Weighted medians of one cell's values, a value or NaN a round; weights: resamples x rounds."""
    known = ~np.isnan(measured)
    if not known.all():
        measured, weights = measured[known], weights[:, known]
    n = len(measured)
    if n == 0:
        return np.full(len(weights), np.nan)
    ranked = np.argsort(measured)
    ordered = measured[ranked]
    plain = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    if ordered[0] == ordered[-1]:
        return np.full(len(weights), plain)

    # The half lies five standard deviations, sqrt(n) / 2 ranks each, about the middle: the rest need not be sorted.
    far = int(2.5 * np.sqrt(n)) + 2
    first, last = max(0, n // 2 - far), min(n, n // 2 + far)
    beneath = np.zeros(n)
    beneath[ranked[:first]] = 1
    inside = weights[:, ranked[first:last]]
    # The weight up to the middle of each value.
    reached = np.cumsum(inside, axis=1)
    reached += (weights @ beneath)[:, None]
    reached -= inside / 2
    half = weights.sum(axis=1) / 2
    after = np.clip((reached < half[:, None]).sum(axis=1), 1, last - first - 1)
    draws = np.arange(len(weights))
    before, behind = reached[draws, after - 1], reached[draws, after]
    share = np.clip((half - before) / (behind - before), 0, 1)
    near, beyond = ordered[first + after - 1], ordered[first + after]
    stretch = np.sqrt((n + 1) / (n - 1))
    return np.asarray(plain + stretch * (near + share * (beyond - near) - plain))
