"""From a module to its graph: by torch.fx, by torch.export where that fails, or as a chain of submodules."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import torch
from torch import fx, nn

from .graph import TracedModel, UntraceableModel, analyse, one_line
from .preprocess import normalized
from .sizes import rewrite


@dataclass(frozen=True)
class Normalization:
    """Of images that come as bytes: mean and deviation of each channel, for values between 0 and 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class _Tracer(fx.Tracer):
    # Buffers stay graph nodes. Otherwise arithmetic on a buffer runs while tracing and leaves a constant
    # without values in a graph that was traced on the meta device (MaxViT's relative position index).
    proxy_buffer_attributes = True


def trace(
    module: nn.Module,
    input_shape: tuple[int, ...],
    chain: tuple[str, ...] = (),
    normalization: Normalization | None = None,
) -> TracedModel:
    """Trace `module`, which is in eval mode, for inputs of (batch, *input_shape); it goes to the meta device.

    chain: submodules that one after another are the model, where it is not to be traced. normalization: for images
    that come as bytes; without it they are float32.
    Raises UntraceableModel where there is no static graph of one tensor in and tensors out.
    """
    if chain:
        from . import chained  # only such a model needs it

        return _analysed(module, chained.graph(module, chain), input_shape, "chain", normalization)
    buffers = {id(owner): dict(owner._buffers) for owner in module.modules()}
    try:
        return _analysed(module, _symbolic(module), input_shape, "torch.fx", normalization)
    except UntraceableModel as error:
        from . import exported  # costs seconds to import

        for owner in module.modules():  # their values may be part of the graph
            owner._buffers.update(buffers[id(owner)])
        try:
            holder, graph = exported.export(module, input_shape)
        except UntraceableModel as second:
            raise UntraceableModel(f"{error}; {second}") from second
        return _analysed(holder, graph, input_shape, "torch.export", normalization)


def _symbolic(module: nn.Module) -> fx.Graph:
    # Only the images are an input; options keep their defaults.
    others = list(inspect.signature(module.forward).parameters.values())[1:]
    options = {it.name: it.default for it in others if it.default is not it.empty}
    try:
        graph = _Tracer().trace(module, options or None)
    except Exception as error:  # whatever a model's own code makes of values that are not there
        raise UntraceableModel(f"{type(module).__name__} cannot be traced: {one_line(error)}") from error
    for node in [node for node in graph.nodes if node.op == "placeholder"][1:]:
        if node.args:
            for user in list(node.users):  # fx asserts that the option is as it was
                rewrite(user, lambda it, node=node: node.args[0] if it is node else it)
        if not node.users:
            graph.erase_node(node)
    return graph


def _analysed(
    module: nn.Module,
    graph: fx.Graph,
    input_shape: tuple[int, ...],
    traced_by: str,
    normalization: Normalization | None,
) -> TracedModel:
    if normalization is None:
        return analyse(module, graph, input_shape, torch.float32, traced_by)
    images = next(node for node in graph.nodes if node.op == "placeholder")
    with graph.inserting_after(images):
        values = graph.call_function(normalized, (images, normalization.mean, normalization.std))
    images.replace_all_uses_with(values, lambda user: user is not values)
    return analyse(module, graph, input_shape, torch.uint8, traced_by)
