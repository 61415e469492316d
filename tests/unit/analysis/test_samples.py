"""Intervals of medians, shares and differences hold as many truths as they say; tests, against enumeration."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.stats import rankdata

from pareto.analysis.statistics import samples, significance
from pareto.analysis.statistics.samples import (
    Floats,
    interval,
    intervals,
    quantile_interval,
    share_interval,
    shares_differ,
)
from pareto.analysis.statistics.samples import quantile as quantile_of
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
from pareto.sweep.load import NEEDED

SAMPLES = 12_000
COUNTS = (6, 7, 8, 9, 10, 13, 17, 25, 40, 60)
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]


DISTRIBUTIONS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, shape: rng.normal(3, 2, shape), 3.0),
    "lognormal": (lambda rng, shape: rng.lognormal(0, 1, shape), 1.0),
    "exponential": (lambda rng, shape: rng.exponential(size=shape), math.log(2)),
    "heavy tails": (lambda rng, shape: rng.standard_t(2, shape), 0.0),
    "no mean at all": (lambda rng, shape: rng.standard_cauchy(shape), 0.0),
    "a coarse clock": (lambda rng, shape: np.round(rng.normal(size=shape) * 20) / 20, 0.0),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_95_of_100_intervals_hold_the_median(name: str) -> None:
    draw, truth = DISTRIBUTIONS[name]
    for count in COUNTS:
        low, high = intervals(draw(np.random.default_rng(count), (SAMPLES, count)))
        assert 0.93 <= np.mean((low <= truth) & (truth <= high)) <= 0.97, count


def test_it_is_as_narrow_as_it_may_be() -> None:
    """Of order statistics alone, the interval of 7 values would hold 98 of 100 and be wider."""
    values = list(np.random.default_rng(3).normal(size=7))
    low, high = interval(values) or (math.nan, math.nan)
    assert min(values) < low < sorted(values)[1] < sorted(values)[-2] < high < max(values)


def test_many_samples_at_once_are_as_one_by_one() -> None:
    many = np.random.default_rng(0).lognormal(size=(20, 11))
    low, high = intervals(many)
    assert [interval(list(row)) for row in many] == list(zip(low, high, strict=True))
    assert interval(many[0][::-1]) == interval(many[0])
    assert interval([2.5] * 6) == interval([2.5] * 1000) == (2.5, 2.5)
    assert [interval([1.0] * count) for count in range(6)] == [None] * 6, "not even all hold it with 95 %"
    assert 1 - 2 / 2 ** (samples.LEAST_VALUES - 1) < 0.95 < 1 - 2 / 2**samples.LEAST_VALUES


@pytest.mark.parametrize(("quantile", "samples"), NEEDED.items())
def test_how_many_samples_a_quantile_needs(quantile: float, samples: int) -> None:
    """One or none of the samples beyond the quantile: the binomial written out."""
    assert math.isnan(quantile_of(np.arange(samples - 1.0), quantile))
    doubts = [quantile**n + n * (1 - quantile) * quantile ** (n - 1) for n in (samples, samples - 1)]
    assert doubts[0] <= 0.01 < doubts[1]


def test_no_number_is_no_sample() -> None:
    values = np.arange(130.0)
    assert quantile_of([*values, math.nan], 0.95) == quantile_of(values, 0.95) == pytest.approx(0.95 * 129)
    assert math.isnan(quantile_of([*values[:-1], math.nan], 0.95))
    assert math.isnan(quantile_of([], 0.5))


USUAL = [10.1, 9.9, 10.0, 10.2, 9.8, 10.05]


FLAGGED: dict[str, tuple[list[float], list[int]]] = {
    # 0.6745 |x - median| / MAD > 3.5: here the median is 10, the MAD 1, and the limit 5.19 away.
    "beyond the papers' rule": ([15.3, 9.0, 9.0, 10.0, 11.0, 11.0, 5.0], [0]),
    "within it": ([15.1, 9.0, 9.0, 10.0, 11.0, 11.0, 5.0], []),
    "two do not hide each other, as by the mean": ([*USUAL, 100.0, 101.0], [6, 7]),
    "no number is no value": ([*USUAL, math.nan, 1.0], [7]),
    "five values tell of none": ([*USUAL[:4], 900.0], []),
    "nor with what is none": ([*USUAL[:4], 900.0, math.nan, math.nan], []),
    "no values": ([], []),
    "all the same": ([3.0] * 8, []),
    "all but one the same": ([3.0] * 7 + [4.0], [7]),
    "two of seven are others": ([3.0] * 5 + [4.0] * 2, []),
    # Half a standard deviation further than 3.5, estimated from the mean deviation.
    "more than half the same": ([1.0] * 5 + [1.1, 1.2, 1.45], [7]),
}


@pytest.mark.parametrize(("values", "expected"), FLAGGED.values(), ids=FLAGGED)
def test_outliers(values: list[float], expected: list[int]) -> None:
    flagged = samples.flagged(values)
    assert flagged.shape == (len(values),)
    assert np.flatnonzero(flagged).tolist() == expected


def test_chance_flags_few() -> None:
    of = np.random.default_rng(0).normal(size=(400, 30))
    assert 0.001 < np.mean([samples.flagged(each) for each in of]) < 0.01


@pytest.mark.parametrize(("q", "fewest"), [(0.95, 130), (0.99, 662)])
def test_a_quantiles_interval_holds_the_truth_as_often_as_it_says(q: float, fewest: int) -> None:
    rng = np.random.default_rng(7)
    assert np.isnan(quantile_interval(rng.normal(size=fewest - 1), q)).all()
    truth = stats.norm.ppf(q)
    ends = np.array([quantile_interval(rng.normal(size=fewest), q) for _ in range(1000)])
    assert 0.94 <= np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])) <= 0.985


@pytest.mark.parametrize(
    ("hits", "images", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17, 1998, table I, method 3 (score without continuity correction).
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_s_interval_is_the_published_one(hits: int, images: int, low: float, high: float) -> None:
    ends = share_interval(np.array([hits / images]), np.array([images]))
    assert [float(end[0]) for end in ends] == pytest.approx([low, high], abs=5e-5)


def test_no_interval_without_images() -> None:
    low, high = share_interval(np.array([0.5, 0.5, np.nan, 1.0]), np.array([0, np.nan, 200, 200]))
    assert np.isnan([low, high]).tolist() == [[True, True, True, False]] * 2
    assert (low[3], high[3]) == pytest.approx((0.98116, 1.0), abs=1e-5)


@pytest.mark.parametrize(
    ("lead", "apart", "expected"),
    [
        (5, 5, False),  # all five for one: 2 / 2^5 = 0.0625
        (6, 6, True),  # 2 / 2^6 = 0.031
        (6, 8, False),  # 7 of 8: 2 x 9 / 2^8 = 0.070
        (9, 13, True),  # 11 of 13: 2 x 92 / 2^13 = 0.022
        (0, 0, False),
        (10, 0, True),  # at least the difference is discordant
        (-50, 100, False),  # the first is to be the greater
    ],
)
def test_shares_differ_by_the_sign_test_of_their_discordant_images(
    lead: int, apart: int, expected: bool
) -> None:
    assert shares_differ(0.9, 0.9 - lead / 1000, 1000, apart / 1000) is expected


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
    for n, m in ((1, 1), (2, 6), (5, 5), (6, 3), (9, 2)):
        rng = np.random.default_rng(n)
        differences, first, other = (rng.normal(by, 1, (20, of)) for by, of in ((0.5, n), (0, n), (1, m)))
        np.testing.assert_allclose(signed_rank(differences), [by_flipping(row) for row in differences])
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

    def is_enough(p_value: float) -> bool:
        return bool(holm(np.append(p_value, np.ones(tests - 1)))[0] <= significance.ALPHA)

    def of_pairs(n: int) -> float:
        return float(signed_rank(np.arange(1.0, n + 1)[None])[0])

    def of_rounds(n: int) -> float:
        return float(rank_sum(np.arange(n)[None], np.arange(n, 2 * n)[None])[0])

    pairs, each = significance.pairs_needed(tests), significance.rounds_needed(tests)
    assert is_enough(of_pairs(pairs)) and not is_enough(of_pairs(pairs - 1))
    assert is_enough(of_rounds(each)) and not is_enough(of_rounds(each - 1))
    assert tests != 44 or (pairs, each) == (11, 7)


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


def test_holms_example_and_that_no_test_does_not_count() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert len(holm([])) == 0
    assert holm([0.01, np.nan, 0.02]) == pytest.approx([0.02, np.nan, 0.02], nan_ok=True)


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
