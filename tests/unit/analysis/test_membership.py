"""Stated probabilities against fronts that are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.fronts.dominance import nondominated, nondominated_in_each
from analysis.fronts.front import front
from tests.unit.simulated_rounds import tradeoffs, trials


@pytest.mark.parametrize("rounds", [3, 10])
def test_a_stated_probability_is_how_often_it_is_so(rounds: int) -> None:
    """Of the points of 100 sets with about the same probability, that share really is on the front."""
    *true, latency, throughput = tradeoffs(100, rounds, 20, noise=0.02, common=2.0, seed=rounds)
    is_member = nondominated_in_each(np.stack(true, axis=2), (False, True))
    rows = front(trials(latency, throughput), resamples=300)
    # Cells are in the order of the points, as numbers.
    really = is_member.ravel()
    stated = rows["probability"].to_numpy()
    error = 0.0
    for low, high, most in [
        (0, 0.02, 0.03),
        (0.02, 0.3, 0.1),
        (0.3, 0.7, 0.1),
        (0.7, 0.98, 0.1),
        (0.98, 1.01, 0.03),
    ]:
        among = (stated >= low) & (stated < high)
        away = abs(stated[among].mean() - really[among].mean())
        assert among.sum() > 60
        assert away < most, (
            f"{low} to {high}: stated {stated[among].mean():.3f}, is {really[among].mean():.3f}"
        )
        error += among.mean() * away
    assert error < 0.03


def test_what_all_points_of_a_round_share_hardly_blurs_the_front() -> None:
    """Noise ten times as large leaves much undecided by itself, and little where all points share it."""
    undecided = []
    for noise, common in ((0.2, 0.0), (0.02, 10.0)):
        *_, latency, throughput = tradeoffs(15, 8, 12, noise, common, seed=5)
        stated = front(trials(latency, throughput), resamples=100)["probability"]
        undecided.append(stated.between(0.05, 0.95).mean())
    assert undecided[1] < 0.6 * undecided[0], undecided


def test_of_a_backend_and_of_all() -> None:
    """rpc's points are tcp's, half as good: on rpc's own front as tcp's are, on none with tcp's."""
    rng = np.random.default_rng(1)
    latency = rng.lognormal(0, 0.1, (1, 6, 5)) * [1, 2, 3, 4, 5]
    throughput = rng.lognormal(0, 0.1, (1, 6, 5)) * [1, 2, 3, 2.9, 6]
    tcp = trials(latency, throughput)
    rpc = trials(latency * 2, throughput / 2, ["rpc"])
    rows = front(pd.concat([tcp, rpc])).set_index(["backend", "point"])
    assert rows.loc["rpc", "probability"].tolist() == rows.loc["tcp", "probability"].tolist()
    assert rows.loc["tcp", "probability_all"].tolist() == rows.loc["tcp", "probability"].tolist()
    assert rows.loc["rpc", "probability_all"].tolist() == [0] * 5
    assert rows.loc["tcp", "probability"].between(0.01, 0.99).any()


def test_too_few_rounds_have_no_probability() -> None:
    for rounds in (1, 2, 3):
        *_, latency, throughput = tradeoffs(1, rounds, 6, noise=0.02, common=1.0, seed=2)
        rows = front(trials(latency, throughput))
        assert rows["probability"].isna().all() == rows["probability_all"].isna().all() == (rounds < 3)
        expected = nondominated(rows["latency_s"].to_numpy(), rows["throughput_ips"].to_numpy())
        assert rows["on_front"].tolist() == expected.tolist()


def test_a_device_that_a_point_does_not_use_costs_it_nothing_in_any_resample() -> None:
    *_, latency, throughput = tradeoffs(1, 6, 2, noise=0.0, common=0.0, seed=3)
    data = trials(latency, throughput)
    asked = data["point"] == "0"
    data = data.assign(edge_energy_j=1.0, edge_s=0.1, server_energy_j=np.where(asked, 0.5, np.nan))
    data["server_s"] = np.where(asked, 0.1, np.nan)
    rows = front(data, objectives=("energy", "edge-time"))
    assert rows["energy_j"].tolist() == [1.5, 1.0]
    assert rows["probability"].tolist() == [0, 1]
