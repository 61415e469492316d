"""Where a worker computes: what is refused and how, memory that runs out, and the GPU's order of work."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from pareto.partitions import model as partitioned
from pareto.partitions import proof, weights
from pareto.partitions.engines.base import Built, EngineError, Run
from pareto.partitions.recipe import Recipe
from pareto.partitions.stage import Stage
from pareto.protocol.jsonlines import Refused
from pareto.remote.worker import __main__ as worker
from pareto.remote.worker import device
from pareto.remote.worker.device import Cuda, Device, refused_out_of_memory
from tests.unit.backends.builders import refusal

needs_no_cuda = pytest.mark.skipif(torch.backends.cuda.is_built(), reason="torch is built with CUDA here")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def refused(name: str) -> str:
    return refusal(device.named, name, by=Refused)


def test_an_unknown_device_is_refused(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    names = ["gpu", "mps", "cuda", "cuda:", "cuda:-1", "cuda:0 ", "CPU", ""]
    said = {refused(name).replace(repr(name), "NAME") for name in names}
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    for count in (0, 2):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        said.add(refused("cuda:2"))

    def unusable(*_: object, **__: object) -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setattr(torch, "zeros", unusable)
    assert sorted({*said, refused("cuda:0")}) == snapshot


@needs_no_cuda
def test_a_torch_without_cuda_is_said_so(snapshot: SnapshotAssertion) -> None:
    assert re.sub(r"\(.*\)", "(VERSION)", refused("cuda:0")) == snapshot


@pytest.mark.parametrize(
    "name", ["gpu", pytest.param("cuda:0", marks=pytest.mark.skipif("torch.cuda.is_available()"))]
)
def test_the_worker_ends_at_once_with_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pareto.remote.worker", "--device", name])
    threads = torch.get_num_threads()
    with pytest.raises(SystemExit) as ended:
        worker.main()
    torch.set_num_threads(threads)
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert name in line


CUDAS = torch.OutOfMemoryError("CUDA out of memory. Tried to\nallocate 2 GiB")


def of_an_engine(error: Exception) -> EngineError:
    made = EngineError("PyTorch does not take the stage so")
    made.__cause__ = error
    return made


def test_memory_that_ran_out_is_one_clear_line_and_other_errors_pass(snapshot: SnapshotAssertion) -> None:
    """Also in an engine, where it is no fault of the stage."""

    def fails(error: Exception) -> None:
        with refused_out_of_memory():
            raise error

    errors = [MemoryError(), CUDAS, RuntimeError("std::bad_alloc"), of_an_engine(CUDAS)]
    assert [refusal(fails, error, by=Refused) for error in errors] == snapshot
    for error in (RuntimeError("another"), of_an_engine(ValueError("reason"))):
        assert refusal(fails, error, by=type(error)) == str(error)
    with pytest.raises(Refused, match="4000000000000000"), refused_out_of_memory():
        torch.empty(10**15)


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

        def back(tensor: torch.Tensor, other: torch.Tensor, *, non_blocking: bool) -> torch.Tensor:
            assert non_blocking
            gpu.did.append("back")
            return copy(tensor, other)

        monkeypatch.setattr(device, "_usable", lambda *_: torch.device("cpu"))
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
        monkeypatch.setattr(torch, "empty", pinned)
        monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: False)
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda it: (gpu.did.append("pin"), it.clone())[1])
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
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    assert (cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark) == (False, False, True)
    assert gpu.warm_ups > Device.warm_ups
    given = torch.arange(4.0)
    double, more = gpu.run(Stage(Counted(fake.did)), (given,))  # type: ignore[arg-type]
    assert double.tolist() == [0, 2, 4, 6]
    assert more.tolist() == [1, 2, 3, 4]
    assert fake.did == ["pin", "record", "compute", "pin", "pin", "back", "back", "record", "synchronize"]
    assert gpu.gpu_s() == 0.0025
    gpu.forget()
    assert gpu.gpu_s() is None


@pytest.mark.usefixtures("switches")
def test_a_gpu_runs_what_an_engine_built_and_gets_no_empty_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeGpu(monkeypatch)
    gpu, payload, body = Cuda("cuda:0", 0), (torch.ones(2),), Counted(fake.did)
    assert gpu.run(Stage(None), payload)[0] is payload[0]
    assert (fake.did, gpu.gpu_s()) == ([], None)
    built = Built(Stage(body), Run(lambda tensors: body(*tensors), weights_bytes=8))  # type: ignore[arg-type]
    double, _ = gpu.run(built, payload)  # with weights of its own
    assert double.tolist() == [2, 2]
    assert "compute" in fake.did


@needs_gpu
@pytest.mark.usefixtures("switches")
def test_a_real_gpu_computes_what_the_cpu_computes(tmp_path: object) -> None:
    file = weights.make("mobilenet_v2", "seeded", 0, tmp_path)  # type: ignore[arg-type]
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    recipe = Recipe("mobilenet_v2")
    expected = proof.reference(partitioned.load(recipe, file), images)
    gpu = device.named("cuda:0")
    it = partitioned.ResidentStage(partitioned.outline(recipe), [file], gpu.name)
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
        assert proof.max_error(payload, expected) <= proof.TOLERANCE
    assert (gpu.gpu_s() or 0.0) > 0
    cuda = gpu.gpu()
    assert cuda is not None
    assert (cuda.index, cuda.tf32, cuda.cudnn_benchmark) == (0, False, True)
