"""Which engine a row is of, and which is at work where."""

from __future__ import annotations

import pandas as pd
import pytest

from pareto.analysis.engines import BUT_ENGINE, at_work, engines, of_role, setup_of, without_engine


def rows(*each: tuple[str, str, float]) -> pd.DataFrame:
    """Trials of these engines, points and payloads."""
    frame = pd.DataFrame(each, columns=["engine", "point", "payload_bytes"])
    return frame.assign(model="net", setup="")


def test_runs_from_before_there_were_engines_are_eager() -> None:
    old = rows(("", "0", 5.0))
    assert engines(old).tolist() == engines(old.drop(columns="engine")).tolist() == ["eager"]


@pytest.mark.parametrize("setup", ["", "edge_cpu=0.25"])
def test_the_setup_without_its_engine_is_that_of_the_run(setup: str) -> None:
    frame = rows(("eager", "0", 5.0), ("onnx", "0", 5.0))
    named = frame.assign(setup=[setup_of(setup, name) for name in frame["engine"]], **{BUT_ENGINE: setup})
    assert without_engine(named).unique().tolist() == [setup]
    assert without_engine(frame.assign(setup=setup)).unique().tolist() == [setup], "a run of one engine"


def test_each_host_has_its_engine() -> None:
    assert [of_role("edge=onnx+server=compile", role) for role in ("edge", "middle1", "server")] == [
        "onnx", "eager", "compile",
    ]  # fmt: skip
    assert of_role("onnx", "server") == "onnx"


def test_only_hosts_with_units_have_an_engine_at_work() -> None:
    frame = rows(("onnx", "0", 9.0), ("edge=onnx", "2", 9.0), ("onnx", "4", 0.0), ("server=onnx", "4", 0.0))
    assert at_work(frame).tolist() == ["server=onnx", "edge=onnx+server=eager", "edge=onnx", "edge=eager"]
    chain = rows(("onnx", "0+3", 9.0), ("onnx", "3+3", 9.0), ("onnx", "4+4", 0.0))
    assert at_work(chain).tolist() == ["middle1=onnx+server=onnx", "edge=onnx+server=onnx", "edge=onnx"]
