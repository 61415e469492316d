"""A stage: the contiguous part of a model that one device runs, cut out of the traced graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from .graph import TracedModel, named_tensors, propagate, state_paths, storages, target_of, tensors_in

Payload = tuple[Tensor, ...]
Mark = Callable[[], object]


class Stage(nn.Module):
    """The units between two points, as a module from payload to payload.

    Call it under `torch.inference_mode()` with the tuple of tensors that crosses at its first point. It returns the
    tuple that crosses at its last point, or the model's result where it ends the model. The results are contiguous and
    in memory of their own; the inputs are never written to. A stage without units returns the inputs themselves. It
    holds the parameters and buffers of its own units only, which share memory with the model that they were cut from
    until they are moved to another device.
    """

    def __init__(self, body: fx.GraphModule | None) -> None:
        super().__init__()
        self.body = body

    @property
    def has_units(self) -> bool:
        """Whether it computes anything."""
        return self.body is not None

    def forward(self, tensors: Payload) -> Payload:
        """The payload for a payload, for any batch size."""
        return tensors if self.body is None else cast(Payload, self.body(*tensors))


@torch.inference_mode(False)  # inference tensors do not count their writes
def cut(
    traced: TracedModel,
    state: Mapping[str, Tensor],
    start: str,
    end: str,
    mark: Mark | None = None,
    between: Sequence[str] = (),
) -> Stage:
    """The stage made of the nodes after `start` up to `end`, with its tensors from `state`.

    start, end: node names, each cuttable or the model's result. state: first path -> parameter or buffer. mark: is
    called in each run before the first node, after each node of `between`, and when the results are there; now as well.
    """
    first, last = _positions(traced, start, end)
    if first == last:
        return Stage(None)
    inputs, outputs = traced.live[first], traced.live[last]
    graph = fx.Graph()
    copies = {node: graph.placeholder(node.name) for node in inputs}
    if mark is not None:
        graph.call_function(mark)
    for node in inputs:
        copies[node] = _laid_out(graph, copies[node], traced.values[node])
    nodes, units = traced.nodes[first + 1 : last + 1], dict[str, nn.Module | Tensor]()
    # A module or tensor may be called as an attribute of every GraphModule is, or as a keyword: it gets another name.
    names: dict[str, str] = {}
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        if (target := target_of(traced.module, node)) is not None:
            name = copies[node].target = names.setdefault(str(node.target), f"unit{len(names)}")
            units[name] = _copied(target)
        if mark is not None and node.name in between:
            graph.call_function(mark)
    results = tuple(graph.call_method("contiguous", (copies[node],)) for node in outputs)
    if mark is not None:
        graph.call_function(mark)
    graph.output(results)

    body = fx.GraphModule(units, graph)
    # An input is contiguous, whatever strides the same value has within the whole model.
    examples = [
        torch.empty_like(traced.values[node], memory_format=torch.contiguous_format) for node in inputs
    ]
    _protect_inputs(body, examples)
    read = state_paths(traced.module, nodes, traced.first)
    fill(body, {names[called] + rest: state[path] for _, called, rest, path in read})
    return Stage(body)


def _laid_out(graph: fx.Graph, received: fx.Node, value: Tensor) -> fx.Node:
    """The value in the layout that it has in the whole model, such as 'channels last'; on the link it is contiguous.
    Kernels follow the layout of what they read, and round otherwise in another layout."""
    order = sorted(range(value.dim()), key=lambda dim: -value.stride()[dim])
    if value.is_contiguous() or not value.permute(order).is_contiguous():
        return received
    dense = graph.call_method("contiguous", (graph.call_method("permute", (received, order)),))
    return graph.call_method("permute", (dense, [order.index(dim) for dim in range(value.dim())]))


def _copied(target: nn.Module | Tensor) -> nn.Module | Tensor:
    """A copy of a module with the same tensors, until it is given others; a deep copy would take far longer."""
    if isinstance(target, Tensor):
        return target
    module = object.__new__(type(target))  # a parametrized one refuses `copy.copy`
    vars(module).update(vars(target))
    module._parameters, module._buffers = module._parameters.copy(), module._buffers.copy()
    module._modules = {
        name: child and cast(nn.Module, _copied(child)) for name, child in module._modules.items()
    }
    return module


def paths(traced: TracedModel, start: str, end: str) -> set[str]:
    """The parameters and buffers that `cut` takes from its `state`, each by its first path."""
    first, last = _positions(traced, start, end)
    return {path for *_, path in state_paths(traced.module, traced.nodes[first + 1 : last + 1], traced.first)}


def _positions(traced: TracedModel, start: str, end: str) -> tuple[int, int]:
    names = [node.name for node in traced.nodes]
    return names.index(start), names.index(end)


def fill(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Replace every parameter and buffer of `module` by the one in `state`, whose memory it shares."""
    for path, tensor in list(named_tensors(module)):
        parent, _, name = path.rpartition(".")
        owner, new = module.get_submodule(parent), state[path].detach()
        if isinstance(tensor, nn.Parameter):
            owner.register_parameter(name, nn.Parameter(new, requires_grad=False))
        else:
            owner._buffers[name] = new


@dataclass(frozen=True)
class _Write:
    """`node` writes to the memory of input number `which`, where the values of `aliases` lie. alike: whether all that
    it reads has one dtype."""

    node: fx.Node
    which: int
    aliases: set[fx.Node]
    alike: bool


def _protect_inputs(body: fx.GraphModule, examples: list[Tensor]) -> None:
    """Rewrite the graph of a stage so that it neither writes to its inputs nor returns their memory.

    An in-place activation right after a cut would overwrite a buffer that the caller still uses; out of place it
    costs no more. Runs on the meta device show what the graph does to its inputs. examples: inputs there.
    """
    inputs, output = body.graph.find_nodes(op="placeholder"), body.graph.output_node()
    write, aliases = _observe(body, examples)
    while write is not None:
        # A later node may read what was written other than from the writing node's result.
        is_read = any(write.node < user for node in write.aliases for user in node.users)
        if is_read or not _make_out_of_place(body, write):
            written = inputs[write.which]
            with body.graph.inserting_after(inputs[-1]):
                duplicate = body.graph.call_method("clone", (written,))
            written.replace_all_uses_with(duplicate, lambda user, duplicate=duplicate: user is not duplicate)
        write, aliases = _observe(body, examples)
    for result in aliases.intersection(output.all_input_nodes):
        with body.graph.inserting_before(output):
            output.replace_input_with(result, body.graph.call_method("clone", (result,)))
    body.graph.lint()
    body.recompile()


def _observe(body: fx.GraphModule, examples: list[Tensor]) -> tuple[_Write | None, set[fx.Node]]:
    """The first write to an input's memory, and the nodes before it whose values lie in the memory of an input."""
    owner = {tensor.untyped_storage()._cdata: which for which, tensor in enumerate(examples)}
    before = [tensor._version for tensor in examples]  # counts writes, also those through a view
    aliases = [set[fx.Node]() for _ in examples]
    readers: set[fx.Node] = set()
    values: dict[fx.Node, Any] = {}
    for node, value in propagate(body, body.graph, *examples):
        for which, tensor in enumerate(examples):
            if tensor._version != before[which]:
                read = [one.dtype for source in node.all_input_nodes for one in tensors_in(values[source])]
                return _Write(node, which, aliases[which], len(set(read)) == 1), set().union(*aliases)
        values[node] = value
        readers.discard(node)
        for memory in owner.keys() & storages(value):
            aliases[owner[memory]].add(node)
            readers.update(node.users)
        if not readers:  # no later node can reach that memory
            break
    return None, set().union(*aliases)


def _make_out_of_place(body: fx.GraphModule, write: _Write) -> bool:
    """Let the node make a new tensor; False where it has no form that does."""
    node, name = write.node, str(write.node.target)
    if node.op == "call_module":
        module = body.get_submodule(name)
        if getattr(module, "inplace", False):
            module.inplace = False  # type: ignore[assignment]
            return True
        return False
    if node.kwargs.get("inplace"):
        node.kwargs = {**node.kwargs, "inplace": False}
        return True
    is_method = node.op == "call_method" and name.endswith("_") and hasattr(Tensor, name[:-1])
    if is_method and write.alike:  # in place, the result would keep the dtype of what was overwritten
        node.target = name[:-1]
        return True
    return False
