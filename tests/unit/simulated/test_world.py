"""The file that says what is simulated: what may stand in it, and what is said of one that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.host import TestbedError
from pareto.simulated.world import Noise, World, load
from tests.unit.refusals import refusal


def test_without_a_file_there_is_a_usual_world() -> None:
    usual = load("simulated")
    assert usual == World()
    assert usual.speed("edge").gflops < usual.speed("middle1").gflops < usual.speed("server").gflops


def test_quantities_have_their_units_and_a_file_of_times_stands_in_place_of_flops(tmp_path: Path) -> None:
    (tmp_path / "world.yaml").write_text(
        "hosts: {edge: {gflops: 2, per_unit: 30us}}\n"
        "noise: {kind: heavy, request: 10%, trial: 0, round: 0.05}\n"
        "link: {rate: 92%, delay: 3ms}\n"
        "faults: {failed: 2%, invalid: 1%, lost: edge, after: 20}\n"
        "engines: {onnx: 40%}\n"
        "requests: 10\nseed: 7\n"
    )
    found = load(f"simulated:{tmp_path}/world.yaml")
    assert found.speed("edge").per_unit == pytest.approx(30e-6)
    assert (found.noise.request, found.noise.trial, found.noise.round) == (0.1, 0.0, 0.05)
    assert (found.link.rate, found.link.delay) == (0.92, 0.003)
    assert (found.faults.failed, found.faults.lost, found.faults.after) == (0.02, "edge", 20)
    assert (found.engine_share("onnx"), found.engine_share("eager")) == (0.4, 1.0)
    assert (found.requests, found.seed) == (10, 7)
    (tmp_path / "units.csv").write_text("model,host,unit,seconds\nnet,edge,2,0.25\n")
    (tmp_path / "world.yaml").write_text("hosts: {edge: {gflops: 1, per_unit: 0ms}}\ntimes: units.csv\n")
    found = load(f"simulated:{tmp_path}/world.yaml")
    assert found.unit_times_s("edge", "net", [10**9, 10**9]) == [1.0, 0.25]
    assert found.unit_times_s("server", "net", [0, 0]) == [1e-5, 1e-5]
    assert found.record()["times"] == [["net", "edge", 2, 0.25]]


@pytest.mark.parametrize(
    "text",
    ["", "- edge", "hosts: {edge: {gflop: 2}}", "hosts: {edge: {gflops: fast}}", "noise: {request: 3}",
     "noise: {kind: white}", "faults: {after: -1}", "times: nowhere.csv", "times: bad.csv", "times: worse.csv",
     "hosts: ["],
)  # fmt: skip
def test_an_unusable_file_is_refused(tmp_path: Path, text: str, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "world.yaml").write_text(text)
    (tmp_path / "bad.csv").write_text("unit,seconds\n1,2\n")
    (tmp_path / "worse.csv").write_text("model,host,unit,seconds\nnet,edge,1,soon\n")
    assert refusal(TestbedError, load, f"simulated:{tmp_path}/world.yaml") == snapshot


@pytest.mark.parametrize("name", ["simulated:", "simulated:nowhere.yaml"])
def test_a_file_that_is_not_there_is_named(name: str, snapshot: SnapshotAssertion) -> None:
    assert refusal(TestbedError, load, name) == snapshot


@pytest.mark.parametrize(("kind", "middle"), [("normal", 0.6745), ("lognormal", 0.6745), ("heavy", 0.4416)])
def test_half_of_the_noise_is_as_small_as_its_distribution_says(kind: Any, middle: float) -> None:
    """The heavy one's variance, which a few draws decide, tells less."""
    factors = Noise(kind=kind).factors(np.random.default_rng(1), 0.05, (100_000,))
    assert np.median(np.abs(np.log(factors))) == pytest.approx(0.05 * middle, rel=0.02)
