"""From where on another point is better, and a codec pays, against the closed form of a known model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pareto.analysis.advice.crossovers import RATES_BPS, Crossover, crossovers, pays
from pareto.analysis.advice.observed import Observed
from pareto.analysis.advice.predict import predictor
from pareto.analysis.prediction.network import Network
from pareto.protocol.constants import GOODPUT
from tests.unit import example_codecs as coded
from tests.unit import simulated_network as world

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


def test_beyond_the_measured_profiles_it_is_extrapolated() -> None:
    of = world.observed(noise=0.0)
    assert not one(found_in(of, NEAR), "rate", True).extrapolated
    assert one(found_in(of, NEAR, "latency", "fast"), "rate", True).extrapolated


def test_where_nothing_is_ever_better_nothing_is_found() -> None:
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


@pytest.mark.parametrize("runs", [20, pytest.param(100, marks=pytest.mark.deep)])
def test_intervals_cover_the_true_crossover(runs: int) -> None:
    """Of so many runs of 8 rounds each."""
    rounds = 8
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
