"""Names for the nodes of a graph, from the modules that they belong to: 'features.7.conv.0', 'layer1.0.add'."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from torch import fx

from .graph import TracedModel

Scope = tuple[str, str]  # which call of a module, and the module's path


def node_names(traced: TracedModel) -> tuple[str, ...]:
    """A name for each node, none twice: the first is 'input', and no other is 'input' or 'output'.

    What ends a module without children has the module's path; anything else has its operator's name behind it.
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
    """The same names, with '_1', '_2' and so on behind those that were there before, and 'input' and 'output'."""
    taken = {"input", "output"}
    result = []
    for name in names:
        new = name
        for number in itertools.count(1):
            if new not in taken:
                break
            new = f"{name}_{number}"
        taken.add(new)
        result.append(new)
    return tuple(result)


def operator_name(node: fx.Node) -> str:
    """The function, method or operator that a node calls, without module and overload: 'relu_', 'cat'."""
    if isinstance(node.target, str):
        return node.target
    return str(node.target.__name__).split(".")[0]


def _innermost(node: fx.Node) -> Scope:
    """The innermost module in whose forward the node runs; which call of it, since it may be called again."""
    stack = node.meta.get("nn_module_stack", {})
    return next(((str(key), str(stack[key][0])) for key in reversed(stack)), ("", ""))
