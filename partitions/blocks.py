"""The units between the points of granularity 'block': as papers count them, and those of a user's own model."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx, nn

from .graph import TracedModel, operator_name
from .torchvision_models import models


@dataclass(frozen=True)
class _Unit:
    """Modules that run as one, by their paths: a block, or neighbouring layers."""

    name: str
    paths: tuple[str, ...]


# Containers of blocks that are not a plain nn.Sequential or nn.ModuleList.
_CONTAINERS = (
    models.vision_transformer.Encoder,
    models.regnet.AnyStage,
    models.maxvit.MaxVitBlock,
    models._utils.IntermediateLayerGetter,  # the backbone of segmentation models
)


def published(traced: TracedModel) -> Iterator[tuple[int, str]]:
    """The index of the last node, and the name, of each unit but the last, as papers count them."""
    module, scopes = traced.module, [_scopes(node) for node in traced.nodes]
    used = set[str]().union(*scopes)
    prefix = ""
    while len(parts := _children(module, prefix, used)) == 1:  # nothing but a wrapper
        prefix = f"{parts[0]}."
    if not parts:
        return
    *_, head = parts
    classifier = next(index for index, scope in enumerate(scopes) if head in scope)

    units = list(_units(module, prefix, {path for path in used if head not in _with_parents(path)}))
    if len(units[0].paths) > 1:
        units[0] = _Unit("stem", units[0].paths)
    ends = [_last(scopes, unit.paths) for unit in units]
    if _stem_joins_first_block(module):
        del units[0], ends[0]
    # What has no module of its own follows the last unit (flatten, functional pooling): it belongs to that
    # unit if it pools, else it is a unit.
    if ends[-1] < classifier - 1 and not _pools(module, units[-1]):
        last = traced.nodes[classifier - 1]
        units.append(_Unit(operator_name(last) if operator_name(last) == "interpolate" else "pool", ()))
        ends.append(classifier - 1)
    ends[-1] = classifier - 1
    yield from zip(ends, (unit.name for unit in units), strict=True)


def _scopes(node: fx.Node) -> set[str]:
    """Paths of the modules in whose forward the node runs, and of those around them: nobody calls a list."""
    paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
    return {parent for path in paths for parent in _with_parents(path)}


def _with_parents(path: str) -> Iterator[str]:
    """'a.b.c', 'a.b', 'a'."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _last(scopes: list[set[str]], paths: tuple[str, ...]) -> int:
    return max(index for index, scope in enumerate(scopes) if not scope.isdisjoint(paths))


def _children(module: nn.Module, prefix: str, used: set[str]) -> list[str]:
    """Paths of a container's parts that nodes use; prefix: '' or 'path.of.container.'."""
    owner = module.get_submodule(prefix.removesuffix("."))
    return [prefix + name for name, _ in owner.named_children() if prefix + name in used]


def _units(module: nn.Module, prefix: str, used: set[str]) -> Iterator[_Unit]:
    """The units within a container, in the order of its children."""
    children = [(path, module.get_submodule(path)) for path in _children(module, prefix, used)]
    layered = prefix.endswith("features.") and all(_is_leaf(child) for _, child in children)
    for leaf, group in itertools.groupby(children, key=lambda item: _is_leaf(item[1])):
        paths = dict(group)
        if leaf and not layered:
            yield _Unit(next(iter(paths)), tuple(paths))
            continue
        for path, child in paths.items():
            if _is_container(path, child):
                yield from _units(module, f"{path}.", used)
            else:
                yield _Unit(path, (path,))


def _is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def _is_container(path: str, module: nn.Module) -> bool:
    """Whether the module merely holds blocks, rather than being one."""
    if isinstance(module, _CONTAINERS) or path.split(".")[-1] == "features":
        return True
    plain = type(module) in (nn.Sequential, nn.ModuleList)
    return plain and not all(_is_leaf(child) for child in module.children())


def _stem_joins_first_block(module: nn.Module) -> bool:
    """ResNet18 and 34 are numbered by their BasicBlocks alone; deeper ResNets count the stem."""
    resnet = models.resnet
    return isinstance(module, resnet.ResNet) and isinstance(module.layer1[0], resnet.BasicBlock)


def _pools(module: nn.Module, unit: _Unit) -> bool:
    leaves = (module.get_submodule(path) for path in unit.paths)
    return any(_is_leaf(leaf) and "Pool" in type(leaf).__name__ for leaf in leaves)


def own(traced: TracedModel, names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The index of the last node, and the name, of each unit but the last of a user's own model. names: of the nodes.

    A unit is a block or a layer, with all that follows until the next: activations, normalization, dropout, reshaping
    and arithmetic, be they modules or functions. So units are the same in whatever order a constructor makes the
    modules, and whether one activation serves all layers or each has its own.
    """
    scopes = [[path for path, _ in node.meta.get("nn_module_stack", {}).values()] for node in traced.nodes]
    held = Counter(path for scope in scopes for path in {*scope})
    # No block has so much of a model.
    wrappers = {path for path, nodes in held.items() if nodes > len(scopes) / 2}
    begun, ended = list[tuple[int, str]](), list[int]()
    for index, node in enumerate(traced.nodes):
        modules = ((path, traced.module.get_submodule(path)) for path in scopes[index])
        parts = (
            each
            for each in modules
            if _is_leaf(each[1]) or not (each[0] in wrappers or _holds_blocks(each[1]))
        )
        path, part = next(parts, ("", None))
        if part is None and not _joins(traced, node):
            path = names[index]
        if path and not is_cheap_module(part):
            if not begun or path != begun[-1][1]:
                begun.append((index, path))
                ended.append(index)
            ended[-1] = index
    units = Counter(around for _, path in begun for around in _with_parents(path))
    for end, ((_, path), (after, _)) in zip(ended, itertools.pairwise(begun), strict=False):
        # What follows begins the next block where its input lives on beside it, as an activation before a branch.
        last = min(range(after - 1, end - 1, -1), key=lambda index: len(traced.live[index]))
        yield last, [around for around in _with_parents(path) if units[around] == 1 or around == path][-1]


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

_CHEAP_MODULES = (
    nn.Identity,
    nn.Flatten,
    nn.Unflatten,
    nn.modules.dropout._DropoutNd,
    nn.modules.batchnorm._BatchNorm,
)
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
