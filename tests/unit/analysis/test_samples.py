"""The interval of a median: as many truths in it as it says, whatever they are drawn from.

A quantile is stated from as many samples as it needs, or not at all.

Outliers are found where they hide each other, and not where nothing can be known.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import optimize, stats

from pareto.analysis.statistics import samples
from pareto.analysis.statistics.samples import Floats, interval, intervals, needed, quantile_interval
from pareto.analysis.statistics.samples import quantile as quantile_of

SAMPLES = 12_000
COUNTS = (6, 7, 8, 9, 10, 13, 17, 25, 40, 60)
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]


def two_kinds(gap: float, share: float) -> tuple[Draw, float]:
    """Standard normal values, a share of them slower by `gap`; and their median."""

    def below(value: float) -> float:
        return float((1 - share) * stats.norm.cdf(value) + share * stats.norm.cdf(value - gap) - 0.5)

    return lambda rng, shape: rng.normal(size=shape) + gap * (rng.random(shape) < share), float(
        optimize.brentq(below, -5, gap + 5)
    )


DISTRIBUTIONS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, shape: rng.normal(3, 2, shape), 3.0),
    "lognormal": (lambda rng, shape: rng.lognormal(0, 1, shape), 1.0),
    "exponential": (lambda rng, shape: rng.exponential(size=shape), math.log(2)),
    "heavy tails": (lambda rng, shape: rng.standard_t(2, shape), 0.0),
    "no mean at all": (lambda rng, shape: rng.standard_cauchy(shape), 0.0),
    "two halves that touch": two_kinds(3, 0.5),
    "every third one is slow": two_kinds(6, 0.3),
    "every fifth one is very slow": two_kinds(10, 0.2),
    "a coarse clock": (lambda rng, shape: np.round(rng.normal(size=shape) * 20) / 20, 0.0),
}


def coverage(name: str, count: int, samples: int = SAMPLES) -> float:
    draw, truth = DISTRIBUTIONS[name]
    low, high = intervals(draw(np.random.default_rng(count), (samples, count)))
    return float(np.mean((low <= truth) & (truth <= high)))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_95_of_100_intervals_hold_the_median(name: str) -> None:
    assert {count: held for count in COUNTS if not 0.93 <= (held := coverage(name, count)) <= 0.97} == {}


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
    for confidence in (0.9, 0.99):
        number = needed(quantile, confidence)
        doubts = [quantile**n + n * (1 - quantile) * quantile ** (n - 1) for n in (number, number - 1)]
        assert doubts[0] <= 1 - confidence < doubts[1]


def test_a_sample_of_that_size_has_two_beyond() -> None:
    rng = np.random.default_rng(1)
    beyond = (rng.random((20_000, needed(0.9))) > 0.9).sum(axis=1)
    assert np.mean(beyond >= 2) == pytest.approx(0.99, abs=0.003)


def test_fewer_samples_state_none() -> None:
    values = np.arange(130.0)
    assert quantile_of(values, 0.95) == pytest.approx(0.95 * 129)
    assert math.isnan(quantile_of(values[:-1], 0.95))
    assert math.isnan(quantile_of([*values[:-1], math.nan], 0.95))
    assert quantile_of([*values, math.nan], 0.95) == pytest.approx(0.95 * 129)
    assert math.isnan(quantile_of([], 0.5))


@pytest.mark.parametrize("quantile", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_what_is_no_quantile(quantile: float) -> None:
    with pytest.raises(ValueError, match="0 and 1"):
        needed(quantile)


USUAL = [10.1, 9.9, 10.0, 10.2, 9.8, 10.05]


def test_the_papers_rule() -> None:
    """0.6745 |x - median| / MAD > 3.5: here the median is 10, the MAD 1, and the limit 5.19 away."""
    values = [15.3, 9.0, 9.0, 10.0, 11.0, 11.0, 5.0]
    assert samples.flagged(values).tolist() == [True] + [False] * 6
    assert samples.flagged([15.1, *values[1:]]).tolist() == [False] * 7
    two = np.array([*USUAL, 100.0, 101.0])
    assert (np.abs(two - two.mean()) / two.std() < 3).all(), "it is theirs, so that they hide each other"
    assert samples.flagged(two).tolist() == [False] * 6 + [True] * 2
    assert samples.flagged([*USUAL, math.nan, 1.0]).tolist() == [False] * 7 + [True]


def test_too_few_values_tell_of_none() -> None:
    for count in range(6):
        values = [*USUAL[:5], 900.0][6 - count :]
        assert not samples.flagged([*values, math.nan, math.nan]).any()
        assert samples.flagged(values).tolist() == [False] * count


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


@pytest.mark.parametrize(("q", "fewest"), [(0.95, 130), (0.99, 662)])
def test_a_quantiles_interval_holds_the_truth_as_often_as_it_says(q: float, fewest: int) -> None:
    rng = np.random.default_rng(7)
    assert np.isnan(quantile_interval(rng.normal(size=fewest - 1), q)).all()
    truth = stats.norm.ppf(q)
    ends = np.array([quantile_interval(rng.normal(size=fewest), q) for _ in range(1000)])
    assert 0.94 <= np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])) <= 0.985
