"""Samples of unequal length in one table."""

from __future__ import annotations

import numpy as np

from analysis.statistics.samples import interval
from analysis.statistics.significance import alike, median_intervals, medians, padded, rounds


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


def test_median_intervals_are_those_of_each_row() -> None:
    table = np.random.default_rng(0).normal(0, 1, (4, 9))
    table[1, 7:], table[2, 5:] = np.nan, np.nan
    low, high = median_intervals(table)
    assert (low[0], high[0]) == interval(table[0])
    assert (low[1], high[1]) == interval(table[1, :7])
    assert np.isnan([low[2], high[2]]).all(), "five rounds hold no 95 %"
