"""The answer of each condition in a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.advice import advise as advise_module
from analysis.advice.advise import answers
from analysis.advice.network import Network
from analysis.runs.load import load, stages
from analysis.wording import duration, rate
from pareto.constants import GOODPUT
from tests.unit import example_run
from tests.unit import simulated_network as world


def told(
    rows: pd.DataFrame | None = None, profiles: Mapping[str, Network] = world.PROFILES, **options: Any
) -> list[str]:
    rows = world.trials(profiles, noise=0.001) if rows is None else rows
    return answers(rows, world.stages(rows), [world.manifest(profiles)], **options)


def test_each_profile_has_its_sentence_and_the_figures_are_measured():
    rows = world.trials(noise=0.001)
    slow, middle, fast = told(rows)
    median_s = rows[rows["point"] == "4"]["latency_s"][rows["netem"] == "slow"].median()
    assert duration(median_s) in slow
    assert re.search(r"net at slow: .* edge", slow)
    assert re.search(r"net at middle: .* 1 over tcp \(sends 150 kB\): 55", middle)
    gains = re.search(r" (\S+) % .* edge .* (\S+) % .* server; ", middle)
    truth = world.latency_s(world.PROFILES["middle"], "tcp")
    assert float(gains[1]) == pytest.approx(100 * (1 - truth[1] / truth[4]), abs=0.5)
    assert float(gains[2]) == pytest.approx(100 * (1 - truth[1] / truth[0]), abs=0.5)
    assert re.search(r"net at fast: .* 1 over tcp \(sends 150 kB\): 2", fast)


def test_each_kind_of_sentence_in_words(snapshot):
    known = {"near": Network(0.006, 1e6), "middle": world.PROFILES["middle"]}
    server = {"fast": Network(0.0005, 2e9), "slower": Network(0.0005, 1e6)}
    two = pd.concat(
        [world.trials(backends=("tcp",), noise=0.001).assign(backend=f"tcp:{label}") for label in "ab"],
        ignore_index=True,
    )
    assert {
        "each profile": told(),
        "from a rate on": told(profiles=known)[0],
        "below a rate": told(world.trials(server, noise=0.001, server_s=world.SERVER_S / 10), server)[0],
        "beyond the profiles": told(profiles={"near": Network(0.006, 1e6)}),
        "three rounds": told(world.trials(known, rounds=3, noise=0.001), known)[0],
        "two rounds": told(world.trials(rounds=2, noise=0.001))[0],
        "a toss-up": told(two)[1],
        "throughput": told(world.trials(noise=0.001, backends=("tcp",)), objective="throughput")[-1],
        "a constraint": told(where="edge_s < 50ms")[0],
        "nobody meets it": told(where="latency_s < 1us")[0],
    } == snapshot


def test_the_rate_from_which_a_split_pays_is_the_true_one():
    profiles = {"near": Network(0.006, 1e6), "middle": world.PROFILES["middle"]}
    near, _ = told(profiles=profiles, rows=world.trials(profiles, noise=0.001))
    unlimited = world.latency_s(Network(0.006, np.inf), "tcp")
    rates_bps = 8 * world.PAYLOAD_BYTES[:-1] / GOODPUT / (0.060 - unlimited[:-1])
    told_rate = rate(rates_bps[rates_bps > 0].min())
    assert f" {told_rate} " in near.partition("predicted")[2].partition("(")[0]


def test_a_split_that_never_pays():
    (only,) = told(profiles={"far": Network(0.2, 5e6)})
    assert not re.search(r"\d", only.partition("predicted")[2])


def test_all_on_the_server_and_below_what_rate_it_is_not():
    server = world.SERVER_S / 10
    profiles = {"fast": Network(0.0005, 2e9), "slower": Network(0.0005, 1e6)}
    rows = world.trials(profiles, noise=0.001, server_s=server)
    fast, _ = told(rows, profiles)
    # Then cut 1 is as quick: 450 kB less to send, 10 ms and 0.3 ms less on the server more to compute.
    gain_s = world.EDGE_S[1] + server[1] - server[0]
    rate_bps = 8 * 450e3 / GOODPUT / (gain_s - world.B_S_PER_BYTE * 450e3)
    below = re.search(
        r"server over tcp \(.*\): .*predicted: .* 1 over tcp .* below (\d+) Mbit/s \(95 %: \d+ to \d+ Mbit/s\)$",
        fast,
    )
    assert float(below[1]) == pytest.approx(rate_bps / 1e6, rel=0.01)


def test_a_rate_beyond_the_profiles_is_extrapolated():
    (only,) = told(profiles={"near": Network(0.006, 1e6)})
    assert only.endswith("extrapolated")
    within, _ = told(profiles={"near": Network(0.006, 1e6), "middle": world.PROFILES["middle"]})
    assert "extrapolated" not in within


def test_without_an_interval_it_may_pay():
    profiles = {"near": Network(0.006, 1e6), "middle": world.PROFILES["middle"]}
    near, _ = told(profiles=profiles, rows=world.trials(profiles, rounds=3, noise=0.001))
    assert "may pay" in near
    assert "95 %" not in near
    assert "may pay" not in told(profiles=profiles)[0]


def test_runs_that_mean_different_links_by_one_name_are_told_without_a_prediction():
    rows = world.trials(noise=0.001)
    other = world.manifest({**world.PROFILES, "slow": Network(0.3, 7e6)})
    slow, middle, _ = answers(rows, world.stages(rows), [world.manifest(), other])
    assert "predicted" not in slow
    assert slow == told(rows)[0].partition(";")[0]
    assert middle.startswith(told(rows)[1].partition("; predicted")[0])


def test_few_rounds_and_ties_are_told():
    few, *_ = told(world.trials(rounds=2, noise=0.001))
    assert "2 rounds" in few
    rows = world.trials(backends=("tcp",), noise=0.001)
    both = pd.concat([rows.assign(backend=f"tcp:{label}") for label in "ab"], ignore_index=True)
    _, middle, _ = told(both)
    assert re.search(
        r"1 over tcp:a \(sends 150 kB, \S+ ms, p 0.\d+\) .* 1 over tcp:b \(sends 150 kB, \S+ ms, p 0.\d+\)$",
        middle,
    )


def test_what_is_likely_is_probable():
    sentences = [
        said for seed in range(12) for said in told(world.trials(noise=0.05, seed=seed, backends=("tcp",)))
    ]
    likely = [said for said in sentences if "probably" in said]
    assert likely
    for said in likely:
        p = float(re.search(r"probably \(p (0\.\d+)\) ", said).group(1))
        assert 0.8 <= p <= 0.95


def test_throughput():
    *_, fast = told(world.trials(noise=0.001, backends=("tcp",)), objective="throughput")
    assert re.search(r" 1 over tcp \(sends 150 kB\): 100 images/s, 6 .* 20 % ", fast)


def test_a_constraint():
    slow, *_ = told(where="edge_s < 50ms")
    assert "3 over tcp" in slow
    assert "'latency_s < 1us'" in told(where="latency_s < 1us")[0]


def test_points_that_are_not_feasible_in_the_front_do_not_count(snapshot):
    rows = world.trials(noise=0.001)
    rows.loc[rows["point"] == "4", "backend"] = ""
    cells = rows.drop_duplicates(["netem", "backend", "point"]).copy()
    cells["feasible"] = (
        (cells["netem"] == "slow") & cells["point"].isin(["2", "4"]) & (cells["backend"] != "tcp")
    )
    slow, middle, _ = told(rows, front=cells)
    assert "all on the edge" in slow
    assert middle == snapshot
    cells["feasible"] &= cells["point"] != "4"
    assert "2 over rpc" in told(rows, front=cells)[0]


@pytest.mark.parametrize(
    ("dtype", "batch_size", "words"),
    [
        ({"input": "uint8"}, 1, "(a uint8 image of 600 kB)"),
        ({}, 1, "(a float32 image of 600 kB)"),
        ({"input": "uint8"}, 8, "(8 uint8 images of 600 kB together)"),
        (None, 1, "(sends 600 kB)"),
    ],
)
def test_it_says_what_is_sent(dtype, batch_size, words):
    rows = world.trials(noise=0.001, server_s=world.SERVER_S / 10).assign(batch_size=batch_size)
    rows = rows[rows["point"].isin(["0", "4"])]
    manifest = world.manifest() | (
        {} if dtype is None else {"models": {"net": {"weights": "seeded", **dtype}}}
    )
    *_, fast = answers(rows, world.stages(rows), [manifest])
    assert f"send the input to the server over tcp {words}: " in fast


@pytest.mark.parametrize(
    ("points", "missing"),
    [
        ("12", "all on the server and all on the edge have no valid trial"),
        ("012", "all on the edge has no valid trial"),
        ("124", "all on the server has no valid trial"),
        ("0124", ""),
    ],
)
@pytest.mark.parametrize("noise", [0.001, 0.05])
def test_a_cut_that_was_not_compared_with_an_end_says_so(points, missing, noise):
    rows = world.trials(noise=noise)
    _, middle, _ = told(rows[rows["point"].isin(list(points))])
    assert ("1 over tcp" in middle, "no valid trial" in middle) == (True, bool(missing))
    assert missing in middle
    if noise < 0.01:
        _, constrained, _ = told(rows[rows["point"].isin(list(points))], where="payload_bytes > 0")
        assert ("no valid trial" in constrained) == bool(missing), "what is ruled out was measured"


def test_conditions_without_a_valid_trial_say_so(snapshot):
    rows = world.trials(noise=0.001)
    rows.loc[rows["netem"] == "slow", "status"] = "invalid"
    slow, middle, _ = told(rows)
    assert slow == snapshot
    assert " 1 over tcp" in middle
    failed = told(rows.assign(status="failed"))
    assert failed == [slow.replace("slow", name) for name in world.PROFILES]
    assert told(rows.iloc[:0]) == []


def test_a_link_that_changes_has_its_best_point_and_no_crossover():
    rows = world.trials(noise=0.001)
    slow, *_ = answers(rows, world.stages(rows), [{}])
    assert slow == told(rows)[0].partition(";")[0]


def test_a_chain_has_its_best_point():
    rows = world.trials({"slow": world.PROFILES["slow"]}, noise=0.001)
    rows["point"] = rows["point"].map({"0": "0+0", "1": "1+1", "2": "1+3", "3": "3+3", "4": "4+4"})
    (only,) = told(rows)
    assert re.fullmatch(r"net at slow: .* edge: (60|59\.9|60\.1) ms", only), "and no prediction"
    (only,) = told(rows, where="edge_s < 50ms")
    assert "3+3 over tcp" in only


def test_batch_size_codec_depth_and_setup_are_named(snapshot):
    rows = world.trials(
        rounds=3, batch_size=8, codec="zip", in_flight_asked="4", setup="lab B", in_flight=4.0
    )
    assert told(rows)[0].partition(": ")[0] == snapshot


def test_many_conditions_are_cut_off(monkeypatch, snapshot):
    monkeypatch.setattr(advise_module, "MOST", 2)
    rows = pd.concat([world.trials(rounds=1, model=f"net{number}") for number in range(3)], ignore_index=True)
    said = told(rows)
    assert len(said) == 4
    assert said[-1] == snapshot


def test_a_run_folder_without_stages(tmp_path):
    profiles = {"200ms-5mbit": Network(0.2, 5e6)}
    run = example_run.write(tmp_path / "example", example_run.trials(rounds=6), **world.manifest(profiles))
    (only,) = answers(load([run]), stages([run]), [world.manifest(profiles)])
    assert re.match(r"mobilenetv2 at 200ms-5mbit: .* edge: 3\d(\.\d)? ms; predicted: ", only)


def test_the_same_input_gives_the_same_sentences():
    rows = world.trials(noise=0.05)
    assert told(rows) == told(rows)
