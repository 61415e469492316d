"""What ONNX Runtime does on a GPU, as far as a machine without one can tell; and a stage in int8, as a file."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import fx, nn

from pareto.partitions import proof
from pareto.partitions.engines.base import EngineError
from pareto.partitions.stage import Stage
from tests.unit.partitions.builders import byte_images as images
from tests.unit.partitions.builders import stages

files = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("pareto.partitions.engines.onnx")
quantised = pytest.importorskip("pareto.partitions.engines.quantised")


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
    _, read = graph.placeholder("first"), graph.placeholder("second")
    graph.output((read,))
    stage = Stage(fx.GraphModule(nn.Module(), graph))
    second, x, y = (SimpleNamespace(name=name) for name in ("second", "x", "y"))
    assert onnx.places(stage, [second]) == [("second", 1)]
    assert onnx.places(stage, [x, y]) == [("x", 0), ("y", 1)], "all of them, under other names"


def test_a_runtime_that_cannot_use_the_gpu_is_refused_in_one_line() -> None:
    """It would compute on the processor without a word."""
    if onnx.ON_GPU in onnxruntime.get_available_providers():
        pytest.skip("it has CUDA")
    first, _ = stages()
    with torch.inference_mode(), pytest.raises(EngineError, match="cuda:1: it lacks CUDA") as refused:
        graph = exported(first, *images())
        onnx.gpu_session(graph, onnx.session_options(1), torch.device("cuda", 1))
    assert "\n" not in str(refused.value)


def test_ranges_are_of_this_graph_and_products_of_weights_do_not_saturate_without_vnni() -> None:
    """Two products of 8 bits, added in 16: 2 x 255 x 64 is less than 32768, and 2 x 255 x 127 is not."""
    stage, _ = stages()
    builder = quantised.Quantiser(1)
    with torch.inference_mode():
        ranges = builder.calibrated(stage, [images()], "key")
        with pytest.raises(EngineError, match="nowhere"):
            builder.build(stage, images(), "key", {**ranges, "nowhere": (0.0, 1.0)})
        builder.build(stage, images(), "key", ranges)
    made = files.load(builder._file("key", "int8")).graph.initializer
    arrays = [files.numpy_helper.to_array(each) for each in made]
    builder.close()
    weights = [array for array in arrays if array.dtype == "int8" and array.ndim > 1]
    assert weights
    assert max(2 * 255 * abs(array.astype(int)).max() for array in weights) < 2**15
