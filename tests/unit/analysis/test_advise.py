"""Advice against a model whose true times are known, and what it says where it does not know."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from analysis.advice.advise import Advice, advise, sentence
from analysis.advice.network import Network
from analysis.tables.advice import advice_table
from pareto.errors import UserError
from tests.unit import simulated_network as world

SLOW_LINK, FAST_LINK, BETWEEN = Network(0.1, 1e6), Network(0.0005, 2e9), Network(0.01, 80e6)


EXACT = world.trials(noise=0.0)


def asked(
    network: Network,
    rows: pd.DataFrame | None = None,
    profiles: Mapping[str, Network] = world.PROFILES,
    **options: Any,
) -> Advice:
    rows = world.trials(profiles) if rows is None else rows
    return advise(rows, world.stages(rows), [world.manifest(profiles)], network, **options)


def shown(advice: Advice) -> str:
    console = Console(width=80, no_color=True)
    with console.capture() as said:
        console.print(advice_table(advice))
    text = said.get()
    assert all(len(line) <= 80 for line in text.splitlines())
    return text


@pytest.mark.parametrize(
    "network", [SLOW_LINK, FAST_LINK, BETWEEN, Network(0.02, 20e6), Network(0.001, 15e6)]
)
def test_the_best_point_is_the_true_one(network):
    advice = asked(network)
    truth = world.latency_s(network, "tcp")
    assert advice.best.point == str(np.argmin(truth))
    assert advice.best.latency_s == pytest.approx(truth.min(), rel=0.03)
    assert advice.best.latency_low_s <= advice.best.latency_s <= advice.best.latency_high_s
    assert advice.runner_up
    assert advice.ranking.choices == tuple(
        sorted(advice.ranking.choices, key=lambda choice: choice.latency_s)
    )
    assert advice.behind == pytest.approx(advice.runner_up.latency_s / advice.best.latency_s - 1)


def test_for_throughput():
    advice = asked(BETWEEN, objective="throughput")
    assert advice.best.point == str(np.argmax(world.throughput_ips(BETWEEN)))
    assert advice.best.throughput_ips == pytest.approx(world.throughput_ips(BETWEEN).max(), rel=0.05)


def test_each_kind_of_answer_in_words(snapshot):
    """Without noise, so that the figures are exact."""
    of = {
        "all on the edge": asked(SLOW_LINK, EXACT),
        "all on the server": asked(FAST_LINK, EXACT),
        "a cut": asked(BETWEEN, EXACT),
        "throughput": asked(BETWEEN, EXACT, objective="throughput"),
        "another way back": asked(Network(0.0005, 2e9, 0.2, 1e6), EXACT),
        "measured": asked(world.PROFILES["slow"], EXACT),
        "few rounds": asked(SLOW_LINK, world.trials(rounds=2, noise=0.0)),
    }
    assert {kind: sentence(advice) for kind, advice in of.items()} == snapshot


def test_all_on_the_edge_is_one_answer_whatever_the_backend():
    advice = asked(SLOW_LINK)
    assert advice.best.place == "all on the edge"
    assert advice.best.backend == ""
    assert advice.best.probability > 0.99
    assert advice.sure == "sure"
    assert [choice.place for choice in advice.ranking.choices].count("all on the edge") == 1
    assert advice.extrapolated
    assert (advice.runner_up.point, advice.runner_up.backend) == ("3", "tcp")
    assert not advice.ranking.crossovers or advice.ranking.crossovers[0].along == "delay"


def test_all_on_the_server():
    advice = asked(FAST_LINK)
    assert (advice.best.point, advice.best.backend) == ("0", "tcp")
    assert advice.extrapolated


def test_the_way_back_counts_and_is_told():
    advice = asked(Network(0.0005, 2e9, 0.2, 1e6))
    assert advice.best.place == "all on the edge"
    assert "200 ms" in sentence(advice)
    assert "1 Mbit/s" in sentence(advice)


def test_a_measured_network_is_not_predicted():
    rows = world.trials()
    # At this profile the truth is not what arithmetic says.
    there = (rows["netem"] == "slow") & (rows["point"] == "3")
    rows.loc[there, "latency_s"] -= 0.100
    advice = asked(world.PROFILES["slow"], rows)
    measured = rows[there & (rows["backend"] == "tcp")]["latency_s"].median()
    assert advice.ranking.profile == "slow"
    assert advice.best.latency_s == pytest.approx(measured)
    assert advice.best.point == "3"
    elsewhere = asked(replace(world.PROFILES["slow"], rate_bps=5.001e6), rows)
    assert not elsewhere.ranking.profile
    assert "measured at slow" in sentence(advice)
    assert "measured" not in sentence(elsewhere)


def test_a_constraint_is_on_the_figures_of_that_network():
    of_rpc = asked(FAST_LINK, where="backend == rpc").best
    assert (of_rpc.point, of_rpc.backend) == ("0", "rpc")
    assert asked(SLOW_LINK, where="backend == rpc").best.place == "all on the edge"
    assert asked(SLOW_LINK, where="edge_s < 50ms").best.point == "3"
    assert asked(BETWEEN, where="throughput_ips > 60 and latency_s < 1").best.point == "1"
    with pytest.raises(UserError, match="'latency_s < 1ms'"):
        asked(BETWEEN, where="latency_s < 1ms")
    with pytest.raises(UserError, match="latncy"):
        asked(BETWEEN, where="latncy_s < 1ms")


def test_exact_ties_are_a_toss_up():
    rows = world.trials(backends=("tcp",))
    both = pd.concat([rows.assign(backend=f"tcp:{label}") for label in "ab"], ignore_index=True)
    advice = asked(FAST_LINK, both)
    assert advice.behind == 0
    assert advice.sure == "a toss-up"
    assert [choice.probability for choice in advice.ranking.contenders] == pytest.approx([0.5, 0.5], abs=0.05)
    said = sentence(advice)
    assert said.index("tcp:a") < said.index("tcp:b")


def test_two_rounds_say_nothing_of_how_sure():
    advice = asked(SLOW_LINK, world.trials(rounds=2))
    assert math.isnan(advice.best.probability)
    assert advice.sure == ""
    assert math.isnan(advice.best.latency_low_s)
    assert "95 %" not in shown(advice)


def test_five_rounds_have_a_probability_and_no_interval():
    advice = asked(SLOW_LINK, world.trials(rounds=5))
    assert advice.best.probability > 0.95
    assert math.isnan(advice.best.latency_high_s)


def test_a_point_of_few_rounds_has_no_say_of_its_own():
    rows = world.trials(rounds=6)
    rows.loc[(rows["point"] == "3") & (rows["round"] > 2), "status"] = "invalid"
    advice = asked(SLOW_LINK, rows)
    (third,) = (c for c in advice.ranking.choices if c.point == "3" and c.backend == "tcp")
    assert math.isnan(third.probability)
    assert math.isnan(third.latency_low_s)
    assert not math.isnan(advice.best.latency_low_s)


def test_never_sure_of_less_than_predictions_are_off():
    rows = world.trials(noise=0.002)
    close = asked(BETWEEN, rows)
    assert max(choice.probability for choice in close.ranking.choices) > 0.95
    # Another link than it says: predictions are off by far more than what tells the points apart.
    rows.loc[(rows["netem"] == "fast") & (rows["payload_bytes"] > 0), ["network_s", "latency_s"]] += 0.050
    off = asked(BETWEEN, rows)
    assert off.behind < off.validation.latency_median
    assert not off.best.probability > 0.9
    assert (off.best.point, off.best.backend) == ("1", "tcp")
    assert "toss-up" in sentence(off) or "how sure" in sentence(off)


def test_predicted_from_one_profile_nothing_is_said_of_how_sure():
    only = {"middle": world.PROFILES["middle"]}
    assert math.isnan(asked(BETWEEN, profiles=only).best.probability)
    assert asked(world.PROFILES["middle"], profiles=only).best.probability > 0.5, "measured there"


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ({"status": "failed"}, {}),
        ({"point": "1+3"}, {}),
        ({"netem": "driving"}, {}),
        ({}, {"model": "other"}),
        ({}, {"objective": "energy"}),
    ],
    ids=["no valid trial", "a chain", "a link that changes", "another model", "another objective"],
)
def test_bad_input_is_one_line(change, options, snapshot):
    with pytest.raises(UserError) as error:
        asked(BETWEEN, world.trials().assign(**change), **options)
    assert "\n" not in str(error.value)
    assert str(error.value) == snapshot


def test_one_model_and_one_workload_are_chosen(snapshot):
    two = pd.concat([world.trials(rounds=3), world.trials(rounds=3, model="other_net")], ignore_index=True)
    with pytest.raises(UserError) as several_models:
        asked(BETWEEN, two)
    assert asked(BETWEEN, two, model="othernet").title == "other_net"
    sizes = pd.concat([world.trials(rounds=3), world.trials(rounds=3, batch_size=8)], ignore_index=True)
    with pytest.raises(UserError) as several_sizes:
        asked(BETWEEN, sizes)
    assert asked(BETWEEN, sizes, where="batch_size == 8").title == "net, batch size 8"
    with pytest.raises(UserError) as nothing:
        asked(BETWEEN, world.trials().iloc[:0])
    assert [str(refused.value) for refused in (several_models, several_sizes, nothing)] == snapshot


def test_the_same_input_gives_the_same_advice():
    rows = world.trials(noise=0.1)
    assert asked(BETWEEN, rows) == asked(BETWEEN, rows)
