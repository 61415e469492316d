"""The units between the points of granularity 'block': as papers count them, and those of a user's own model."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from .graph import TracedModel, operator_name
from .torchvision_models import models

# Containers of blocks that are not a plain nn.Sequential or nn.ModuleList.
_CONTAINERS = (
    models.vision_transformer.Encoder,
    models.regnet.AnyStage,
    models.maxvit.MaxVitBlock,
    models._utils.IntermediateLayerGetter,  # the backbone of segmentation models
)


def published(traced: TracedModel) -> Iterator[tuple[int, str]]:
    """The index of the last node, and the name, of each unit but the last, as papers count them."""
    module, scopes = traced.module, [{*_around(node)} for node in traced.nodes]
    used = set[str]().union(*scopes)
    prefix = ""
    while len(parts := _children(module, prefix, used)) == 1:  # nothing but a wrapper
        prefix = f"{parts[0]}."
    if not parts:
        return
    head = parts[-1]
    before = next(index for index, scope in enumerate(scopes) if head in scope) - 1

    units = list(_units(module, prefix, {path for path in used if head not in _with_parents(path)}))
    ends = [max(index for index, scope in enumerate(scopes) if scope & {*unit}) for unit in units]
    names = [unit[0] for unit in units]
    if len(units[0]) > 1:
        names[0] = "stem"
    resnet = models.resnet
    if isinstance(module, resnet.ResNet) and isinstance(module.layer1[0], resnet.BasicBlock):
        # ResNet18 and 34 are numbered by their blocks alone; deeper ones count the stem.
        del names[0], ends[0]
    # What has no module of its own follows the last unit (flatten, functional pooling): it belongs to that
    # unit if it pools, else it is a unit.
    last = [module.get_submodule(path) for path in units[-1]]
    if ends[-1] < before and not any(_is_leaf(one) and "Pool" in type(one).__name__ for one in last):
        made_by = operator_name(traced.nodes[before])
        names.append(made_by if made_by == "interpolate" else "pool")
        ends.append(before)
    ends[-1] = before
    yield from zip(ends, names, strict=True)


def _around(node: fx.Node) -> Iterator[str]:
    """Paths of the modules in whose forward the node runs, and of those around them: nobody calls a list."""
    for path, _ in node.meta.get("nn_module_stack", {}).values():
        yield from _with_parents(path)


def _with_parents(path: str) -> Iterator[str]:
    """'a.b.c', 'a.b', 'a'."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _children(module: nn.Module, prefix: str, used: set[str]) -> list[str]:
    """Paths of a container's parts that nodes use; prefix: '' or 'path.of.container.'."""
    owner = module.get_submodule(prefix.removesuffix("."))
    return [prefix + name for name, _ in owner.named_children() if prefix + name in used]


def _units(module: nn.Module, prefix: str, used: set[str]) -> Iterator[list[str]]:
    """The units within a container, in the order of its children: a block's path, or those of neighbouring layers."""
    children = {path: module.get_submodule(path) for path in _children(module, prefix, used)}
    layered = prefix.endswith("features.") and all(map(_is_leaf, children.values()))
    for is_leaf, group in itertools.groupby(children, key=lambda path: _is_leaf(children[path])):
        if is_leaf and not layered:
            yield list(group)
            continue
        for path in group:
            child, parts = children[path], list(children[path].children())
            merely_holds = type(child) in (nn.Sequential, nn.ModuleList) and not all(map(_is_leaf, parts))
            if merely_holds or isinstance(child, _CONTAINERS) or path.split(".")[-1] == "features":
                yield from _units(module, f"{path}.", used)
            else:
                yield [path]


def _is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def own(traced: TracedModel, names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The index of the last node, and the name, of each unit but the last of a user's own model. names: of the nodes.

    A unit is a block or a layer, with all that follows until the next: activations, normalization, dropout, reshaping
    and arithmetic, be they modules or functions. So units are the same in whatever order a constructor makes the
    modules, and whether one activation serves all layers or each has its own.
    """
    scopes = [[path for path, _ in node.meta.get("nn_module_stack", {}).values()] for node in traced.nodes]
    held = Counter(path for scope in scopes for path in {*scope})
    modules = {path: traced.module.get_submodule(path) for path in held}
    # No block has so much of a model.
    holders = {path for path in held if held[path] > len(scopes) / 2 or _holds_blocks(modules[path])}
    parts = {path for path in held if path not in holders or _is_leaf(modules[path])}
    units = list[tuple[str, int, int]]()  # and the first and last node of its own
    for index, node in enumerate(traced.nodes):
        path = next(filter(parts.__contains__, scopes[index]), "")
        part = modules.get(path)
        if part is None and not _joins(traced, node):
            path = names[index]
        if path and not is_cheap_module(part):
            begin = units.pop()[1] if units and units[-1][0] == path else index
            units.append((path, begin, index))
    within = Counter(around for path, _, _ in units for around in _with_parents(path))
    for (path, _, end), (_, after, _) in itertools.pairwise(units):
        # What follows begins the next block where its input lives on beside it, as an activation before a branch.
        last = min(range(after - 1, end - 1, -1), key=lambda index: len(traced.live[index]))
        yield last, [around for around in _with_parents(path) if within[around] == 1 or around == path][-1]


def _holds_blocks(module: nn.Module) -> bool:
    """Whether the module is a list of others, or a stage: a module with a list of blocks."""
    blocks = (
        sum(not (_is_leaf(each) or _is_list(each)) for each in child.children())
        for child in module.children()
        if _is_list(child)
    )
    return _is_list(module) or any(number > 1 for number in blocks)


def _is_list(module: nn.Module) -> bool:
    """Whether the module merely holds others that run one after another."""
    return type(module).forward is nn.Sequential.forward or isinstance(module, nn.ModuleList | nn.ModuleDict)


def _joins(traced: TracedModel, node: fx.Node) -> bool:
    """Whether the work of a node of no module belongs to the unit that runs: not that of layers, or what resizes."""
    value = traced.values[node]
    if node.op in ("placeholder", "get_attr") or not isinstance(value, Tensor):
        return True
    read = {source: traced.values[source] for source in node.all_input_nodes}
    tensors = {source: one for source, one in read.items() if isinstance(one, Tensor)}
    if any(source.op == "get_attr" and one.dim() > 1 for source, one in tensors.items()):
        return False
    resized = all(one.numel() != value.numel() for one in tensors.values())
    return not resized or operator_name(node).rstrip("_") in CHEAP


# Work that costs next to nothing beside the layers of a network

_CHEAP_MODULES = (nn.Identity, nn.Flatten, nn.Unflatten, _BatchNorm, _DropoutNd)
_ACTIVATIONS = "torch.nn.modules.activation"

# Functions, methods and ATen operators. In-place forms, with '_' behind or 'i' before an operator's name, count too.
# fmt: off
CHEAP = {
    "relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "sigmoid", "logsigmoid", "silu", "gelu", "mish",
    "elu", "selu", "celu", "leaky_relu", "prelu", "softplus", "softsign", "tanh", "threshold", "clamp",
    "clamp_min", "clamp_max", "clip", "dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout",
    "native_dropout", "stochastic_depth", "batch_norm", "native_batch_norm",
    "_native_batch_norm_legit_no_training", "add", "sub", "mul", "div", "truediv", "true_divide", "neg",
    "rsub", "iadd", "isub", "imul", "itruediv", "view", "_unsafe_view", "reshape", "flatten", "unflatten",
    "squeeze", "unsqueeze", "permute", "transpose", "movedim", "t", "chunk", "split", "unbind", "getitem",
    "contiguous", "clone", "alias", "detach", "to", "_to_copy", "float",
}
# fmt: on


def is_cheap_module(module: Any) -> bool:
    """Whether it is an activation, dropout, batch normalization, or changes the shape alone."""
    activation = type(module).__module__ == _ACTIVATIONS and not isinstance(module, nn.MultiheadAttention)
    return activation or isinstance(module, _CHEAP_MODULES)
