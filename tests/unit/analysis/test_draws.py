"""Medians of resampled rounds, rounds that cells share, and draws of the truth, held against worlds that are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

from pareto.analysis.fronts import draws, indicators
from pareto.analysis.fronts.draws import LEAST_RESAMPLES, Draws, prepared
from pareto.analysis.fronts.front import front, fronts
from pareto.analysis.fronts.shared_rounds import least_excess, nondominated
from pareto.analysis.statistics import posterior
from pareto.analysis.statistics.posterior import SPREADS
from pareto.analysis.statistics.samples import Bools, Floats
from tests.unit.calibration import World, best, table, two, whole
from tests.unit.simulated_rounds import tradeoffs, trials


def drawn(
    latency: Floats | pd.DataFrame, objectives: tuple[str, ...] = ("latency", "throughput"), **of: Any
) -> Draws:
    """The draws of the only condition of trials, or of latencies (and throughputs) of rounds x cells."""
    made = latency if isinstance(latency, pd.DataFrame) else trials(latency[None], latency[None])
    (found,) = prepared(made, objectives, "", **of)[1]
    return found


def by_hand(values: Floats, weights: Floats) -> Floats:
    """The weighted, interpolated and stretched medians, resample by resample."""
    n, ranked = len(values), np.argsort(values)
    medians = []
    for of_one in weights:
        of_value = of_one[ranked] / of_one.sum()
        medians.append(np.interp(0.5, np.cumsum(of_value) - of_value / 2, values[ranked]))
    return np.median(values) + np.sqrt((n + 1) / (n - 1)) * (np.array(medians) - np.median(values))


@pytest.mark.parametrize("rounds", [2, 3, 4, 10, 49, 700])
def test_weighted_medians_against_the_slow_way(rounds: int) -> None:
    """With many rounds only the middle is looked at: the same, to the last bit that matters."""
    latency = np.random.default_rng(rounds).lognormal(0, 0.5, (rounds, 3))
    latency[:, 1] = np.round(latency[:, 1], 1)  # ties
    found = drawn(latency, resamples=150, seed=7).values[:, :, 0]
    weights = np.random.default_rng(7).standard_exponential((150, rounds))
    for cell in range(3):
        np.testing.assert_allclose(found[:, cell], by_hand(latency[:, cell], weights), rtol=1e-9)


def test_the_same_rounds_for_all_cells_backends_and_columns() -> None:
    """What is twice as much in every round is so in every resample; whatever the order of the rows."""
    once = np.random.default_rng(0).lognormal(0, 0.3, (1, 9, 1))
    data = trials(once * [1, 2, 3, 4], once * [1, 1, 1, 1], ["tcp", "rpc"])
    latency, throughput = np.moveaxis(drawn(data.sample(frac=1, random_state=3)).values, 2, 0)
    np.testing.assert_allclose(latency, throughput[:, [0]] * [2, 4, 1, 3], rtol=1e-12)
    assert latency.shape == (2000, 4)
    assert len(np.unique(throughput[:, 0])) > 1900, "not a few steps"


@pytest.mark.parametrize("rounds", [3, 5, 20])
def test_the_spread_is_that_of_medians(rounds: int) -> None:
    """Over many cells, the resamples' standard deviation is that with which medians really vary, within a fifth."""
    latency = np.random.default_rng(1).normal(10, 1, (rounds, 1500))
    really = np.median(latency, axis=0).std()
    spread = np.sqrt(drawn(latency, resamples=200).values.var(axis=0).mean())
    assert spread == pytest.approx(really, rel=0.2)


def test_missing_rounds_and_missing_figures() -> None:
    latency = np.random.default_rng(2).lognormal(0, 0.3, (5, 4))
    data = trials(latency[None], latency[None])
    data = data[~((data["point"] == "1") & (data["round"] > 0))]
    data.loc[(data["point"] == "2") & (data["round"] == 3), "latency_s"] = np.nan
    data.loc[data["point"] == "3", "latency_s"] = np.nan
    found = drawn(data, ("latency", "energy"), resamples=50)
    assert (~np.isnan(found.measured(["latency_s"]))).sum(axis=(0, 2)).tolist() == [5, 1, 4, 0]
    weights, known = np.random.default_rng(0).standard_exponential((50, 5)), [0, 1, 2, 4]
    first = found.values[:, :, 0]
    np.testing.assert_allclose(first[:, 2], by_hand(latency[known, 2], weights[:, known]), rtol=1e-9)
    assert (first[:, 1] == latency[0, 1]).all(), "one round says nothing of how it varies"
    assert np.isnan(first[:, 3]).all()
    assert np.isnan(found.values[:, :, 1]).all()


def test_rounds_of_the_same_number_in_two_runs_are_two_rounds() -> None:
    latency = np.random.default_rng(0).lognormal(0, 0.3, (1, 9, 1)) * [1, 2]
    data = trials(latency, latency)
    once, twice = drawn(data).values[:, :, 0].T
    np.testing.assert_allclose(twice, 2 * once)
    data.loc[data["point"] == "1", "run"] = "other"
    once, twice = drawn(data).values[:, :, 0].T
    assert abs(np.corrcoef(once, twice)[0, 1]) < 0.1
    assert drawn(data).measured(["latency_s"]).shape == (18, 2, 1)


def test_many_rounds_need_fewer_resamples_and_a_condition_is_resampled_once_or_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    latency = np.random.default_rng(0).normal(10, 1, (1000, 1))
    for rounds, made in ((30, 2000), (60, 1000), (1000, LEAST_RESAMPLES)):
        assert drawn(latency[:rounds]).values.shape == (made, 1, 2)
    assert len(drawn(latency, resamples=50).values) == 50
    calls = []
    medians = draws._medians
    monkeypatch.setattr(draws, "_medians", lambda *of: calls.append(0) or medians(*of))
    *_, latency, throughput = tradeoffs(3, 7, 4, noise=0.04, common=1.0, seed=4)
    front(trials(latency, throughput))
    assert calls == [], "probabilities are not made of resamples"
    fronts(trials(latency, throughput))
    assert len(calls) == 3 * 4 * 2


NAN = np.nan


def test_with_the_same_rounds_it_is_the_front_of_the_medians() -> None:
    draws = np.random.default_rng(5)
    for rounds in (1, 2, 5, 6):
        measured = draws.integers(1, 6, (rounds, 12, 2)).astype(float)
        measured[:, 3] = NAN
        medians = np.median(measured, axis=0)
        for maximise in ([False, True], [False, False]):
            expected = indicators.nondominated(*medians.T, maximise=maximise)
            assert nondominated(measured, maximise).tolist() == expected.tolist()


def test_what_a_round_does_to_all_its_cells_decides_nothing() -> None:
    """The machine becomes slower; the better cell has the later rounds."""
    slower = np.array([1.0, 1.2, 1.4, 1.6, 1.8, 2.0])[:, None, None]
    measured = slower * np.array([[1.0, 1.0], [1.1, 1.1], [1.0, 1.0]])
    measured[:3, 0] = measured[4:, 1] = NAN
    assert nondominated(measured[:, :2], [False, False]).tolist() == [True, False]
    assert nondominated(measured, [False, False]).tolist() == [True, False, True]


def test_cells_without_a_common_round_are_compared_by_all_that_each_has() -> None:
    measured = np.array([[[1.0, 1.0], [NAN, NAN]], [[NAN, NAN], [2.0, 2.0]]])
    assert nondominated(measured, [False, False]).tolist() == [True, False]
    assert nondominated(measured, [True, True]).tolist() == [False, True]


def test_cells_that_dominate_each_other_in_a_circle_keep_nobody_off_but_others() -> None:
    a, b, c = [1.0, 2.0, NAN], [NAN, 1.0, 2.0], [2.0, NAN, 1.0]  # b beats a, c beats b, a beats c
    worse, better = [9.0, 9.0, 9.0], [0.5, 0.5, 0.5]
    for others, expected in (([worse], [True, True, True, False]), ([better], [False] * 3 + [True])):
        measured = np.repeat(np.array([a, b, c, *others]).T[..., None], 2, axis=2)
        assert nondominated(measured, [False, False]).tolist() == expected


def test_what_is_off_the_front_keeps_nothing_off_it() -> None:
    """The second cell was lucky beside the third in the one round that both have, and is behind the first."""
    first, second, third = [1.0, 1.0, 1.0], [1.5, NAN, NAN], [2.0, 0.9, 0.9]
    measured = np.repeat(np.array([first, second, third]).T[..., None], 2, axis=2)
    measured[1:, 2, 1] = 1.1
    assert nondominated(measured[:, 1:], [False, False]).tolist() == [True, False]
    assert nondominated(measured, [False, False]).tolist() == [True, False, True]


def test_how_far_two_cells_are_apart_is_by_the_rounds_that_both_have() -> None:
    slower = np.array([1.0, 1.2, 5.0])[:, None, None]
    measured = slower * np.array([[1.0, 4.0], [2.0, 5.0], [NAN, NAN]])
    measured[2, 0] = NAN
    excess = least_excess(measured)
    assert excess[:2, :2] == pytest.approx(np.array([[0, -1.1], [1.1, 0]]))
    assert (excess[2] == -np.inf).all()
    assert (excess[:, 2] == -np.inf).all()


@pytest.mark.parametrize("shape", [(0, 0, 2), (0, 3, 2), (2, 3, 2)])
def test_nothing_measured_is_on_no_front(shape: tuple[int, ...]) -> None:
    assert not nondominated(np.full(shape, NAN)).any()


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
    assert posterior.draws(measured, points, 0.0) is not None
    assert 0 < len(solved) < posterior.DRAWN / 2


@pytest.mark.parametrize(
    ("study", "world", "conditions"),
    [
        (two, World(size=0.05, gap=0.05, rounds=10), 25),
        (whole, World(size=0.02, gap=0.05, rounds=8, kind="outliers"), 5),
        (best, World(size=0.02, gap=0.05, rounds=6, common=5, missing=0.2), 60),
    ],
)
def test_what_is_stated_with_a_probability_is_so_as_often(
    study: Callable[..., tuple[Floats, Bools]], world: World, conditions: int
) -> None:
    """Never less often, but for what such a number of cases differs by; the docs have the whole table."""
    stated, true = study(world, conditions, seed=2)
    bins = table(stated, true)
    for said, right, count in bins:
        assert count < 20 or right > said - 0.02 - 3 * (said * (1 - said) / count) ** 0.5, bins
    assert sum(count for *_, count in bins) > 0.4 * stated.size


@pytest.mark.deep
def test_the_luckiest_of_many_that_hardly_differ_is_not_thought_the_best() -> None:
    """Backends 1 % apart at the most and 2 % noise: what stands first is the best in 59 of 100 cases."""
    stated, right = best(World(size=0.02, gap=0.01, rounds=6), 400, seed=2)
    assert np.mean(stated) == pytest.approx(np.mean(right), abs=0.06)


@pytest.mark.parametrize(("study", "world"), [(two, World(0.1, 0.05, 3)), (whole, World(0.3, 0.1, 10))])
def test_no_probability_is_stated_that_cannot_hold(
    study: Callable[..., tuple[Floats, Bools]], world: World
) -> None:
    """Three rounds of 10 % noise, and gaps of 5 % at most: the bootstrap's 0.98 was right in 72 of 100 cases."""
    stated, _ = study(world, 4, seed=2)
    assert np.isnan(stated).mean() > 0.9
    assert np.nan_to_num(stated).max() < 0.5
