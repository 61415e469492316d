"""ONNX Runtime in int8: weights by channel, activations by the least and greatest value that each has.

Weights use 7 of their 8 bits: x86 processors without VNNI add two products of 8 bits in 16, which saturates, so that a
stage computes something else there (ONNX Runtime's documentation of quantisation, on `reduce_range`).

These ranges come from the driver (`calibrated`), so that every host quantises a stage as the driver does, and results
can be compared. The stage takes and returns what it does without: quantising begins and ends inside.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationMethod, QuantType
from onnxruntime.quantization.calibrate import TensorsData, create_calibrator
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import load_model_with_shape_infer
from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

from pareto.partitions import scratch
from pareto.partitions.engines import onnx as plain
from pareto.partitions.engines.base import Calibrator, Ranges, Run, one_example, refusing
from pareto.partitions.stage import Payload, Stage


class Quantiser(Calibrator):
    """Quantised stages lie in a scratch folder, and are used again when they come back."""

    def __init__(self, threads: int, *, short: bool = False) -> None:
        super().__init__(threads, short=short)
        self._folder = self._held.enter_context(scratch.folder())
        self._made: dict[Hashable, Path] = {}

    def calibrated(self, stage: Stage, examples: Sequence[Payload], key: Hashable) -> Ranges:
        with refusing("ONNX Runtime"), plain.quiet():
            return _ranges(self._float(stage, examples[0], key), stage, examples)

    def build(self, stage: Stage, example: Payload, key: Hashable, ranges: Ranges) -> Run:
        with refusing("ONNX Runtime"):
            file = self._file(key, "int8")
            if not file.exists():
                with plain.quiet():
                    _quantise(self._float(stage, example, key), ranges, file)
                self._file(key, "float").unlink()
            session = onnxruntime.InferenceSession(
                str(file), plain.session_options(self._threads), providers=plain.PROVIDERS
            )
            initializers = onnx.load(str(file)).graph.initializer
            return plain.run_of(session, stage, sum(each.ByteSize() for each in initializers))

    def _file(self, key: Hashable, kind: str) -> Path:
        number = self._made.setdefault(key, self._folder / str(len(self._made)))
        return number.with_suffix(f".{kind}.onnx")

    def _float(self, stage: Stage, example: Payload, key: Hashable) -> Path:
        """The file of the stage as it is, with each batch norm in its convolution."""
        file = self._file(key, "float")
        if not file.exists():
            options = plain.session_options(self._threads)
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
            options.optimized_model_filepath = str(file)
            graph = plain.serialized(plain.exported(stage, one_example(example)))
            onnxruntime.InferenceSession(graph, options, providers=plain.PROVIDERS)
        return file


def _ranges(file: Path, stage: Stage, payloads: Iterable[Payload]) -> Ranges:
    calibrator = create_calibrator(file, _kinds(), str(file.with_suffix(".augmented")))
    fed_by = plain.places(stage, onnx.load(str(file)).graph.input)
    fed = ({name: payload[place].numpy() for name, place in fed_by} for payload in payloads)
    calibrator.collect_data(SimpleNamespace(get_next=lambda: next(fed, None)))
    found = ((name, data.range_value) for name, data in calibrator.compute_data().items())
    return {name: (low.item(), high.item()) for name, (low, high) in found}


def _quantise(file: Path, ranges: Ranges, into: Path) -> None:
    model = load_model_with_shape_infer(file)
    there = {name for node in model.graph.node for name in (*node.input, *node.output)}
    if unknown := sorted(ranges.keys() - there):
        raise ValueError(
            f"the driver has another graph of it, with {unknown[0]}: its torch or onnx is another version"
        )
    limits = {name: tuple(map(np.float32, each)) for name, each in ranges.items()}
    quantiser = QDQQuantizer(
        model,
        per_channel=True,
        reduce_range=True,
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QUInt8,
        tensors_range=TensorsData(CalibrationMethod.MinMax, limits),
        nodes_to_quantize=[],
        nodes_to_exclude=[],
        op_types_to_quantize=_kinds(),
        extra_options={},
    )
    quantiser.quantize_model()
    part = into.with_suffix(".part")
    quantiser.model.save_model_to_file(str(part), False)
    part.rename(into)


def _kinds() -> list[str]:
    """The operators that are quantised: all that can be."""
    return sorted({*QLinearOpsRegistry, *QDQRegistry})
