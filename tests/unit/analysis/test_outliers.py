"""Outliers are found where they hide each other, and not where nothing can be known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.statistics import samples

USUAL = [10.1, 9.9, 10.0, 10.2, 9.8, 10.05]


def test_the_papers_rule() -> None:
    """0.6745 |x - median| / MAD > 3.5: here the median is 10, the MAD 1, and the limit 5.19 away."""
    values = [15.3, 9.0, 9.0, 10.0, 11.0, 11.0, 5.0]
    assert samples.flagged(values).tolist() == [True] + [False] * 6
    assert samples.flagged([15.1, *values[1:]]).tolist() == [False] * 7


def test_two_outliers_do_not_hide_each_other() -> None:
    """By the standard deviation neither is over 3: it is theirs."""
    values = np.array([*USUAL, 100.0, 101.0])
    assert (np.abs(values - values.mean()) / values.std() < 3).all()
    assert samples.flagged(values).tolist() == [False] * 6 + [True] * 2


def test_the_place_of_each_value_is_kept() -> None:
    assert samples.flagged([30.0, *USUAL]).tolist() == [True] + [False] * 6
    assert samples.flagged([*USUAL, math.nan, 1.0]).tolist() == [False] * 7 + [True]


@pytest.mark.parametrize("count", range(6))
def test_too_few_values_tell_of_none(count: int) -> None:
    values = [*USUAL[:5], 900.0][-count:] if count else []
    assert samples.flagged(values).tolist() == [False] * count
    assert not samples.flagged([*values, math.nan, math.nan]).any()


def test_they_are_counted() -> None:
    assert np.count_nonzero(samples.flagged(USUAL)) == 0
    assert np.count_nonzero(samples.flagged([*USUAL, 30.0, -30.0])) == 2


def test_among_values_that_are_the_same() -> None:
    assert np.count_nonzero(samples.flagged([3.0] * 8)) == 0
    assert samples.flagged([3.0] * 7 + [4.0]).tolist() == [False] * 7 + [True]
    assert np.count_nonzero(samples.flagged([3.0] * 5 + [4.0] * 2)) == 0
    # Half a standard deviation further than 3.5, estimated from the mean deviation.
    assert samples.flagged([1.0] * 5 + [1.1, 1.2, 1.45]).tolist() == [False] * 7 + [True]


def test_chance_flags_few() -> None:
    rng = np.random.default_rng(0)
    share = np.mean([samples.flagged(rng.normal(size=30)) for _ in range(400)])
    assert 0.001 < share < 0.01
