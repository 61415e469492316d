"""A stage in int8, as a file."""

from __future__ import annotations

import pytest
import torch

from pareto.partitions.engines.base import EngineError

from .stages import images, stages

onnx = pytest.importorskip("onnx")
quantised = pytest.importorskip("pareto.partitions.engines.quantised")


def test_ranges_are_of_this_graph_and_products_of_weights_do_not_saturate_without_vnni() -> None:
    """Two products of 8 bits, added in 16: 2 x 255 x 64 is less than 32768, and 2 x 255 x 127 is not."""
    stage, _ = stages()
    builder = quantised.Quantiser(1)
    with torch.inference_mode():
        ranges = builder.calibrated(stage, [images()], "key")
        with pytest.raises(EngineError, match="nowhere"):
            builder.build(stage, images(), "key", {**ranges, "nowhere": (0.0, 1.0)})
        builder.build(stage, images(), "key", ranges)
    arrays = [
        onnx.numpy_helper.to_array(each) for each in onnx.load(builder._file("key", "int8")).graph.initializer
    ]
    builder.close()
    weights = [array for array in arrays if array.dtype == "int8" and array.ndim > 1]
    assert weights
    assert max(2 * 255 * abs(array.astype(int)).max() for array in weights) < 2**15
