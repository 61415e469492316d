"""Trials as a frame, and predictions by it: of a model whose true times are known, and of profiles left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.advice.observed import NEEDED, Observed, observe
from pareto.analysis.advice.predict import on_grid, predictor, validate
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import load
from pareto.analysis.statistics.samples import Ints
from tests.unit import example_run
from tests.unit import simulated_network as world

ELSEWHERE = Network(0.02, 20e6)


def test_every_trial_has_its_round_and_cell_and_those_where_nothing_crosses_are_one() -> None:
    rows = pd.concat([world.trials(rounds=3, run=run, noise=0.1) for run in ("b", "a")])
    again = rows[(rows["round"] == 2) & (rows["point"] == "1")]
    rows = pd.concat([rows, again.assign(latency_s=again["latency_s"] * 2)]).sample(frac=1, random_state=1)
    categories = rows.astype({"netem": "category", "backend": "category"})
    found = observe(categories, world.NO_STAGES, world.PROFILES)
    rounds = pd.DataFrame(rows[["run", "round"]].drop_duplicates().to_numpy(), columns=["run", "round"])
    made = found.trials.join(found.cells[["backend", "point"]], on="cell")
    made[["run", "round"]] = rounds.loc[made["round"]].to_numpy()
    keys = ["run", "round", "netem", "backend", "point"]
    rows["backend"] = rows["backend"].where(rows["payload_bytes"] > 0, "none")
    expected, of_all = (each.groupby(keys)["latency_s"].agg(["mean", "size"]) for each in (rows, made))
    assert of_all.index.equals(expected.index)
    np.testing.assert_allclose(of_all["mean"], expected["mean"])
    repeated = expected.index.get_level_values("backend") != "none"
    assert (of_all["size"] == expected["size"])[repeated].all()
    assert sorted(made.loc[made["point"].eq("1"), "repeat"].unique()) == [0, 1]


def test_advice_looks_at_few_of_the_columns() -> None:
    assert list(world.workload(world.trials().assign(retransmits=1.0)).rows) == NEEDED


def test_very_many_rounds_are_taken_several_together() -> None:
    few_of_b = world.trials({"slow": world.PROFILES["slow"]}, rounds=3, run="b")
    rows = pd.concat([world.trials(rounds=230), few_of_b])
    rows.loc[(rows["round"] == 7) & (rows["point"] == "2"), "status"] = "failed"
    found = observe(rows, world.NO_STAGES, world.PROFILES)
    blocks = found.together()
    assert len(blocks.stratum) <= 103
    assert np.bincount(blocks.stratum).tolist()[1] == 3
    assert blocks.medians("latency_s") == pytest.approx(found.medians("latency_s"), rel=0.005)
    size = len(np.array_split(np.arange(230), np.count_nonzero(blocks.stratum == 0))[0])
    whole, part = (each.at("slow").trials.query("cell == 0") for each in (found, blocks))
    first = whole.loc[whole["round"] < size, "latency_s"].median()
    assert part.loc[part["round"].eq(0), "latency_s"].tolist() == [pytest.approx(first)]
    few = world.observed(rounds=5)
    assert few.together() is few


def cells(found: Observed, backend: str) -> Ints:
    """Of that backend, by point; the last is of all."""
    return np.flatnonzero(found.cells["backend"].isin([backend, "none"]))


@pytest.mark.parametrize("backend", ["tcp", "rpc"])
@pytest.mark.parametrize(
    "network", [ELSEWHERE, Network(0.2, 1e6), Network(0.0, 1e9, 0.03, 1e6), Network(0.001, np.inf)]
)
def test_without_noise_any_network_is_predicted_exactly(backend: str, network: Network) -> None:
    found = world.observed(noise=0.0)
    predicted, chosen = predictor(found), cells(found, backend)
    assert predicted.latency_s(**vars(network))[chosen] == pytest.approx(world.latency_s(network, backend))
    if network.rate_back_bps == np.inf:
        ips = predicted.throughput_ips(**vars(network))[chosen]
        assert ips == pytest.approx(world.throughput_ips(network))


def test_few_requests_in_flight_wait_for_the_network_and_say_nothing_of_a_stage() -> None:
    far, near = Network(0.5, 20e6), Network(0.0, 1e9)
    two = replace(predictor(world.observed(noise=0.0)), in_flight=2)
    waited, crossing = 2 / two.latency_s(**vars(far)), two.payload_bytes > 0
    assert two.throughput_ips(**vars(far))[crossing] == pytest.approx(waited[crossing])
    assert two.throughput_ips(**vars(far))[~crossing] == pytest.approx(1 / 0.060)
    rows = world.trials({"far": Network(0.5, 1e9)}, noise=0.0, in_flight_asked="2", in_flight=2.0)
    rows["throughput_ips"] = np.minimum(rows["throughput_ips"], 2 / rows["latency_s"])
    found = world.seen(rows, {"far": Network(0.5, 1e9)})
    expected = np.minimum(world.throughput_ips(near), 2 / world.latency_s(near, "tcp"))[1:4]
    assert predictor(found).throughput_ips(**vars(near))[cells(found, "tcp")[1:4]] == pytest.approx(expected)


def test_what_a_backend_adds_is_never_less_than_nothing_and_constant_over_few_payloads() -> None:
    rows = world.trials(noise=0.0)
    few = world.seen(rows[rows["point"].isin(["1", "3", "4"])])
    of_tcp = predictor(few).overhead_s[cells(few, "tcp")][:2]
    assert of_tcp[0] == of_tcp[1]
    assert of_tcp[0] == pytest.approx(0.001 + 2e-9 * np.mean([150e3, 30e3, 4e3, 4e3]), rel=0.2)
    rows["network_s"] -= 0.004 + 5e-9 * rows["payload_bytes"]
    rows["latency_s"] = rows[["edge_s", "server_s", "network_s"]].sum(axis=1)
    assert (predictor(world.seen(rows)).overhead_s == 0).all()


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_grid_has_the_best_cell_at_each_delay_and_rate(objective: str) -> None:
    predicted = predictor(world.observed(noise=0.01))
    delays_s, rates_bps = np.geomspace(1e-4, 0.3, 60), np.geomspace(1e5, 1e10, 50)
    best, least, behind = on_grid(predicted, delays_s, rates_bps, objective)
    assert best.shape == least.shape == behind.shape == (60, 50)
    assert len(set(best.ravel())) > 2
    for row, column in [(0, 0), (10, 40), (59, 49), (30, 20)]:
        costs = predicted.cost(objective, delay_s=delays_s[row], rate_bps=rates_bps[column])
        assert (best[row, column], least[row, column]) == (np.argmin(costs), costs.min())
        others = predicted.cells["point"] != predicted.cells["point"][np.argmin(costs)]
        assert behind[row, column] == pytest.approx(costs[others].min() / costs.min() - 1)
    one = predicted.only(np.flatnonzero(predicted.cells["point"] == "1"))
    assert np.isinf(on_grid(one, delays_s, rates_bps, objective)[2]).all()


def test_a_run_older_than_stages_csv_is_read(tmp_path) -> None:
    trials = load([example_run.write(tmp_path / "old", example_run.trials(rounds=2))])
    found = predictor(observe(trials, world.NO_STAGES, {"200ms-5mbit": Network(0.2, 5e6)}))
    assert len(found.cells) == 2 * 21 + 1
    for figure in (found.latency_s, found.throughput_ips):
        assert np.isfinite(figure(**vars(Network(0.01, 1e8)))).all()


def test_left_out_profiles_are_predicted_and_compared_and_one_alone_with_itself() -> None:
    sure, noisy = (validate(world.observed(noise=noise)) for noise in (0.0, 0.05))
    assert (sure.held_out, sure.profiles, sure.cells) == (True, 3, 24)
    assert sure.errors["latency"].worst == pytest.approx(0, abs=1e-9)
    assert 0.001 < noisy.errors["latency"].median < min(0.05, noisy.errors["latency"].worst)
    # A link that is not what it says.
    rows = world.trials(noise=0.0)
    late = (rows["netem"] == "fast") & (rows["payload_bytes"] > 0)
    rows.loc[late, ["network_s", "latency_s"]] += 0.050
    assert validate(world.seen(rows)).errors["latency"].worst > 0.3
    alone = validate(world.observed(profiles={"middle": world.PROFILES["middle"]}))
    assert (alone.held_out, alone.cells) == (False, 8)
    assert alone.errors["latency"].worst < 0.05
    assert np.isnan(alone.spread("latency"))
