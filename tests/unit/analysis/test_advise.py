"""Advice against a model whose true times are known, and what it says where it does not know.

The answer of each condition in a sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from pareto.analysis.advice import advise as advise_module
from pareto.analysis.advice.advise import Advice, advise, answers, sentence
from pareto.analysis.naming import USUAL
from pareto.analysis.prediction.network import Network
from pareto.analysis.tables.advice import advice_table
from pareto.protocol.errors import UserError
from pareto.remote.link.units import duration
from tests.unit import simulated_network as world

SLOW_LINK, FAST_LINK, BETWEEN = Network(0.1, 1e6), Network(0.0005, 2e9), Network(0.01, 80e6)


EXACT = world.trials(noise=0.0)


def asked(
    network: Network,
    rows: pd.DataFrame | None = None,
    profiles: Mapping[str, Network] = world.PROFILES,
    **options: Any,
) -> Advice:
    if rows is None and profiles is world.PROFILES:
        return of_the_usual(network, tuple(options.items()))
    rows = world.trials(profiles) if rows is None else rows
    return advise(rows, world.stages(rows), [world.manifest(profiles)], network, **options)


@cache
def of_the_usual(network: Network, options: tuple[tuple[str, Any], ...]) -> Advice:
    """Advice by the usual trials; the same for all tests that ask for it."""
    rows = world.trials()
    return advise(rows, world.stages(rows), [world.manifest()], network, **dict(options))


def shown(advice: Advice) -> str:
    console = Console(width=80, no_color=True)
    with console.capture() as said:
        console.print(advice_table(advice))
    text = said.get()
    assert all(len(line) <= 80 for line in text.splitlines())
    return text


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("network", [SLOW_LINK, FAST_LINK, BETWEEN, Network(0.0005, 2e9, 0.2, 1e6)])
def test_the_best_point_is_the_true_one(network, objective):
    ranked = asked(network, objective=objective).ranking
    column = {"latency": "latency_s", "throughput": "throughput_ips"}[objective]
    best, figure = ranked.best, getattr(ranked.best, column)
    truth = world.latency_s(network, "tcp")
    if objective == "throughput":
        assert ranked.best.throughput_ips == pytest.approx(
            max(each.throughput_ips for each in ranked.choices)
        )
        truth = 1 / world.throughput_ips(replace(network, rate_back_bps=math.inf))
    if objective == "latency" or math.isinf(network.rate_back_bps):
        assert best.point == str(np.argmin(truth))
        assert figure == pytest.approx(truth.min() if objective == "latency" else 1 / truth.min(), rel=0.05)
    assert (
        getattr(best, column.replace("_", "_low_")) <= figure <= getattr(best, column.replace("_", "_high_"))
    )
    behind = [choice.behind(best, objective) for choice in ranked.choices]
    assert behind == sorted(behind) and behind[0] == 0
    assert [choice.place for choice in ranked.choices].count("all on the edge") == 1
    assert ranked == asked(network, world.trials(), objective=objective).ranking, (
        "the same input, the same advice"
    )


@pytest.mark.parametrize(
    ("rounds", "is_sure", "has_interval"), [(2, False, False), (5, True, False), (6, True, True)]
)
def test_few_rounds_have_no_probability_and_no_interval(rounds, is_sure, has_interval):
    advice = asked(SLOW_LINK, world.trials(rounds=rounds))
    best = advice.ranking.best
    assert (best.probability > 0.95, advice.ranking.sure) == (is_sure, "sure" * is_sure)
    assert math.isnan(best.latency_low_s) != has_interval
    assert ("95 %" in shown(advice)) == has_interval


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


def test_a_measured_network_is_not_predicted():
    rows = world.trials()
    # At this profile the truth is not what arithmetic says.
    there = (rows["netem"] == "slow") & (rows["point"] == "3")
    rows.loc[there, "latency_s"] -= 0.100
    advice = asked(world.PROFILES["slow"], rows)
    measured = rows[there & (rows["backend"] == "tcp")]["latency_s"].median()
    assert advice.ranking.profile == "slow"
    assert advice.ranking.best.latency_s == pytest.approx(measured)
    assert advice.ranking.best.point == "3"
    elsewhere = asked(replace(world.PROFILES["slow"], rate_bps=5.001e6), rows)
    assert not elsewhere.ranking.profile
    assert "measured at slow" in sentence(advice)
    assert "measured" not in sentence(elsewhere)


@pytest.mark.deep
def test_crossovers_are_those_of_the_map_whether_the_network_was_measured_or_not():
    rows = world.trials()
    rows.loc[(rows["netem"] == "fast") & (rows["point"] == "1"), "latency_s"] -= 0.0003
    link = world.PROFILES["fast"]
    measured = asked(link, rows).ranking
    predicted = asked(replace(link, rate_bps=1.0001 * link.rate_bps), rows).ranking
    assert (measured.profile, predicted.profile) == ("fast", "")
    assert len(measured.crossovers) > 1
    for one, other in zip(measured.crossovers, predicted.crossovers, strict=True):
        assert one.at == pytest.approx(other.at, rel=1e-3)


def test_a_constraint_is_on_the_figures_of_that_network():
    of_rpc = asked(FAST_LINK, where="backend == rpc").ranking.best
    assert (of_rpc.point, of_rpc.backend) == ("0", "rpc")
    assert asked(SLOW_LINK, where="backend == rpc").ranking.best.place == "all on the edge"
    assert asked(SLOW_LINK, where="edge_s < 50ms").ranking.best.point == "3"
    assert asked(BETWEEN, where="throughput_ips > 60 and latency_s < 1").ranking.best.point == "1"
    with pytest.raises(UserError, match="'latency_s < 1ms'"):
        asked(BETWEEN, where="latency_s < 1ms")
    with pytest.raises(UserError, match="latncy"):
        asked(BETWEEN, where="latncy_s < 1ms")


@pytest.mark.parametrize(
    "profiles", [world.PROFILES, {"middle": world.PROFILES["middle"]}], ids=["many", "one"]
)
def test_the_table(profiles, snapshot):
    assert shown(asked(Network(0.006, 20e6), profiles=profiles)) == snapshot


@pytest.mark.deep
def test_a_point_of_few_rounds_has_no_say_of_its_own():
    rows = world.trials(rounds=6)
    rows.loc[(rows["point"] == "3") & (rows["round"] > 2), "status"] = "invalid"
    advice = asked(SLOW_LINK, rows)
    (third,) = (c for c in advice.ranking.choices if c.point == "3" and c.backend == "tcp")
    assert math.isnan(third.probability)
    assert math.isnan(third.latency_low_s)
    assert not math.isnan(advice.ranking.best.latency_low_s)


def test_never_sure_of_less_than_predictions_are_off():
    rows = world.trials(noise=0.002)
    close = asked(BETWEEN, rows)
    assert max(choice.probability for choice in close.ranking.choices) > 0.95
    # Another link than it says: predictions are off by far more than what tells the points apart.
    rows.loc[(rows["netem"] == "fast") & (rows["payload_bytes"] > 0), ["network_s", "latency_s"]] += 0.050
    off = asked(BETWEEN, rows)
    assert (
        off.ranking.choices[1].behind(off.ranking.best, "latency") < off.validation.errors["latency"].median
    )
    assert not off.ranking.best.probability > 0.9
    assert (off.ranking.best.point, off.ranking.best.backend) == ("1", "tcp")
    assert "toss-up" in sentence(off) or "how sure" in sentence(off)


def test_predicted_from_one_profile_nothing_is_said_of_how_sure():
    only = {"middle": world.PROFILES["middle"]}
    assert math.isnan(asked(BETWEEN, profiles=only).ranking.best.probability)
    assert asked(world.PROFILES["middle"], profiles=only).ranking.best.probability > 0.5, "measured there"


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


def told(
    rows: pd.DataFrame | None = None, profiles: Mapping[str, Network] = world.PROFILES, **options: Any
) -> list[str]:
    if rows is None:
        return [*told_of(tuple(profiles.items()), tuple(options.items()))]
    return answers(rows, world.stages(rows), [world.manifest(profiles)], **options)


@cache
def told_of(profiles: tuple[tuple[str, Network], ...], options: tuple[tuple[str, Any], ...]) -> list[str]:
    rows = world.trials(dict(profiles), noise=0.001)
    return answers(rows, world.stages(rows), [world.manifest(dict(profiles))], **dict(options))


def test_each_kind_of_sentence_in_words(snapshot):
    known = {"near": Network(0.006, 1e6), "middle": world.PROFILES["middle"]}
    server = {"fast": Network(0.0005, 2e9), "slower": Network(0.0005, 1e6)}
    alike = world.trials(backends=("tcp",), noise=0.001)
    two = pd.concat(  # not equal: then the last bits, which depend on the processor, would decide
        [
            alike.assign(backend=f"tcp:{label}", latency_s=alike["latency_s"] * share)
            for label, share in (("a", 1.0), ("b", 1.0002))
        ],
        ignore_index=True,
    )
    many = world.trials(
        rounds=3, batch_size=8, codec="zip", in_flight_asked="4", setup="lab B", in_flight=4.0
    )
    failed = world.trials().assign(status="failed")
    assert {
        "each profile": told(),
        "from a rate on": told(profiles=known)[0],
        "below a rate": told(world.trials(server, noise=0.001, server_s=world.SERVER_S / 10), server)[0],
        "beyond the profiles": told(profiles={"near": Network(0.006, 1e6)}),
        "three rounds": told(world.trials(known, rounds=3, noise=0.001), known)[0],
        "two rounds": told(world.trials(rounds=2, noise=0.001))[0],
        "never": told(profiles={"far": Network(0.2, 5e6)})[0],
        "all that is named": told(many)[0],
        "no valid trial": told(failed),
        "no trial": told(failed.iloc[:0]),
        "a toss-up": told(two)[1],
        "a constraint": told(where="edge_s < 50ms")[0],
        "nobody meets it": told(where="latency_s < 1us")[0],
    } == snapshot


def test_an_answer_s_figures_are_measured_and_it_knows_its_condition():
    rows = world.trials(noise=0.001)
    slow, middle, fast = told()
    assert duration(rows[rows["point"] == "4"]["latency_s"][rows["netem"] == "slow"].median()) in slow
    gains = re.search(r" (\S+) % .* edge .* (\S+) % .* server; ", middle)
    truth = world.latency_s(world.PROFILES["middle"], "tcp")
    assert [float(gain) for gain in gains.groups()] == pytest.approx(
        [100 * (1 - truth[1] / truth[4]), 100 * (1 - truth[1] / truth[0])], abs=0.5
    )
    assert [answer.conditions for answer in (slow, middle, fast)] == [
        (("net", netem, "1", *USUAL.values(), ""),) for netem in world.PROFILES
    ]
    assert slow.sure and not told(world.trials(rounds=2, noise=0.001))[0].sure


@pytest.mark.parametrize("manifests", [[{}], [world.manifest(), world.manifest({"slow": Network(0.3, 7e6)})]])
def test_a_link_that_changes_or_is_two_by_one_name_has_its_best_point_and_no_prediction(manifests):
    rows = world.trials(noise=0.001)
    slow, middle, _ = answers(rows, world.stages(rows), manifests)
    assert slow == told()[0].partition(";")[0]
    assert middle.startswith(told()[1].partition("; predicted")[0])


def test_many_conditions_are_cut_off_and_one_without_a_valid_trial_says_so(monkeypatch):
    monkeypatch.setattr(advise_module, "MOST", 2)
    rows = pd.concat([world.trials(rounds=1, model=f"net{number}") for number in range(3)], ignore_index=True)
    rows.loc[rows["netem"] == "slow", "status"] = "invalid"
    first, *_, last = told(rows)
    assert (first, last) == (
        "net0 at slow: no valid trial",
        "and 6 more conditions: report on fewer runs to see them",
    )


def test_what_is_likely_is_probable():
    sentences = [
        said for seed in range(6, 9) for said in told(world.trials(noise=0.05, seed=seed, backends=("tcp",)))
    ]
    likely = [said for said in sentences if "probably" in said]
    assert likely
    for said in likely:
        p = float(re.search(r"probably \(sure (\d+) %\) ", said).group(1)) / 100
        assert 0.8 <= p <= 0.95


def test_points_that_are_not_feasible_in_the_front_do_not_count(snapshot):
    rows = world.trials(noise=0.001)
    rows.loc[rows["point"] == "4", "backend"] = "none"
    cells = rows.drop_duplicates(["netem", "backend", "point"]).copy()
    cells["feasible"] = (
        (cells["netem"] == "slow") & cells["point"].isin(["2", "4"]) & (cells["backend"] != "tcp")
    )
    slow, middle, _ = told(rows, front=cells)
    assert "everything on the edge" in slow
    assert middle == snapshot
    cells["feasible"] &= cells["point"] != "4"
    assert "2 over rpc" in told(rows, front=cells)[0]


@pytest.mark.parametrize(
    ("dtype", "batch_size", "words"),
    [
        ({"input": "uint8"}, 1, "(sends 600 kB of uint8)"),
        ({"input": "int64, float32, bool"}, 8, "(sends 600 kB of int64, float32 and bool)"),
        (None, 1, "(sends 600 kB)"),
    ],
)
def test_it_says_what_is_sent(dtype, batch_size, words):
    fast = {"fast": world.PROFILES["fast"]}
    rows = world.trials(fast, rounds=2, noise=0.001, server_s=world.SERVER_S / 10)
    rows = rows[rows["point"].isin(["0", "4"])].assign(batch_size=batch_size)
    manifest = world.manifest() | (
        {} if dtype is None else {"models": {"net": {"weights": "seeded", **dtype}}}
    )
    (said,) = answers(rows, world.stages(rows), [manifest])
    assert f"send the input to the server over tcp {words}: " in said


@pytest.mark.parametrize(
    ("points", "missing"),
    [
        ("12", "all on the server and all on the edge were not measured"),
        ("012", "all on the edge was not measured"),
        ("124", "all on the server was not measured"),
        ("0124", ""),
    ],
)
@pytest.mark.parametrize("noise", [0.001, pytest.param(0.05, marks=pytest.mark.deep)])
def test_a_cut_that_was_not_compared_with_an_end_says_so(points, missing, noise):
    rows = world.trials({"middle": world.PROFILES["middle"]}, noise=noise)
    (middle,) = told(rows[rows["point"].isin(list(points))])
    assert ("1 over tcp" in middle, "not measured" in middle) == (True, bool(missing))
    assert missing in middle
    if noise < 0.01:
        (constrained,) = told(rows[rows["point"].isin(list(points))], where="payload_bytes > 0")
        assert ("not measured" in constrained) == bool(missing), "what is ruled out was measured"


def test_a_chain_has_its_best_point():
    rows = world.trials({"slow": world.PROFILES["slow"]}, noise=0.001)
    rows["point"] = rows["point"].map({"0": "0+0", "1": "1+1", "2": "1+3", "3": "3+3", "4": "4+4"})
    (only,) = told(rows)
    assert re.fullmatch(r"net at slow: .* edge: (60|59\.9|60\.1) ms", only), "and no prediction"
    (only,) = told(rows, where="edge_s < 50ms")
    assert "3+3 over tcp" in only


def test_medians_over_unlike_rounds_are_no_comparison() -> None:
    """Point 1 lacks the rounds in which all are slow: its median is the least, and it loses each round that it has."""
    rows = world.trials({"slow": world.PROFILES["slow"]}, backends=("tcp",), rounds=12, noise=0.003)
    pace = np.where(rows["round"] > 6, 1.3, 1.0)
    edge_s = rows.loc[rows["point"] == "4"].set_index("round")["latency_s"]
    rows["latency_s"] = pace * rows["latency_s"].where(rows["point"] != "1", 1.05 * rows["round"].map(edge_s))
    rows = rows[(rows["point"] != "1") | (rows["round"] < 10)]
    (answer,) = answers(rows, world.stages(rows), [world.manifest()])
    assert "a toss-up" not in answer
    assert "within the rounds that both have all on the edge is better" in answer
