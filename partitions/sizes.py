"""Sizes in a graph: what is the same for every batch becomes a constant, the rest is read where it is used.

A model that keeps `x.shape` for later would otherwise have no cut between, because a number is no payload.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import torch
from torch import Tensor, fx

Values = dict[fx.Node, Any]  # of each node but the output

_PLAIN = (int, float, complex, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format)


def unpin(graph: fx.Graph, images: fx.Node) -> None:
    """Let new tensors be made where the images are, not on the device of the tracing, which torch.export notes."""

    def has_device(node: fx.Node) -> bool:
        found = list[Any]()
        fx.node.map_aggregate((node.args, node.kwargs), found.append)
        return any(isinstance(it, torch.device) for it in found)

    pinned = [node for node in graph.nodes if has_device(node)]
    if pinned:
        with graph.inserting_after(images):
            device = graph.call_function(getattr, (images, "device"))
        for node in pinned:
            rewrite(node, lambda it: device if isinstance(it, torch.device) else it)


def settle(graph: fx.Graph, one: Values, two: Values, writing: Container[fx.Node]) -> None:
    """Rewrite `graph` so that few values live long that are no tensors to send, and none that nobody reads.

    one, two: what each node yields at batch 1 and 2; brought up to date. writing: nodes that write to the memory of
    others, which are kept though nobody reads their value.
    """
    for node in one:
        if _is_plain(one[node]) and type(one[node]) is type(two[node]) and one[node] == two[node]:
            for user in list(node.users):
                rewrite(user, lambda it, node=node: _immutable(one[node]) if it is node else it)
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
    position[next(it for it in graph.nodes if it.op == "output")] = len(nodes)
    computing = {node for node in position if node not in one or _has_tensor(one[node])}
    # The other users ask for sizes, and are about to go.
    last_use = {
        node: max((position[it] for it in node.users if it in computing), default=-1) for node in nodes
    }

    def at_hand(user: fx.Node) -> Iterator[fx.Node]:
        """The tensors that `user` or something behind it reads anyway, the latest first."""
        for node in reversed(nodes[: position[user]]):
            if last_use[node] >= position[user] and isinstance(one[node], Tensor):
                yield node

    def sized(user: fx.Node, size: int) -> tuple[fx.Node, int] | None:
        for source in at_hand(user):
            for dim, sizes in enumerate(zip(one[source].shape, two[source].shape, strict=True)):
                if sizes == (size, 2 * size):
                    return source, dim
        return None

    def localized(user: fx.Node, it: Any) -> Any:
        if not isinstance(it, fx.Node):
            return it
        value, twice = one[it], two[it]
        if isinstance(value, torch.device) and (source := next(at_hand(user), None)):
            new = graph.call_function(getattr, (source, "device"))
        elif type(value) is int and twice == 2 * value and (found := sized(user, value)):
            new = graph.call_method("size", found)
        else:
            return it
        new.meta = dict(user.meta)
        one[new], two[new] = value, twice
        return new

    for user in nodes:
        if _has_tensor(one[user]) and user.op != "placeholder":
            with graph.inserting_before(user):
                rewrite(user, lambda it, user=user: localized(user, it))


def rewrite(user: fx.Node, change: Any) -> None:
    """Put each argument of a node, those within tuples and dicts too, through `change`."""
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
