"""A stage: the contiguous part of a model that one device runs, cut out of the traced graph."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, fx, nn

from .graph import TracedModel, propagate, target_of

Payload = tuple[Tensor, ...]


class Stage(nn.Module):
    """The units between two points, as a module from payload to payload.

    Call it with the tuple of tensors that crosses at its first point, under `torch.inference_mode()`. It
    returns the tuple that crosses at its last point (the model's result, if that is where it ends). The
    results are contiguous and in memory of their own; the inputs are never written to. A stage without
    units returns the inputs themselves. It holds the parameters and buffers of its own units only; they
    share memory with the model they were cut from until they are moved to another device.
    """

    def __init__(self, body: fx.GraphModule | None) -> None:
        super().__init__()
        self.body = body

    def forward(self, tensors: Payload) -> Payload:
        """Map a payload to a payload, for any batch size."""
        return tensors if self.body is None else cast(Payload, self.body(*tensors))


@torch.inference_mode(False)  # inference tensors do not count their writes
def cut(traced: TracedModel, state: Mapping[str, Tensor], start: str, end: str) -> Stage:
    """The stage made of the nodes after `start` up to `end`, with its tensors from `state`.

    start, end: node names, each cuttable or the model's result. state: path -> parameter or buffer.
    """
    first, last = _positions(traced, start, end)
    if first == last:
        return Stage(None)
    inputs, outputs = traced.live[first], traced.live[last]
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
    for node in traced.nodes[first + 1 : last + 1]:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(graph.call_method("contiguous", (copies[node],)) for node in outputs))

    called = {str(node.target): target_of(traced.module, node) for node in graph.nodes}
    body = fx.GraphModule({path: copy.deepcopy(it) for path, it in called.items() if it is not None}, graph)
    # An input is contiguous, whatever strides the same value has within the whole model.
    examples = [
        torch.empty(traced.values[n].shape, dtype=traced.values[n].dtype, device="meta") for n in inputs
    ]
    _protect_inputs(body, examples)
    _fill(body, state)
    return Stage(body)


def paths(traced: TracedModel, start: str, end: str) -> set[str]:
    """The parameters and buffers that `cut` takes from its `state`."""
    first, last = _positions(traced, start, end)
    found: set[str] = set()
    for node in traced.nodes[first + 1 : last + 1]:
        target = target_of(traced.module, node)
        if isinstance(target, nn.Module):
            tensors = (
                *target.named_parameters(remove_duplicate=False),
                *target.named_buffers(remove_duplicate=False),
            )
            found.update(f"{node.target}.{name}" for name, _ in tensors)
        elif target is not None:
            found.add(str(node.target))
    return found


def _positions(traced: TracedModel, start: str, end: str) -> tuple[int, int]:
    position = {node.name: index for index, node in enumerate(traced.nodes)}
    return position[start], position[end]


def _fill(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Replace every parameter and buffer of `module` by that of `state`, sharing its memory."""
    for path, _ in list(module.named_parameters(remove_duplicate=False)):
        parent, _, name = path.rpartition(".")
        parameter = nn.Parameter(state[path].detach(), requires_grad=False)
        module.get_submodule(parent).register_parameter(name, parameter)
    for path, _ in list(module.named_buffers(remove_duplicate=False)):
        parent, _, name = path.rpartition(".")
        module.get_submodule(parent)._buffers[name] = state[path].detach()


def _protect_inputs(body: fx.GraphModule, examples: list[Tensor]) -> None:
    """Rewrite the graph so that it neither writes to its inputs nor returns their memory.

    An in-place activation right behind a cut would overwrite a buffer that the caller still uses; out of
    place it costs no more. What the graph does to its inputs is observed in runs on the meta device.
    """
    writer, aliases = _observe(body, examples)
    while writer is not None:
        if _read_after(writer, aliases) or not _make_out_of_place(body, writer):
            _copy_inputs(body)
        writer, aliases = _observe(body, examples)
    output = next(node for node in body.graph.nodes if node.op == "output")
    with body.graph.inserting_before(output):
        for result in aliases.intersection(output.all_input_nodes):
            output.replace_input_with(result, body.graph.call_method("clone", (result,)))
    body.graph.lint()
    body.recompile()


def _observe(body: fx.GraphModule, examples: list[Tensor]) -> tuple[fx.Node | None, set[fx.Node]]:
    """The first node that writes to the memory of an input, and those before it whose value lies there."""
    inputs = {tensor.untyped_storage()._cdata for tensor in examples}
    before = [tensor._version for tensor in examples]  # counts writes, also those through a view
    aliases: set[fx.Node] = set()
    readers: set[fx.Node] = set()
    for node, value in zip(body.graph.nodes, propagate(body, *examples), strict=False):
        if [tensor._version for tensor in examples] != before:
            return node, aliases
        readers.discard(node)
        tensors = [
            t for t in (value if isinstance(value, tuple | list) else [value]) if isinstance(t, Tensor)
        ]
        if any(tensor.untyped_storage()._cdata in inputs for tensor in tensors):
            aliases.add(node)
            readers.update(node.users)
        if not readers:  # no later node can reach that memory
            break
    return None, aliases


def _read_after(writer: fx.Node, aliases: set[fx.Node]) -> bool:
    """Whether something after `writer` reads what it wrote otherwise than from its result."""
    return any(writer < user for node in aliases for user in node.users)


def _make_out_of_place(body: fx.GraphModule, writer: fx.Node) -> bool:
    """Switch off the `inplace` option of a module or function; False where there is none."""
    if writer.op == "call_module":
        module = body.get_submodule(str(writer.target))
        if getattr(module, "inplace", False):
            module.inplace = False  # type: ignore[assignment]
            return True
    elif writer.kwargs.get("inplace"):
        writer.kwargs = {**writer.kwargs, "inplace": False}
        return True
    return False


def _copy_inputs(body: fx.GraphModule) -> None:
    """Let the graph work on copies of its inputs."""
    inputs = [node for node in body.graph.nodes if node.op == "placeholder"]
    with body.graph.inserting_after(inputs[-1]):
        for node in inputs:
            duplicate = body.graph.call_method("clone", (node,))
            node.replace_all_uses_with(duplicate, lambda user, own=duplicate: user is not own)
