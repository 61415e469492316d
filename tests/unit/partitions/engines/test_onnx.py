"""What ONNX Runtime does on a GPU, as far as a machine without one can tell."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

from pareto.partitions import proof
from pareto.partitions.engines.base import EngineError
from pareto.partitions.stage import Stage

from .stages import images, stages

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("pareto.partitions.engines.onnx")


def exported(stage: Stage, *example: torch.Tensor) -> bytes:
    graph: bytes = onnx.serialized(onnx.exported(stage, example))
    return graph


def test_tensors_are_read_and_written_where_they_are() -> None:
    """On the processor, whose memory is bound as a GPU's is."""
    first, stage = stages()
    with torch.inference_mode():
        payload = first(images())
        session = onnxruntime.InferenceSession(exported(stage, *payload), providers=onnx.PROVIDERS)
        run = onnx.bound_run_of(session, stage, payload, 0)
        across = tuple(one.transpose(2, 3).contiguous().transpose(2, 3) for one in payload)
        assert not any(one.is_contiguous() for one in across)
        results = run(across)
        kept = [one.clone() for one in results]
        run(tuple(one + 1 for one in payload))
        assert all(map(torch.equal, results, kept)), "a later run does not overwrite an earlier one's results"
        assert proof.max_error(results, stage(payload)) <= proof.TOLERANCE / 10


def test_an_input_that_nothing_reads_moves_none_of_the_others() -> None:
    graph = fx.Graph()
    _, second = graph.placeholder("first"), graph.placeholder("second")
    graph.output((second,))
    stage = Stage(fx.GraphModule(nn.Module(), graph))
    assert onnx.places(stage, ["second"]) == [1]
    assert onnx.places(stage, ["x", "y"]) == [0, 1], "all of them, under other names"


def test_a_runtime_that_cannot_use_the_gpu_is_refused_in_one_line() -> None:
    """It would compute on the processor without a word."""
    if onnx.ON_GPU in onnxruntime.get_available_providers():
        pytest.skip("it has CUDA")
    first, _ = stages()
    with torch.inference_mode(), pytest.raises(EngineError, match="cuda:1: it lacks CUDA") as refused:
        graph = exported(first, *images())
        onnx.gpu_session(graph, onnx.session_options(1), torch.device("cuda", 1))
    assert "\n" not in str(refused.value)
