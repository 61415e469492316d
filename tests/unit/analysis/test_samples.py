"""Intervals of medians and shares hold as many truths as they say; quantiles have the samples that they need; outliers
do not hide each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from pareto.analysis.statistics import samples
from pareto.analysis.statistics.samples import (
    Floats,
    interval,
    intervals,
    needed,
    quantile_interval,
    share_interval,
    shares_differ,
)
from pareto.analysis.statistics.samples import quantile as quantile_of

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
    assert [interval([1.0] * count) for count in range(6)] == [None] * 6, (
        "not even all of them hold it with 95 %"
    )
    assert 1 - 2 / 2 ** (samples.LEAST_VALUES - 1) < 0.95 < 1 - 2 / 2**samples.LEAST_VALUES


@pytest.mark.parametrize(("quantile", "samples"), [(0.5, 11), (0.9, 64), (0.95, 130), (0.99, 662)])
def test_how_many_samples_a_quantile_needs(quantile: float, samples: int) -> None:
    """One or none of the samples beyond the quantile: the binomial written out."""
    assert needed(quantile) == needed(1 - quantile) == samples
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
    rng = np.random.default_rng(0)
    share = np.mean([samples.flagged(rng.normal(size=30)) for _ in range(400)])
    assert 0.001 < share < 0.01


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
    assert np.isnan(low).tolist() == np.isnan(high).tolist() == [True, True, True, False]
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
