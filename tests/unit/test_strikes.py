"""What the rows so far say of a condition's cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pareto.analysis.statistics.samples import Floats
from pareto.predict import strikes
from pareto.predict.search import Search
from pareto.predict.strikes import PHYSICS, ROUNDS, Evidence, Prospects

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
    look = Evidence(Prospects.unknown(CELLS), measured)
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
    found = Evidence(Prospects.unknown(CELLS), measured).strikes(np.zeros(CELLS, dtype=bool), 1.0)
    struck = np.flatnonzero(found.how == ROUNDS)
    assert set(struck // (CELLS // 2)) == {0, 1}
    assert (struck // (CELLS // 2) == found.by[struck] // (CELLS // 2)).all()


def forecast(seed: int) -> Prospects:
    draws = np.random.default_rng(seed)
    expected = np.arange(CELLS)[:, None] / 10 + draws.normal(0, 0.3, (CELLS, 2))
    return Prospects(expected, np.full((CELLS, 2), 0.2), np.full((CELLS, 2), np.nan))


def test_few_pairs_at_once_give_the_same_strikes(monkeypatch: pytest.MonkeyPatch) -> None:
    both = []
    for at_once in (strikes.AT_ONCE, 7 * CELLS):
        monkeypatch.setattr(strikes, "AT_ONCE", at_once)
        both.append(Evidence(forecast(2), sparse(3, 0.3)).strikes(np.arange(CELLS) % 7 == 0, 1.0))
    one, other = both
    assert (one.how == ROUNDS).sum() > CELLS / 2
    assert one.by.tolist() == other.by.tolist()
    assert one.chance == pytest.approx(other.chance)


def test_the_surest_of_all_pairs_strikes() -> None:
    """By the probability of each pair, over the weight of the cell that strikes."""
    known = forecast(4)
    look = Evidence(known, sparse(3, 0.3))
    noise = look._noise()
    assert noise is not None
    variance, freedom = noise
    every = np.arange(len(look.cells))
    by, least = look._surest(every, every, variance, freedom)
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


LEVELS = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [0.5, 0.5], [1.5, 1.5]])
FIRST, SECOND, BOTH = (True, False), (False, True), (True, True)
NONE = np.zeros(len(LEVELS), dtype=bool)


def of_fronts(*fronts: tuple[bool, bool], accuracy: list[float] | None = None) -> Prospects:
    """Cells on one line, each behind those with a lesser level, of which it is forecast."""
    return Prospects(
        LEVELS, np.full(LEVELS.shape, 0.01), LEVELS - 0.05, np.array(fronts), np.array(accuracy) if accuracy else None
    )  # fmt: skip


def looked_at(known: Prospects, unmeasured: tuple[int, ...] = ()) -> Evidence:
    draws = np.random.default_rng(5)
    measured = LEVELS + draws.normal(0, 0.01, (4, *LEVELS.shape))
    measured[:, list(unmeasured)] = np.nan
    return Evidence(known, measured)


@pytest.mark.parametrize("how", [ROUNDS, PHYSICS])
def test_a_cell_is_struck_off_by_cells_of_its_own_fronts_alone(how: str) -> None:
    known = of_fronts(FIRST, SECOND, SECOND, FIRST, SECOND, BOTH)
    look = looked_at(known, (2, 3, 5) if how == PHYSICS else ())
    found = look.strikes(NONE, 1.0)
    if how == PHYSICS:
        assert found.how.tolist() == ["", ROUNDS, PHYSICS, PHYSICS, "", PHYSICS]
    else:
        assert found.how.tolist() == ["", *[ROUNDS] * 3, "", ROUNDS]
    assert found.by[[1, 2, 3]].tolist() == [4, 4, 0], "the second front's best is not the first one's"
    assert look.front(~NONE).tolist() == [True, False, False, False, True, False]
    assert known.tiers[[0, 4]].tolist() == [0, 0]


@pytest.mark.parametrize("unmeasured", [(), (5,)], ids=[ROUNDS, PHYSICS])
def test_a_cell_of_several_fronts_stays_as_long_as_it_may_be_on_one(unmeasured: tuple[int, ...]) -> None:
    """The first front has nothing better than it; only the second has."""
    known = of_fronts(SECOND, SECOND, FIRST, FIRST, SECOND, BOTH)
    look = looked_at(known, unmeasured)
    found = look.strikes(NONE, 1.0)
    assert found.how[5] == ""
    assert look.front(~NONE)[5] == (not unmeasured)
    assert known.tiers[5] == 0
    if not unmeasured:
        assert found.by[[2, 3]].tolist() == [5, 5], "it strikes off what is worse on either"


@pytest.mark.parametrize("unmeasured", [(), (1, 2)], ids=[ROUNDS, PHYSICS])
def test_a_less_accurate_cell_strikes_nothing_off(unmeasured: tuple[int, ...]) -> None:
    known = of_fronts(*[FIRST] * 6, accuracy=[0.9, 1.0, 0.9, 1.0, 1.0, 0.8])
    look = looked_at(known, unmeasured)
    found = look.strikes(NONE, 1.0)
    assert (found.how != "").tolist() == [False, True, True, True, False, True]
    assert found.by[[1, 2]].tolist() == [4, 0]
    assert look.front(~NONE).tolist() == [True, False, False, False, True, False]
    assert known.tiers[4] == 0


def test_one_front_of_all_is_what_there_is_without_codecs() -> None:
    known = Prospects(LEVELS, np.full(LEVELS.shape, 0.01), LEVELS - 0.05)
    with_one = of_fronts(*[FIRST] * 6, accuracy=[1.0] * 6)
    one, other = (looked_at(each, (3,)).strikes(NONE, 1.0) for each in (known, with_one))
    assert one.how.tolist() == other.how.tolist()
    assert one.chance.tolist() == other.chance.tolist()
    assert known.tiers.tolist() == with_one.tiers.tolist()
    assert Search(known, 2).prospects.members[0].tolist() == list(range(6))


def test_bounds_of_links_alone_do_not_move_with_the_machine() -> None:
    """Which is so much faster than forecast, as by another engine, that moved bounds would strike nothing off."""
    known = of_fronts(*[FIRST] * 6)
    look = looked_at(known, unmeasured=(2, 3))
    faster = Evidence(replace(known, expected=LEVELS + 4), look.measured)
    assert faster.strikes(NONE, 1.0).how[[2, 3]].tolist() == ["", ""]
    still = Evidence(replace(known, expected=LEVELS + 4, moves=False), look.measured)
    assert still.strikes(NONE, 1.0).how[[2, 3]].tolist() == [PHYSICS, PHYSICS]


def twins(noise: float) -> tuple[Prospects, Floats]:
    """Round 1 of 15 splits over two backends, one of them 20 % slower everywhere; and what is known before."""
    draws = np.random.default_rng(6)
    number = np.stack(np.divmod(np.arange(CELLS), 2), axis=1)
    measured = (
        draws.normal(0, 3, (15, 2))[number[:, 0]] + 0.2 * number[:, 1:] + draws.normal(0, noise, (CELLS, 2))
    )
    unknown = np.full((CELLS, 2), np.nan)
    return Prospects(np.zeros((CELLS, 2)), unknown, unknown, twins=number, moves=False), measured[None]


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_the_first_rounds_noise_is_how_far_twins_are_apart_beyond_what_they_usually_are(noise: float) -> None:
    prospects, measured = twins(noise)
    known = Evidence(prospects, measured)._noise()
    assert known is not None
    variance, freedom = known
    assert freedom == 14
    assert np.sqrt(variance[0]) == pytest.approx([noise] * 2, rel=0.5)
    measured[0, 3] = np.nan
    known = Evidence(prospects, measured)._noise()
    assert known is not None
    assert known[1] == 13, "a twin lacks a figure"
    measured[0, ::2] = np.nan
    assert Evidence(prospects, measured)._noise() is None, "one backend says nothing of the noise"


def test_physics_strikes_off_what_one_trial_each_is_too_noisy_for() -> None:
    """A bound is no trial: only the noise of the cell that beats it counts."""
    prospects, measured = twins(0.4)
    measured[0, :] = 1.2 + 0.001 * np.arange(CELLS)[:, None]
    measured[0, :2] = 0.0
    bound = np.where(np.arange(CELLS)[:, None] < 2, -np.inf, measured[0] - 0.05)
    measured = measured + np.random.default_rng(1).normal(0, 0.2, measured.shape)
    alone, with_bounds = (
        Evidence(replace(prospects, bound=each), measured).strikes(np.zeros(CELLS, dtype=bool), 1.0).how
        for each in (prospects.bound, bound)
    )
    assert (alone == PHYSICS).sum() == 0
    assert (with_bounds != "").sum() > (alone != "").sum()
    assert PHYSICS in with_bounds
