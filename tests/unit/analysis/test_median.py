"""The interval of a median: as many truths in it as it says, whatever they are drawn from."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import optimize, stats

from analysis.statistics import samples
from analysis.statistics.samples import Floats, interval, intervals

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
    samples = np.random.default_rng(0).lognormal(size=(20, 11))
    low, high = intervals(samples)
    assert [interval(list(row)) for row in samples] == list(zip(low, high, strict=True))
    assert interval(samples[0][::-1]) == interval(samples[0])


@pytest.mark.parametrize("count", range(6))
def test_fewer_than_six_values_have_none(count: int) -> None:
    """Not even all of them hold the median with 95 %."""
    assert 1 - 2 / 2 ** (samples.LEAST_VALUES - 1) < 0.95 < 1 - 2 / 2**samples.LEAST_VALUES
    assert interval([1.0] * count) is None


def test_values_that_are_all_the_same() -> None:
    assert interval([2.5] * 6) == (2.5, 2.5)
    assert interval([2.5] * 1000) == (2.5, 2.5)
