"""Where a worker computes: what is refused and how, memory that runs out, and the GPU's order of work."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from pareto.jsonlines import Refused
from pareto.worker import device
from pareto.worker.device import Cpu, Cuda, said_out_of_memory
from partitions import model as partitioned
from partitions import proof, resident, weights
from partitions.recipe import Recipe
from partitions.stage import Stage
from tests import REPOSITORY

needs_no_cuda = pytest.mark.skipif(torch.backends.cuda.is_built(), reason="torch is built with CUDA here")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("name", ["gpu", "mps", "cuda", "cuda:", "cuda:-1", "cuda:0 ", "CPU", ""])
def test_an_unknown_device_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(Refused, match=rf"unknown device '{name}': it is cpu, or cuda:0"):
        device.named(name)


@needs_no_cuda
def test_a_torch_without_cuda_is_said_so() -> None:
    with pytest.raises(Refused, match=r"device cuda:0: this host's torch \(.*\) was built without CUDA"):
        device.named("cuda:0")


@pytest.mark.parametrize(
    ("count", "says"),
    [
        (0, "device cuda:2: no NVIDIA GPU or driver found"),
        (2, "device cuda:2: this host's GPUs are cuda:0, cuda:1"),
    ],
)
def test_a_gpu_that_is_not_there_is_said_so(monkeypatch: pytest.MonkeyPatch, count: int, says: str) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(Refused, match=says):
        device.named("cuda:2")


def test_a_gpu_that_cannot_be_used_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unusable(*_: object, **__: object) -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch, "zeros", unusable)
    with pytest.raises(Refused) as info:
        device.named("cuda:0")
    assert str(info.value) == "device cuda:0: The NVIDIA driver on your system is too old"


@pytest.mark.parametrize(
    "name", ["gpu", pytest.param("cuda:0", marks=pytest.mark.skipif("torch.cuda.is_available()"))]
)
def test_the_worker_ends_at_once_with_one_line(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pareto.worker", "--device", name],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert "device" in line
    assert name in line


def test_the_cpu_computes_what_the_stage_computes() -> None:
    cpu = device.named("cpu")
    assert cpu.facts() == {"device": "cpu", "cuda": None}
    payload = (torch.ones(2, 3),)
    assert cpu.run(Stage(None), payload)[0] is payload[0]
    assert cpu.gpu_s() is None


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "out of memory: this host has none left"),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to\nallocate 2 GiB"),
            "out of memory: CUDA out of memory",
        ),
        (RuntimeError("std::bad_alloc"), "out of memory: std::bad_alloc"),
    ],
)
def test_memory_that_ran_out_is_one_clear_line(error: Exception, says: str) -> None:
    with pytest.raises(Refused, match=says) as info, said_out_of_memory():
        raise error
    assert "\n" not in str(info.value)


def test_torch_asked_for_too_much_says_how_much() -> None:
    with (
        pytest.raises(
            Refused, match=r"^out of memory: can't allocate memory: you tried to allocate 4000000000000000"
        ),
        said_out_of_memory(),
    ):
        torch.empty(10**15)


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="another"), said_out_of_memory():
        raise RuntimeError("another")


@pytest.fixture
def switches() -> Iterator[None]:
    """torch's global ones, set otherwise than wanted, and afterwards as they were."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark
    cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark = True, True, False
    yield
    cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark = before


class FakeGpu:
    """Stands in for torch.cuda where there is none: computes on the CPU and notes what is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.did: list[str] = []
        gpu = self

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing
                self.recorded = self.reached = False

            def record(self) -> None:
                self.recorded = True
                gpu.did.append("record")

            def synchronize(self) -> None:
                assert self.recorded
                self.reached = True
                gpu.did.append("synchronize")

            def elapsed_time(self, other: Event) -> float:
                assert self.recorded
                assert other.reached
                return 2.5

        empty, copy = torch.empty, torch.Tensor.copy_

        def pinned(*shape: object, pin_memory: bool = False, **options: object) -> torch.Tensor:
            gpu.did += ["pin"] * pin_memory
            return empty(*shape, **options)  # type: ignore[call-overload,no-any-return]

        def pin(tensor: torch.Tensor) -> torch.Tensor:
            gpu.did.append("pin")
            return tensor.clone()

        def back(tensor: torch.Tensor, other: torch.Tensor, *, non_blocking: bool) -> torch.Tensor:
            assert non_blocking
            gpu.did.append("back")
            return copy(tensor, other)

        monkeypatch.setattr(device, "_found", lambda *_: torch.device("cpu"))
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
        monkeypatch.setattr(torch, "empty", pinned)
        monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: False)
        monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
        monkeypatch.setattr(torch.Tensor, "copy_", back)


class Counted(torch.nn.Module):
    def __init__(self, did: list[str]) -> None:
        super().__init__()
        self.did = did

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.did.append("compute")
        return (2 * x, x + 1)


@pytest.mark.usefixtures("switches")
def test_a_gpu_run_is_timed_around_copies_and_over_when_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeGpu(monkeypatch)
    gpu = Cuda("cuda:0", 0)
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.benchmark
    assert gpu.warm_ups > Cpu.warm_ups
    given = torch.arange(4.0)
    double, more = gpu.run(Stage(Counted(fake.did)), (given,))  # type: ignore[arg-type]
    assert double.tolist() == [0, 2, 4, 6]
    assert more.tolist() == [1, 2, 3, 4]
    assert fake.did == ["pin", "record", "compute", "pin", "pin", "back", "back", "record", "synchronize"]
    assert gpu.gpu_s() == 0.0025
    gpu.forget()
    assert gpu.gpu_s() is None


@pytest.mark.usefixtures("switches")
def test_nothing_goes_to_a_gpu_for_a_stage_without_units(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeGpu(monkeypatch)
    gpu = Cuda("cuda:0", 0)
    payload = (torch.ones(3),)
    assert gpu.run(Stage(None), payload)[0] is payload[0]
    assert (fake.did, gpu.gpu_s()) == ([], None)


@needs_gpu
@pytest.mark.usefixtures("switches")
def test_a_real_gpu_computes_what_the_cpu_computes(tmp_path: object) -> None:
    file = weights.make("mobilenet_v2", "seeded", 0, tmp_path)  # type: ignore[arg-type]
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    recipe = Recipe("mobilenet_v2")
    expected = proof.reference(partitioned.load(recipe, file.path), images)
    gpu = device.named("cuda:0")
    it = resident.ResidentStage(partitioned.outline(recipe), file.path, gpu.name)
    last = len(partitioned.describe(recipe)[0]) - 1
    for index in (0, last // 2, last):
        payload = (images,)
        for bounds in ((0, index), (index, last)):
            it.change(*bounds)
            assert {tensor.device.type for tensor in it.stage.parameters()} <= {"cuda"}
            for _ in range(gpu.warm_ups):
                payload_out = gpu.run(it.stage, payload)
            payload = payload_out
            assert all(tensor.device.type == "cpu" and tensor.is_contiguous() for tensor in payload)
        assert proof.max_abs_error(payload, expected) <= proof.tolerance(expected)
    median = gpu.gpu_s()
    assert median is not None
    assert median > 0
    cuda = gpu.facts()["cuda"]
    assert (cuda["index"], cuda["tf32"], cuda["cudnn_benchmark"]) == (0, False, True)
