"""Partition points: the cuts of a traced model, numbered as the literature numbers its blocks, and their selection."""

from __future__ import annotations

import difflib
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, fx, nn

from pareto.constants import DTYPES
from pareto.errors import UserError

from .graph import TensorSpec, TracedModel, operator_name, target_of, tensors_in
from .recipe import Cuts
from .torchvision_models import models


@dataclass(frozen=True)
class Point:
    """One partition point.

    index: how many units run before the cut. name: the unit that ends there ('input', ..., 'output').
    after: the graph node that the cut comes after, '' for the input.
    payload: the tensors that cross the link, at batch 1; none at the last point.
    folded: the names of the cuts before it that send as much, with only cheap work between, and so are no points.
    """

    index: int
    name: str
    after: str
    payload: tuple[TensorSpec, ...]
    folded: tuple[str, ...] = ()

    @property
    def payload_bytes(self) -> int:
        """Size of the payload in bytes, at batch 1."""
        return sum(spec.nbytes for spec in self.payload)


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


def find(traced: TracedModel, cuts: Cuts) -> tuple[Point, ...]:
    """The points of a model, in order, from 'input' to 'output'.

    At granularity 'block' a boundary at which more tensors are live than may cross is left out: its unit merges with
    the next.
    """
    if cuts.granularity == "block":
        return _points(traced, _boundaries(traced), cuts.live_tensors)
    return _points(traced, enumerate(node_names(traced)), cuts.live_tensors, cuts.fold)


def named(traced: TracedModel, names: Iterable[str]) -> tuple[Point, ...]:
    """The points at the cuts of these names, however many tensors are live there, with 'input' and 'output'.

    names: of nodes, as at granularity 'op', or of modules, which stand for the last cut within them. Raises UserError
    for a name without a cut, and for names that are not in the order of the graph.
    """
    cuts = {
        point.name: point for point in _points(traced, enumerate(node_names(traced)), len(traced.nodes))[1:-1]
    }
    position = {node.name: index for index, node in enumerate(traced.nodes)}
    boundaries = list[tuple[int, str]]()
    for name in names:
        if not (named := _within(name, cuts)):
            nearest = difflib.get_close_matches(name, cuts, n=3, cutoff=0.0)
            raise UserError(f"no cut is named {name!r}: did you mean {', '.join(nearest)}?")
        index = position[cuts[named[-1]].after]
        if boundaries and index <= boundaries[-1][0]:
            raise UserError(
                f"the cut {name!r} does not come after {boundaries[-1][1]!r}: name cuts in their order"
            )
        boundaries.append((index, name))
    return _points(traced, boundaries, len(traced.nodes))


def select(points: Sequence[Point], text: str) -> list[int]:
    """The indices of the points that a selector means, ascending.

    text: a number; a name, also that of a cut folded into a point; a module, which stands for the last point within it;
    or a range of two of these that includes both, as in '4-9' and 'features.2-features.5', where a module as the start
    stands for its first point. A name may contain '-'. Raises ValueError, in one line, for no or more than one meaning.
    """
    if alone := _one(points, text):
        return [alone[-1]]
    dashes = [place for place, sign in enumerate(text) if sign == "-"]
    ranges = [(_one(points, text[:place]), _one(points, text[place + 1 :])) for place in dashes]
    meant = {(first[0], last[-1]) for first, last in ranges if first and last}
    if len(meant) > 1:
        raise ValueError(f"{text!r} is more than one range of points: use numbers")
    for first, last in meant:
        if first > last:
            raise ValueError(f"the range {text!r} goes backwards: from point {first} to {last}")
        return list(range(first, last + 1))
    raise ValueError(f"no point {text!r}: the points are 0 to {len(points) - 1}{_nearest(points, text)}")


def _within(text: str, names: Iterable[str]) -> list[str]:
    """Those of `names` that are `text`, or lie within the module of that path."""
    names = list(names)
    return [name for name in names if name == text] or [name for name in names if name.startswith(f"{text}.")]


def _one(points: Sequence[Point], text: str) -> list[int]:
    """The points that a number, a name or a module means, ascending; of a module all."""
    if text.isdecimal():
        return [int(text)] if int(text) < len(points) else []
    owner = {name: point.index for point in points for name in (*point.folded, point.name)}
    return sorted({owner[name] for name in _within(text, owner)})


def _nearest(points: Sequence[Point], text: str) -> str:
    names = [name for point in points for name in (*point.folded, point.name)]
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.4)
    return f"; did you mean {', '.join(near)}?" if near else ""


def _points(
    traced: TracedModel, boundaries: Iterable[tuple[int, str]], live_tensors: int, fold: bool = False
) -> tuple[Point, ...]:
    """Number those of `boundaries` (node index, unit name) that go forward and can be cut."""
    end = len(traced.nodes) - 1
    indices, names = [len(traced.inputs) - 1], []
    for index, name in boundaries:
        if indices[-1] < index < end and traced.cuttable[index] and len(traced.live[index]) <= live_tensors:
            indices.append(index)
            names.append(name)
    indices.append(end)
    distinct = ("input", *unique(names), "output")
    groups = equivalent(traced, indices) if fold else [[place] for place in range(len(indices))]
    points = []
    for number, (*folded, place) in enumerate(groups):
        node = traced.nodes[indices[place]]
        payload = (
            ()
            if place == len(names) + 1
            else tuple(traced.specs[value] for value in traced.live[indices[place]])
        )
        after = node.name if place else ""
        points.append(
            Point(number, distinct[place], after, payload, tuple(distinct[other] for other in folded))
        )
    return tuple(points)


def _boundaries(traced: TracedModel) -> Iterator[tuple[int, str]]:
    """The index of the last node, and the name, of each unit but the last."""
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


# The cuts of a graph: what each is called, and which neighbours are one cut in practice

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
_CHEAP = {
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


def node_names(traced: TracedModel) -> tuple[str, ...]:
    """A name for each node, none twice, such as 'features.7.conv.0' or 'layer1.0.add'; the first is 'input'.

    The last node of a module without children has the module's path; other nodes have their operator's name behind
    the path. No node but the first is called 'input' or 'output'.
    """
    scopes = [_innermost(node) for node in traced.nodes]
    inner = {
        parent for _, path in scopes for parent in itertools.accumulate(path.split(".")[:-1], "{}.{}".format)
    }
    names = []
    for index in range(1, len(traced.nodes)):
        node, (_, path) = traced.nodes[index], scopes[index]
        ends = scopes[index + 1 : index + 2] != [scopes[index]]
        if node.op in ("call_module", "get_attr"):
            names.append(str(node.target))
        elif path and path not in inner and ends:
            names.append(path)
        else:
            names.append(f"{path}.{operator_name(node)}".lstrip("."))
    return ("input", *unique(names))


def hindered(traced: TracedModel) -> Iterator[str]:
    """Yield a sentence for each value that lasts over other work and cannot cross a link: where no cut is, and why."""
    names = dict(zip(traced.nodes, node_names(traced), strict=True))
    over: dict[fx.Node, list[fx.Node]] = {}
    for node, bound in zip(traced.nodes, traced.bound, strict=True):
        if bound not in (None, node):
            over.setdefault(bound, []).append(node)
    for value, nodes in over.items():
        if any(_works(traced, node) and value not in node.all_input_nodes for node in nodes):
            yield (
                f"no cut from {names[nodes[0]]} to {names[nodes[-1]]}: {names[value]} is "
                f"{_kind(traced, value)}; that cannot cross"
            )


def _works(traced: TracedModel, node: fx.Node) -> bool:
    """Whether the node computes a tensor, and does not merely take one out of a container or the weights."""
    taken = node.op == "get_attr" or node.target in (operator.getitem, getattr)
    return isinstance(traced.values[node], Tensor) and not taken


def _kind(traced: TracedModel, node: fx.Node) -> str:
    value = traced.values[node]
    if isinstance(value, Tensor):
        spec = traced.specs[node]
        return "a tensor without the batch" if spec.dtype in DTYPES else f"a tensor of {spec.dtype}"
    if tensors_in(value):
        return f"a {'dict' if isinstance(value, dict) else 'sequence'} of tensors"
    kind = "a number" if isinstance(value, int | float | complex) else f"no tensor but {type(value).__name__}"
    return f"{kind} that depends on the values in the input" if node in traced.read else kind


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """The names with '_1', '_2' and so on behind those that came before, and behind 'input' and 'output'."""
    taken = {"input", "output"}
    result = []
    for name in names:
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        new = next(one for one in itertools.chain([name], numbered) if one not in taken)
        taken.add(new)
        result.append(new)
    return tuple(result)


def _innermost(node: fx.Node) -> tuple[str, str]:
    """The innermost module in whose forward the node runs: which call of it, and its path."""
    stack = node.meta.get("nn_module_stack", {})
    return next(((str(key), str(stack[key][0])) for key in reversed(stack)), ("", ""))


def equivalent(traced: TracedModel, cuts: Sequence[int]) -> list[list[int]]:
    """Groups neighbouring `cuts` (indices of nodes, ascending) that are equivalent; gives their places in `cuts`.

    Equivalent neighbours send the same number of tensors of the same dtypes and sizes, with nothing but activations,
    dropout, batch normalization, reshaping and arithmetic with constants between. The first and last cut stay alone.
    """
    groups = [[0]]
    for place in range(1, len(cuts)):
        before, here = cuts[place - 1], cuts[place]
        inner = groups[-1] != [0] and place < len(cuts) - 1
        same = inner and _payload(traced, before) == _payload(traced, here)
        if same and all(_is_cheap(traced, node) for node in traced.nodes[before + 1 : here + 1]):
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _payload(traced: TracedModel, index: int) -> list[tuple[str, int]]:
    return sorted((traced.specs[node].dtype, traced.specs[node].nbytes) for node in traced.live[index])


def _is_cheap(traced: TracedModel, node: fx.Node) -> bool:
    if node.op == "get_attr" or not tensors_in(traced.values[node]):
        return True
    specs = [traced.specs[source] for source in node.all_input_nodes if source in traced.specs]
    if sum(spec.batch_dim is not None for spec in specs) > 1:  # arithmetic, but of two values of the model
        return False
    if node.op == "call_module":
        module = target_of(traced.module, node)
        activation = type(module).__module__ == _ACTIVATIONS and not isinstance(module, nn.MultiheadAttention)
        return activation or isinstance(module, _CHEAP_MODULES)
    return operator_name(node).rstrip("_") in _CHEAP
