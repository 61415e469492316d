"""The draws of what figures may be in truth, held against their definition; `tests/unit/calibration.py` has worlds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pareto.analysis.statistics import posterior
from pareto.analysis.statistics.posterior import SPREADS


@pytest.mark.parametrize("backends", [1, 2])
def test_spreads_are_drawn_as_often_as_they_make_the_figures_likely(
    backends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the density of a normal distribution whose covariance is written out."""
    rng = np.random.default_rng(5)
    points = np.array([str(place) for place in range(7)] * backends, dtype=object)
    middle = rng.normal(0, 0.1, len(points))
    variance = rng.uniform(1, 4, len(points)) * 1e-4
    same = points[:, None] == points[None, :]
    variances = [float(size) ** 2 for size in SPREADS]
    logs = {
        (between, own): multivariate_normal.logpdf(
            middle - middle.mean(), cov=100 + between * same + np.diag(own + variance + 1e-12)
        )
        for between in variances
        for own in (variances if backends > 1 else [0.0])
    }
    likely = np.exp(np.array(list(logs.values())) - max(logs.values()))
    monkeypatch.setattr(posterior, "DRAWN", 40_000)
    drawn = posterior._spreads(middle, variance, points, rng)
    shares = np.array([drawn.count(pair) for pair in logs]) / len(drawn)
    assert np.abs(shares - likely / likely.sum()).max() < 0.01


def test_spreads_that_are_drawn_again_are_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    measured = np.exp(rng.normal(0, 0.02, (6, 60, 2)) + np.linspace(0, 3, 60)[None, :, None])
    points = np.array([str(place) for place in range(60)], dtype=object)
    solved = []
    solve = np.linalg.solve
    monkeypatch.setattr(np.linalg, "solve", lambda *of: solved.append(0) or solve(*of))
    assert posterior.draws(measured, points) is not None
    assert 0 < len(solved) < posterior.DRAWN / 2
