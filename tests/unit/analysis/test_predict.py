"""Predictions by trials of a model whose true times are known: their networks, crossovers, and how sure the best is."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.advice.crossovers import RATES_BPS, Crossover, crossovers, pays
from pareto.analysis.advice.observed import Observed, observe
from pareto.analysis.advice.predict import Validation, on_grid, predictor, validate
from pareto.analysis.advice.ranking import best_shares, ranking
from pareto.analysis.advice.workload import Workload
from pareto.analysis.prediction.compared import Errors
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.runs.load import load
from pareto.analysis.statistics.samples import Ints
from pareto.protocol.constants import GOODPUT
from pareto.protocol.errors import UserError
from tests.unit import example_codecs as coded
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


def test_profiles_that_change_or_lose_are_not_networks():
    plain = {"edge_to_server": {"delay_s": 0.1, "rate_bps": 1e6}, "server_to_edge": {}}
    profiles = {
        "plain": plain,
        "none": {"edge_to_server": {}, "server_to_edge": {}, "bucket": None},
        "lossy": {"edge_to_server": {"delay_s": 0.1, "loss": 0.01}, "server_to_edge": {}},
        "moving": {"edge_to_server": {}, "server_to_edge": {"trace": {"name": "drive", "steps": 3}}},
        "bucket": plain | {"bucket": {"burst_bytes": 32768}},
        "short": {"edge_to_server": {"rate_bps": 1e6, "limit_bytes": 30000}, "server_to_edge": {}},
        "broken": None,
    }
    found = networks([{"profiles": profiles}, {}, {"profiles": "?"}])
    assert found == {"plain": Network(0.1, 1e6), "none": Network(0.0, np.inf)}
    with pytest.raises(UserError, match="'plain'"):
        networks([{"profiles": {"plain": plain}}, world.manifest({"plain": ELSEWHERE})])
    for wrong in ((-1, 1e6), (0.1, 0), (np.inf, 1e6), (np.nan, 1e6)):
        with pytest.raises(UserError):
            Network(*wrong)


def test_a_real_link_without_emulation_is_what_was_measured_before_the_run():
    bare = {"rtt_s": 0.012, "rate_bps": 40e6 * GOODPUT, "rate_back_bps": None}
    manifest = {
        "profiles": {"none": {}, "slow": {"edge_to_server": {"delay_s": 0.1}}},
        "sessions": [{"bare_links": {"edge-server": bare}}],
    }
    found = networks([manifest])
    assert found["none"].same(Network(0.006, 40e6, 0.006))
    assert found["slow"].same(Network(0.1, math.inf))
    later = {**manifest, "sessions": [{"bare_links": {"edge-server": {**bare, "rtt_s": 0.013}}}]}
    assert networks([manifest, later])["none"] == found["none"]  # the link of another day
    elsewhere = {**manifest, "sessions": [{"bare_links": {"edge-server": {**bare, "rtt_s": 0.05}}}]}
    with pytest.raises(UserError):
        networks([manifest, elsewhere])
    chain = {**manifest, "sessions": [{"bare_links": {"a-b": bare, "b-c": bare}}]}
    assert networks([chain])["none"].same(Network(0.0, math.inf))


NEAR = Network(0.006, 1e6)
"""Where all on the edge is best, and a faster link would change it."""


def found_in(of: Observed, network: Network, objective: str = "latency", *known: str) -> list[Crossover]:
    networks = [world.PROFILES[name] for name in known or world.PROFILES]
    return crossovers(predictor(of), predictor(of, by_round=True), of.present, network, objective, networks)


def one(found: list[Crossover], along: str, upwards: bool) -> Crossover:
    (switch,) = (each for each in found if each.along == along and each.upwards == upwards)
    return switch


def gains_s(network: Network) -> Any:
    """By how much each cut over tcp would beat all on the edge on a link without a limit."""
    unlimited = replace(network, rate_bps=math.inf)
    return (world.EDGE_S[-1] - world.latency_s(unlimited, "tcp"))[:-1]


OF_RATE = 8 * world.PAYLOAD_BYTES[:-1] / GOODPUT / np.maximum(gains_s(NEAR), 1e-12)
UNDELAYED = gains_s(Network(0.0, 100e6)) - 8 * world.PAYLOAD_BYTES[:-1] / GOODPUT / 100e6


@pytest.mark.parametrize(
    ("network", "objective", "along", "upwards", "at", "point"),
    [
        (NEAR, "latency", "rate", True, OF_RATE.min(), OF_RATE.argmin()),
        (Network(0.2, 100e6), "latency", "delay", False, UNDELAYED.max(), UNDELAYED.argmax()),
        # Cut 1 has stages of 10 ms: best while its 150 kB cross quicker than what cut 2 takes.
        (Network(0.001, 100e6), "throughput", "rate", False, 8 * 150e3 / GOODPUT / world.EDGE_S[2], 2),
    ],
)
def test_crossovers_are_those_of_the_closed_form(network, objective, along, upwards, at, point):
    of = world.observed(noise=0.0)
    found = found_in(of, network, objective)
    switch = one(found, along, upwards)
    assert switch.at == pytest.approx(at, rel=1e-6)
    assert (of.cells["point"][switch.cell], of.cells["backend"][switch.cell]) == (str(point), "tcp")
    assert not [each for each in found if each.along == "rate" and each.upwards and not upwards]
    assert not [each for each in found if each.along == along and each.upwards != upwards]


def test_beyond_the_measured_profiles_it_is_extrapolated_and_nothing_is_found_where_nothing_is_better() -> (
    None
):
    of = world.observed(noise=0.0)
    assert not one(found_in(of, NEAR), "rate", True).extrapolated
    assert one(found_in(of, NEAR, "latency", "fast"), "rate", True).extrapolated
    for slower, network in ((0.01, Network(0.05, 5e6)), (1e6, Network(0.001, 1e9))):
        assert found_in(world.observed(noise=0.0, edge_s=world.EDGE_S * slower), network) == []


def test_neither_equal_points_nor_backends_take_over_from_each_other() -> None:
    of = world.observed(noise=0.0)
    central, by_round, same, both = predictor(of), predictor(of, by_round=True), [0, 0, 0], np.array([0, 1])
    twins = replace(central.only(np.array(same)), cells=of.cells.iloc[[0, 2, 4]].reset_index(drop=True))
    assert crossovers(twins, by_round.only(np.array(same)), of.present, NEAR, "latency", []) == []
    # rpc is now better from some rate on, which is another backend and no other point.
    central = replace(
        central.only(both), work_s=np.array([0.012, 0.0]), payload_bytes=np.array([600e3, 650e3])
    )
    assert central.cells["backend"].tolist() == ["tcp", "rpc"]
    best = [np.argmin(central.latency_s(delay_s=0.006, rate_bps=rate)) for rate in (1e6, 1e9)]
    assert best[0] != best[1]
    assert crossovers(central, by_round.only(both), of.present, NEAR, "latency", []) == []


def test_intervals_need_six_rounds_and_rounds_that_have_it() -> None:
    assert math.isnan(one(found_in(world.observed(rounds=5), NEAR), "rate", True).low)
    up = one(found_in(world.observed(rounds=6), NEAR), "rate", True)
    assert RATES_BPS[0] < up.low <= up.at <= up.high < RATES_BPS[1]
    # At so large a noise some rounds have it nowhere.
    wild = one(found_in(world.observed(rounds=6, noise=0.6, seed=3), NEAR), "rate", True)
    assert math.isnan(wild.low)


@pytest.mark.parametrize(("rounds", "known"), [(7, False), (20, True)])
def test_a_round_without_the_crossover_counts_as_beyond_all_others(rounds: int, known: bool) -> None:
    rows = world.trials(rounds=rounds, noise=0.01)
    never = (rows["round"] == 1) & rows["point"].isin(["0", "1", "2", "3"])
    rows.loc[never, ["edge_s", "latency_s"]] += 0.2
    assert math.isnan(one(found_in(world.seen(rows), NEAR), "rate", True).high) != known


def test_intervals_cover_the_true_crossover() -> None:
    """The shares over so many runs of 8 rounds each."""
    runs, rounds = 20, 8
    every = world.observed(rounds=runs * rounds, noise=0.02, backends=("tcp",))
    truth = 8 * world.PAYLOAD_BYTES[3] / GOODPUT / gains_s(NEAR)[3]
    held = []
    for first in range(0, runs * rounds, rounds):
        up = one(found_in(world.part(every, first, rounds), NEAR), "rate", True)
        assert up.cell == 3
        held.append(up.low <= truth <= up.high)
    assert np.mean(held) >= 0.89  # of 100, with 95 % each, fewer are one case in a hundred


def by_hand_bps(point: int, share: float, encode_s: float) -> float:
    """Where the codec takes at this point what all on the edge takes."""
    nbytes = coded.PAYLOAD_BYTES[point]
    left_s = coded.EDGE_S[-1] - coded.EDGE_S[point] - coded.SERVER_S[point] - 2 * coded.DELAY_S
    return 8 * nbytes * share / GOODPUT / (left_s - nbytes * encode_s)


def test_where_a_codec_pays_is_what_arithmetic_says() -> None:
    profiles = coded.PROFILES
    of = world.workload(coded.measured(), profiles, over_codecs=True)
    found = pays(*of.at("slow"), of.blocks.present, profiles["slow"])
    assert set(found) == {"zstd", "fp16", "int8", "uint4"}
    # Below, all on the edge is better; above, none is: with zstd 2e-8 s a byte of the payload, by hand at point 3.
    assert found["int8"].low == pytest.approx(by_hand_bps(3, 0.25, 2e-9), rel=1e-3)
    assert found["zstd"].low == pytest.approx(by_hand_bps(3, 0.6, 2e-8), rel=1e-3)
    # At 150 Mbit/s and more zstd at 2 saves 8 x 400 kB x 0.4 / rate and takes 8 ms; without a codec point 2 is best.
    assert found["zstd"].high == pytest.approx(8 * 0.4 * 400e3 / GOODPUT / (400e3 * 2e-8), rel=0.02)
    assert all(each.sure for each in found.values())
    assert found["zstd"].low_ends == pytest.approx((found["zstd"].low,) * 2, rel=0.01)


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
