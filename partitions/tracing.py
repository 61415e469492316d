"""From a module to its graph and where that can be cut; by torch.fx, torch.export, or as a chain of submodules."""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from pareto.protocol.constants import MAX_TENSORS

from .graph import (
    NO_KERNEL,
    VARYING,
    HopelessModel,
    Input,
    TensorSpec,
    TracedModel,
    UntraceableModel,
    first_paths,
    flattened,
    propagate,
    reads_values,
    spans,
    storages,
    symptom,
    tensors_in,
    unsendable,
    varying,
)
from .plain_values import rewrite, settle, unpin
from .purity import Chance, UnrepeatableModel, kept

Scaling = tuple[tuple[float, ...], tuple[float, ...]]
"""The mean and the standard deviation of each channel of an image."""


def trace(
    module: nn.Module, inputs: Sequence[Input], chain: tuple[str, ...] = (), scaling: Scaling | None = None
) -> TracedModel:
    """The graph of `module`, which is in eval mode, for these inputs; it goes to the meta device.

    chain: submodules that run one after another, for a model that is not to be traced. scaling: for images that come as
    bytes; without it images are float32 and normalised already.
    Raises UntraceableModel where there is no static graph from these tensors to tensors.
    """
    if chain:
        return analyse(module, _chained(module, chain), inputs, "chain", scaling)
    buffers = {id(owner): dict(owner._buffers) for owner in module.modules()}
    try:
        return analyse(module, _symbolic(module, inputs), inputs, "torch.fx", scaling)
    except HopelessModel:
        raise
    except UntraceableModel as error:
        from . import exported  # costs seconds to import

        for owner in module.modules():  # their values may be part of the graph
            owner._buffers.update(buffers[id(owner)])
        try:
            holder, graph = exported.export(module, inputs)
        except HopelessModel:
            raise
        except UntraceableModel as second:
            raise UntraceableModel(f"{error}; {second}") from second
        return analyse(holder, graph, inputs, "torch.export", scaling)


def _symbolic(module: nn.Module, inputs: Sequence[Input]) -> fx.Graph:
    # What is no input is an option, which keeps its default.
    parameters = list(inspect.signature(module.forward).parameters.values())
    names = {one.name for one in inputs if one.name} or {one.name for one in parameters[: len(inputs)]}
    others = [one for one in parameters if one.name not in names]
    options = {one.name: one.default for one in others if one.default is not one.empty}
    tracer = fx.Tracer()
    # Buffers stay graph nodes. Otherwise arithmetic on a buffer runs while tracing and leaves a constant
    # without values in a graph that was traced on the meta device (MaxViT's relative position index).
    tracer.proxy_buffer_attributes = True
    with kept(module):
        try:
            graph = tracer.trace(module, options or None)
        except Exception as error:  # whatever a model's own code makes of values that are not there
            raise UntraceableModel(f"{type(module).__name__} cannot be traced: {symptom(error)}") from error
    for node in [node for node in graph.nodes if node.op == "placeholder" and node.target not in names]:
        if node.args:
            for user in list(node.users):  # fx asserts that the option is as it was
                rewrite(user, lambda value, node=node: node.args[0] if value is node else value)
        if not node.users:
            graph.erase_node(node)
    return graph


def _chained(module: nn.Module, chain: tuple[str, ...]) -> fx.Graph:
    """A graph that calls the submodules at the paths of `chain` one after another, from the images to the result.

    A submodule runs as it is, so that it may do what no graph can express, such as branches and loops that depend on
    values. Raises UntraceableModel where a submodule is missing.
    """
    result = fx.Graph()
    value = result.placeholder("images")
    for path in chain:
        try:
            unit = module.get_submodule(path)
        except AttributeError as error:
            kind, has = type(module).__name__, ", ".join(name for name, _ in module.named_children())
            raise UntraceableModel(f"{kind} has no submodule {path!r}: it has {has}") from error
        value = result.call_module(path, (value,))
        value.meta["nn_module_stack"] = {path: (path, type(unit))}
    result.output(value)
    return result


def normalized(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """(images / 255 - mean) / std, for each channel: uint8 (batch, channels, height, width) to float32 of that shape.
    Each value is computed by itself, so that its bits are the same in any batch and on either side of the link."""
    # A compiler's stand-ins for tensors would stay, and everybody take them for tensors.
    made = _for_channels if torch.compiler.is_compiling() else _constants
    centre, scale = made(mean, images.device), made(std, images.device)
    return images.to(torch.float32).div_(255).sub_(centre).div_(scale)


@functools.lru_cache(maxsize=16)
def _constants(values: tuple[float, ...], device: torch.device) -> Tensor:
    """A tensor that is made once for each device, because making it waits for a GPU."""
    with torch.inference_mode(False):
        return _for_channels(values, device)


def _for_channels(values: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).view(-1, 1, 1).to(device)


@torch.inference_mode(False)  # inference tensors do not count their writes
def analyse(
    module: nn.Module, graph: fx.Graph, inputs: Sequence[Input], traced_by: str, scaling: Scaling | None
) -> TracedModel:
    """The analysis of `graph`, which reads parameters and buffers of `module`; they go to the meta device. Raises
    UntraceableModel where the graph does not map these tensors to tensors, or does not work for any batch."""
    if scaling is not None:
        inputs = [replace(one, dtype=torch.uint8) for one in inputs]
        images = graph.find_nodes(op="placeholder")[0]
        with graph.inserting_after(images):
            scaled = graph.call_function(normalized, (images, *scaling))
        images.replace_all_uses_with(scaled, lambda user: user is not scaled)
    name, saved = type(module).__name__, module.state_dict().keys()
    buffers = module.named_buffers(remove_duplicate=False)
    computed = {path: buffer for path, buffer in buffers if path not in saved}
    first = first_paths(module)
    module.to("meta")
    taken, output = _in_order(graph.find_nodes(op="placeholder"), inputs, name), graph.output_node()
    returned = [value for value in flattened(output.args[0]) if isinstance(value, fx.Node)]
    unpin(graph, taken[-1])
    with kept(module):
        one, two = (_run(module, graph, inputs, batch) for batch in (1, 2))
    other = _run(module, graph, inputs, 1, scalars=1) if one.read else one
    for node in one.values:
        forms = ([(each.shape, each.dtype) for each in tensors_in(run.values[node])] for run in (one, other))
        if operator.ne(*forms):
            why = f"the shape of {node.name} depends on values in its input"
            raise UntraceableModel(f"{name} has no static graph: {why}")
    results = tuple(node for node in returned if isinstance(one.values[node], Tensor))
    if not results:
        raise UntraceableModel(f"{name} returns no tensor")
    output.args = (results,)
    settle(graph, one.values, two.values, one.written, one.read)
    values = {node: one.values[node] for node in graph.nodes if node is not output}
    nodes, tensors = tuple(values), {node: one for node, one in values.items() if isinstance(one, Tensor)}
    specs = {node: _spec(tensor, two.values[node]) for node, tensor in tensors.items()}
    live = (*[*_live(nodes)][:-1], results)
    if unused := [node.name for node in taken if node not in live[len(taken) - 1]]:
        raise UntraceableModel(f"{name} does not use its input {unused[0]}: leave it out")
    parting = {
        index for start, end in spans(module, nodes, first).values() for index in range(start, end)
    }.union(range(len(taken) - 1))
    cuttable, bound = zip(*_cuts(values, specs, live, parting, one.written), strict=True)
    return TracedModel(
        module, nodes, values, specs, results, live, cuttable, traced_by, computed, bound, one.read, first
    )


def _in_order(nodes: Sequence[fx.Node], inputs: Sequence[Input], name: str) -> list[fx.Node]:
    """The graph's inputs, which are brought into the order of `inputs`. Raises UntraceableModel for others."""
    if inputs[0].name:
        by_name = {str(node.target): node for node in nodes}
        if missing := [one.name for one in inputs if one.name not in by_name]:
            raise UntraceableModel(f"{name} takes {', '.join(by_name)}, and not {', '.join(missing)}")
        if strange := by_name.keys() - {one.name for one in inputs}:
            raise UntraceableModel(f"{name} also needs {', '.join(sorted(strange))}")
        ordered = [by_name[one.name] for one in inputs]
        for before, after in itertools.pairwise(ordered):
            before.append(after)
        return ordered
    if len(nodes) != len(inputs):
        raise UntraceableModel(f"{name} takes {len(nodes)} tensors, and gets {len(inputs)}")
    return list(nodes)


@dataclass(frozen=True)
class _Run:
    """A run of a graph on the meta device.

    values: of each node. written: the memory to which nodes write that exists before them. read: the nodes whose value
    is no tensor and was read from one, or computed from such a value.
    """

    values: dict[fx.Node, Any]
    written: dict[fx.Node, set[int]]
    read: frozenset[fx.Node]


def _run(module: nn.Module, graph: fx.Graph, inputs: Sequence[Input], batch: int, scalars: int = 0) -> _Run:
    """A run with inputs for this batch size. scalars: what is read from tensors. Raises UntraceableModel."""
    values, written, read = dict[fx.Node, Any](), dict[fx.Node, set[int]](), set[fx.Node]()
    seen = dict[int, tuple[Tensor, int]]()  # memory -> a tensor there, and how often it has been written to
    run = propagate(module, graph, *(one.empty(batch) for one in inputs), scalars=scalars)
    chance = Chance()
    while True:
        try:
            with chance:
                node, value = next(run)
        except StopIteration:
            return _Run(values, written, frozenset(read))
        except Exception as error:  # whatever an operator makes of values that are not there
            failed = next(node for node in graph.nodes if node not in values)
            sizes_vary = chance.last and torch.Tag.dynamic_output_shape in chance.last.tags
            why = VARYING if sizes_vary else symptom(error)
            kind = HopelessModel if sizes_vary or NO_KERNEL in str(error) else UntraceableModel
            raise kind(f"{type(module).__name__} cannot be traced: {why} (at {failed.name})") from error
        if chance.drawn:
            raise UnrepeatableModel(
                f"{type(module).__name__} draws random numbers in eval mode (at {node.name}): two runs differ"
            )
        for memory in set[int]().union(*(storages(values[source]) for source in node.all_input_nodes)):
            tensor, version = seen[memory]
            if tensor._version != version:
                written.setdefault(node, set()).add(memory)
                seen[memory] = tensor, tensor._version
        for tensor in tensors_in(value):
            seen.setdefault(tensor.untyped_storage()._cdata, (tensor, tensor._version))
        if not tensors_in(value) and (reads_values(node) or not read.isdisjoint(node.all_input_nodes)):
            read.add(node)
        values[node] = value


def _spec(one: Tensor, two: Tensor) -> TensorSpec:
    grown = [dim for dim, sizes in enumerate(zip(one.shape, two.shape, strict=True)) if sizes[0] != sizes[1]]
    in_step = len(grown) == 1 and two.shape[grown[0]] == 2 * one.shape[grown[0]]
    return TensorSpec(tuple(one.shape), str(one.dtype).removeprefix("torch."), grown[0] if in_step else None)


def _live(nodes: Sequence[fx.Node]) -> Iterator[tuple[fx.Node, ...]]:
    """For each node, the nodes up to it that a later one (or the output) reads."""
    position = {node: index for index, node in enumerate(nodes)}
    last_use = [max((position.get(user, len(nodes)) for user in node.users), default=-1) for node in nodes]
    alive: list[int] = []
    for index in range(len(nodes)):
        alive = [i for i in (*alive, index) if last_use[i] > index]
        yield tuple(nodes[i] for i in alive)


def _cuts(
    values: Mapping[fx.Node, Any],
    specs: Mapping[fx.Node, TensorSpec],
    live: Sequence[tuple[fx.Node, ...]],
    parting: Container[int],
    written: Mapping[fx.Node, set[int]],
) -> Iterator[tuple[bool, fx.Node | None]]:
    """For each node, `cuttable` and `bound` of the traced model. parting: indices of nodes after which no cut is,
    because it would part two readers of one parameter or buffer, or the inputs."""
    batched = {
        node for node, spec in specs.items() if spec.batch_dim is not None and not unsendable(values[node])
    }
    # Results of parameters alone belong to the stage that reads them.
    sent = batched & varying(values)
    last_writes = {memory: index for index, node in enumerate(values) for memory in written.get(node, ())}
    for index, (node, alive) in enumerate(zip(values, live, strict=True)):
        bound = None if index in parting else next((one for one in alive if one not in sent), None)
        if index in parting or bound is not None:
            yield False, bound
            continue
        # Two live tensors in one memory that is written to later: on another host only one of them would change.
        memory = [place for other in alive for place in storages(values[other])]
        torn = any(memory.count(place) > 1 and last_writes.get(place, -1) > index for place in memory)
        waits = node.target is normalized  # behind it four bytes would cross for one
        yield 0 < len(alive) <= MAX_TENSORS and not torn and not waits, None
