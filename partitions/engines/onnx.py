"""ONNX Runtime, with stages that `torch.onnx` exports by torch.export.

A stage's weights stay in torch's memory, from which the session reads them: the exported graph is small, and is kept
for when the stage comes back, because exporting takes seconds and a session some hundredths.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import onnx_ir
import onnxruntime
import torch
from torch import Tensor

from partitions.engines.base import EngineError, Run, one_example, reason
from partitions.graph import named_tensors
from partitions.stage import Payload, Stage

PROVIDERS = ["CPUExecutionProvider"]


@dataclass(frozen=True)
class _Exported:
    """A stage's graph. outside: the names of the tensors that are not in it, but in the stage."""

    graph: bytes
    outside: tuple[str, ...]


class Exporter:
    """Sessions compute with as many threads as torch does here."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._exported: dict[Hashable, _Exported] = {}

    def build(self, stage: Stage, example: Payload, key: Hashable) -> Run:
        """As `base.Builder` has it."""
        try:
            if key not in self._exported:
                self._exported[key] = _export(stage, one_example(example))
            return self._session(stage, self._exported[key])
        except Exception as error:  # the exporter's and the runtime's errors have no common type
            raise EngineError(f"ONNX Runtime does not take the stage: {reason(error)}") from error

    def release(self) -> None:
        """The session goes with what `build` returned."""

    def close(self) -> None:
        self._exported.clear()

    def _session(self, stage: Stage, exported: _Exported) -> Run:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self._threads, 1
        options.log_severity_level = 3
        state = dict(named_tensors(stage.body)) if stage.body is not None else {}
        arrays = [state[name].detach().contiguous().numpy() for name in exported.outside]
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in arrays]
        if values:
            options.add_external_initializers(list(exported.outside), values)
        session = onnxruntime.InferenceSession(exported.graph, options, providers=PROVIDERS)
        names = [each.name for each in session.get_inputs()]
        places = _places(stage, names)

        def run(tensors: Payload) -> Payload:
            fed = {name: tensors[place].numpy() for name, place in zip(names, places, strict=True)}
            return tuple(map(torch.from_numpy, session.run(None, fed)))

        # The session reads the weights where they lie, as long as it lives.
        run.weights = arrays, values  # type: ignore[attr-defined]
        return run


def _places(stage: Stage, names: list[str]) -> list[int]:
    """Which tensor of a payload each of a session's inputs is: the exporter leaves out inputs that nothing reads."""
    assert stage.body is not None  # noqa: S101
    inputs = [node.name for node in stage.body.graph.nodes if node.op == "placeholder"]
    return list(range(len(names))) if len(names) == len(inputs) else [inputs.index(name) for name in names]


def _export(stage: Stage, example: tuple[Tensor, ...]) -> _Exported:
    assert stage.body is not None  # noqa: S101
    with _quiet(), torch.no_grad():
        # Unoptimized: the runtime does that itself, and a weight that is changed here would travel in the graph.
        program: Any = torch.onnx.export(stage.body, example, dynamo=True, verbose=False, optimize=False)
    state = dict(named_tensors(stage.body))
    initializers = program.model.graph.initializers
    outside = []
    for name, value in initializers.items():
        inside = value.const_value
        if not _is_same(inside, state.get(name)):
            continue  # a constant of the graph, or something that the exporter computed
        value.const_value = onnx_ir.ExternalTensor(
            "weights", 0, inside.nbytes, inside.dtype, shape=inside.shape, name=name
        )
        outside.append(name)
    graph: bytes = onnx_ir.serde.serialize_model(program.model).SerializeToString()
    return _Exported(graph, tuple(outside))


def _is_same(inside: Any, tensor: Tensor | None) -> bool:
    """Whether the tensor of a graph is this one, in the same memory."""
    raw = getattr(inside, "raw", None)
    return tensor is not None and isinstance(raw, Tensor) and raw.data_ptr() == tensor.data_ptr()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks about its own parts, which nobody can do anything about."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def builder(threads: int) -> Exporter:
    return Exporter(threads)
