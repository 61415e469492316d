"""Values in a graph that are no tensors: sizes, numbers, dtypes, and containers of tensors.

Only tensors cross a link. So what is the same for every batch becomes a constant, what follows from the batch size is
worked out where it is used, and items are taken out of tuples and lists at once. A number that was read from a tensor
can be none of these: no cut comes between it and its last use.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from .graph import storages, tensors_in, varying

Values = dict[fx.Node, Any]  # of each node but the output
_UNKNOWN = object()
# Values that are written into a graph as they are.
_PLAIN = (int, float, complex, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format)


def unpin(graph: fx.Graph, images: fx.Node) -> None:
    """Let new tensors be made on the images' device, not on that of the tracing, which torch.export writes down."""
    arguments = {node: tree_leaves((node.args, node.kwargs)) for node in graph.nodes}
    pinned = [node for node in arguments if any(isinstance(each, torch.device) for each in arguments[node])]
    if pinned:
        with graph.inserting_after(images):
            device = graph.call_function(getattr, (images, "device"))
        for node in pinned:
            rewrite(node, lambda value: device if isinstance(value, torch.device) else value)


def settle(
    graph: fx.Graph, one: Values, two: Values, writing: Mapping[fx.Node, set[int]], read: Container[fx.Node]
) -> None:
    """Rewrite `graph` so that values other than tensors live only briefly, and values that nobody reads are gone.

    one, two: the value of each node at batch 1 and 2; new nodes are added to both. writing: the memory to which nodes
    write that exists before them; these nodes stay though nobody reads their value. read: nodes whose values come from
    a tensor's: they are the same in both runs, and yet no constants.
    """
    _unpack(graph, one)
    for node in one:
        if node not in read and _is_constant(one[node], two[node]):
            for user in list(node.users):
                rewrite(user, lambda value, node=node: _immutable(one[node]) if value is node else value)
    _delay_constants(graph, one, writing)
    for values in one, two:
        in_order = [(node, values[node]) for node in graph.nodes if node in values]
        values.clear()
        values.update(in_order)
    _read_where_used(graph, one, two, read)
    graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or node in writing)
    for node in graph.find_nodes(op="get_attr"):  # so that no parameter crosses a cut to where it is used
        min(node.users).prepend(node)


def _unpack(graph: fx.Graph, one: Values) -> None:
    """Take the items of each tuple, list and the like right after it was made, each once, if nobody needs it whole."""
    for node in list(one):
        if node not in one or isinstance(one[node], Tensor) or not tensors_in(one[node]):
            continue
        takers = list(node.users)
        if any(
            taker.target not in (operator.getitem, getattr) or len(taker.all_input_nodes) > 1
            for taker in takers
        ):
            continue
        first: dict[Any, fx.Node] = {}
        for taker in sorted(takers):
            kept = first.setdefault(taker.args[1], taker)
            if kept is not taker:
                taker.replace_all_uses_with(kept)
                graph.erase_node(taker)
                del one[taker]
        for taker in reversed(first.values()):
            node.append(taker)


def _delay_constants(graph: fx.Graph, one: Values, writing: Mapping[fx.Node, set[int]]) -> None:
    """Make tensors that depend on no input, such as positions, just before they are used, so that none need cross."""
    dependent = varying(one)
    for node in reversed(list(one)):
        read = [one[source] for source in node.all_input_nodes]
        of_sizes = any(not tensors_in(value) and not isinstance(value, torch.device) for value in read)
        if node in dependent or node in writing or not tensors_in(one[node]) or of_sizes or not node.users:
            continue
        user, memory = min(node.users), storages([one[node], *read])
        if not any(node < writer < user and memory & writing[writer] for writer in writing):
            user.prepend(node)


def _read_where_used(graph: fx.Graph, one: Values, two: Values, read: Container[fx.Node]) -> None:
    """Ask a tensor at hand for each size that depends on the batch, and for the device of a new tensor.

    A size that no tensor at hand has, such as batch times heads, is in proportion to one that a tensor has. Other
    numbers are computed once more.
    """
    nodes = list(one)
    position = {node: index for index, node in enumerate(nodes)}
    position[graph.output_node()] = len(nodes)
    computing = {node for node in position if node not in one or tensors_in(one[node])}
    # The other users ask for sizes, and are about to go.
    last_use = {
        node: max((position[user] for user in node.users if user in computing), default=-1) for node in nodes
    }

    def at_hand(user: fx.Node) -> Iterator[fx.Node]:
        """The tensors that `user` or a node after it reads anyway, the latest first."""
        for node in reversed(nodes[: position[user]]):
            if last_use[node] >= position[user] and isinstance(one[node], Tensor):
                yield node

    def sized(user: fx.Node, size: int) -> fx.Node | None:
        """The node that computes this size, a multiple of the batch size; None where none can."""
        found: dict[int, tuple[fx.Node, int]] = {}
        for source in at_hand(user):
            for dim, (once, twice) in enumerate(zip(one[source].shape, two[source].shape, strict=True)):
                if once and twice == 2 * once:
                    found.setdefault(once, (source, dim))
        if not found:
            return None
        near = next((known for known in (size, 1) if known in found), min(found))
        node = made(user, graph.call_method("size", found[near]), near, 2 * near)
        if near == size:
            return node
        node = made(user, graph.call_function(operator.mul, (node, size)), near * size, 2 * near * size)
        if near == 1:
            return node
        return made(user, graph.call_function(operator.floordiv, (node, near)), size, 2 * size)

    def localized(user: fx.Node, argument: Any) -> Any:
        if not isinstance(argument, fx.Node):
            return argument
        value, twice = one[argument], two[argument]
        if tensors_in(value) or argument in read:
            return argument
        known = spelled(user, value, twice)
        if known is not _UNKNOWN or argument.op not in ("call_function", "call_method"):
            return argument if known is _UNKNOWN else known
        if any(tensors_in(one[source]) for source in argument.all_input_nodes):
            return argument
        inputs = fx.node.map_arg((argument.args, argument.kwargs), lambda each: localized(user, each))
        return made(user, graph.create_node(argument.op, argument.target, *inputs), value, twice)

    def spelled(user: fx.Node, value: Any, twice: Any) -> Any:
        """The argument that is this value at batch 1, `twice` at 2; `_UNKNOWN` if it takes more than a size."""
        if _is_constant(value, twice):
            return _immutable(value)
        if isinstance(value, torch.device):
            # Not of a tensor that was made where nobody said: that is on the CPU, wherever the model is.
            source = next((each for each in at_hand(user) if one[each].device == value), None)
            if source is None:
                return _UNKNOWN
            return made(user, graph.call_function(getattr, (source, "device")), value, value)
        if isinstance(value, tuple | list) and len(value) == len(twice):
            items = [spelled(user, *pair) for pair in zip(value, twice, strict=True)]
            return _UNKNOWN if _UNKNOWN in items else tuple(items)
        if type(value) is not int or twice != 2 * value or not value:
            return _UNKNOWN
        return sized(user, value) or _UNKNOWN

    def made(user: fx.Node, new: fx.Node, value: Any, twice: Any) -> fx.Node:
        new.meta = dict(user.meta)
        one[new], two[new] = value, twice
        return new

    for user in nodes:
        if tensors_in(one[user]) and user.op != "placeholder":
            with graph.inserting_before(user):
                rewrite(user, lambda value, user=user: localized(user, value))


def rewrite(user: fx.Node, change: Any) -> None:
    """Replace each argument of a node, also within tuples and dicts, by what `change` makes of it."""
    user.args = fx.node.map_aggregate(user.args, change)
    user.kwargs = fx.node.map_aggregate(user.kwargs, change)


def _is_constant(value: Any, twice: Any) -> bool:
    """Whether a value that can be written into a graph is the same at both batch sizes."""
    return _is_plain(value) and type(value) is type(twice) and bool(value == twice)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return isinstance(value, _PLAIN)


def _immutable(value: Any) -> Any:
    return tuple(_immutable(item) for item in value) if isinstance(value, tuple | list) else value
