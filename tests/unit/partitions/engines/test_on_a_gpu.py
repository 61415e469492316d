"""Engines that compute on a GPU, on a real one; each test is skipped where there is none."""

from __future__ import annotations

import gc

import pytest
import torch

from pareto.partitions import proof
from pareto.partitions.engines import registry
from pareto.partitions.engines.base import Built
from pareto.remote.worker import device

from .stages import images, stages

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
ON_GPU = [name for name, entry in registry.ENGINES.items() if entry.on_gpu and name != registry.EAGER]


@pytest.mark.parametrize("engine", ON_GPU)
def test_what_is_built_for_a_gpu_computes_what_the_stages_compute_on_the_cpu(engine: str) -> None:
    gpu = device.named("cuda:0")
    if lacks := registry.missing(engine, gpu.name, gpu.capability()):
        pytest.skip(lacks)
    allowed = 0.1 if registry.ENGINES[engine].differs else proof.TOLERANCE / 10
    builder, payload = registry.builder(engine, 1), images()
    with torch.inference_mode():
        for number, stage in enumerate(stages()):
            expected = stage(payload)
            stage.to(gpu.name)
            on_gpu = tuple(tensor.to(gpu.name) for tensor in payload)
            with gpu.current():
                run = builder.build(stage, on_gpu, number, {})
                again = builder.build(stage, on_gpu, number, {})
            for one in (run, again):
                outputs = gpu.run(Built(stage, one), payload)
                assert proof.max_error(outputs, expected) <= allowed
                assert all(tensor.is_contiguous() and not tensor.is_cuda for tensor in outputs)
            payload = expected
            del run, again, one
            builder.release()
            stage.to("meta")
    builder.close()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()  # it keeps 32 MiB for the products of matrices, whosever they are
    assert torch.cuda.memory_allocated() < 1 << 20
