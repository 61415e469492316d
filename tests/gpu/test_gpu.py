"""The path of a GPU, on one: what must hold of it whatever the card, and a table for docs/notes/real-hardware.md.

`./pareto.sh test --gpu` runs it with the tests of parts that need one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pareto.partitions.engines import registry as engines
from pareto.partitions.stage import Stage
from pareto.remote.worker import device
from pareto.remote.worker.sensors import nvml
from tests import rows_of
from tests.less_than_root import needs_networks
from tests.measure.conftest import printed
from tests.program import LENIENT, command

__all__ = ["printed"]
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="no NVIDIA GPU here that PyTorch can use"
    + ("" if torch.backends.cuda.is_built() else ": this build of it has no CUDA"),
)
MODELS = ("mobilenet_v2", "resnet50")
ENGINES = ("eager", "eager:bfloat16", "compile", "onnx")
COPIED_BYTES, FASTEST_BYTES_S = 1 << 28, 1e12
"""No link between a host and its GPU carries more in a second."""
CLOCKS = 1.01
"""Two clocks tell of one moment, give or take one in a hundred."""


@pytest.fixture(scope="module")
def gpu() -> device.Device:
    return device.named("cuda:0")


class Doubling(nn.Module):
    """A stage that computes next to nothing."""

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return 2 * given


@needs_networks
@pytest.mark.timeout(1800)  # a compiler builds four stages
def test_the_rows_of_a_server_with_a_gpu(
    gpu: device.Device, tmp_path: Path, printed: Callable[[str], None]
) -> None:
    """Each model by each engine that is there: proven, valid, timed by the GPU, its clock and its memory read."""
    lacking = engines.missing_here(gpu.name, gpu.capability())
    there = [name for name in ENGINES if not lacking.get(name)]
    job = f"--model {','.join(MODELS)} --netem none --points 0 --only --backend tcp --trials 1"
    by = ",".join(name if name == "eager" else f"server={name}" for name in there)
    done = command(
        *job.split(), "--device", "server=cuda:0", "--engine", by, "--out", str(tmp_path), *LENIENT
    )
    assert done.code == 0, done
    (file,) = tmp_path.glob("*/trials.csv")
    rows = rows_of(file)
    assert len(rows) == len(MODELS) * len(there)
    facts = gpu.gpu()
    assert facts is not None
    printed(f"\n{facts.name}, driver {facts.driver}, torch {torch.__version__}, CUDA {facts.runtime}")
    printed(
        "| model | engine | latency, ms | images/s | of it the GPU, ms | error |\n|---|---|---|---|---|---|"
    )
    for row in rows:
        milliseconds = (f"{1e3 * float(row[name]):.3g}" for name in ("latency_s", "server_gpu_s"))
        latency, of_gpu = milliseconds
        rate, error = f"{float(row['throughput_ips']):.4g}", row["max_abs_error"]
        printed(f"| {row['model']} | {row['engine']} | {latency} | {rate} | {of_gpu} | {error} |")
    for name in sorted({*ENGINES} - {*there}):
        printed(f"Left out: {name}, which lacks {lacking[name]}.")
    for row in rows:
        assert row["status"] == "ok", row["reason"]
        assert float(row["server_gpu_s"]) > 0
        assert float(row["server_gpu_memory_bytes"]) > 0
        assert row["server_gpu_percent"] != ""


def test_the_gpus_own_time_has_the_copies_and_lies_within_the_hosts(gpu: device.Device) -> None:
    stage, given = Stage(Doubling()), (torch.ones(COPIED_BYTES // 4),)
    for _ in range(5):
        gpu.forget()
        began = time.perf_counter()
        (result,) = gpu.run(stage, given)
        took_s, gpu_s = time.perf_counter() - began, gpu.gpu_s()
        assert float(result[-1]) == 2.0
        assert gpu_s is not None
        assert 2 * COPIED_BYTES / FASTEST_BYTES_S <= gpu_s <= CLOCKS * took_s


def test_its_clock_its_memory_and_its_power_are_read(gpu: device.Device) -> None:
    facts = gpu.gpu()
    assert facts is not None
    assert facts.uuid is not None
    sensors: list[Any] = nvml.gpu(facts.uuid, nvml.load())
    read = {each.field: each.read() for each in sensors if hasattr(each, "field")}
    assert {name: value for name, value in read.items() if value is None} == {}
    assert read.keys() >= {"gpu_percent", "gpu_memory_bytes", "gpu_clock_hz"}
    assert [each for each in sensors if not hasattr(each, "field")], "it has a meter"
