"""By how much one sample lies above another: the interval holds the truth, and agrees with the test."""

from __future__ import annotations

import numpy as np

from analysis.statistics.significance import MOST_ROUNDS, rank_sum, shifts


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
