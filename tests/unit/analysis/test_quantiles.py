"""A quantile is stated from as many samples as it needs, or not at all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.statistics.samples import needed
from analysis.statistics.samples import quantile as quantile_of


@pytest.mark.parametrize(("quantile", "samples"), [(0.5, 11), (0.9, 64), (0.95, 130), (0.99, 662)])
def test_how_many_samples_a_quantile_needs(quantile: float, samples: int) -> None:
    """The project's facts (../shared/FACTS.md), derived otherwise."""
    assert needed(quantile) == samples
    assert needed(1 - quantile) == samples


@pytest.mark.parametrize(("quantile", "confidence"), [(0.5, 0.9), (0.75, 0.99), (0.9, 0.95), (0.999, 0.99)])
def test_as_many_and_no_fewer(quantile: float, confidence: float) -> None:
    """One or none of the samples beyond the quantile: the binomial written out."""
    beyond = 1 - quantile

    def doubt(n: int) -> float:
        return quantile**n + n * beyond * quantile ** (n - 1)

    samples = needed(quantile, confidence)
    assert doubt(samples) <= 1 - confidence < doubt(samples - 1)


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
