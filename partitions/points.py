"""Partition points: the cuts of a traced model, numbered as the literature numbers its blocks, and their selection."""

from __future__ import annotations

import difflib
import itertools
import operator
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, fx

from pareto.protocol.errors import UserError

from .blocks import CHEAP, is_cheap_module, own, published
from .graph import TensorSpec, TracedModel, operator_name, spans, target_of, tensors_in, unsendable
from .recipe import Cuts


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


def find(traced: TracedModel, cuts: Cuts, *, is_own: bool = False) -> tuple[Point, ...]:
    """The points of a model, in order, from 'input' to 'output'. is_own: the model is a user's, whom no paper counted.

    At granularity 'block' a boundary at which more tensors are live than may cross is left out: its unit merges with
    the next.
    """
    names = node_names(traced)
    if cuts.granularity == "op":
        return _points(traced, enumerate(names), cuts.live_tensors, cuts.fold)
    return _points(traced, own(traced, names) if is_own else published(traced), cuts.live_tensors)


def named(traced: TracedModel, names: Iterable[str]) -> tuple[Point, ...]:
    """The points at the cuts of these names, however many tensors are live there, with 'input' and 'output'.

    names: of nodes, as at granularity 'op', or of modules, which stand for the last cut within them. Raises UserError
    for a name without a cut, and for names that are not in the order of the graph.
    """
    every = _points(traced, enumerate(node_names(traced)), len(traced.nodes))[1:-1]
    cuts = {point.name: point.after for point in every}
    position = {node.name: index for index, node in enumerate(traced.nodes)}
    boundaries = list[tuple[int, str]]()
    for name in names:
        if not (within := _within(name, cuts)):
            nearest = difflib.get_close_matches(name, cuts, n=3, cutoff=0.0)
            raise UserError(f"no cut is named {name!r}: did you mean {', '.join(nearest)}?")
        index = position[cuts[within[-1]]]
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
    owner = {name: point.index for point in points for name in (*point.folded, point.name)}

    def one(part: str) -> list[int]:
        """The points that a number, a name or a module means, ascending; of a module all."""
        if part.isdecimal():
            return [int(part)] if int(part) < len(points) else []
        return sorted({owner[name] for name in _within(part, owner)})

    if alone := one(text):
        return [alone[-1]]
    dashes = [place for place, sign in enumerate(text) if sign == "-"]
    ranges = [(one(text[:place]), one(text[place + 1 :])) for place in dashes]
    meant = {(first[0], last[-1]) for first, last in ranges if first and last}
    if len(meant) > 1:
        raise ValueError(f"{text!r} is more than one range of points: use numbers")
    for first, last in meant:
        if first > last:
            raise ValueError(f"the range {text!r} goes backwards: from point {first} to {last}")
        return list(range(first, last + 1))
    near = ", ".join(difflib.get_close_matches(text, owner, n=3, cutoff=0.4))
    hint = f"; did you mean {near}?" if near else ""
    raise ValueError(f"no point {text!r}: the points are 0 to {len(points) - 1}{hint}")


def _within(text: str, names: Collection[str]) -> list[str]:
    """Those of `names` that are `text`, or lie within the module of that path."""
    return [text] if text in names else [name for name in names if name.startswith(f"{text}.")]


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
    groups = _equivalent(traced, indices) if fold else [[place] for place in range(len(indices))]
    points = []
    for number, (*folded, place) in enumerate(groups):
        after = traced.nodes[indices[place]].name if place else ""
        crossing = traced.live[indices[place]] if place <= len(names) else ()
        payload = tuple(traced.specs[value] for value in crossing)
        points.append(
            Point(number, distinct[place], after, payload, tuple(distinct[other] for other in folded))
        )
    return tuple(points)


# The cuts of a graph: what each is called, and which neighbours are one cut in practice


def node_names(traced: TracedModel) -> tuple[str, ...]:
    """A name for each node, none twice, such as 'features.7.conv.0' or 'layer1.0.add'; the first is 'input'.

    The last node of a module without children has the module's path; other nodes have their operator's name behind
    the path. No node but the first is called 'input' or 'output'.
    """
    stacks = [node.meta.get("nn_module_stack", {}) for node in traced.nodes]
    # Of the innermost module in whose forward each runs: which call of it, and its path.
    scopes = [next(((str(key), str(stack[key][0])) for key in reversed(stack)), ("", "")) for stack in stacks]
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
    """Yield a sentence for each shared weight, and each value that lasts over other work and cannot cross a link: where
    no cut is, and why."""
    names = dict(zip(traced.nodes, node_names(traced), strict=True))
    held = spans(traced.module, traced.nodes, traced.first)
    for path in dict.fromkeys(traced.first.values()):
        start, end = (traced.nodes[index] for index in held.get(path, (0, 0)))
        if start is not end:
            yield f"no cut from {names[start]} to {names[end]}: both read {path}, which one host has"
    over, taking = dict[fx.Node, list[fx.Node]](), (operator.getitem, getattr)
    for node, bound in zip(traced.nodes, traced.bound, strict=True):
        if bound not in (None, node):
            over.setdefault(bound, []).append(node)
    for value, nodes in over.items():
        # Not those that merely take a tensor out of a container or the weights.
        working = [node for node in nodes if node.op != "get_attr" and node.target not in taking]
        others = [node for node in working if value not in node.all_input_nodes]
        if any(isinstance(traced.values[node], Tensor) for node in others):
            kind = _kind(traced, value)
            yield f"no cut from {names[nodes[0]]} to {names[nodes[-1]]}: {names[value]} is {kind}; that cannot cross"


def _kind(traced: TracedModel, node: fx.Node) -> str:
    value = traced.values[node]
    if isinstance(value, Tensor):
        return unsendable(value) or "a tensor without the batch"
    if tensors_in(value):
        return f"a {'dict' if isinstance(value, dict) else 'sequence'} of tensors"
    kind = "a number" if isinstance(value, int | float | complex) else f"no tensor but {type(value).__name__}"
    return f"{kind} that depends on the values in the input" if node in traced.read else kind


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """The names with '_1', '_2' and so on behind those that came before, and behind 'input' and 'output'."""
    taken = dict.fromkeys(("input", "output"))
    for name in names:
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        taken[next(one for one in itertools.chain([name], numbered) if one not in taken)] = None
    return tuple(taken)[2:]


def _equivalent(traced: TracedModel, cuts: Sequence[int]) -> list[list[int]]:
    """The places in `cuts` (indices of nodes, ascending) in groups of equivalent neighbours.

    Equivalent neighbours send the same number of tensors of the same dtypes and sizes, with nothing but activations,
    dropout, batch normalization, reshaping and arithmetic with constants between. The first and last cut stay alone.
    """
    sent = [
        sorted((traced.specs[node].dtype, traced.specs[node].nbytes) for node in traced.live[cut])
        for cut in cuts
    ]
    groups = [[0]]
    for place in range(1, len(cuts)):
        between = traced.nodes[cuts[place - 1] + 1 : cuts[place] + 1]
        same = groups[-1] != [0] and place < len(cuts) - 1 and sent[place] == sent[place - 1]
        if same and all(_is_cheap(traced, node) for node in between):
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _is_cheap(traced: TracedModel, node: fx.Node) -> bool:
    if node.op == "get_attr" or not tensors_in(traced.values[node]):
        return True
    specs = [traced.specs[source] for source in node.all_input_nodes if source in traced.specs]
    if sum(spec.batch_dim is not None for spec in specs) > 1:  # arithmetic, but of two values of the model
        return False
    if node.op == "call_module":
        return is_cheap_module(target_of(traced.module, node))
    return operator_name(node).rstrip("_") in CHEAP
