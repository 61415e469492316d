"""What a search measures next and strikes off, where the truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pareto.analysis.statistics.samples import Bools, Floats
from pareto.predict import search, strikes
from pareto.predict.search import Decision, Search, gaps
from pareto.predict.strikes import PHYSICS, ROUNDS, Prospects, losses
from tests.unit import searched

TRADES = np.array([[0.01, 10.0], [0.02, 20.0], [0.03, 30.0], [0.04, 40.0]])
"""Latency and throughput of a front."""
BEHIND = np.array([[0.02, 5.0], [0.05, 12.0], [0.2, 8.0], [0.3, 20.0], [0.5, 30.0], [0.08, 34.0]])
TRUTH = losses(*np.concatenate([TRADES, BEHIND]).T)
ON_FRONT = np.arange(len(TRUTH)) < len(TRADES)
ROUNDS_WANTED = 6


def prospects(truth: Floats = TRUTH, error: float = 0.05, margin: float = 0.1) -> Prospects:
    return Prospects(truth.copy(), np.full(truth.shape, error), truth - margin)


def measured(rounds: int, noise: float = 0.01, common: float = 0.0, truth: Floats = TRUTH) -> Floats:
    draws = np.random.default_rng(3)
    shared = common * draws.standard_normal((rounds, 1, 2))
    return truth + shared + noise * draws.standard_normal((rounds, *truth.shape))


def run(figures: Floats, known: Prospects, rounds: int = ROUNDS_WANTED) -> tuple[list[Decision], Floats]:
    """Every decision of a search on these figures, and the figures that it saw."""
    seen, decisions = np.full_like(figures, np.nan), []
    searched = Search(known, rounds)
    while True:
        decisions.append(now := searched.decide(seen, tried(seen)))
        if not now.round:
            return decisions, seen
        seen[now.round - 1, now.due] = figures[now.round - 1, now.due]


def tried(seen: Floats) -> Bools:
    return ~np.isnan(seen[..., 0])


def test_what_the_forecast_puts_on_the_front_is_measured_first() -> None:
    first, *_ = run(measured(12), prospects())[0]
    assert first.round == 1
    assert np.array_equal(first.due, ON_FRONT)


def test_hopeless_cells_are_struck_off_by_their_bounds_without_a_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(strikes, "LEAST_LIKELY", 7)
    decisions, seen = run(measured(12), prospects())
    struck = decisions[-1].strikes
    assert (
        set(np.flatnonzero(struck.how == PHYSICS)) == set(np.flatnonzero(~tried(seen).any(axis=0))) != set()
    )
    assert (decisions[-1].when[ON_FRONT] == 0).all()
    by = struck.by[struck.how == PHYSICS]
    assert (TRUTH[by] < TRUTH[struck.how == PHYSICS]).all()
    assert (struck.chance[struck.how != ""] <= strikes.ALPHA / 2).all()


def test_what_is_not_likely_joins_when_two_thirds_of_the_rounds_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With bounds that strike nothing off. On the front, it gets what it lacks with the rest of the front."""
    monkeypatch.setattr(strikes, "LEAST_LIKELY", 3)
    known = prospects(margin=9)
    known.expected[1] = known.expected[2] + 1  # the forecast is wrong
    _, seen = run(measured(12), known)
    late = np.flatnonzero(known.tiers == 2)
    assert 1 in late
    assert not tried(seen)[:4, late].any()
    assert tried(seen)[4, late].all()
    assert tried(seen)[:, ON_FRONT].sum(axis=0).tolist() == [10, 6, 10, 10]
    assert tried(seen)[6:10, ON_FRONT].all()
    assert not tried(seen)[6:, ~ON_FRONT].any()


def test_all_looks_together_may_be_wrong_once_in_twenty_times() -> None:
    known = prospects()
    for rounds in (1, 2, 6):
        for grows in (False, True):
            searched_ = Search(known, rounds, grows=grows)
            shares = [searched_._share(step) for step in range(2000)]
            assert sum(shares) == pytest.approx(1, abs=1e-3)
            assert sum(shares) <= 1 + 1e-9
    assert known.weights.sum() == pytest.approx(1)


def test_looks_at_rows_that_did_not_change_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    look = search.Evidence

    def counted(known: Prospects, rows: Floats) -> strikes.Evidence:
        looks.append(len(rows))
        return look(known, rows)

    monkeypatch.setattr(search, "Evidence", counted)
    figures = measured(12)
    searched_, seen = Search(prospects(), ROUNDS_WANTED), np.full_like(figures, np.nan)
    while (now := searched_.decide(seen[:6], tried(seen[:6]))).round:
        seen[now.round - 1, now.due] = figures[now.round - 1, now.due]
    seen = seen[:6]
    assert looks == [1, 1, 2, 3, 4, 5, 6]
    # Rows that are other ones than they were are looked at again, with all that follows.
    seen[3, 0] += 1e-3
    assert searched_.decide(seen, tried(seen)).round == 0
    assert looks[7:] == [4, 5, 6]
    again = Search(prospects(), ROUNDS_WANTED).decide(seen, tried(seen))
    assert np.array_equal(again.strikes.chance, searched_.decide(seen, tried(seen)).strikes.chance)


def test_a_cell_comes_back_when_what_struck_it_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its first trial one cell is lucky, and strikes off its twin."""
    monkeypatch.setattr(strikes, "LEAST_LIKELY", 1000)
    truth = np.concatenate([TRUTH, TRUTH[:1], TRUTH[:1] + np.linspace(1, 3, 200)[:, None]])
    twin = len(TRUTH)
    figures = measured(12, noise=0.02, truth=truth)
    figures[0, 0] -= 0.3
    figures[0, twin] = truth[twin]
    decisions, seen = run(figures, prospects(truth, error=0.02, margin=1))
    assert any(each.when[twin] for each in decisions)
    assert decisions[-1].when[twin] == 0
    assert not tried(seen)[:, twin].all()


def test_a_cell_that_is_better_than_its_bound_ends_what_physics_strikes_off() -> None:
    known = prospects()
    wrong = Prospects(known.expected, known.error, TRUTH + 0.5)
    wrong.expected[:] = TRUTH - 0.01
    decisions, seen = run(measured(12), wrong)
    assert decisions[-1].strikes.below[ON_FRONT].all()
    assert PHYSICS not in decisions[-1].strikes.how
    assert tried(seen).any(axis=0).all()


def test_what_is_on_the_front_stays_whatever_noise_and_ties_there_are() -> None:
    truth = np.concatenate([TRUTH, TRUTH[:2]])
    decisions, seen = run(measured(12, truth=truth), prospects(truth))
    twins = [0, 1, len(TRUTH), len(TRUTH) + 1]
    assert (decisions[-1].when[twins] == 0).all()
    assert (tried(seen)[:, twins].sum(axis=0) == ROUNDS_WANTED).all()
    # Noise that is common to a round strikes nothing off that is on the front.
    for common in (0.1, 0.3):
        decisions, _ = run(measured(12, common=common), prospects())
        assert (decisions[-1].when[ON_FRONT] == 0).all()
        assert (decisions[-1].when[~ON_FRONT] > 0).all()
    # It is twice as fast as when it was profiled, so that the bounds of what was not measured are too high.
    decisions, _ = run(measured(12) - np.log(2), prospects(margin=0.02))
    assert not decisions[-1].strikes.below.any()
    assert (decisions[-1].when[ON_FRONT] == 0).all()


def test_trials_that_are_not_valid_strike_nothing_off_and_are_not_repeated() -> None:
    seen = np.full((2 * ROUNDS_WANTED, *TRUTH.shape), np.nan)
    done = np.zeros(seen.shape[:2], dtype=bool)
    for _ in range(100):
        now = Search(prospects(), ROUNDS_WANTED).decide(seen, done)
        if not now.round:
            break
        assert not done[now.round - 1, now.due].any()
        done[now.round - 1, now.due] = True
    assert not now.when.any()
    assert (done.sum(axis=0)[ON_FRONT] == ROUNDS_WANTED).all()
    assert done.sum(axis=0).max() == ROUNDS_WANTED


def test_without_a_forecast_rounds_strike_off_and_every_round_is_whole() -> None:
    decisions, seen = run(measured(12, noise=0.02, common=0.3), Prospects.unknown(len(TRUTH)))
    assert tried(seen)[0].all()
    assert set(decisions[-1].strikes.how[~ON_FRONT]) == {ROUNDS}
    assert (decisions[-1].when[ON_FRONT] == 0).all()
    assert (tried(seen)[:, ON_FRONT].sum(axis=0) == ROUNDS_WANTED).all()
    # What is struck off after a round is in none that follows.
    for cell in np.flatnonzero(~ON_FRONT):
        assert tried(seen)[:, cell].sum() == decisions[-1].when[cell]
    # One round measures all that is not struck off.
    _, seen = run(measured(2), Prospects.unknown(len(TRUTH)), rounds=1)
    assert tried(seen)[0].all()
    assert not tried(seen)[1].any()


def test_a_run_that_goes_on_decides_as_one_that_never_stopped() -> None:
    """Within a part of a round, too: what is due is what is left of it."""
    figures = measured(12, noise=0.05)
    decisions, seen = run(figures, prospects())
    now = decisions[1]
    half = np.full_like(figures, np.nan)
    half[: now.round - 1] = seen[: now.round - 1]
    half[0, decisions[0].due] = figures[0, decisions[0].due]
    first = np.flatnonzero(now.due)[0]
    half[now.round - 1, first] = figures[now.round - 1, first]
    again = Search(prospects(), ROUNDS_WANTED).decide(half, tried(half))
    assert set(np.flatnonzero(again.due)) == set(np.flatnonzero(now.due)) - {first}
    rest, _ = run(figures, prospects())
    assert np.array_equal(rest[-1].when, decisions[-1].when)


def test_the_least_clear_cells_have_the_smallest_gaps() -> None:
    levels = np.array([[0.0, 3.0], [3.0, 0.0], [0.1, 3.1], [2.0, 5.0], [np.nan, np.nan]])
    clear = gaps(levels[None])
    assert clear[4] == 0
    assert clear[2] == pytest.approx(0.1)  # so little dominates it
    assert clear[0] == pytest.approx(0.1)  # it would lose that one's domination
    assert clear[3] == pytest.approx(2.0)
    assert clear[1] == pytest.approx(3.0)
    # The second cell is behind by as much in each round, and has the slow ones alone.
    levels = np.array([[0.0, 0.0], [0.1, 0.1], [5.0, -5.0]])
    figures = levels + np.array([0.0, 0.0, 2.0, 2.0])[:, None, None]
    figures[:1, 1] = np.nan
    assert gaps(figures)[:2] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("seeds", "how", "least", "most"),
    [
        *((6, {"cells": 44, "noise": 0.1, "kind": kind}, 0, 0.25) for kind in ("single", "common")),
        (4, {"cells": 24, "noise": 0.1, "kind": "single", "codecs": 5}, 0, 0.5),
        # What a run does without a search: every cell once, then what can be on a backend's front.
        *(
            (6, {"cells": 44, "noise": 0.03, "kind": kind, "default": True}, 1 / 6, 0.75)
            for kind in ("single", "slowed")
        ),
    ],
    ids=["single", "common", "codecs", "default, single", "default, slowed"],
)
def test_the_front_is_the_true_one_for_a_part_of_the_time(
    seeds: int, how: dict[str, Any], least: float, most: float
) -> None:
    """A small part of the study in docs/search.md; of the default the number of trials counts."""
    results = [searched.repeat(seed, **how) for seed in range(seeds)]
    assert all(each.is_right for each in results)
    assert not any(each.lost for each in results)
    assert least < np.mean([each.trials if "default" in how else each.share for each in results]) < most
