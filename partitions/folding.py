"""Neighbouring cuts that are one in practice: they send as much, and hardly anything is computed between them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx, nn

from .graph import TracedModel, target_of, tensors_in
from .naming import operator_name

_CHEAP_MODULES = (
    nn.Identity,
    nn.Flatten,
    nn.Unflatten,
    nn.modules.dropout._DropoutNd,
    nn.modules.batchnorm._BatchNorm,
)
_ACTIVATIONS = "torch.nn.modules.activation"

# Functions, methods and ATen operators; those that work in place have '_' behind, or 'i' before an operator's name.
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


def equivalent(traced: TracedModel, cuts: Sequence[int]) -> list[list[int]]:
    """Parts `cuts` (indices of nodes, ascending) into runs of equivalent ones; gives the places of their members.

    Equivalent neighbours send the same number of tensors of the same dtypes and sizes, with nothing but activations,
    dropout, batch normalization, reshaping and arithmetic with constants between. The first and last cut stay alone.
    """
    groups = [[0]]
    for place in range(1, len(cuts)):
        before, here = cuts[place - 1], cuts[place]
        inner = groups[-1] != [0] and place < len(cuts) - 1
        between = traced.nodes[before + 1 : here + 1]
        if (
            inner
            and _sent(traced, before) == _sent(traced, here)
            and all(_is_cheap(traced, it) for it in between)
        ):
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _sent(traced: TracedModel, index: int) -> list[tuple[str, int]]:
    return sorted((traced.specs[node].dtype, traced.specs[node].nbytes) for node in traced.live[index])


def _is_cheap(traced: TracedModel, node: fx.Node) -> bool:
    if node.op == "get_attr" or not tensors_in(traced.values[node]):
        return True
    varying = [
        it for it in node.all_input_nodes if it in traced.specs and traced.specs[it].batch_dim is not None
    ]
    if len(varying) > 1:  # arithmetic, but of two values of the model
        return False
    if node.op == "call_module":
        module = target_of(traced.module, node)
        activation = type(module).__module__ == _ACTIVATIONS and not isinstance(module, nn.MultiheadAttention)
        return activation or isinstance(module, _CHEAP_MODULES)
    return operator_name(node).rstrip("_") in _CHEAP
