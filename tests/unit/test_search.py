"""What a search measures next and strikes off, by rows of which the truth is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest

from pareto.analysis.statistics.samples import Bools, Floats
from pareto.predict import search, strikes
from pareto.predict.search import Decision, Search, gaps
from pareto.predict.strikes import PHYSICS, ROUNDS, Evidence, Prospects, losses
from tests.unit import searched

TRADES = np.array([[0.01, 10.0], [0.02, 20.0], [0.03, 30.0], [0.04, 40.0]])
"""Latency and throughput of a front."""
BEHIND = np.array([[0.02, 5.0], [0.05, 12.0], [0.2, 8.0], [0.3, 20.0], [0.5, 30.0], [0.08, 34.0]])
TRUTH = losses(*np.concatenate([TRADES, BEHIND]).T)
TIES = np.concatenate([TRUTH, TRUTH[:2]])
ON_FRONT = np.arange(len(TRUTH)) < len(TRADES)
WANTED = 6
UNKNOWN = Prospects(*np.full((3, len(TRUTH), 2), np.nan))


def prospects(truth: Floats = TRUTH, error: float = 0.05, margin: float = 0.1) -> Prospects:
    return Prospects(truth.copy(), np.full(truth.shape, error), truth - margin)


def measured(rounds: int = 12, noise: float = 0.01, common: float = 0.0, truth: Floats = TRUTH) -> Floats:
    draws = np.random.default_rng(3)
    shared = common * draws.standard_normal((rounds, 1, 2))
    return truth + shared + noise * draws.standard_normal((rounds, *truth.shape))


def tried(seen: Floats) -> Bools:
    return ~np.isnan(seen[..., 0])


class Ran(NamedTuple):
    """Every decision of a search, and the figures that each saw."""

    decisions: list[Decision]
    seen: list[Floats]

    @property
    def when(self) -> Any:
        return self.decisions[-1].when

    @property
    def how(self) -> Any:
        return self.decisions[-1].strikes.how

    @property
    def tried(self) -> Bools:
        return tried(self.seen[-1])


def run(figures: Floats, known: Prospects, rounds: int = WANTED) -> Ran:
    ran, of = Ran([], [np.full_like(figures, np.nan)]), Search(known, rounds)
    while True:
        seen = ran.seen[-1].copy()
        ran.decisions.append(now := of.decide(seen, tried(seen)))
        if not now.round:
            return ran
        seen[now.round - 1, now.due] = figures[now.round - 1, now.due]
        ran.seen.append(seen)


@pytest.mark.parametrize(
    ("known", "figures"),
    [
        (prospects(), measured()),
        (prospects(), measured(noise=0.05)),
        (prospects(TIES), measured(truth=TIES)),
        *((prospects(), measured(common=size)) for size in (0.1, 0.3)),
        *((UNKNOWN, measured(noise=size, common=0.3)) for size in (0.02, 0.1)),
        # Twice as fast as when it was profiled, so that the bounds of what was not measured are too high.
        (prospects(margin=0.02), measured() - np.log(2)),
    ],
)
def test_whatever_the_noise_the_front_stays_and_what_is_struck_off_is_behind_it(
    monkeypatch: pytest.MonkeyPatch, known: Prospects, figures: Floats
) -> None:
    monkeypatch.setattr(strikes, "LEAST_LIKELY", 7)
    ran, truth = run(figures, known), TIES if len(figures[0]) > len(TRUTH) else TRUTH
    best, last = searched.true_front(truth), ran.decisions[-1].strikes
    assert (ran.when[best] == 0).all()
    assert (ran.tried[:, best].sum(axis=0) == WANTED).all()
    assert not last.below.any()
    off = ran.when > 0
    assert off.any()
    assert all((each.strikes.chance[each.when > 0] <= strikes.ALPHA / 2).all() for each in ran.decisions)
    assert (truth[last.by[off]] <= truth[off]).all()
    # What is struck off after a round is in none that follows, and by physics alone what was in none.
    assert (ran.tried[:, off].sum(axis=0) <= ran.when[off]).all()
    assert (last.how[~ran.tried.any(axis=0)] == PHYSICS).all()
    if np.isfinite(known.bound).all():
        assert (ran.decisions[0].round, ran.decisions[0].due.tolist()) == (1, best.tolist()), (
            "the likeliest first"
        )
    else:
        assert ran.tried[0].all()
        assert set(last.how[off]) == {ROUNDS}


def test_a_run_that_goes_on_decides_as_one_that_never_stopped() -> None:
    """Whatever of a part of a round it had: what is due is what is left of it."""
    ran, draws = run(measured(noise=0.05), prospects()), np.random.default_rng(1)
    for now, (before, after) in zip(ran.decisions, pairwise(ran.seen), strict=False):
        done = draws.random(len(TRUTH)) < 0.5
        some = before.copy()
        some[:, done] = after[:, done]
        again = Search(prospects(), WANTED).decide(some, tried(some))
        if left := set(np.flatnonzero(now.due)) - set(np.flatnonzero(done)):
            assert (again.round, set(np.flatnonzero(again.due))) == (now.round, left)
            assert again.strikes.chance.tolist() == now.strikes.chance.tolist()


def test_one_round_measures_all_that_is_not_struck_off() -> None:
    assert run(measured(2), UNKNOWN, rounds=1).tried.tolist() == [
        [True] * 10,
        [False] * 10,
    ]


def test_what_is_not_likely_joins_when_two_thirds_of_the_rounds_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With bounds that strike nothing off. On the front, it gets what it lacks with the rest of the front."""
    monkeypatch.setattr(strikes, "LEAST_LIKELY", 3)
    known = prospects(margin=9)
    known.expected[1] = known.expected[2] + 1  # the forecast is wrong
    done = run(measured(), known).tried
    late = np.flatnonzero(known.tiers == 2)
    assert 1 in late
    assert not done[:4, late].any()
    assert done[4, late].all()
    assert done[:, ON_FRONT].sum(axis=0).tolist() == [10, 6, 10, 10]
    assert done[6:10, ON_FRONT].all()
    assert not done[6:, ~ON_FRONT].any()


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("rounds", [1, 2, 6])
def test_all_looks_together_may_be_wrong_once_in_twenty_times(rounds: int, grows: bool) -> None:
    of = Search(prospects(), rounds, grows=grows)
    shares = sum(of._share(step) for step in range(2000))
    assert 1 - 1e-3 < shares <= 1 + 1e-9
    assert of.prospects.weights.sum() == pytest.approx(1)


def test_looks_at_rows_that_did_not_change_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(
        search, "Evidence", lambda known, rows: looks.append(len(rows)) or Evidence(known, rows)
    )
    of, ran = Search(prospects(), WANTED), run(measured(6), prospects())
    looks.clear()
    for seen in ran.seen:
        of.decide(seen, tried(seen))
    assert looks == [1, 1, 2, 3, 4, 5, 6]
    # Rows that are other ones than they were are looked at again, with all that follows.
    seen = ran.seen[-1].copy()
    seen[3, 0] += 1e-3
    now = of.decide(seen, tried(seen))
    assert (now.round, looks[7:]) == (0, [4, 5, 6])
    again = Search(prospects(), WANTED).decide(seen, tried(seen))
    assert np.array_equal(again.strikes.chance, now.strikes.chance)


def test_a_cell_comes_back_when_what_struck_it_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its first trial one cell is lucky, and strikes off its twin."""
    monkeypatch.setattr(strikes, "LEAST_LIKELY", 1000)
    truth = np.concatenate([TRUTH, TRUTH[:1], TRUTH[:1] + np.linspace(1, 3, 200)[:, None]])
    twin, figures = len(TRUTH), measured(noise=0.02, truth=truth)
    figures[0, 0] -= 0.3
    figures[0, twin] = truth[twin]
    ran = run(figures, prospects(truth, error=0.02, margin=1))
    assert any(each.when[twin] for each in ran.decisions)
    assert ran.when[twin] == 0
    assert not ran.tried[:, twin].all()


def test_a_cell_that_is_better_than_its_bound_ends_what_physics_strikes_off() -> None:
    ran = run(measured(), Prospects(TRUTH - 0.01, np.full(TRUTH.shape, 0.05), TRUTH + 0.5))
    assert ran.decisions[-1].strikes.below[ON_FRONT].all()
    assert PHYSICS not in ran.how
    assert ran.tried.any(axis=0).all()


def test_trials_that_are_not_valid_strike_nothing_off_and_are_not_repeated() -> None:
    seen = np.full((2 * WANTED, *TRUTH.shape), np.nan)
    done = tried(seen)
    while (now := Search(prospects(), WANTED).decide(seen, done)).round:
        assert not done[now.round - 1, now.due].any()
        done[now.round - 1, now.due] = True
    assert not now.when.any()
    assert (done.sum(axis=0)[ON_FRONT] == WANTED).all()
    assert done.sum(axis=0).max() == WANTED


def test_the_least_clear_cells_have_the_smallest_gaps() -> None:
    levels = np.array([[0.0, 3.0], [3.0, 0.0], [0.1, 3.1], [2.0, 5.0], [np.nan, np.nan]])
    # So little dominates the third, of which the first would lose the domination.
    assert gaps(levels[None]) == pytest.approx([0.1, 3.0, 0.1, 2.0, 0])
    # The second cell is behind by as much in each round, and has the slow ones alone.
    figures = np.array([[0.0, 0.0], [0.1, 0.1], [5.0, -5.0]]) + np.array([0.0, 0.0, 2.0, 2.0])[:, None, None]
    figures[:1, 1] = np.nan
    assert gaps(figures)[:2] == pytest.approx(0.1)


DEFAULT = ("single", "slowed")


@pytest.mark.parametrize(
    ("seeds", "how", "least", "most"),
    [
        *((6, {"cells": 44, "noise": 0.1, "kind": each}, 0, 0.25) for each in ("single", "common")),
        (4, {"cells": 24, "noise": 0.1, "kind": "single", "codecs": 5}, 0, 0.5),
        # What a run does without a search: every cell once, then what can be on a backend's front.
        *((6, {"cells": 44, "noise": 0.03, "kind": each, "default": True}, 1 / 6, 0.75) for each in DEFAULT),
    ],
    ids=["single", "common", "codecs", "default, single", "default, slowed"],
)  # fmt: skip
def test_the_front_is_the_true_one_for_a_part_of_the_time(
    seeds: int, how: dict[str, Any], least: float, most: float
) -> None:
    """A small part of the study in docs/search.md; of the default the number of trials counts."""
    results = [searched.repeat(seed, **how) for seed in range(seeds)]
    assert all(each.is_right for each in results)
    assert not any(each.lost for each in results)
    assert least < np.mean([each.trials if "default" in how else each.share for each in results]) < most


# The evidence of one look

CELLS, COUNT = 30, 5
NOTHING = np.zeros(CELLS, dtype=bool)


def sparse(seed: int, missing: float, noise: float = 0.1) -> Floats:
    """Rounds in which some cells have no trial."""
    draws = np.random.default_rng(seed)
    figures = np.arange(CELLS)[:, None] / 10 + draws.normal(0, noise, (COUNT, CELLS, 2))
    figures[draws.random((COUNT, CELLS)) < missing] = np.nan
    return figures


@pytest.mark.parametrize("missing", [0.0, 0.4, 0.7])
def test_levels_and_their_differences_are_those_of_least_squares(missing: float) -> None:
    """One column for each cell and each round, solved as a whole."""
    figures = sparse(1, missing)
    look = Evidence(Prospects(*np.full((3, CELLS, 2), np.nan)), figures)
    rounds, cells = np.nonzero(tried(figures))
    design = np.zeros((len(rounds), CELLS + COUNT))
    design[np.arange(len(rounds)), cells] = design[np.arange(len(rounds)), CELLS + rounds] = 1
    inverse = np.linalg.pinv(design.T @ design)
    solved = inverse @ design.T @ figures[rounds, cells]
    every, own = look.cells, np.diag(inverse)[look.cells]
    apart = own[:, None] + own - 2 * inverse[np.ix_(every, every)]
    assert look._apart(np.arange(len(every))) == pytest.approx(apart, abs=1e-9)
    assert look.levels - look.levels[0] == pytest.approx(solved[every] - solved[every][0])
    residual = figures[rounds, cells] - design @ solved
    assert (look.residual**2).sum() == pytest.approx((residual**2).sum())
    assert look.freedom == len(rounds) - np.linalg.matrix_rank(design)


def test_cells_that_no_rounds_link_do_not_strike_each_other_off() -> None:
    figures = sparse(1, 0, noise=0.03)
    figures[:2, : CELLS // 2] = figures[2:, CELLS // 2 :] = np.nan
    found = Evidence(Prospects(*np.full((3, CELLS, 2), np.nan)), figures).strikes(NOTHING, 1.0)
    struck = np.flatnonzero(found.how == ROUNDS)
    assert set(struck // (CELLS // 2)) == {0, 1}
    assert (struck // (CELLS // 2) == found.by[struck] // (CELLS // 2)).all()


def test_the_surest_of_all_pairs_strikes_however_many_are_compared_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the probability of each pair, over the weight of the cell that strikes."""
    expected = np.arange(CELLS)[:, None] / 10 + np.random.default_rng(4).normal(0, 0.3, (CELLS, 2))
    known = Prospects(expected, np.full((CELLS, 2), 0.2), np.full((CELLS, 2), np.nan))
    look = Evidence(known, sparse(3, 0.3))
    (variance, freedom), every = look._noise() or pytest.fail("no noise"), np.arange(len(look.cells))
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
    one = look.strikes(np.arange(CELLS) % 7 == 0, 1.0)
    monkeypatch.setattr(strikes, "AT_ONCE", 7 * CELLS)
    other = Evidence(known, sparse(3, 0.3)).strikes(np.arange(CELLS) % 7 == 0, 1.0)
    assert one.by.tolist() == other.by.tolist()
    assert one.chance == pytest.approx(other.chance)


LEVELS = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [0.5, 0.5], [1.5, 1.5]])
"""Cells on one line, each behind those with a lesser level, of which it is forecast."""
FIRST, SECOND, BOTH = (True, False), (False, True), (True, True)
LINE = Prospects(LEVELS, np.full(LEVELS.shape, 0.01), LEVELS - 0.05)
OF_TWO = replace(LINE, fronts=np.array((FIRST, SECOND, SECOND, FIRST, SECOND, BOTH)))
OF_BOTH = replace(LINE, fronts=np.array((SECOND, SECOND, FIRST, FIRST, SECOND, BOTH)))
UNLIKE = replace(LINE, accuracy=np.array([0.9, 1.0, 0.9, 1.0, 1.0, 0.8]))


def looked_at(known: Prospects, unmeasured: tuple[int, ...] = ()) -> Evidence:
    figures = LEVELS + np.random.default_rng(5).normal(0, 0.01, (4, *LEVELS.shape))
    figures[:, list(unmeasured)] = np.nan
    return Evidence(known, figures)


@pytest.mark.parametrize(
    ("known", "unmeasured", "how", "by", "front"),
    [
        (LINE, (3,), "-RRPRR", {}, {0}),
        # The second front's best is not the first one's.
        (OF_TWO, (), "-RRR-R", {1: 4, 2: 4, 3: 0}, {0, 4}),
        (OF_TWO, (2, 3, 5), "-RPP-P", {1: 4, 2: 4, 3: 0}, {0, 4}),
        # A cell stays as long as it may be on one front, and strikes off what is worse on either.
        (OF_BOTH, (), "-RRRR-", {2: 5, 3: 5}, {0, 5}),
        (OF_BOTH, (5,), "-R-RR-", {}, {0, 2}),
        # What is less accurate strikes nothing off.
        (UNLIKE, (), "-RRR-R", {1: 4, 2: 0}, {0, 4}),
        (UNLIKE, (1, 2), "-PPR-R", {1: 4, 2: 0}, {0, 4}),
    ],
)
def test_a_cell_is_struck_off_by_cells_of_its_own_fronts_that_are_no_less_accurate(
    known: Prospects, unmeasured: tuple[int, ...], how: str, by: dict[int, int], front: set[int]
) -> None:
    look = looked_at(known, unmeasured)
    found = look.strikes(np.zeros(len(LEVELS), dtype=bool), 1.0)
    assert found.how.tolist() == [{"-": "", "R": ROUNDS, "P": PHYSICS}[each] for each in how]
    assert {cell: found.by[cell] for cell in by} == by
    assert set(np.flatnonzero(look.front(np.ones(len(LEVELS), dtype=bool)))) == front
    if not unmeasured:
        assert not known.tiers[list(front)].any()


def test_bounds_of_links_alone_do_not_move_with_the_machine() -> None:
    """Which is so much faster than forecast, as by another engine, that moved bounds would strike nothing off."""
    faster = replace(LINE, expected=LEVELS + 4)
    for known, how in ((faster, ""), (replace(faster, moves=False), PHYSICS)):
        found = looked_at(known, unmeasured=(2, 3)).strikes(np.zeros(len(LEVELS), dtype=bool), 1.0)
        assert found.how[[2, 3]].tolist() == [how] * 2


def twins(noise: float) -> tuple[Prospects, Floats]:
    """Round 1 of 15 splits over two backends, one of them 20 % slower everywhere; and what is known before."""
    draws = np.random.default_rng(6)
    number = np.stack(np.divmod(np.arange(CELLS), 2), axis=1)
    levels = draws.normal(0, 3, (15, 2))[number[:, 0]] + 0.2 * number[:, 1:]
    unknown = np.full((CELLS, 2), np.nan)
    known = Prospects(np.zeros((CELLS, 2)), unknown, unknown, twins=number, moves=False)
    return known, (levels + draws.normal(0, noise, (CELLS, 2)))[None]


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_the_first_rounds_noise_is_how_far_twins_are_apart_beyond_what_they_usually_are(noise: float) -> None:
    known, figures = twins(noise)
    variance, freedom = Evidence(known, figures)._noise() or pytest.fail("no noise")
    assert freedom == 14
    assert np.sqrt(variance[0]) == pytest.approx([noise] * 2, rel=0.5)
    figures[0, 3] = np.nan
    assert (Evidence(known, figures)._noise() or pytest.fail("no noise"))[1] == 13, "a twin lacks a figure"
    figures[0, ::2] = np.nan
    assert Evidence(known, figures)._noise() is None, "one backend says nothing of the noise"


def test_physics_strikes_off_what_one_trial_each_is_too_noisy_for() -> None:
    """A bound is no trial: only the noise of the cell that beats it counts."""
    known, figures = twins(0.4)
    figures[0, :] = 1.2 + 0.001 * np.arange(CELLS)[:, None]
    figures[0, :2] = 0.0
    bound = np.where(np.arange(CELLS)[:, None] < 2, -np.inf, figures[0] - 0.05)
    figures = figures + np.random.default_rng(1).normal(0, 0.2, figures.shape)
    alone, with_bounds = (
        Evidence(replace(known, bound=each), figures).strikes(NOTHING, 1.0).how
        for each in (known.bound, bound)
    )
    assert PHYSICS not in alone
    assert PHYSICS in with_bounds
    assert (with_bounds != "").sum() > (alone != "").sum()
