"""The answer of each condition in a sentence, what each engine is best at, and where codecs pay."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.advice import answers as module
from pareto.analysis.advice.answers import answers, of_codecs
from pareto.analysis.fronts.front import front
from pareto.analysis.naming import USUAL
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import Run
from pareto.analysis.runs.points import CONDITION, of_role
from pareto.protocol.errors import UserError
from pareto.remote.link.units import duration
from tests.unit import example_codecs as coded
from tests.unit import simulated_network as world
from tests.unit.simulated_network import told

SLOW, MIDDLE = ({name: world.PROFILES[name]} for name in ("slow", "middle"))


def test_each_kind_of_sentence_in_words(snapshot: SnapshotAssertion) -> None:
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
    failed, middle = world.trials().assign(status="failed"), world.trials(MIDDLE, noise=0.001)
    fast = world.trials({"fast": world.PROFILES["fast"]}, rounds=2, noise=0.001, server_s=world.SERVER_S / 10)
    ends = world.joined(fast[fast["point"].isin(["0", "4"])])
    inputs = [{"models": {"net": {"input": dtype}}} for dtype in ("uint8", "int64, float32, bool", "")]
    of_inputs = [replace(ends, runs=[Run(Path(), world.manifest() | models)]) for models in inputs]
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
        "what is sent": [each for of in of_inputs for each in answers(of)],
        "ends that were not measured": [
            told(middle[middle["point"].isin(list(points))], where=where)[0].partition(";")[0]
            for points in ("12", "012", "124", "0124")
            for where in ("", "payload_bytes > 0")
        ],
        "the edge alone": told(world.trials(SLOW).query("point == '4'").assign(netem="edge-only")),
    } == snapshot


def test_an_answer_s_figures_are_measured_and_it_knows_its_condition() -> None:
    rows, answered = world.trials(noise=0.001), told()
    edge_s = rows.loc[(rows["point"] == "4") & (rows["netem"] == "slow"), "latency_s"].median()
    assert duration(edge_s) in answered[0]
    gains = re.search(r" (\S+) % .* edge .* (\S+) % .* server; ", answered[1])
    truth = world.latency_s(world.PROFILES["middle"], "tcp")
    expected = [100 * (1 - truth[1] / truth[other]) for other in (4, 0)]
    assert [float(gain) for gain in gains.groups()] == pytest.approx(expected, abs=0.5)
    for answer, netem in zip(answered, world.PROFILES, strict=True):
        assert answer.conditions == (("net", netem, "1", *USUAL.values(), ""),)
    assert answered[0].sure and not told(world.trials(rounds=2, noise=0.001))[0].sure


def test_a_link_that_changes_or_is_two_by_one_name_has_its_best_point_and_no_prediction() -> None:
    for manifests in ([{}], [world.manifest(), world.manifest({"slow": Network(0.3, 7e6)})]):
        runs = [Run(Path(), manifest) for manifest in manifests]
        slow, middle, _ = answers(replace(world.joined(world.trials(noise=0.001)), runs=runs))
        assert slow == told()[0].partition(";")[0]
        assert middle.startswith(told()[1].partition("; predicted")[0])


def test_many_conditions_are_cut_off_and_one_without_a_valid_trial_says_so(monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    rows = pd.concat([world.trials(rounds=1, model=f"net{number}") for number in range(3)], ignore_index=True)
    rows.loc[rows["netem"] == "slow", "status"] = "invalid"
    first, *_, last = told(rows)
    assert first == "net0 at slow: no valid trial"
    assert last == "and 6 more conditions: report on fewer runs to see them"


def test_what_is_likely_is_probable() -> None:
    rows = [world.trials(noise=0.05, seed=seed, backends=("tcp",)) for seed in range(6, 9)]
    likely = re.findall(
        r"probably \(sure (\d+) %\) ", "; ".join(said for each in rows for said in told(each))
    )
    assert likely and all(80 <= int(percent) <= 95 for percent in likely)


def test_points_that_are_not_feasible_in_the_front_do_not_count(snapshot: SnapshotAssertion) -> None:
    rows = world.trials(noise=0.001)
    rows.loc[rows["point"] == "4", "backend"] = "none"
    cells = rows.drop_duplicates(["netem", "backend", "point"])
    cut = (cells["netem"] == "slow") & (cells["point"] == "2") & (cells["backend"] == "rpc")
    edge = (cells["netem"] == "slow") & (cells["point"] == "4")
    slow, middle, _ = told(rows, front=cells.assign(feasible=cut | edge))
    assert "everything on the edge" in slow and middle == snapshot
    assert "2 over rpc" in told(rows, front=cells.assign(feasible=cut))[0]


def test_a_chain_has_its_best_point_and_no_prediction() -> None:
    rows = world.trials(SLOW, noise=0.001)
    rows["point"] = rows["point"].map(dict(zip("01234", ("0+0", "1+1", "1+3", "3+3", "4+4"), strict=True)))
    (every,), (limited,) = told(rows), told(rows, where="edge_s < 50ms")
    assert re.fullmatch(r"net at slow: .* edge: (60|59\.9|60\.1) ms", every)
    assert "3+3 over tcp" in limited


def test_medians_over_unlike_rounds_are_no_comparison() -> None:
    """Point 1 lacks the rounds in which all are slow: its median is the least, and it loses each round that it has."""
    rows = world.trials(SLOW, backends=("tcp",), rounds=12, noise=0.003)
    pace = np.where(rows["round"] > 6, 1.3, 1.0)
    edge_s = rows.loc[rows["point"] == "4"].set_index("round")["latency_s"]
    rows["latency_s"] = pace * rows["latency_s"].where(rows["point"] != "1", 1.05 * rows["round"].map(edge_s))
    (answer,) = told(rows[(rows["point"] != "1") | (rows["round"] < 10)])
    assert "a toss-up" not in answer
    assert "within the rounds that both have all on the edge is better" in answer


SPEED = {"eager": 1.0, "onnx": 0.25, "compile": 0.999}


def by_engines(*engines: str, profiles: dict[str, Network] = MIDDLE, **asked: Any) -> pd.DataFrame:
    """Trials of engines; onnx computes in a quarter of the time."""
    parts = []
    for seed, engine in enumerate(engines):
        edge, server = (SPEED[of_role(engine, role)] for role in ("edge", "server"))
        known = {"noise": 0.005, "edge_s": edge * world.EDGE_S, "server_s": server * world.SERVER_S, **asked}
        parts.append(world.trials(profiles, backends=("tcp",), seed=seed, **known).assign(engine=engine))
    return pd.concat(parts, ignore_index=True)


def test_the_answer_names_point_and_engine_and_what_each_is_best_at(snapshot: SnapshotAssertion) -> None:
    rows = by_engines("eager", "onnx")
    first, each = told(rows, MIDDLE)
    best = world.latency_s(world.PROFILES["middle"], "tcp")
    assert np.argmin(best) == 1, "with eager a cut is best, with onnx the whole model on the edge"
    assert [first, each] == snapshot
    engines = [condition[CONDITION.index("engine")] for condition in first.conditions]
    assert engines == ["onnx", "eager"], "the engine that it chooses is first"
    assert first.sure
    ruled = front(rows, where="edge_s < 10ms")
    first, each = told(rows, MIDDLE, front=ruled)
    assert "onnx" in first and "all on the edge" not in first and "eager" in each


def test_an_engine_that_changes_the_results_does_not_win_by_it() -> None:
    rows = by_engines("eager", "onnx", "compile").assign(output_error=0.0)
    rows.loc[rows["engine"] == "onnx", "output_error"] = 0.04
    by_eager, *_, of_onnx = told(rows, MIDDLE)
    assert by_eager.startswith("net at middle") and "onnx" not in by_eager
    assert of_onnx.startswith("net at middle, engine onnx: ")
    network = world.PROFILES["middle"]
    with pytest.raises(UserError, match="onnx"):
        world.advised(network, rows, MIDDLE)
    limited = world.advised(network, rows, MIDDLE, where="output_error < 0.1")
    assert limited.ranking.best["engine"] == "onnx"


def test_engines_too_close_are_told_to_be(snapshot: SnapshotAssertion) -> None:
    first, each = told(by_engines("eager", "compile", rounds=2), MIDDLE)
    assert "2 rounds: too few" in first and "do not decide" in each
    assert each == snapshot
    first, each = told(by_engines("eager", "compile", noise=0.008), MIDDLE)
    assert "probably" in first or "toss-up" in first
    assert "with compile the best split is that by eager" in each


def test_what_runs_the_same_competes_once_and_one_engine_is_not_named() -> None:
    """All on the server, an engine of the edge is none: six rounds of each are twelve of one."""
    fast = {"middle": Network(0.0005, 2e9)}
    first, each = told(by_engines("eager", "edge=compile", profiles=fast), fast)
    assert first.startswith("net at middle: send the input to the server over tcp by eager (")
    assert "toss-up" not in first
    assert "with edge=compile the best split is that by eager" in each
    (only,) = told(by_engines("eager"), MIDDLE)
    assert "eager" not in only
    (onnx,) = told(by_engines("eager", "onnx").query("engine == 'onnx'"), MIDDLE)
    assert onnx.startswith("net at middle, engine onnx: keep everything on the edge: ")


def paying(rows: pd.DataFrame, struck: pd.DataFrame | None = None) -> list[str]:
    return of_codecs(world.joined(rows, coded.PROFILES, struck))


@cache
def usual(**fixed: Any) -> pd.DataFrame:
    return coded.measured(0.01, **fixed)


def test_the_sentences_on_codecs(snapshot: SnapshotAssertion) -> None:
    lines, few = paying(usual()), paying(usual(rounds=2))
    assert len(lines) == 2
    assert all("int8 pays from" in line and "agreement 98.5 %" in line for line in lines)
    assert "may pay" in few[0]
    slow = coded.measured()
    slow.loc[slow["codec"] == "zstd", ["latency_s", "serialize_s"]] += 5.0
    never = paying(slow)
    assert any(line.endswith("zstd pays at no rate") for line in never)
    assert [lines, few, never] == snapshot
    assert paying(coded.measured(codecs=("none",))) == []


def test_nothing_is_said_of_a_codec_without_a_valid_trial_in_a_network() -> None:
    rows = usual()
    quick, crossing = rows["netem"].eq("quick"), rows["payload_bytes"].gt(0)

    def said(lost: pd.Series, netem: str) -> list[str]:
        lines = paying(rows.assign(status=rows["status"].mask(lost, "invalid")))
        return [line for line in lines if f"at {netem}" in line]

    lost = quick & rows["codec"].eq("int8") & crossing
    (line,) = said(lost, "quick")
    assert "int8" not in line and "among the points measured here" in line
    assert not any("among" in line for line in said(lost, "slow"))
    assert not said(quick & (rows["codec"].eq("none") | ~crossing), "quick"), "nothing to compare with"
    off = rows[rows["netem"].eq("slow")].head(1).assign(codec="int8", point="7", payload_bytes=1e5)
    assert all("among" in line for line in paying(rows, off) if "at slow" in line)


def test_where_a_codec_does_nothing_its_cell_neither_pays_nor_costs() -> None:
    rows = coded.of_bytes(usual(codecs=("none", "zstd", "int8")))
    said = paying(rows)
    assert said == paying(rows.assign(stands_for=rows["codec"])), "int8 gains nothing by none's cell"
    assert all("int8 pays" in line for line in said)
    lines = told(rows, coded.PROFILES)
    assert sum("codec int8" in line for line in lines) == 2, "the cell at point 0 is a choice with int8, too"
    only = rows[rows["codec"].eq("none") | rows["point"].eq("3")].query("codec != 'int8'").copy()
    only.loc[only["codec"] == "zstd", "stands_for"] = "int8+zstd"
    line = paying(only.reset_index(drop=True))[0]
    ends = [part.partition(" pay")[2] for part in line.partition(": ")[2].split("; ")]
    assert "int8+zstd pays" in line, "a codec that comes to another one pays where that does"
    assert len(ends) == 2 and ends[0] == ends[1]


def test_each_codec_s_answer_says_what_it_costs_by_what_crosses() -> None:
    lines = told(coded.measured(), coded.PROFILES)
    of_int8 = [line for line in lines if "codec int8" in line]
    assert len(of_int8) == 2
    # All on the edge is every codec's rival.
    assert all("agreement 98.5 %" in line and "less than all on the edge" in line for line in of_int8)
    assert not any("agreement" in line for line in lines if "codec" not in line)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("rate_bps", "codecs", "heads"),
    [
        (1e5, ("none", "fp16", "uint4"), ["small at slow, codecs none, fp16, uint4"]),
        (10e6, ("none", "uint4"), ["small at slow", "small at slow, codec uint4"]),
    ],
)
def test_codecs_with_the_same_answer_share_a_line(rate_bps, codecs, heads) -> None:
    lines = told(coded.trials(rate_bps, codecs=codecs, rounds=2), {})
    assert [line.partition(":")[0] for line in lines] == heads
