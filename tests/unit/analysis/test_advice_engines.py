"""Engines compete in an answer, which names one; and what each is best at, against a model whose times are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.advice.advise import Answer, advise, answers
from pareto.analysis.fronts.front import front
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import CONDITION, of_role
from pareto.protocol.errors import UserError
from tests.unit import simulated_network as world
from tests.unit.analysis.test_advise import shown

SPEED = {"eager": 1.0, "onnx": 0.25, "compile": 0.999}
NETWORK = world.PROFILES["middle"]
PROFILES = {"middle": NETWORK}


def trials(*engines: str, **asked: Any) -> pd.DataFrame:
    """Trials of engines; onnx computes in a quarter of the time."""
    parts = []
    for seed, engine in enumerate(engines):
        edge_s = world.EDGE_S * SPEED[of_role(engine, "edge")]
        server_s = world.SERVER_S * SPEED[of_role(engine, "server")]
        asked_of = {"noise": 0.005, "backends": ("tcp",), "profiles": PROFILES} | asked
        made = world.trials(edge_s=edge_s, server_s=server_s, seed=seed, **asked_of)
        parts.append(made.assign(engine=engine))
    return pd.concat(parts, ignore_index=True)


def told(rows: pd.DataFrame, **asked: Any) -> list[Answer]:
    return answers(rows, world.stages(rows), [world.manifest(PROFILES)], **asked)


def test_the_answer_names_point_and_engine_and_what_each_is_best_at(snapshot: SnapshotAssertion) -> None:
    first, each = told(trials("eager", "onnx"))
    best = world.latency_s(NETWORK, "tcp")
    assert np.argmin(best) == 1, "with eager a cut is best, with onnx the whole model on the edge"
    assert [first, each] == snapshot
    engines = [condition[CONDITION.index("engine")] for condition in first.conditions]
    assert engines == ["onnx", "eager"], "the engine that it chooses is first"
    assert first.sure


def test_an_engine_that_changes_the_results_does_not_win_by_it() -> None:
    rows = trials("eager", "onnx", "compile").assign(output_error=0.0)
    rows.loc[rows["engine"] == "onnx", "output_error"] = 0.04
    lines = told(rows)
    by_eager, of_onnx = lines[0], lines[-1]
    assert "onnx" not in by_eager
    assert by_eager.startswith("net at middle")
    assert of_onnx.startswith("net at middle, engine onnx: ")
    manifests, stages = [world.manifest(PROFILES)], world.stages(rows)
    with pytest.raises(UserError, match="onnx"):
        advise(rows, stages, manifests, NETWORK)
    limited = advise(rows, stages, manifests, NETWORK, where="output_error < 0.1")
    assert limited.ranking.best.engine == "onnx"


def test_what_the_front_rules_out_is_no_answer() -> None:
    rows = trials("eager", "onnx")
    ruled = front(rows, where="edge_s < 10ms", resamples=100)
    first, each = told(rows, front=ruled)
    assert "onnx" in first and "all on the edge" not in first
    assert "eager" in each


def test_engines_too_close_are_told_to_be(snapshot: SnapshotAssertion) -> None:
    rows = trials("eager", "compile", rounds=2)
    first, each = told(rows)
    assert "2 rounds: too few" in first
    assert "do not decide" in each
    assert each == snapshot
    first, each = told(trials("eager", "compile", noise=0.008))
    assert "probably" in first or "toss-up" in first
    assert "with compile the best split is that by eager" in each


def test_what_runs_the_same_competes_once() -> None:
    """All on the server, an engine of the edge is none: six rounds of each are twelve of one."""
    fast = {"middle": Network(0.0005, 2e9)}
    rows = trials("eager", "edge=compile", profiles=fast)
    first, each = answers(rows, world.stages(rows), [world.manifest(fast)])
    assert first.startswith("net at middle: send the input to the server over tcp by eager (")
    assert "toss-up" not in first
    assert "with edge=compile the best split is that by eager" in each


def test_one_engine_is_not_named() -> None:
    (only,) = told(trials("eager"))
    assert "eager" not in only
    (onnx,) = told(trials("eager", "onnx").query("engine == 'onnx'"))
    assert onnx.startswith("net at middle, engine onnx: keep everything on the edge: ")


def test_predictions_are_of_the_engines_own_stages() -> None:
    rows = trials("eager", "onnx")
    far = Network(0.010, 10e6)
    best = advise(rows, world.stages(rows), [world.manifest(PROFILES)], far, where='engine == "eager"')
    assert best.ranking.best.latency_s == pytest.approx(world.latency_s(far, "tcp").min(), rel=0.03)
    assert {each.engine for each in best.ranking.choices} == {"eager"}


def test_advice_is_among_all_engines(snapshot: SnapshotAssertion) -> None:
    rows = trials("eager", "onnx")
    advice = advise(rows, world.stages(rows), [world.manifest(PROFILES)], Network(0.010, 200e6))
    assert advice.ranking.best.engine == "onnx"
    assert shown(advice) == snapshot
