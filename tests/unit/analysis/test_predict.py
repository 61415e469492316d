"""Predictions against a model whose true times are known.

Predictions held against profiles that were left out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.advice.observed import Observed, observe
from pareto.analysis.advice.predict import best_on_grid, predictor, predictors, validate
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import load
from pareto.analysis.statistics.samples import Ints, intervals
from tests.unit import example_run
from tests.unit import simulated_network as world

ELSEWHERE = Network(0.02, 20e6)


def cells(found: Observed, backend: str) -> Ints:
    """Of that backend, by point; the last is of all."""
    return np.flatnonzero(found.cells["backend"].isin([backend, "none"]))


@pytest.mark.parametrize("backend", ["tcp", "rpc"])
@pytest.mark.parametrize(
    "network", [ELSEWHERE, Network(0.2, 1e6), Network(0.0, 1e9, 0.03, 1e6), Network(0.001, np.inf)]
)
def test_without_noise_any_network_is_predicted_exactly(backend, network):
    found = world.observed(noise=0.0)
    predicted = predictor(found)
    chosen = cells(found, backend)
    assert predicted.latency_s(**vars(network))[chosen] == pytest.approx(world.latency_s(network, backend))
    if network.rate_back_bps == np.inf:
        ips = world.throughput_ips(network)
        assert predicted.throughput_ips(**vars(network))[chosen] == pytest.approx(ips)


def test_noise_of_a_twentieth_is_averaged_out():
    found = world.observed(noise=0.05, rounds=20)
    predicted = predictor(found).latency_s(**vars(ELSEWHERE))
    assert predicted[cells(found, "tcp")] == pytest.approx(world.latency_s(ELSEWHERE, "tcp"), rel=0.03)


def test_few_requests_in_flight_wait_for_the_network():
    far = Network(0.5, 20e6)
    two = replace(predictor(world.observed(noise=0.0)), in_flight=2)
    waited = 2 / two.latency_s(**vars(far))
    crossing = two.payload_bytes > 0
    assert two.throughput_ips(**vars(far))[crossing] == pytest.approx(waited[crossing])
    assert two.throughput_ips(**vars(far))[~crossing] == pytest.approx(1 / 0.060)


def test_a_trial_that_waits_for_the_network_says_nothing_of_a_stage():
    rows = world.trials({"far": Network(0.5, 1e9)}, noise=0.0, in_flight_asked="2", in_flight=2.0)
    rows["throughput_ips"] = np.minimum(rows["throughput_ips"], 2 / rows["latency_s"])
    found = observe(rows, world.stages(rows), {"far": Network(0.5, 1e9)})
    near = Network(0.0, 1e9)
    expected = np.minimum(world.throughput_ips(near), 2 / world.latency_s(near, "tcp"))
    assert predictor(found).throughput_ips(**vars(near))[cells(found, "tcp")[1:4]] == pytest.approx(
        expected[1:4]
    )


def test_where_nothing_crosses_all_backends_are_one_point():
    found = world.observed(rounds=4)
    last = found.cells[found.cells["point"] == "4"]
    assert last["backend"].tolist() == ["none"]
    rows = world.trials(rounds=4)
    of_last = rows[rows["point"] == "4"]
    of_all = of_last.groupby(["netem", "round"])["latency_s"].mean().median()
    assert predictor(found).latency_s(0.0, 1e9)[last.index[0]] == pytest.approx(of_all)


def test_a_backend_is_never_better_than_tcp_can_be():
    rows = world.trials(noise=0.0)
    rows["network_s"] -= 0.004 + 5e-9 * rows["payload_bytes"]
    rows["latency_s"] = rows[["edge_s", "server_s", "network_s"]].sum(axis=1)
    found = observe(rows, world.stages(rows), world.PROFILES)
    assert (predictor(found).overhead_s == 0).all()


def test_few_payloads_get_a_constant():
    rows = world.trials(noise=0.0)
    rows = rows[rows["point"].isin(["1", "3", "4"])]
    found = observe(rows, world.stages(rows), world.PROFILES)
    of_tcp = predictor(found).overhead_s[cells(found, "tcp")][:2]
    assert of_tcp[0] == of_tcp[1]
    assert of_tcp[0] == pytest.approx(0.001 + 2e-9 * np.mean([150e3, 30e3, 4e3, 4e3]), rel=0.2)


def test_the_grid_has_the_best_cell_at_each_delay_and_rate():
    found = world.observed(noise=0.01)
    predicted = predictor(found)
    delays_s, rates_bps = np.geomspace(1e-4, 0.3, 60), np.geomspace(1e5, 1e10, 50)
    for objective in ("latency", "throughput"):
        best = best_on_grid(predicted, delays_s, rates_bps, objective)
        assert best.shape == (60, 50)
        assert len(set(best.ravel())) > 2
        for row, column in [(0, 0), (10, 40), (59, 49), (30, 20)]:
            where = delays_s[row], rates_bps[column]
            cost = predicted.latency_s(*where)
            if objective == "throughput":
                cost = -predicted.throughput_ips(*where)
            assert best[row, column] == np.argmin(cost)


def test_intervals_of_rounds_cover_the_truth():
    """Of 250 runs of 6 rounds each, what each round alone predicts; the interval is that of their median."""
    runs, rounds = 250, 6
    every = world.observed(rounds=runs * rounds, noise=0.05)
    tcp = cells(every, "tcp")
    truth = world.latency_s(ELSEWHERE, "tcp")
    by_round = predictor(every, by_round=True).latency_s(**vars(ELSEWHERE))[:, tcp]
    held = []
    for cell, true in enumerate(truth):
        low, high = intervals(by_round[:, cell].reshape(runs, rounds))
        held.append(np.mean((low <= true) & (true <= high)))
    assert 0.93 <= np.mean(held) <= 0.97


def test_each_workload_has_a_predictor_and_those_without_are_left_out():
    rows = [
        world.trials(rounds=1),
        world.trials(rounds=1, batch_size=8),
        world.trials(rounds=1, model="dead"),
    ]
    rows[2]["status"] = "failed"
    found = predictors(pd.concat(rows, ignore_index=True), world.NO_STAGES, [world.manifest()])
    assert [each.batch_size for each in found] == [1, 8]


def test_a_run_older_than_stages_csv_is_read(tmp_path):
    rows = example_run.trials(rounds=2)
    profiles = {"200ms-5mbit": Network(0.2, 5e6)}
    trials = load([example_run.write(tmp_path / "old", rows)])
    found = predictor(observe(trials, world.NO_STAGES, profiles))
    assert len(found.cells) == 2 * 21 + 1
    assert np.isfinite(found.latency_s(0.01, 1e8)).all()
    assert np.isfinite(found.throughput_ips(0.01, 1e8)).all()


def test_left_out_profiles_are_predicted_and_compared_and_one_alone_with_itself():
    sure, noisy = (validate(world.observed(noise=noise)) for noise in (0.0, 0.05))
    assert (sure.held_out, sure.profiles, sure.cells) == (True, 3, 24)
    assert sure.errors["latency"].worst == pytest.approx(0, abs=1e-9)
    assert 0.001 < noisy.errors["latency"].median < min(0.05, noisy.errors["latency"].worst)
    # A link that is not what it says.
    rows = world.trials(noise=0.0)
    late = (rows["netem"] == "fast") & (rows["payload_bytes"] > 0)
    rows.loc[late, ["network_s", "latency_s"]] += 0.050
    assert validate(observe(rows, world.stages(rows), world.PROFILES)).errors["latency"].worst > 0.3
    alone = validate(world.observed(profiles={"middle": world.PROFILES["middle"]}))
    assert (alone.held_out, alone.cells) == (False, 8)
    assert alone.errors["latency"].worst < 0.05
    assert np.isnan(alone.spread("latency"))
