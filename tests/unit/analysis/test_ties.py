from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.fronts.front import front
from tests.unit.simulated_rounds import trials

ROUNDS = 10


def noisy(*medians: float, noise: float = 0.05, seed: int = 0, rounds: int = ROUNDS) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array(medians) * rng.lognormal(0, noise, (1, rounds, len(medians)))


def ties(rows: pd.DataFrame) -> dict[str, str]:
    return dict(zip(rows["backend"] + " " + rows["point"], rows["ties"], strict=True))


def test_points_alike_in_every_objective_are_named_over_both_backends() -> None:
    # tcp 0 and rpc 0 are alike; so are tcp 1 and rpc 1, but in latency only; tcp 2 and rpc 2 are alike far behind.
    latency, throughput = noisy(1, 1, 2, 2, 9, 9), noisy(1, 1, 5, 7, 0.1, 0.1, seed=1)
    for figures in (latency, throughput):
        figures[:, :, 5] = figures[:, :, 4]
    rows = front(trials(latency, throughput, ["tcp", "rpc"]))
    assert ties(rows) == {
        "tcp 0": "rpc 0",
        "rpc 0": "tcp 0",
        "tcp 1": "",
        "rpc 1": "",
        "tcp 2": "",
        "rpc 2": "",
    }


def test_several_are_named_in_the_order_of_the_table() -> None:
    rows = front(trials(noisy(1, 1, 1, 1), noisy(1, 1, 1, 1, seed=1), ["tcp", "rpc"]))
    assert ties(rows)["rpc 1"] == "rpc 0; tcp 0; tcp 1"


def test_what_all_points_of_a_round_share_tells_nobody_apart_or_alike() -> None:
    shared = np.random.default_rng(3).lognormal(0, 0.5, (1, ROUNDS, 1))
    rows = front(trials(shared * [1, 1.05], shared * [1, 1.05]))
    assert ties(rows) == {"tcp 0": "", "tcp 1": ""}
    assert rows["on_front"].all()


@pytest.mark.parametrize("rounds", [5, 6])
def test_too_few_rounds_tell_nothing(rounds: int) -> None:
    rows = front(trials(noisy(1, 1, rounds=rounds), noisy(1, 1, seed=1, rounds=rounds)))
    assert rows["ties"].ne("").all() == (rounds >= 6)


def test_equal_figures_are_ties_and_missing_ones_are_not() -> None:
    data = trials(np.ones((1, 6, 3)), np.ones((1, 6, 3)))
    data.loc[data["point"] == "2", "throughput_ips"] = np.nan
    assert ties(front(data)) == {"tcp 0": "tcp 1", "tcp 1": "tcp 0", "tcp 2": ""}


@pytest.mark.parametrize("rounds", [6, 15])
def test_equal_points_are_hardly_ever_told_apart(rounds: int) -> None:
    """95 % intervals of two objectives: at least 0.95^2, about, of 100 pairs."""
    rng = np.random.default_rng(rounds)
    latency, throughput = (np.exp(0.05 * rng.standard_t(3, (100, rounds, 2))) for _ in range(2))
    rows = front(trials(latency, throughput), resamples=200)
    behind = rows["probability_all"].to_numpy().reshape(100, 2).min(axis=1) < 0.05
    alike = rows["ties"].ne("").to_numpy().reshape(100, 2).all(axis=1)
    assert behind.mean() < 0.05
    assert alike[~behind].mean() > 0.86


def test_different_points_are_told_apart() -> None:
    rng = np.random.default_rng(1)
    latency, throughput = (np.exp(0.05 * rng.standard_t(3, (30, 10, 2))) for _ in range(2))
    rows = front(trials(latency * [1, 1.5], throughput * [1, 1.5]), resamples=200)
    assert rows["ties"].eq("").mean() > 0.95
