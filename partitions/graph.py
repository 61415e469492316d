"""The operator graph of a model, the shape of every value in it, and what is live between two operators."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

from pareto.protocol.constants import DTYPES, MAX_RANK
from pareto.protocol.errors import UserError


class UntraceableModel(UserError):
    """The model has no static graph of the kind that can be cut; the message is one line."""


class HopelessModel(UntraceableModel):
    """The same, and no other way to trace the model would find one."""


@dataclass(frozen=True)
class Input:
    """A tensor that a model takes. shape: without the batch dimension, which comes first. name: the parameter of
    `forward` that it is for; empty where inputs go to the first ones in their order."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    name: str = ""

    def empty(self, batch: int, device: str = "meta") -> Tensor:
        """A tensor of that kind without values."""
        return torch.empty(batch, *self.shape, dtype=self.dtype, device=device)


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a payload or a result.

    shape: at batch 1, with the batch dimension. dtype: such as 'float32'. batch_dim: the dimension that grows with the
    batch; None where the tensor is the same for any batch.
    """

    shape: tuple[int, ...]
    dtype: str
    batch_dim: int | None = 0

    @property
    def nbytes(self) -> int:
        """Size in bytes at batch 1."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return math.prod(self.shape) * dtype.itemsize

    def at(self, batch_size: int) -> tuple[int, ...]:
        """The shape for `batch_size` images."""
        return tuple(
            size * batch_size if dim == self.batch_dim else size for dim, size in enumerate(self.shape)
        )


@dataclass(frozen=True)
class TracedModel:
    """A model on the meta device and its graph.

    nodes: the graph's nodes without the output node, in execution order; the inputs come first.
    values: the value of each node at batch 1, on the meta device; most are tensors, some are sizes and the like.
    specs: the specs of the values that are tensors.
    results: the nodes whose values the model returns, in the order of `flattened`.
    live: for each node, the nodes whose values are still needed after it; for the last node, the results.
    cuttable: for each node, whether a cut after it parts the parameters and leaves only tensors live that can be sent.
    traced_by: 'torch.fx', 'torch.export' or 'chain'.
    computed: by path, the buffers that are in no weights file because the constructor computes them; not on 'meta'.
    bound: for each node, a live value that alone forbids a cut after it, because it cannot cross; else None.
    read: the nodes whose values are numbers that the model reads from tensors, or follow from such numbers.
    first: for a parameter or buffer that has several paths, the first of them by each other one.
    """

    module: nn.Module
    nodes: tuple[fx.Node, ...]
    values: dict[fx.Node, Any]
    specs: dict[fx.Node, TensorSpec]
    results: tuple[fx.Node, ...]
    live: tuple[tuple[fx.Node, ...], ...]
    cuttable: tuple[bool, ...]
    traced_by: str
    computed: dict[str, Tensor]
    bound: tuple[fx.Node | None, ...]
    read: frozenset[fx.Node]
    first: Mapping[str, str]

    @property
    def inputs(self) -> tuple[fx.Node, ...]:
        """The inputs; a cut after the last of them leaves all of the model to the other side."""
        return tuple(node for node in self.nodes if node.op == "placeholder")


def propagate(
    module: nn.Module, graph: fx.Graph, *inputs: Tensor, scalars: int = 0
) -> Iterator[tuple[fx.Node, Any]]:
    """Run a graph over the parts of `module` node by node; yield each node but the output with its value.

    On the meta device a module with a forward of its own may take any branch. scalars: what numbers count as that are
    read from a tensor there.
    """
    # The names in a user's module are its own: a GraphModule would have other things under some of them.
    interpreter = fx.Interpreter(module, garbage_collect_values=False, graph=graph)
    interpreter.args_iter = iter(inputs)
    with torch.no_grad():
        for node in graph.nodes:
            if node.op != "output":
                called = [module.get_submodule(str(node.target))] if node.op == "call_module" else []
                # Not a module with a forward of its own.
                plain = all(
                    type(one).__module__.startswith("torch.nn") and not [*one.children()] for one in called
                )
                with contextlib.nullcontext() if plain and not reads_values(node) else AnyBranch(scalars):
                    interpreter.env[node] = interpreter.run_node(node)
                yield node, interpreter.env[node]


def reads_values(node: fx.Node) -> bool:
    """Whether the node makes a number of a tensor's value."""
    called = node.op in ("call_method", "call_function")
    return called and operator_name(node) in ("item", "_local_scalar_dense")


def operator_name(node: fx.Node) -> str:
    """The function, method or operator that a node calls, without module and overload: 'relu_', 'cat'."""
    if isinstance(node.target, str):
        return node.target
    return str(node.target.__name__).split(".")[0]


class AnyBranch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While this mode is active, a value on the meta device that is asked for counts as 0, or as `scalars`. A payload
    has one shape, so each branch leads to the same shapes."""

    def __init__(self, scalars: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._scalars = scalars

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return torch.full((), self._scalars, dtype=args[0].dtype).item()
        return func(*args, **(kwargs or {}))


def target_of(module: nn.Module, node: fx.Node) -> nn.Module | Tensor | None:
    """The submodule that the node calls, or the parameter or buffer that it reads; None for other nodes."""
    if node.op == "call_module":
        return module.get_submodule(str(node.target))
    if node.op == "get_attr":
        path, _, name = str(node.target).rpartition(".")
        owner = module.get_submodule(path)
        tensor = owner._parameters.get(name, owner._buffers.get(name))
        if tensor is None:  # a constant of the forward function: no weights file has it
            kind = type(module).__name__
            raise UntraceableModel(f"{kind}: {node.target} is neither a parameter nor a buffer")
        return tensor
    return None


def state_paths(
    module: nn.Module, nodes: Iterable[fx.Node], first: Mapping[str, str]
) -> Iterator[tuple[fx.Node, str, str, str]]:
    """Each parameter and buffer that a node reads: the node, the path of what it calls, the rest of the path; and the
    first path, by `first`, where there are several."""
    for node in nodes:
        target, called = target_of(module, node), str(node.target)
        rests = [f".{name}" for name, _ in named_tensors(target)] if isinstance(target, nn.Module) else [""]
        if target is not None:
            yield from ((node, called, rest, first.get(called + rest, called + rest)) for rest in rests)


VARYING = "the shape of a result depends on values in the input"
NO_KERNEL = "custom C++ ops"
"""The words of torch on operators of torchvision's whose results have such a shape."""
_SYMPTOMS = {
    f".*{re.escape(NO_KERNEL)}.*": f"{VARYING}, as after non-maximum suppression",
    r".*\b(\w+::\w+)\b.*(no|the) fake impl.*": r"the operator \1 cannot run without values",
}


def symptom(error: Exception) -> str:
    """The first line of what tracing raised; in plain words where it is about torch's own parts."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    for pattern, words in _SYMPTOMS.items():
        line = re.sub(pattern, words, line)
    return line


def first_paths(module: nn.Module) -> dict[str, str]:
    """The first path of each parameter and buffer by each further path that it has, as where two layers share it."""
    first: dict[int, str] = {}
    paths = ((path, first.setdefault(id(tensor), path)) for path, tensor in named_tensors(module))
    return {path: other for path, other in paths if path != other}


def named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters and buffers of a module, each under every path that it has."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def flattened(value: Any) -> Iterator[Any]:
    """The items of nested tuples and lists and the values of dicts, as one flat sequence in their order."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for item in value:
            yield from flattened(item)
    else:
        yield value


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of a nested value, in the order of `flattened`."""
    return [item for item in flattened(value) if isinstance(item, Tensor)]


def spans(
    module: nn.Module, nodes: Sequence[fx.Node], first: Mapping[str, str]
) -> dict[str, tuple[int, int]]:
    """The indices of the first and the last node that read each parameter and buffer, by its first path."""
    position = {node: index for index, node in enumerate(nodes)}
    found: dict[str, tuple[int, int]] = {}
    for node, *_, path in state_paths(module, nodes, first):
        found[path] = found.get(path, (position[node], 0))[0], position[node]
    return found


def unsendable(tensor: Tensor) -> str:
    """The kind of tensor that no link carries: 'a tensor of complex64'; empty for others."""
    if (dtype := str(tensor.dtype).removeprefix("torch.")) not in DTYPES:
        return f"a tensor of {dtype}"
    return f"a tensor of {tensor.dim()} dimensions" if tensor.dim() > MAX_RANK else ""


def storages(value: Any) -> set[int]:
    """The memory of the tensors of a value."""
    return {tensor.untyped_storage()._cdata for tensor in tensors_in(value)}


def varying(values: Mapping[fx.Node, Any]) -> set[fx.Node]:
    """The nodes of a graph whose values depend on its inputs. values: of each, in order."""
    found = set[fx.Node]()
    for node, value in values.items():
        if node.op == "placeholder" or (tensors_in(value) and not found.isdisjoint(node.all_input_nodes)):
            found.add(node)
    return found
