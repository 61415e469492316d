"""The cuts of a graph: what each is called, and which neighbours are one cut in practice."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from torch import fx, nn

from .graph import TracedModel, target_of, tensors_in

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


def operator_name(node: fx.Node) -> str:
    """The function, method or operator that a node calls, without module and overload: 'relu_', 'cat'."""
    if isinstance(node.target, str):
        return node.target
    return str(node.target.__name__).split(".")[0]


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
