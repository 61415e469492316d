"""Tests of differences: against enumeration, and by simulation: at most 5 % of runs alike have a false one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from analysis.statistics import significance
from analysis.statistics.samples import Floats
from analysis.statistics.significance import rank_sum, relative, signed_rank

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


@pytest.mark.parametrize("n", [1, 2, 5, 6, 9])
def test_signed_rank_against_all_signs(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.5, 1, (20, n))
    expected = [by_flipping(row) for row in differences]
    np.testing.assert_allclose(signed_rank(differences), expected)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 4), (5, 5), (6, 3)])
def test_rank_sum_against_all_groupings(n: int, m: int) -> None:
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


def test_a_pair_that_is_swapped_changes_only_its_sign() -> None:
    first, other = pd.Series([1.0, 100.0, 3.0]), pd.Series([1.1, 110.0, 3.0])
    np.testing.assert_allclose(relative(first, other), -relative(other, first))
    assert relative(first, other)[0] == pytest.approx(relative(first, other)[1]), "however slow the round was"


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
            (corrected,) = significance.corrected(p_values)
            assert significance.significant(corrected)[0] == is_enough
    assert significance.pairs_needed(44) == 11
    assert significance.rounds_needed(44) == 7


def test_measures_are_one_family_and_missing_tests_do_not_count() -> None:
    latency, throughput = np.array([0.01, np.nan, 0.04]), np.array([0.02, 0.5, np.nan])
    one, two = significance.corrected(latency, throughput)
    np.testing.assert_allclose(one, [0.04, np.nan, 0.08])
    np.testing.assert_allclose(two, [0.06, 0.5, np.nan])
    assert significance.significant(np.array([0.05, 0.0501, np.nan])).tolist() == [True, False, False]


def false_positives(p_values: Floats) -> tuple[float, float]:
    """Shares of the runs (rows; columns are their tests) with any significant test, with and without correction."""
    corrected = [significance.corrected(of_run)[0] for of_run in p_values]
    return float(np.mean([np.any(row <= 0.05) for row in corrected])), float(
        (p_values <= 0.05).any(axis=1).mean()
    )


def slowed(rng: np.random.Generator, n: int, drift: float) -> Floats:
    """Runs x points x rounds: skewed noise, and what slows a whole round."""
    return rng.lognormal(0, 0.05, (RUNS, POINTS, n)) * rng.lognormal(0, drift, (RUNS, 1, n))


@pytest.mark.parametrize(("n", "needed"), [(12, significance.pairs_needed), (8, significance.rounds_needed)])
def test_runs_alike_have_a_false_difference_in_one_of_twenty_at_most(
    n: int, needed: Callable[[int], int]
) -> None:
    rng = np.random.default_rng(1)
    assert n >= needed(POINTS), "or there could be none"
    if needed is significance.pairs_needed:
        # Both backends within each round: what slows it slows both.
        shared = rng.lognormal(0, 0.3, (RUNS, 1, n))
        first, other = slowed(rng, n, 0) * shared, slowed(rng, n, 0) * shared
        p_values = signed_rank(((other - first) / (other + first)).reshape(-1, n))
    else:
        first, other = slowed(rng, n, 0.02), slowed(rng, n, 0.02)
        p_values = rank_sum(first.reshape(-1, n), other.reshape(-1, n))
    family_wise, uncorrected = false_positives(p_values.reshape(RUNS, POINTS))
    assert 0.005 < family_wise < 0.05 + 3 * (0.05 * 0.95 / RUNS) ** 0.5
    assert uncorrected > 0.4, "which is why it is corrected"


@pytest.mark.parametrize("is_paired", [True, False])
def test_a_tenth_is_found(is_paired: bool) -> None:
    n, rng = 12, np.random.default_rng(2)
    first = rng.lognormal(0, 0.03, (RUNS, n))
    other = rng.lognormal(np.log(1.1), 0.03, (RUNS, n))
    p_values = signed_rank((other - first) / (other + first)) if is_paired else rank_sum(first, other)
    assert (p_values * POINTS <= 0.05).mean() > 0.9
