"""Sizes in a graph: those that are the same for every batch become constants, others are read where they are used.

A model that keeps `x.shape` for later would otherwise have no cut until then, because a number is no payload.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import torch
from torch import Tensor, fx

Values = dict[fx.Node, Any]  # of each node but the output

_PLAIN = (int, float, complex, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format)


def unpin(graph: fx.Graph, images: fx.Node) -> None:
    """Let new tensors be made on the images' device, not on that of the tracing, which torch.export writes down."""

    def has_device(node: fx.Node) -> bool:
        arguments = list[Any]()
        fx.node.map_aggregate((node.args, node.kwargs), arguments.append)
        return any(isinstance(argument, torch.device) for argument in arguments)

    pinned = [node for node in graph.nodes if has_device(node)]
    if pinned:
        with graph.inserting_after(images):
            device = graph.call_function(getattr, (images, "device"))
        for node in pinned:
            rewrite(node, lambda value: device if isinstance(value, torch.device) else value)


def settle(graph: fx.Graph, one: Values, two: Values, writing: Container[fx.Node]) -> None:
    """Rewrite `graph` so that values other than tensors live only briefly, and values that nobody reads are gone.

    one, two: the value of each node at batch 1 and 2; new nodes are added to both. writing: nodes that write to the
    memory of others, which stay though nobody reads their value.
    """
    for node in one:
        if _is_plain(one[node]) and type(one[node]) is type(two[node]) and one[node] == two[node]:
            for user in list(node.users):
                rewrite(user, lambda value, node=node: _immutable(one[node]) if value is node else value)
    _read_where_used(graph, one, two)
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op not in ("placeholder", "output") and node not in writing:
            graph.erase_node(node)
    for node in list(graph.nodes):
        if node.op == "get_attr":  # so that no parameter crosses a cut to where it is used
            min(node.users).prepend(node)


def _read_where_used(graph: fx.Graph, one: Values, two: Values) -> None:
    """Ask a tensor at hand for each size that depends on the batch, and for the device of a new tensor."""
    nodes = list(one)
    position = {node: index for index, node in enumerate(nodes)}
    position[next(node for node in graph.nodes if node.op == "output")] = len(nodes)
    computing = {node for node in position if node not in one or _has_tensor(one[node])}
    # The other users ask for sizes, and are about to go.
    last_use = {
        node: max((position[user] for user in node.users if user in computing), default=-1) for node in nodes
    }

    def at_hand(user: fx.Node) -> Iterator[fx.Node]:
        """The tensors that `user` or a node after it reads anyway, the latest first."""
        for node in reversed(nodes[: position[user]]):
            if last_use[node] >= position[user] and isinstance(one[node], Tensor):
                yield node

    def sized(user: fx.Node, size: int) -> tuple[fx.Node, int] | None:
        for source in at_hand(user):
            for dim, sizes in enumerate(zip(one[source].shape, two[source].shape, strict=True)):
                if sizes == (size, 2 * size):
                    return source, dim
        return None

    def localized(user: fx.Node, argument: Any) -> Any:
        if not isinstance(argument, fx.Node):
            return argument
        value, twice = one[argument], two[argument]
        if isinstance(value, torch.device) and (source := next(at_hand(user), None)):
            new = graph.call_function(getattr, (source, "device"))
        elif type(value) is int and twice == 2 * value and (source_and_dim := sized(user, value)):
            new = graph.call_method("size", source_and_dim)
        else:
            return argument
        new.meta = dict(user.meta)
        one[new], two[new] = value, twice
        return new

    for user in nodes:
        if _has_tensor(one[user]) and user.op != "placeholder":
            with graph.inserting_before(user):
                rewrite(user, lambda value, user=user: localized(user, value))


def rewrite(user: fx.Node, change: Any) -> None:
    """Replace each argument of a node, also within tuples and dicts, by what `change` makes of it."""
    user.args = fx.node.map_aggregate(user.args, change)
    user.kwargs = fx.node.map_aggregate(user.kwargs, change)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return isinstance(value, _PLAIN)


def _immutable(value: Any) -> Any:
    return tuple(_immutable(item) for item in value) if isinstance(value, tuple | list) else value


def _has_tensor(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(_has_tensor(item) for item in value)
    return isinstance(value, Tensor)
