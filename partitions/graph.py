"""The operator graph of a model, the shape of every value in it, and what is live between two operators."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from pareto.errors import UserError

from .preprocess import normalized
from .sizes import settle, unpin


class UntraceableModel(UserError):
    """The model has no static graph of the kind that can be cut; the message is one line."""


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a payload or a result.

    shape: at batch 1, the batch dimension included. dtype: as in 'float32'. batch_dim: the dimension that grows with
    the batch, None where the tensor is the same for any.
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
        """The shape for so many images."""
        return tuple(
            size * batch_size if dim == self.batch_dim else size for dim, size in enumerate(self.shape)
        )


@dataclass(frozen=True)
class TracedModel:
    """A model on the meta device and its graph.

    nodes: the graph's nodes without the output node, in execution order; nodes[0] is the input.
    values: what each node yields at batch 1, on the meta device (a tensor, but for sizes and the like).
    specs: of those values that are tensors.
    results: the nodes whose values the model returns, in the order of `flattened`.
    live: for each node, those whose values are still needed after it; for the last one, the results.
    cuttable: for each node, whether a cut after it parts the parameters and leaves only tensors live that can be sent.
    traced_by: 'torch.fx', 'torch.export' or 'chain'.
    computed: by path, the buffers that are in no weights file, because the constructor computes them; not on 'meta'.
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


@torch.inference_mode(False)  # inference tensors do not count their writes
def analyse(
    module: nn.Module, graph: fx.Graph, input_shape: tuple[int, ...], dtype: torch.dtype, traced_by: str
) -> TracedModel:
    """What can be cut in `graph`, which reads parameters and buffers of `module`; they go to the meta device.

    input_shape: without the batch dimension. Raises UntraceableModel where the graph does not map one tensor to
    tensors, or does not work for any batch.
    """
    name = type(module).__name__
    saved = module.state_dict().keys()
    buffers = module.named_buffers(remove_duplicate=False)
    computed = {path: buffer for path, buffer in buffers if path not in saved}
    module.to("meta")
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    output = next(node for node in graph.nodes if node.op == "output")
    returned = [value for value in flattened(output.args[0]) if isinstance(value, fx.Node)]
    if len(inputs) != 1:
        raise UntraceableModel(f"{name} does not map one tensor to tensors")
    unpin(graph, inputs[0])
    try:
        (one, written), (two, _) = (
            _run(fx.GraphModule(module, graph), torch.empty(batch, *input_shape, dtype=dtype, device="meta"))
            for batch in (1, 2)
        )
    except Exception as error:  # whatever an operator makes of values that are not there
        raise UntraceableModel(f"{name} cannot be traced: {one_line(error)}") from error
    results = tuple(it for it in returned if isinstance(one[it], Tensor))
    if not results or not isinstance(one[inputs[0]], Tensor):
        raise UntraceableModel(f"{name} does not map one tensor to tensors")
    output.args = (results,)
    settle(graph, one, two, written)
    nodes = [node for node in graph.nodes if node is not output]
    specs = {node: _spec(one[node], two[node]) for node in nodes if isinstance(one[node], Tensor)}
    live = [*_live(nodes)]
    live[-1] = results
    values = {node: one[node] for node in nodes}
    last_writes = {memory: index for index, node in enumerate(nodes) for memory in written.get(node, ())}
    sendable = _sendable(values, specs, live, last_writes)
    cuttable = [a and b for a, b in zip(_parted(module, nodes), sendable, strict=True)]
    return TracedModel(
        module, tuple(nodes), values, specs, results, tuple(live), tuple(cuttable), traced_by, computed
    )


def flattened(value: Any) -> Iterator[Any]:
    """What a model returns as a flat sequence: of dicts the values, of tuples and lists the items, in their order."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for item in value:
            yield from flattened(item)
    else:
        yield value


def propagate(module: fx.GraphModule, *inputs: Tensor) -> Iterator[Any]:
    """Run the graph node by node and yield each value, the output node's excepted.

    On the meta device a module that runs as it is may take any branch.
    """
    from .chained import AnyBranch

    interpreter = fx.Interpreter(module, garbage_collect_values=False)
    interpreter.args_iter = iter(inputs)
    with torch.no_grad():
        for node in module.graph.nodes:
            if node.op != "output":
                with contextlib.nullcontext() if _is_plain(module, node) else AnyBranch():  # type: ignore[no-untyped-call]
                    interpreter.env[node] = interpreter.run_node(node)
                yield interpreter.env[node]


def _is_plain(module: nn.Module, node: fx.Node) -> bool:
    """Whether it is one operation, not a module with a forward of its own."""
    called = module.get_submodule(str(node.target)) if node.op == "call_module" else None
    return called is None or (type(called).__module__.startswith("torch.nn") and not [*called.children()])


def _run(module: fx.GraphModule, example: Tensor) -> tuple[dict[fx.Node, Any], dict[fx.Node, set[int]]]:
    """Each node's value, and for those that write to existing memory, to which."""
    values, written = dict[fx.Node, Any](), dict[fx.Node, set[int]]()
    seen = dict[int, tuple[Tensor, int]]()  # memory -> a tensor there, and how often it has been written to
    for node, value in zip(module.graph.nodes, propagate(module, example), strict=False):
        for memory in {it for source in node.all_input_nodes for it in storages(values[source])}:
            tensor, version = seen[memory]
            if tensor._version != version:
                written.setdefault(node, set()).add(memory)
                seen[memory] = tensor, tensor._version
        for tensor in tensors_in(value):
            seen.setdefault(tensor.untyped_storage()._cdata, (tensor, tensor._version))
        values[node] = value
    return values, written


def target_of(module: nn.Module, node: fx.Node) -> nn.Module | Tensor | None:
    """The submodule that the node calls, or the parameter or buffer that it reads; None for other nodes."""
    if node.op == "call_module":
        return module.get_submodule(str(node.target))
    if node.op == "get_attr":
        path, _, name = str(node.target).rpartition(".")
        owner = module.get_submodule(path)
        tensor = owner._parameters.get(name, owner._buffers.get(name))
        if tensor is None:  # a constant of the forward function: no weights file has it
            raise UntraceableModel(
                f"{type(module).__name__}: {node.target} is neither a parameter nor a buffer"
            )
        return tensor
    return None


def one_line(error: Exception) -> str:
    """The first line of an error's message."""
    return next(iter(str(error).split("\n")), "").strip() or type(error).__name__


def _spec(one: Tensor, two: Tensor) -> TensorSpec:
    grown = [dim for dim, sizes in enumerate(zip(one.shape, two.shape, strict=True)) if sizes[0] != sizes[1]]
    in_step = len(grown) == 1 and two.shape[grown[0]] == 2 * one.shape[grown[0]]
    return TensorSpec(tuple(one.shape), str(one.dtype).removeprefix("torch."), grown[0] if in_step else None)


def _live(nodes: list[fx.Node]) -> Iterator[tuple[fx.Node, ...]]:
    """For each node, the nodes up to it that a later one (or the output) reads."""
    position = {node: index for index, node in enumerate(nodes)}
    last_use = [max((position.get(user, len(nodes)) for user in node.users), default=-1) for node in nodes]
    alive: list[int] = []
    for index in range(len(nodes)):
        alive = [i for i in (*alive, index) if last_use[i] > index]
        yield tuple(nodes[i] for i in alive)


def _sendable(
    values: dict[fx.Node, Any],
    specs: dict[fx.Node, TensorSpec],
    live: list[tuple[fx.Node, ...]],
    last_writes: dict[int, int],
) -> Iterator[bool]:
    """For each node, whether what is live after it can cross a link."""
    varying = set[fx.Node]()  # what was computed from parameters alone belongs to the stage that reads it
    for node, value in values.items():
        if node.op == "placeholder" or (tensors_in(value) and not varying.isdisjoint(node.all_input_nodes)):
            varying.add(node)
    tensors = {node for node in varying if node in specs and specs[node].batch_dim is not None}
    for index, (node, alive) in enumerate(zip(values, live, strict=True)):
        # Two live tensors in one memory that is written to later: on another host only one of them would change.
        memory = [it for other in alive if other in tensors for it in storages(values[other])]
        torn = any(memory.count(it) > 1 and last_writes.get(it, -1) > index for it in memory)
        waits = node.target is normalized  # behind it four bytes would cross for one
        yield bool(alive) and tensors.issuperset(alive) and not torn and not waits


def storages(value: Any) -> set[int]:
    """The memory in which the tensors of a value lie."""
    return {it.untyped_storage()._cdata for it in tensors_in(value)}


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of a nested value, in the order of `flattened`."""
    return [it for it in flattened(value) if isinstance(it, Tensor)]


def _parted(module: nn.Module, nodes: list[fx.Node]) -> list[bool]:
    """For each node, whether no parameter or buffer is needed on both sides of a cut after it."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, node in enumerate(nodes):
        for tensor in _state_of(module, node):
            first.setdefault(id(tensor), index)
            last[id(tensor)] = index
    shared = [False] * len(nodes)
    for key, start in first.items():
        shared[start : last[key]] = [True] * (last[key] - start)
    return [not value for value in shared]


def _state_of(module: nn.Module, node: fx.Node) -> Iterable[Tensor]:
    target = target_of(module, node)
    if isinstance(target, nn.Module):
        return [*target.parameters(), *target.buffers()]
    return [] if target is None else [target]
