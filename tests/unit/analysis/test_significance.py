"""Tests of differences: against enumeration, and by simulation: at most 5 % of runs alike have a false one. By how much
one sample lies above another: the interval holds the truth, and agrees with the test.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from pareto.analysis.statistics import significance
from pareto.analysis.statistics.samples import Floats, interval
from pareto.analysis.statistics.significance import (
    MOST_ROUNDS,
    alike,
    holm,
    median_intervals,
    medians,
    padded,
    rank_sum,
    relative,
    rounds,
    shifts,
    signed_rank,
)

POINTS = 22
RUNS = 1000


def by_flipping(differences: Floats) -> float:
    """p-value of the signed ranks by all signs that the differences might have had."""
    ranks = rankdata(np.abs(differences))
    signs = np.array(list(product((-1, 1), repeat=len(ranks))))
    seen, could = abs(np.sign(differences) @ ranks), np.abs(signs @ ranks)
    return float((could >= seen - 1e-9).mean())


def by_regrouping(first: Floats, other: Floats) -> float:
    """p-value of the rank sum by all ways to tell the values of the first from those of the other."""
    ranks = rankdata(np.concatenate([first, other]))
    middle = len(first) * (len(ranks) + 1) / 2
    could = np.array([ranks[list(taken)].sum() for taken in combinations(range(len(ranks)), len(first))])
    return float((np.abs(could - middle) >= abs(ranks[: len(first)].sum() - middle) - 1e-9).mean())


def test_both_tests_against_enumeration() -> None:
    for n in (1, 2, 5, 6, 9):
        differences = np.random.default_rng(n).normal(0.5, 1, (20, n))
        np.testing.assert_allclose(signed_rank(differences), [by_flipping(row) for row in differences])
    for n, m in ((1, 1), (3, 4), (5, 5), (6, 3)):
        rng = np.random.default_rng(n)
        first, other = rng.normal(0, 1, (20, n)), rng.normal(1, 1, (20, m))
        expected = [by_regrouping(*row) for row in zip(first, other, strict=True)]
        np.testing.assert_allclose(rank_sum(first, other), expected)
        np.testing.assert_allclose(rank_sum(other, first), expected)


def test_missing_rounds_and_pairs_without_a_difference() -> None:
    values = np.random.default_rng(0).normal(1, 1, 7)
    alone = signed_rank(values[None, :])[0]
    table = np.array(
        [np.append(values, [np.nan] * 3), np.append(values, [0, 0, np.nan]), [0.0] * 10, [np.nan] * 10]
    )
    np.testing.assert_allclose(signed_rank(table), [alone, alone, 1, np.nan])
    first = np.array([[1.0, 2, np.nan], [1, 1, 1], [np.nan] * 3])
    np.testing.assert_allclose(
        rank_sum(first, np.ones((3, 4))), [rank_sum(first[:1, :2], np.ones((1, 4)))[0], 1, np.nan]
    )
    assert rank_sum(np.arange(60.0)[None, :], np.arange(60.0)[None, :])[0] == pytest.approx(1)
    one, two = pd.Series([1.0, 100.0, 3.0]), pd.Series([1.1, 110.0, 3.0])
    np.testing.assert_allclose(relative(one, two), -relative(two, one))
    assert relative(one, two)[0] == pytest.approx(relative(one, two)[1]), "however slow the round was"


@pytest.mark.parametrize("tests", [1, 2, 44, 88, 8800])
def test_so_many_rounds_are_needed(tests: int) -> None:
    """Just as many make a point significant that is as clear as can be; one less does not."""
    for needed, least in (
        (significance.pairs_needed(tests), lambda n: signed_rank(np.arange(1.0, n + 1)[None, :])),
        (
            significance.rounds_needed(tests),
            lambda n: rank_sum(np.arange(n)[None, :], np.arange(n, 2 * n)[None, :]),
        ),
    ):
        for n, is_enough in ((needed, True), (needed - 1, False)):
            p_values = np.ones(tests)
            p_values[0] = least(n)[0]
            assert (holm(p_values)[0] <= significance.ALPHA) == is_enough
    assert significance.pairs_needed(44) == 11
    assert significance.rounds_needed(44) == 7


def slowed(rng: np.random.Generator, n: int, drift: float) -> Floats:
    """Runs x points x rounds: skewed noise, and what slows a whole round."""
    return rng.lognormal(0, 0.05, (RUNS, POINTS, n)) * rng.lognormal(0, drift, (RUNS, 1, n))


@pytest.mark.parametrize(("n", "paired"), [(12, True), (8, False)])
def test_runs_alike_have_a_false_difference_in_one_of_twenty_at_most(n: int, paired: bool) -> None:
    rng = np.random.default_rng(1)
    needed = significance.pairs_needed if paired else significance.rounds_needed
    assert n >= needed(POINTS), "or there could be none"
    # Both backends within each round: what slows it slows both.
    shared = rng.lognormal(0, 0.3, (RUNS, 1, n)) if paired else 1.0
    first, other = ((slowed(rng, n, 0.0 if paired else 0.02) * shared).reshape(-1, n) for _ in range(2))
    p_values = signed_rank((other - first) / (other + first)) if paired else rank_sum(first, other)
    p_values = p_values.reshape(RUNS, POINTS)
    family_wise = np.mean([(holm(of_run) <= 0.05).any() for of_run in p_values])
    assert 0.005 < family_wise < 0.05 + 3 * (0.05 * 0.95 / RUNS) ** 0.5
    assert (p_values <= 0.05).any(axis=1).mean() > 0.4, "which is why it is corrected"


def test_samples_of_unequal_length() -> None:
    cells = np.array([2, 0, 2, 2, 0])
    table = padded(np.array([5.0, 1, 6, np.nan, 2]), cells, 4)
    np.testing.assert_equal(table, [[1, 2, np.nan], [np.nan] * 3, [5, 6, np.nan], [np.nan] * 3])
    assert rounds(table).tolist() == [2, 0, 2, 0]
    np.testing.assert_equal(medians(table), [1.5, np.nan, 5.5, np.nan])
    ((members, (values,)),) = alike(table)
    assert members.tolist() == [0, 2]
    np.testing.assert_equal(values, [[1, 2], [5, 6]])
    assert padded(np.array([]), np.array([], dtype=int), 2).shape == (2, 0)
    table = np.random.default_rng(0).normal(0, 1, (4, 9))
    table[1, 7:], table[2, 5:] = np.nan, np.nan
    low, high = median_intervals(table)
    assert [(low[0], high[0]), (low[1], high[1])] == [interval(table[0]), interval(table[1, :7])]
    assert np.isnan([low[2], high[2]]).all(), "five rounds hold no 95 %"


def test_holms_example_and_that_measures_are_one_family() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert len(holm([])) == 0
    rows = pd.DataFrame({"latency_p_value": [0.01, np.nan, 0.04], "throughput_p_value": [0.02, 0.5, np.nan]})
    assert significance.correct(rows) == 4
    np.testing.assert_allclose(rows["latency_p_corrected"], [0.04, np.nan, 0.08])
    np.testing.assert_allclose(rows["throughput_p_corrected"], [0.06, 0.5, np.nan])
    assert rows["tests"].tolist() == [4, 4, 4]


def test_shifts_hold_the_truth_in_19_of_20_cases() -> None:
    rng = np.random.default_rng(0)
    for n, m in ((6, 6), (8, 5), (20, 30)):
        first = rng.lognormal(0, 0.3, (2000, n))
        middle, low, high = shifts(first, rng.lognormal(0, 0.3, (2000, m)) + 0.2)
        assert 0.935 < ((low <= 0.2) & (high >= 0.2)).mean() < 0.975
        assert abs(np.median(middle) - 0.2) < 0.02


def test_the_interval_is_without_zero_where_the_test_says_so() -> None:
    rng = np.random.default_rng(1)
    for n, m in ((4, 4), (6, 9), (30, 12), (60, 70)):
        first, other = rng.normal(0, 1, (300, n)), rng.normal(0.7, 1, (300, m))
        _, low, high = shifts(first, other)
        assert np.array_equal((low > 0) | (high < 0), rank_sum(first, other) <= 0.05)


def test_shifts_of_few_missing_and_many_rounds() -> None:
    first, other = np.array([[1.0, 2, np.nan], [np.nan] * 3]), np.array([[4.0, 8], [1, 2]])
    middle, low, _ = shifts(first, other)
    np.testing.assert_equal(middle, [4.5, np.nan])  # of 3, 7, 2, 6
    assert np.isnan(low).all(), "no interval of two rounds"
    rng = np.random.default_rng(2)
    one, two = rng.lognormal(0, 0.3, (20, 450)), rng.lognormal(0.1, 0.3, (20, 450))
    assert one.shape[1] > MOST_ROUNDS
    found = np.array(shifts(one, two))
    pairs = np.sort((two[:, :, None] - one[:, None, :]).reshape(20, -1), axis=1)
    spread = (450 * 450 * 901 / 12) ** 0.5
    places = [450 * 450 // 2, int(450 * 450 / 2 - 1.96 * spread), int(450 * 450 / 2 + 1.96 * spread)]
    exact = pairs[:, places].T
    assert np.abs(found - exact).max() < 0.05 * (exact[2] - exact[1]).min()
