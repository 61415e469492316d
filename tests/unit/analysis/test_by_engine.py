"""What is said of engines: which is fastest on which host, and how long they take to start."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing.by_engine import sides, start_up
from pareto.analysis.comparing.paired import paired
from tests.unit.example_engines import trials


def said(trials: pd.DataFrame) -> Iterator[str]:
    return sides(paired(trials, "engine"))


def test_the_fastest_engine_of_each_host_is_named(snapshot: SnapshotAssertion) -> None:
    both = pd.concat([trials(netem=netem, seed=seed) for seed, netem in enumerate(("near", "far"))])
    edge, server = said(both)
    assert "on the edge onnx is fastest" in edge and "on the server onnx is fastest" in server
    assert [edge, server] == snapshot


def test_an_engine_of_one_host_counts_there_alone() -> None:
    both = [trials(("eager", "edge=onnx"), netem=netem) for netem in ("near", "far")]
    (edge,) = said(pd.concat(both))
    assert "on the edge onnx is fastest" in edge


def test_what_cannot_be_told_is_not(snapshot: SnapshotAssertion) -> None:
    same = trials(("eager", "onnx")).assign(edge_s=0.02, server_s=0.01)
    few = trials(("eager", "onnx"))
    few = few[few["point"].isin(["1", "2"])]
    lines = [*said(pd.concat([same, same.assign(netem="far")])), *said(few)]
    assert not any("fastest:" in line and "do not decide" not in line for line in lines)
    assert lines == snapshot
    assert list(said(trials(("eager",)))) == []


def test_close_engines_and_slower_ones_are_told() -> None:
    both = pd.concat([trials(netem=netem) for netem in ("near", "far")], ignore_index=True)
    is_compile = both["engine"] == "compile"
    near = both.assign(edge_s=both["edge_s"].where(~is_compile, 0.501 / 0.8 * both["edge_s"]))
    assert "no difference is seen between onnx and compile" in next(said(near))
    slow = both.assign(edge_s=both["edge_s"].where(both["engine"] == "eager", 4 * both["edge_s"]))
    assert "eager is fastest" in next(said(slow))


def test_the_start_is_told_of_the_first_time_and_of_later_ones(snapshot: SnapshotAssertion) -> None:
    each = [
        ("eager", "edge", "2", None), ("onnx", "edge", "2", 4.4), ("onnx", "edge", "2", 0.05),
        ("onnx", "edge", "3", 2.0), ("onnx", "server", "2", 0.5), ("edge=onnx", "server", "2", None),
        ("compile", "edge", "2", 30.0), ("compile", "edge", "2", 29.0),
    ]  # fmt: skip
    stages = pd.DataFrame(each, columns=["engine", "host", "point", "engine_s"])
    lines = list(start_up(stages.assign(run="r", model="net", batch_size=1)))
    assert lines == snapshot
    assert list(start_up(stages.drop(columns="engine_s"))) == []
