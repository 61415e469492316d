"""The operator graph of a model, the shape of every value in it, and what is live between two operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn


class UntraceableModel(ValueError):
    """The model has no static graph of the kind that can be cut."""


class _Tracer(fx.Tracer):
    # Buffers stay graph nodes. Otherwise arithmetic on a buffer runs while tracing and leaves a constant
    # without values in a graph that was traced on the meta device (MaxViT's relative position index).
    proxy_buffer_attributes = True


@dataclass(frozen=True)
class TracedModel:
    """A model on the meta device and its graph.

    nodes: the graph's nodes without the output node, in execution order; nodes[0] is the input.
    values: what each node yields at batch 1, on the meta device (a tensor, but for sizes and the like).
    result: the node whose value the model returns.
    live: for each node, those whose values are still needed after it.
    cuttable: for each node, whether a cut after it parts the parameters and leaves exactly one tensor live.
    """

    module: nn.Module
    nodes: tuple[fx.Node, ...]
    values: dict[fx.Node, Any]
    result: fx.Node
    live: tuple[tuple[fx.Node, ...], ...]
    cuttable: tuple[bool, ...]


def trace(module: nn.Module, input_shape: tuple[int, ...]) -> TracedModel:
    """Trace `module`, which is on the meta device and in eval mode, for one input of shape (1, *input_shape).

    Raises UntraceableModel where fx finds no static graph, or the model has not one tensor in and one out.
    """
    try:
        graph = _Tracer().trace(module)
    except (fx.proxy.TraceError, TypeError, ValueError, RuntimeError) as error:
        raise UntraceableModel(f"{type(module).__name__} cannot be traced: {error}") from error
    *nodes, output = graph.nodes
    result = output.args[0]
    inputs = [node for node in nodes if node.op == "placeholder"]
    if len(inputs) != 1 or not isinstance(result, fx.Node):
        raise UntraceableModel(f"{type(module).__name__} does not map one tensor to one tensor")
    example = torch.empty(1, *input_shape, device="meta")
    values = dict(zip(nodes, propagate(fx.GraphModule(module, graph), example), strict=True))
    live = tuple(_live(nodes))
    cuttable = tuple(
        parted and len(alive) == 1 and isinstance(values[alive[0]], Tensor)
        for parted, alive in zip(_parted(module, nodes), live, strict=True)
    )
    return TracedModel(module, tuple(nodes), values, result, live, cuttable)


def propagate(module: fx.GraphModule, *inputs: Tensor) -> Iterator[Any]:
    """Run the graph node by node and yield each value, the output node's excepted."""
    interpreter = fx.Interpreter(module, garbage_collect_values=False)
    interpreter.args_iter = iter(inputs)
    with torch.no_grad():
        for node in module.graph.nodes:
            if node.op != "output":
                interpreter.env[node] = interpreter.run_node(node)
                yield interpreter.env[node]


def _live(nodes: list[fx.Node]) -> Iterator[tuple[fx.Node, ...]]:
    """For each node, the nodes up to it that a later one (or the output) reads."""
    position = {node: index for index, node in enumerate(nodes)}
    last_use = [max((position.get(user, len(nodes)) for user in node.users), default=-1) for node in nodes]
    alive: list[int] = []
    for index in range(len(nodes)):
        alive = [i for i in (*alive, index) if last_use[i] > index]
        yield tuple(nodes[i] for i in alive)


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


def _state_of(module: nn.Module, node: fx.Node) -> list[Tensor]:
    target = target_of(module, node)
    if isinstance(target, nn.Module):
        return [*target.parameters(), *target.buffers()]
    return [] if target is None else [target]
