"""Stages that neither write to their inputs nor return their memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from .graph import propagate, storages, tensors_in


@dataclass(frozen=True)
class _Write:
    """`node` writes to the memory of the input `which`; so far `aliases` lie there. alike: it reads but one dtype."""

    node: fx.Node
    which: int
    aliases: set[fx.Node]
    alike: bool


def protect_inputs(body: fx.GraphModule, examples: list[Tensor]) -> None:
    """Rewrite the graph of a stage so that it neither writes to its inputs nor returns their memory.

    An in-place activation right behind a cut would overwrite a buffer that the caller still uses; out of
    place it costs no more. What the graph does to its inputs is observed in runs on the meta device.
    examples: inputs of the stage there.
    """
    write, aliases = _observe(body, examples)
    while write is not None:
        if _read_after(write) or not _make_out_of_place(body, write):
            _copy_input(body, write.which)
        write, aliases = _observe(body, examples)
    output = next(node for node in body.graph.nodes if node.op == "output")
    with body.graph.inserting_before(output):
        for result in aliases.intersection(output.all_input_nodes):
            output.replace_input_with(result, body.graph.call_method("clone", (result,)))
    body.graph.lint()
    body.recompile()


def _observe(body: fx.GraphModule, examples: list[Tensor]) -> tuple[_Write | None, set[fx.Node]]:
    """The first write to an input's memory, and the nodes before it whose value lies in that of any input."""
    owner = {tensor.untyped_storage()._cdata: which for which, tensor in enumerate(examples)}
    before = [tensor._version for tensor in examples]  # counts writes, also those through a view
    aliases = [set[fx.Node]() for _ in examples]
    readers: set[fx.Node] = set()
    values: dict[fx.Node, Any] = {}
    for node, value in zip(body.graph.nodes, propagate(body, *examples), strict=False):
        for which, tensor in enumerate(examples):
            if tensor._version != before[which]:
                read = [it.dtype for source in node.all_input_nodes for it in tensors_in(values[source])]
                return _Write(node, which, aliases[which], len(set(read)) == 1), set().union(*aliases)
        values[node] = value
        readers.discard(node)
        for memory in owner.keys() & storages(value):
            aliases[owner[memory]].add(node)
            readers.update(node.users)
        if not readers:  # no later node can reach that memory
            break
    return None, set().union(*aliases)


def _read_after(write: _Write) -> bool:
    """Whether something after it reads what was written otherwise than from its result."""
    return any(write.node < user for node in write.aliases for user in node.users)


def _make_out_of_place(body: fx.GraphModule, write: _Write) -> bool:
    """Let the node make a new tensor; False where there is no form of it that does."""
    node = write.node
    if node.op == "call_module":
        module = body.get_submodule(str(node.target))
        if getattr(module, "inplace", False):
            module.inplace = False  # type: ignore[assignment]
            return True
        return False
    if node.kwargs.get("inplace"):
        node.kwargs = {**node.kwargs, "inplace": False}
        return True
    twin = _twin(node.target)
    if twin is None or not write.alike:  # in place, the result would keep the dtype of what was overwritten
        return False
    node.target = twin
    return True


def _twin(target: Any) -> Any:
    """The operator that computes out of place what `target` computes in place."""
    if isinstance(target, str) and target.endswith("_") and callable(getattr(Tensor, target[:-1], None)):
        return target[:-1]
    if isinstance(target, torch._ops.OpOverload):
        packet = getattr(torch.ops.aten, target.overloadpacket.__name__.removesuffix("_"), None)
        return getattr(packet, target._overloadname, None)
    return None


def _copy_input(body: fx.GraphModule, which: int) -> None:
    """Let the graph work on a copy of an input."""
    inputs = [node for node in body.graph.nodes if node.op == "placeholder"]
    with body.graph.inserting_after(inputs[-1]):
        duplicate = body.graph.call_method("clone", (inputs[which],))
    inputs[which].replace_all_uses_with(duplicate, lambda user: user is not duplicate)
