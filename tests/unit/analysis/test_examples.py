"""The runs that the other tests read are as real ones: within their bounds."""

from __future__ import annotations

from pathlib import Path

from pareto.analysis.runs.load import load
from tests.unit import example_chain
from tests.unit.example_run import trials, write


def test_the_example_is_a_valid_run(tmp_path: Path) -> None:
    frame = load([write(tmp_path, trials())])
    assert len(frame) == 3 * 2 * 22
    assert (frame["latency_s"] >= frame["latency_bound_s"]).all()


def test_the_example_chain_keeps_within_its_bounds(tmp_path: Path) -> None:
    rows, staged = example_chain.trials(example_chain.splits(2, range(0, 22, 3)))
    frame = load([example_chain.write(tmp_path, rows, staged)])
    assert (frame["latency_s"] >= frame["latency_bound_s"]).all()
    assert (frame["throughput_ips"] <= frame["throughput_bound_ips"] * (1 + 1e-9)).all()
    assert (frame["throughput_ips"] >= 0.9 * frame["throughput_bound_ips"]).all(), "the chain is saturated"
    assert {"edge", "middle1", "edge-middle1 out"} <= set(frame["bound_by"])
