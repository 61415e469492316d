""" """

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.fronts.draws import LEAST_RESAMPLES, resample_count, resampled
from pareto.analysis.statistics.samples import Floats
from tests.unit.simulated_rounds import trials


def by_hand(values: Floats, weights: Floats) -> Floats:
    """The weighted, interpolated and stretched medians, resample by resample."""
    n, ranked = len(values), np.argsort(values)
    medians = []
    for drawn in weights:
        of_value = drawn[ranked] / drawn.sum()
        medians.append(np.interp(0.5, np.cumsum(of_value) - of_value / 2, values[ranked]))
    return np.median(values) + np.sqrt((n + 1) / (n - 1)) * (np.array(medians) - np.median(values))


@pytest.mark.parametrize("rounds", [2, 3, 4, 10, 49, 700])
def test_weighted_medians_against_the_slow_way(rounds: int) -> None:
    """With many rounds only the middle is looked at: the same, to the last bit that matters."""
    rng = np.random.default_rng(rounds)
    latency = rng.lognormal(0, 0.5, (1, rounds, 3))
    latency[0, :, 1] = np.round(latency[0, :, 1], 1)  # ties
    found = resampled(trials(latency, latency), ["latency_s"], resamples=150, seed=7)
    weights = np.random.default_rng(7).standard_exponential((150, rounds))
    for cell in range(3):
        expected = by_hand(latency[0, :, cell], weights)
        np.testing.assert_allclose(found.values["latency_s"][:, cell], expected, rtol=1e-9)


def test_the_same_rounds_for_all_cells_backends_and_columns() -> None:
    """What is twice as much in every round is so in every resample; whatever the order of the rows."""
    once = np.random.default_rng(0).lognormal(0, 0.3, (1, 9, 1))
    data = trials(
        np.concatenate([once, 2 * once, 3 * once, 4 * once], axis=2), once * [1, 1, 1, 1], ["tcp", "rpc"]
    )
    found = resampled(data.sample(frac=1, random_state=3), ["latency_s", "throughput_ips"])
    base = found.values["throughput_ips"][:, [0]]
    np.testing.assert_allclose(found.values["latency_s"], base * [2, 4, 1, 3], rtol=1e-12)
    assert found.values["latency_s"].shape == (2000, 4)
    assert len(np.unique(base)) > 1900, "not a few steps"


@pytest.mark.parametrize("rounds", [3, 5, 20])
def test_the_spread_is_that_of_medians(rounds: int) -> None:
    """Over many cells, the resamples' standard deviation is that with which medians really vary, within a fifth."""
    latency = np.random.default_rng(1).normal(10, 1, (1, rounds, 1500))
    found = resampled(trials(latency, latency), ["latency_s"], resamples=200).values["latency_s"]
    really = np.median(latency, axis=1).std()
    assert np.sqrt(found.var(axis=0).mean()) == pytest.approx(really, rel=0.2)


def test_missing_rounds_and_missing_figures() -> None:
    rng = np.random.default_rng(2)
    latency = rng.lognormal(0, 0.3, (1, 5, 4))
    data = trials(latency, latency)
    data = data[~((data["point"] == "1") & (data["round"] > 0))]
    data.loc[(data["point"] == "2") & (data["round"] == 3), "latency_s"] = np.nan
    data.loc[data["point"] == "3", "latency_s"] = np.nan
    found = resampled(data, ["latency_s", "energy_j"], resamples=50)
    assert (~np.isnan(found.measured["latency_s"])).sum(axis=0).tolist() == [5, 1, 4, 0]
    weights = np.random.default_rng(0).standard_exponential((50, 5))
    known = [0, 1, 2, 4]
    drawn = found.values["latency_s"]
    np.testing.assert_allclose(drawn[:, 2], by_hand(latency[0, known, 2], weights[:, known]), rtol=1e-9)
    assert (drawn[:, 1] == latency[0, 0, 1]).all(), "one round says nothing of how it varies"
    assert np.isnan(drawn[:, 3]).all()
    assert np.isnan(found.values["energy_j"]).all()


def test_a_round_is_of_its_run_and_a_repeated_trial_is_a_round_more() -> None:
    latency = np.arange(1.0, 4.0).reshape(1, 3, 1)
    data = trials(latency, latency)
    pooled = resampled(pd.concat([data, data.assign(run="other", latency_s=9.0)]), ["latency_s"])
    repeated = resampled(pd.concat([data, data.assign(latency_s=9.0)]), ["latency_s"])
    assert pooled.measured["latency_s"].shape == repeated.measured["latency_s"].shape == (6, 1)
    assert pooled.values["latency_s"].max() == pytest.approx(9, abs=0.8)
    assert repeated.values["latency_s"].max() == pytest.approx(9, abs=0.8)


def test_rounds_of_the_same_number_in_two_runs_are_two_rounds() -> None:
    latency = np.random.default_rng(0).lognormal(0, 0.3, (1, 9, 1)) * [1, 2]
    data = trials(latency, latency)
    once, twice = resampled(data, ["latency_s"]).values["latency_s"].T
    np.testing.assert_allclose(twice, 2 * once)
    data.loc[data["point"] == "1", "run"] = "other"
    once, twice = resampled(data, ["latency_s"]).values["latency_s"].T
    assert abs(np.corrcoef(once, twice)[0, 1]) < 0.1


def test_many_rounds_need_fewer_resamples() -> None:
    counts = [resample_count(2000, rounds) for rounds in (0, 1, 30, 60, 1000)]
    assert counts == [2000, 2000, 2000, 1000, LEAST_RESAMPLES]
    assert resample_count(50, 1000) == 50
    latency = np.random.default_rng(0).normal(10, 1, (1, 1000, 1))
    drawn = resampled(trials(latency, latency), ["latency_s"]).values["latency_s"]
    assert drawn.shape == (LEAST_RESAMPLES, 1)
