"""Who dominates whom, against the definition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from analysis.fronts import dominance
from analysis.fronts.dominance import nondominated, nondominated_in_each, staircase
from analysis.statistics.samples import Bools, Floats


def brute_force(*figures: Floats, maximise: Sequence[bool] = (False, True, False)) -> Bools:
    """By the definition, pair by pair."""
    # All to be minimised. NaN compares as false, so that such a point dominates nothing.
    losses = [-values if more else values for values, more in zip(figures, maximise, strict=False)]
    no_worse = np.all([loss[:, None] <= loss for loss in losses], axis=0)
    better = np.any([loss[:, None] < loss for loss in losses], axis=0)
    return ~(no_worse & better).any(axis=0) & ~np.isnan(losses).any(axis=0)


def random_sets(count: int, objectives: int = 2) -> list[tuple[Floats, ...]]:
    """Few distinct values, so that ties and duplicates abound; some NaN."""
    rng = np.random.default_rng(0)
    sets = []
    for _ in range(count):
        space = rng.integers(1, 8, size=(objectives, rng.integers(0, 15))).astype(float)
        space[rng.random(space.shape) < 0.1] = np.nan
        sets.append(tuple(space))
    return sets


@pytest.mark.parametrize(
    "maximise", [(False, True), (True, True), (False, True, False), (True, False, False)]
)
def test_dominance_against_brute_force(maximise: tuple[bool, ...]) -> None:
    """Over the four, 20 000 sets; the oracle compares every pair."""
    sets = random_sets(5000, len(maximise))
    for figures in sets:
        expected = brute_force(*figures, maximise=maximise)
        assert nondominated(*figures, maximise=maximise).tolist() == expected.tolist()


@pytest.mark.parametrize("objectives", [2, 3])
def test_dominance_in_many_sets_at_once(objectives: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as set by set, also in parts, and with points that are not compared with each other."""
    monkeypatch.setattr(dominance, "AT_ONCE", 5000)
    rng = np.random.default_rng(1)
    sets = rng.integers(1, 8, size=(500, 12, objectives)).astype(float)
    sets[rng.random(sets.shape) < 0.05] = np.nan
    maximise = (True, False, True)[:objectives]
    halves = np.arange(12) < 5
    found = nondominated_in_each(sets, maximise)
    among = nondominated_in_each(sets, maximise, halves[:, None] == halves)
    for figures, all_of_them, by_half in zip(sets, found, among, strict=True):
        assert all_of_them.tolist() == brute_force(*figures.T, maximise=maximise).tolist()
        for half in (halves, ~halves):
            assert by_half[half].tolist() == brute_force(*figures[half].T, maximise=maximise).tolist()


def test_staircase_is_the_boundary_of_what_is_attained() -> None:
    for latency, throughput in random_sets(300):
        x, y = staircase(latency, throughput, right=10, bottom=0)
        on_front = brute_force(latency, throughput)
        if not on_front.any():
            assert len(x) == len(y) == 0
            continue
        assert (np.diff(x) >= 0).all()
        assert (np.diff(y) >= 0).all()
        assert ((np.diff(x) == 0) ^ (np.diff(y) == 0)).all(), "every edge is horizontal or vertical"
        assert (x[-1], y[0]) == (10, 0)
        corners = set(zip(x, y, strict=True))
        assert corners >= set(zip(latency[on_front], throughput[on_front], strict=True))
        # Beside the vertices, at any latency, the boundary is the best throughput attained by then.
        for at in np.arange(0.5, 10):
            attained = np.max(throughput[on_front & (latency <= at)], initial=0)
            drawn = np.max(y[x <= at], initial=0)
            assert drawn == attained
        assert not any((throughput > np.interp(latency, x, y)) & ~on_front & ~np.isin(latency, x))
