"""Which engine a row is of, and which is at work where."""

from __future__ import annotations

import pandas as pd

from pareto.analysis.runs.points import at_work, of_role


def rows(*each: tuple[str, str, float]) -> pd.DataFrame:
    """Trials of these engines, points and payloads."""
    frame = pd.DataFrame(each, columns=["engine", "point", "payload_bytes"])
    return frame.assign(model="net", setup="")


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
