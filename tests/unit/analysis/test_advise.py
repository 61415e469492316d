"""Advice against a model whose true times are known, and what it says where it does not know; and when runs are advised
on by the model profile that they keep. And the points that hold an SLO."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

import pareto
from pareto.analysis.advice.advise import Advice, Kept, kept
from pareto.analysis.advice.under_load import latency_s, sentence
from pareto.analysis.naming import USUAL
from pareto.analysis.prediction.compared import FOLDER
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import Joined, Run
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.tables.advice import advice_table
from pareto.protocol.constants import GOODPUT
from pareto.protocol.errors import UserError
from pareto.sweep.load import Load, parse, slo
from tests import REPOSITORY
from tests.program import command, well
from tests.unit import example_codecs as coded
from tests.unit import simulated_network as world
from tests.unit.analysis.test_answers import MIDDLE, by_engines
from tests.unit.analysis.test_model_profile import profile
from tests.unit.refusals import refusal
from tests.unit.simulated_network import advised

SLOW_LINK, FAST_LINK, BETWEEN = Network(0.1, 1e6), Network(0.0005, 2e9), Network(0.01, 80e6)
ANOTHER_WAY_BACK = Network(0.0005, 2e9, 0.2, 1e6)
EXACT = world.trials(noise=0.0)


def shown(advice: Advice) -> str:
    console = Console(width=80, no_color=True)
    with console.capture() as said:
        console.print(advice_table(advice))
    text = said.get()
    assert all(len(line) <= 80 for line in text.splitlines())
    return text


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("network", [SLOW_LINK, FAST_LINK, BETWEEN, ANOTHER_WAY_BACK])
def test_the_best_point_is_the_true_one(network: Network, objective: str) -> None:
    choices = advised(network, objective=objective).ranking.choices
    best = choices.iloc[0]
    figures = choices["latency_s" if objective == "latency" else "throughput_ips"]
    truth = world.latency_s(network, "tcp")
    if objective == "throughput":
        truth = 1 / world.throughput_ips(replace(network, rate_back_bps=math.inf))
    if objective == "latency" or math.isinf(network.rate_back_bps):
        assert best["point"] == str(np.argmin(truth))
        least = truth.min() if objective == "latency" else 1 / truth.min()
        assert figures.iloc[0] == pytest.approx(least, rel=0.05)
    low, high = (best[figures.name.replace("_", f"_{end}_")] for end in ("low", "high"))
    assert low <= figures.iloc[0] <= high
    assert figures.is_monotonic_increasing if objective == "latency" else figures.is_monotonic_decreasing
    assert choices["place"].tolist().count("all on the edge") == 1
    again = advised(network, world.trials(), objective=objective).ranking.choices
    pd.testing.assert_frame_equal(choices, again)


def test_few_rounds_have_no_probability_and_no_interval() -> None:
    for rounds, is_sure, has_interval in ((2, False, False), (5, True, False), (6, True, True)):
        advice = advised(SLOW_LINK, world.trials(rounds=rounds))
        best = advice.ranking.best
        assert (best["probability"] > 0.95, advice.ranking.sure) == (is_sure, "sure" * is_sure)
        assert math.isnan(best["latency_low_s"]) != has_interval
        assert ("95 %" in shown(advice)) == has_interval


def test_each_kind_of_answer_in_words(snapshot: SnapshotAssertion) -> None:
    """Without noise, so that the figures are exact."""
    of = {
        "all on the edge": advised(SLOW_LINK, EXACT),
        "all on the server": advised(FAST_LINK, EXACT),
        "a cut": advised(BETWEEN, EXACT),
        "throughput": advised(BETWEEN, EXACT, objective="throughput"),
        "another way back": advised(ANOTHER_WAY_BACK, EXACT),
        "measured": advised(world.PROFILES["slow"], EXACT),
        "few rounds": advised(SLOW_LINK, world.trials(rounds=2, noise=0.0)),
    }
    assert {kind: str(advice) for kind, advice in of.items()} == snapshot


def test_a_measured_network_is_not_predicted() -> None:
    rows, slow = world.trials(), world.PROFILES["slow"]
    # At this profile the truth is not what arithmetic says.
    there = (rows["netem"] == "slow") & (rows["point"] == "3")
    rows.loc[there, "latency_s"] -= 0.100
    here, elsewhere = (advised(of, rows) for of in (slow, replace(slow, rate_bps=5.001e6)))
    measured = rows[there & (rows["backend"] == "tcp")]["latency_s"].median()
    assert (here.ranking.profile, here.ranking.best["point"]) == ("slow", "3")
    assert here.ranking.best["latency_s"] == pytest.approx(measured)
    assert not elsewhere.ranking.profile
    assert "measured at slow" in str(here) and "measured" not in str(elsewhere)


@pytest.mark.parametrize(
    ("network", "where", "point", "backend"),
    [
        (FAST_LINK, "backend == rpc", "0", "rpc"),
        (SLOW_LINK, "backend == rpc", "4", "none"),
        (SLOW_LINK, "edge_s < 50ms", "3", "tcp"),
        (BETWEEN, "throughput_ips > 60 and latency_s < 1", "1", "tcp"),
    ],
)
def test_a_constraint_is_on_the_figures_of_that_network(network, where, point, backend) -> None:
    best = advised(network, where=where).ranking.best
    assert (best["point"], best["backend"]) == (point, backend)


@pytest.mark.parametrize("profiles", [world.PROFILES, MIDDLE], ids=["many", "one"])
def test_the_table(profiles: dict[str, Network], snapshot: SnapshotAssertion) -> None:
    assert shown(advised(Network(0.006, 20e6), profiles=profiles)) == snapshot
    elsewhere, there = (advised(of, profiles=profiles).ranking for of in (BETWEEN, world.PROFILES["middle"]))
    assert math.isnan(elsewhere.best["probability"]) == (profiles is MIDDLE), "predicted from one profile"
    assert there.best["probability"] > 0.5, "measured there"


@pytest.mark.deep
def test_a_point_of_few_rounds_has_no_say_of_its_own() -> None:
    rows = world.trials(rounds=6)
    rows.loc[(rows["point"] == "3") & (rows["round"] > 2), "status"] = "invalid"
    ranked = advised(SLOW_LINK, rows).ranking
    third = ranked.choices.query("point == '3' and backend == 'tcp'")
    assert third[["probability", "latency_low_s"]].isna().all(axis=None)
    assert not math.isnan(ranked.best["latency_low_s"])


def test_never_sure_of_less_than_predictions_are_off() -> None:
    rows = world.trials(noise=0.002)
    assert advised(BETWEEN, rows).ranking.choices["probability"].max() > 0.95
    # Another link than it says: predictions are off by far more than what tells the points apart.
    rows.loc[(rows["netem"] == "fast") & (rows["payload_bytes"] > 0), ["network_s", "latency_s"]] += 0.050
    off = advised(BETWEEN, rows)
    best, second = off.ranking.choices["latency_s"].iloc[:2]
    assert second / best - 1 < off.validation.errors["latency"].median
    assert not off.ranking.best["probability"] > 0.9
    assert off.ranking.best[["point", "backend"]].tolist() == ["1", "tcp"]
    assert "toss-up" in str(off) or "how sure" in str(off)


SIZES, MODELS = (
    pd.concat([world.trials(rounds=3), world.trials(rounds=3, **other)], ignore_index=True)
    for other in ({"batch_size": 8}, {"model": "other_net"})
)


def test_bad_input_is_one_line(snapshot: SnapshotAssertion) -> None:
    asked: dict[str, tuple[pd.DataFrame, dict[str, Any]]] = {
        "no valid trial": (EXACT.assign(status="failed"), {}),
        "a chain": (EXACT.assign(point="1+3"), {}),
        "a link that changes": (EXACT.assign(netem="driving"), {}),
        "another model": (EXACT, {"model": "other"}),
        "another objective": (EXACT, {"objective": "energy"}),
        "nobody meets it": (EXACT, {"where": "latency_s < 1ms"}),
        "no such column": (EXACT, {"where": "latncy_s < 1ms"}),
        "several models": (MODELS, {}),
        "several batch sizes": (SIZES, {}),
        "no trial": (EXACT.iloc[:0], {}),
    }
    each = asked.items()
    said = {name: refusal(UserError, advised, BETWEEN, rows, **more) for name, (rows, more) in each}
    assert said == snapshot


def test_one_model_and_one_workload_are_chosen() -> None:
    assert advised(BETWEEN, MODELS, model="othernet").title == "other_net"
    assert advised(BETWEEN, SIZES, where="batch_size == 8").title == "net, batch size 8"


def test_advice_is_among_all_engines_by_their_own_stages(snapshot: SnapshotAssertion) -> None:
    rows = by_engines("eager", "onnx")
    advice = advised(Network(0.010, 200e6), rows, MIDDLE)
    assert advice.ranking.best["engine"] == "onnx"
    assert shown(advice) == snapshot
    far = Network(0.010, 10e6)
    choices = advised(far, rows, MIDDLE, where='engine == "eager"').ranking.choices
    assert choices["latency_s"].iloc[0] == pytest.approx(world.latency_s(far, "tcp").min(), rel=0.03)
    assert set(choices["engine"]) == {"eager"}


def test_a_limit_on_quality_chooses_among_codecs(snapshot: SnapshotAssertion) -> None:
    between, exact, noisy = (
        Network(coded.DELAY_S, 20e6, coded.DELAY_S),
        coded.measured(),
        coded.measured(0.01),
    )

    def over(rows: pd.DataFrame, where: str = "", network: Network = between) -> Advice:
        return advised(network, rows, coded.PROFILES, where=where)

    with pytest.raises(UserError, match=r"codec .none., .zstd.*agreement >= 0.99"):
        over(exact)
    assert over(exact, "codec == none").ranking.best["codec"] == "none"
    strict, loose = (over(noisy, where) for where in ("agreement >= 0.99", "accuracy >= 95%"))
    assert strict.ranking.best[["codec", "point"]].tolist() == ["fp16", "3"]
    # 8 x 50 kB at TCP's share of 20 Mbit/s, 10 ms, 86 ms of stages and 0.1 ms to encode.
    assert strict.ranking.best["latency_s"] == pytest.approx(8 * 50e3 / 20e6 / GOODPUT + 0.0961, rel=0.01)
    assert loose.ranking.best[["codec", "point"]].tolist() == ["int8", "0"]
    assert loose.ranking.choices["place"].tolist().count("all on the edge") == 1
    # Shares of draws that are nearly equal: the last digit depends on the processor.
    table = re.sub(r"(?<=\.\d\d )\d\.\d\d(?= *$)", "p", shown(loose), flags=re.MULTILINE)
    assert [str(strict), str(loose), table] == snapshot
    of_int8 = over(exact, "codec == int8", Network(coded.DELAY_S, 5e6, coded.DELAY_S)).ranking.choices
    third = of_int8[of_int8["point"] == "3"].iloc[0]
    assert third["latency_s"] == pytest.approx(8 * 25e3 / 5e6 / GOODPUT + 0.0962, rel=1e-3)
    assert not math.isnan(third["throughput_ips"])


FAR, NEAR = Network(0.1, 5e6), Network(0.02, 30e6)
CELL = {"model": "small", "netem": "far", "batch_size": 1, **USUAL, "setup": "", "backend": "tcp"}
MEASURED = {**CELL, "point": "2", "status": "ok", "latency_s": 0.3}
STRUCK = {**CELL, "point": "1", "how": "physics"}


def joined(folder: Path, *trials: dict[str, Any], struck: tuple[dict[str, Any], ...] = (STRUCK,)) -> Joined:
    """A search's run that keeps two model profiles."""
    for made_at in ("2026-01-01", "2026-02-02"):
        own = folder / FOLDER / made_at
        own.mkdir(parents=True)
        replace(profile(), made_at=made_at).write(own)
    manifest = world.manifest({"far": FAR}) | {
        "models": {"small": {"graph_digest": profile().graph_digest}},
        "sweep": {"edge_cpu": 0.25},
    }
    frame = pd.DataFrame([MEASURED, *trials])
    off = pd.DataFrame(struck, columns=[*CONDITION, "backend", "point", "how"])
    return Joined([Run(folder, manifest)], frame, frame, [], off)


def test_the_latest_profile_that_fits_is_taken(tmp_path: Path) -> None:
    runs = joined(tmp_path)
    assert kept(runs, NEAR) == Kept(tmp_path / FOLDER / "2026-02-02", 1, "auto", 1)
    assert kept(runs, NEAR, "Small", "payload_bytes > 0 and latency_s < 1") is not None
    assert kept(runs, NEAR, where="edge_s < 1") is None, "no profile knows it"
    assert kept(runs, FAR) is None, "the search is of this very network"
    runs.runs[0].manifest["models"]["small"]["graph_digest"] = "cd" * 32
    assert kept(runs, NEAR) is None


@pytest.mark.parametrize(
    ("rows", "same", "struck", "by_profile"),
    [
        pytest.param([{**MEASURED, "batch_size": 8}], {}, STRUCK, False, id="two workloads"),
        pytest.param([{**MEASURED, "point": "1"}], {}, STRUCK, False, id="another run measured it"),
        pytest.param([{**MEASURED, "setup": "slower"}], {}, STRUCK, False, id="two setups"),
        pytest.param([], {"engine": "onnx"}, STRUCK, False, id="an engine"),
        pytest.param([], {"codec": "int8"}, STRUCK, False, id="a codec"),
        pytest.param([], {}, {**STRUCK, "how": "rounds"}, False, id="by rounds"),
        pytest.param([], {}, STRUCK, True, id="none of these"),
    ],
)
def test_trials_that_leave_nothing_out_or_that_no_profile_is_of_decide(
    tmp_path: Path, rows: list[Any], same: dict[str, str], struck: dict[str, Any], by_profile: bool
) -> None:
    runs = joined(tmp_path, *rows, struck=(struck,))
    runs.trials[[*same]], runs.struck[[*same]] = [*same.values()], [*same.values()]
    assert (kept(runs, NEAR) is not None) == by_profile


def test_a_chain_is_foreseen_whether_it_was_searched_or_not(tmp_path: Path) -> None:
    runs = joined(tmp_path, struck=())
    runs.trials["point"] = "1+2"
    assert kept(runs, FAR).unmeasured == 0


# The points that hold an SLO, as predicted: the waits of a queue of one server, and what is said of them

STEP_S, ALONE_S = 0.02, 0.05
ADVISE = ("advise", str(REPOSITORY / "results/example"), "--latency", "20ms", "--rate", "30mbit")


def quantile(load: Load, share: float) -> float:
    """The latency that a share exceeds, of 50 ms alone, by Lindley's recursion over 200 000 random arrivals."""
    gaps_s = np.random.default_rng(7).exponential(1 / load.rate, 200_000)
    waited_s = np.zeros(len(gaps_s))
    for place, gap_s in enumerate(gaps_s[1:], 1):
        waited_s[place] = max(0.0, waited_s[place - 1] + STEP_S - gap_s)
    return ALONE_S + float(np.quantile(waited_s, 1 - share))


@pytest.mark.parametrize("share", [0.05, 0.01])
@pytest.mark.parametrize("rate", [10, 25, 40, 45])
def test_random_arrivals_wait_about_as_long_as_they_do(rate: int, share: float) -> None:
    """A little longer rather than shorter: an SLO that is said to hold does."""
    load = Load("poisson", rate, by_chance=True)
    (found,) = latency_s(np.array([ALONE_S]), np.array([STEP_S]), load, share)
    assert -0.03 <= found / quantile(load, share) - 1 <= 0.15


def test_what_comes_at_a_period_waits_for_nothing_and_what_cannot_keep_up_for_ever() -> None:
    alone, step = np.full(2, ALONE_S), np.array([0.0199, 0.0201])
    assert latency_s(alone, step, Load("50/s", 50), 0.05).tolist() == [ALONE_S, math.inf]


def test_said_which_points_hold_it_and_which_may(snapshot: object) -> None:
    points = pd.DataFrame(
        [
            ("tcp", "0", 0.05, 60.0), ("rpc", "0", 0.095, 40.0), ("tcp", "7", 0.03, 15.5),
            ("none", "9", 0.3, 90.0),
        ],
        columns=["backend", "point", "latency_s", "throughput_ips"],
    ).assign(batch_size=1)  # fmt: skip
    load = parse("15/s")
    assert load is not None
    said = [
        sentence(points, load, slo("p95 < 100ms"), spreads)
        for spreads in ((0.1, 0.1), (math.nan, math.nan), (0, 0))
    ]
    assert [*said, sentence(points, load, slo("p95 < 1ms"), (0.1, 0.05))] == snapshot


def test_advise_under_a_load(snapshot: object) -> None:
    done = well(*ADVISE, "--load", "poisson:10/s", "--slo", "p95 < 150ms")
    assert " ".join(done.out[done.out.index("under poisson") :].split()) == snapshot
    found = pareto.advise(ADVISE[1], "20ms", "30mbit", load="poisson:10/s", slo="p95 < 150ms")
    assert any("under poisson:10/s" in str(part) for part in found.parts)
    for asked in (
        ("--load", "9/s"),
        ("--load", "trace:x", "--slo", "max < 1s"),
        ("--load", "9/s", "--slo", "p7 < 1s"),
    ):
        refused = command(*ADVISE, *asked)
        assert (refused.code, refused.out) == (2, "") and refused.err.count("\n") == 1
        assert refused.err == snapshot(name=" ".join(asked))
