"""ONNX Runtime, with stages that `torch.onnx` exports by torch.export.

The exported graph is without the stage's weights, so it is small, and is kept for when the stage comes back, because
exporting takes seconds and a session some hundredths. A session copies the weights, in a layout of its own: those in
torch's memory are then let go of.

On a GPU a session reads and writes tensors where torch has them: nothing is copied through the host.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import onnx_ir
import onnxruntime
import torch
from onnxscript import optimizer
from torch import Tensor
from torch.onnx._internal.exporter import _registration

from pareto.partitions.engines.base import Builder, EngineError, Ranges, Run, one_example, refusing
from pareto.partitions.graph import named_tensors
from pareto.partitions.stage import Payload, Stage

PROVIDERS = ["CPUExecutionProvider"]
ON_GPU = "CUDAExecutionProvider"
SMALL_BYTES = 1 << 12
"""A constant up to this size may be folded into another one, which the graph then keeps."""

# What each operation is translated into: the exporter would find it anew at each call, which takes a second.
_registration.ONNXRegistry.from_torchlib = staticmethod(  # type: ignore[method-assign]
    cache(_registration.ONNXRegistry.from_torchlib)
)


class Exporter(Builder):
    """Sessions compute with as many threads as torch does here."""

    def __init__(self, threads: int, *, short: bool = False) -> None:
        super().__init__(threads, short=short)
        self._exported: dict[Hashable, tuple[bytes, list[str]]] = {}
        """By stage: its graph, and the names of the tensors that are not in it, but in the stage."""

    def build(self, stage: Stage, example: Payload, key: Hashable, ranges: Ranges) -> Run:
        with refusing("ONNX Runtime"):
            if key not in self._exported:
                self._exported[key] = _export(stage, one_example(example))
            graph, outside = self._exported[key]
            options, state = session_options(self._threads), dict(named_tensors(stage))
            arrays = [state[f"body.{name}"].detach().contiguous().cpu().numpy() for name in outside]
            if arrays:
                values = list(map(onnxruntime.OrtValue.ortvalue_from_numpy, arrays))
                options.add_external_initializers(outside, values)
            device, weights_bytes = example[0].device, sum(array.nbytes for array in arrays)
            if device.type == "cpu":
                session = onnxruntime.InferenceSession(graph, options, providers=PROVIDERS)
                return run_of(session, stage, weights_bytes)
            return bound_run_of(gpu_session(graph, options, device), stage, example, weights_bytes)


def session_options(threads: int) -> Any:
    """The options that all sessions have."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return options


def run_of(session: Any, stage: Stage, weights_bytes: int) -> Run:
    """A stage as a session runs it. weights_bytes: as `base.Run` has it."""
    fed_by = places(stage, session.get_inputs())

    def run(tensors: Payload) -> Payload:
        fed = {name: tensors[place].numpy() for name, place in fed_by}
        return tuple(map(torch.from_numpy, session.run(None, fed)))

    return Run(run, weights_bytes)


def gpu_session(graph: bytes, options: Any, device: torch.device) -> Any:
    """A session on an NVIDIA GPU. The processor computes what its provider lacks. Raises EngineError."""
    # Eager's products of matrices are not shortened either.
    on_gpu = (ON_GPU, {"device_id": str(device.index or 0), "use_tf32": "0"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it falls back to the processor with a warning
        session = onnxruntime.InferenceSession(graph, options, providers=[on_gpu, *PROVIDERS])
    if ON_GPU not in session.get_providers():
        raise EngineError(
            f"ONNX Runtime {onnxruntime.__version__} cannot use {device}: it lacks CUDA, or finds other versions of "
            "CUDA's libraries than it is built for (install the onnxruntime-gpu for the CUDA of this torch)"
        )
    return session


def bound_run_of(session: Any, stage: Stage, example: Payload, weights_bytes: int) -> Run:
    """As `run_of`, on the memory in which the tensors are, of whatever device: nothing is copied. example: a payload
    there; a run of the stage with it tells the results' shapes and dtypes."""
    fed_by = places(stage, session.get_inputs())
    made = [each.name for each in session.get_outputs()]
    results = [(tuple(one.shape), one.dtype) for one in stage(one_example(example))]
    device = example[0].device
    there = device.type, device.index or 0

    def place(tensor: Tensor) -> tuple[str, int, Any, list[int], int]:
        return (*there, _numpy_type(tensor.dtype), list(tensor.shape), tensor.data_ptr())

    def run(tensors: Payload) -> Payload:
        binding = session.io_binding()
        fed = [(name, tensors[number].contiguous()) for name, number in fed_by]
        written = tuple(torch.empty(shape, dtype=dtype, device=device) for shape, dtype in results)
        for name, tensor in fed:
            binding.bind_input(name, *place(tensor))
        for name, tensor in zip(made, written, strict=True):
            binding.bind_output(name, *place(tensor))
        if device.type == "cuda":  # the session has a stream of its own, which knows nothing of torch's
            torch.cuda.current_stream(device).synchronize()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return written

    return Run(run, weights_bytes)


@cache
def _numpy_type(dtype: torch.dtype) -> Any:
    return torch.empty(0, dtype=dtype).numpy().dtype.type


def places(stage: Stage, inputs: Iterable[Any]) -> list[tuple[str, int]]:
    """The name and the place in a payload of each input: the exporter leaves out inputs that nothing reads."""
    assert stage.body is not None  # noqa: S101
    every = [node.name for node in stage.body.graph.find_nodes(op="placeholder")]
    names = [each.name for each in inputs]
    numbers = range(len(names)) if len(names) == len(every) else map(every.index, names)
    return list(zip(names, numbers, strict=True))


def exported(stage: Stage, example: tuple[Tensor, ...]) -> Any:
    """The stage as a program of ONNX, with its weights.

    Constants are folded: else the runtime sees a convolution's missing bias as something to compute, and puts no batch
    norm into any convolution, which triples what MobileNetV2 takes. The rest it does itself: a weight that is changed
    here would be kept with the graph.
    """
    assert stage.body is not None  # noqa: S101
    with quiet(), torch.no_grad():
        program: Any = torch.onnx.export(stage.body, example, dynamo=True, verbose=False, optimize=False)
        optimizer.fold_constants(program.model, should_fold=_is_small)
        optimizer.remove_unused_nodes(program.model)
    return program


def _is_small(node: Any) -> bool | None:
    """Not what weights go into; of the rest the folder decides."""
    constants = (value.const_value for value in node.inputs if value is not None)
    return False if any(one is not None and one.nbytes > SMALL_BYTES for one in constants) else None


def serialized(program: Any) -> bytes:
    """The bytes of a model file."""
    graph: bytes = onnx_ir.serde.serialize_model(program.model).SerializeToString()
    return graph


def _export(stage: Stage, example: tuple[Tensor, ...]) -> tuple[bytes, list[str]]:
    program, state, outside = exported(stage, example), dict(named_tensors(stage)), list[str]()
    for name, value in program.model.graph.initializers.items():
        inside, own = value.const_value, state.get(f"body.{name}")
        raw = getattr(inside, "raw", None)
        if own is None or not isinstance(raw, Tensor) or raw.data_ptr() != own.data_ptr():
            continue  # a constant of the graph, or something that the exporter computed
        value.const_value = onnx_ir.ExternalTensor(
            "weights", 0, inside.nbytes, inside.dtype, shape=inside.shape, name=name
        )
        outside.append(name)
    return serialized(program), outside


@contextmanager
def quiet() -> Iterator[None]:
    """Without the exporter's remarks about its own parts, which nobody can do anything about."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
