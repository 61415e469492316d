"""How probably each choice is the best."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.advice.predict import Validation, predictor
from pareto.analysis.advice.ranking import best_shares, ranking
from pareto.analysis.advice.workload import Workload
from pareto.analysis.prediction.compared import Errors
from pareto.analysis.prediction.network import Network
from tests.unit import simulated_network as world


def erring(of: Workload, spread: float, **known: object) -> Workload:
    """The same with predictions that are off by as much; known: other cached properties."""
    errors = dict.fromkeys(("latency", "throughput"), Errors(spread, spread, spread))
    vars(of).update(known, validation=Validation(True, 3, 24, errors), floor={})
    return of


def test_shares_of_those_that_cost_the_same() -> None:
    shares = best_shares(np.array([[1.0, 1.0, 2.0], [3.0, 2.0, 2.0], [1.0, 5.0, 5.0], [1.0, 1.0, 1.0]]))
    assert shares == pytest.approx([(0.5 + 1 + 1 / 3) / 4, (0.5 + 0.5 + 1 / 3) / 4, (0.5 + 1 / 3) / 4])


def test_the_probability_of_being_best_is_calibrated() -> None:
    """Of what is told to be best with p, so many are or more: two points whose true difference is as large as noise."""
    rng = np.random.default_rng(0)
    worlds, rounds, profile = 120, 8, {"middle": world.PROFILES["middle"]}
    rows = world.trials(profile, rounds=worlds * rounds, noise=0.05, backends=("tcp",))
    rows = rows[rows["point"].isin(["2", "4"])]
    every, network = world.seen(rows, profile), Network(0.01, 50e6)
    gap_s = float(np.diff(predictor(every).latency_s(**vars(network)))[0])
    told, true = [], []
    for number in range(worlds):
        some = world.part(every, number * rounds, rounds)
        slower_s = rng.uniform(-0.006, 0.006)
        # What cut 2 truly takes more than the edge.
        work_s = some.trials["work_s"] + (gap_s + slower_s) * some.trials["cell"].eq(0)
        seen = replace(some, trials=some.trials.assign(work_s=work_s))
        best = ranking(erring(world.workload(rows.head(2), profile), 0.0, observed=seen), network).best
        told.append(best["probability"])
        true.append((slower_s < 0) == (best["point"] == "2"))
    stated = ~np.isnan(told)
    told_p, true_p = np.array(told)[stated], np.array(true)[stated]
    assert stated.mean() > 0.9
    for low, high in ((0.5, 0.65), (0.65, 0.8), (0.8, 1.01)):
        chosen = (told_p >= low) & (told_p < high)
        assert chosen.sum() >= 12
        said, was = told_p[chosen].mean(), true_p[chosen].mean()
        assert was - said > -3 * math.sqrt(said * (1 - said) / chosen.sum())


def test_where_many_may_be_the_best_none_is_named_as_a_contender(monkeypatch: pytest.MonkeyPatch) -> None:
    backends = tuple(f"tcp:{letter}" for letter in "abcde")
    for name in backends:
        monkeypatch.setitem(world.A_S, name, world.A_S["tcp"])
    of = erring(world.workload(world.trials(backends=backends)), 1.0)
    alike = pd.MultiIndex.from_tuples([("none", "", name, point) for name in backends for point in "12"])
    rough, close = (ranking(of, Network(0.03, 8e6), among=among) for among in (alike, alike[[1, 3]]))
    assert rough.contenders["probability"].sum() < 0.5
    assert rough.unsure and not rough.sure
    assert close.sure and not close.unsure


@pytest.mark.parametrize("error", [0.0, 0.05, 0.3, math.nan])
def test_of_two_with_disjoint_intervals_the_slower_is_not_the_surer(error: float) -> None:
    """The interval holds what the probability knows: else a table contradicts itself."""
    of = erring(world.workload(world.trials(rounds=8)), error)
    for network in itertools.starmap(Network, itertools.product((0.001, 0.03, 0.2), (2e6, 8e6, 50e6))):
        choices = ranking(of, network).choices
        known = choices.loc[choices["backend"] != "none", ["latency_low_s", "latency_high_s"]]
        assert known.isna().all(axis=None) == math.isnan(error)
        for better, worse in itertools.combinations(choices.itertuples(), 2):
            if better.latency_high_s < worse.latency_low_s:
                assert better.probability >= worse.probability
