"""What the rows so far say of a condition's cells."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.statistics.samples import Floats
from pareto import strikes
from pareto.strikes import ROUNDS, Look, Prospects

CELLS, COUNT = 30, 5


def sparse(seed: int, missing: float, noise: float = 0.1) -> Floats:
    """Rounds in which some cells have no trial."""
    draws = np.random.default_rng(seed)
    measured = np.arange(CELLS)[:, None] / 10 + draws.normal(0, noise, (COUNT, CELLS, 2))
    measured[draws.random((COUNT, CELLS)) < missing] = np.nan
    return measured


@pytest.mark.parametrize("missing", [0.0, 0.4, 0.7])
def test_levels_and_their_differences_are_those_of_least_squares(missing: float) -> None:
    """One column for each cell and each round, solved as a whole."""
    measured = sparse(1, missing)
    look = Look(Prospects.unknown(CELLS), measured)
    rounds, cells = np.nonzero(~np.isnan(measured[..., 0]))
    design = np.zeros((len(rounds), CELLS + COUNT))
    design[np.arange(len(rounds)), cells] = design[np.arange(len(rounds)), CELLS + rounds] = 1
    inverse = np.linalg.pinv(design.T @ design)
    solved = inverse @ design.T @ measured[rounds, cells]
    covariance = inverse[:CELLS, :CELLS]
    own = np.diag(covariance)
    every = look.cells
    apart = own[:, None] + own - 2 * covariance
    assert look._apart(np.arange(len(every))) == pytest.approx(apart[np.ix_(every, every)], abs=1e-9)
    levels = solved[every]
    assert look.levels - look.levels[0] == pytest.approx(levels - levels[0])
    residual = measured[rounds, cells] - design @ solved
    assert (look.residual**2).sum() == pytest.approx((residual**2).sum())
    assert look.freedom == len(rounds) - np.linalg.matrix_rank(design)


def test_cells_that_no_rounds_link_do_not_strike_each_other_off() -> None:
    measured = sparse(1, 0, noise=0.03)
    measured[:2, : CELLS // 2] = np.nan
    measured[2:, CELLS // 2 :] = np.nan
    found = Look(Prospects.unknown(CELLS), measured).strikes(np.zeros(CELLS, dtype=bool), 1.0)
    struck = np.flatnonzero(found.how == ROUNDS)
    assert set(struck // (CELLS // 2)) == {0, 1}
    assert (struck // (CELLS // 2) == found.by[struck] // (CELLS // 2)).all()


def test_few_pairs_at_once_give_the_same_strikes(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.random.default_rng(2)
    expected = np.arange(CELLS)[:, None] / 10 + draws.normal(0, 0.3, (CELLS, 2))
    both = []
    for at_once in (strikes.AT_ONCE, 7 * CELLS):
        monkeypatch.setattr(strikes, "AT_ONCE", at_once)
        known = Prospects(expected, np.full((CELLS, 2), 0.2), np.full((CELLS, 2), np.nan))
        both.append(Look(known, sparse(3, 0.3)).strikes(np.arange(CELLS) % 7 == 0, 1.0))
    one, other = both
    assert (one.how == ROUNDS).sum() > CELLS / 2
    assert one.by.tolist() == other.by.tolist()
    assert one.chance == pytest.approx(other.chance)


def test_the_surest_of_all_pairs_strikes() -> None:
    """By the probability of each pair, over the weight of the cell that strikes."""
    draws = np.random.default_rng(4)
    expected = np.arange(CELLS)[:, None] / 10 + draws.normal(0, 0.3, (CELLS, 2))
    known = Prospects(expected, np.full((CELLS, 2), 0.2), np.full((CELLS, 2), np.nan))
    look = Look(known, sparse(3, 0.3))
    noise = look._noise()
    assert noise is not None
    variance, freedom = noise
    every = np.arange(len(look.cells))
    by, least = look._surest(every, variance, freedom)
    apart = look._apart(every)[..., None]
    error = np.sqrt(apart * np.maximum(variance[:, None], variance[None]) + 2 * strikes.FLOOR**2)
    worse = look.levels[:, None] - look.levels[None]
    no_better = ((worse + strikes.SAME) / error).min(axis=2)
    behind = ((worse - strikes.SAME) / error).max(axis=2)
    chance = np.maximum(strikes.stdtr(freedom, -no_better), 2 * strikes.stdtr(freedom, -behind))
    chance /= known.weights[look.cells]
    counts = least < 1
    assert counts.sum() > CELLS / 2
    assert by[counts].tolist() == chance.argmin(axis=1)[counts].tolist()
    assert least[counts] == pytest.approx(chance.min(axis=1)[counts])
