"""The costs of a model's parts: floating-point operations and parameters on each side of every point."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from .graph import TracedModel, propagate, storages, target_of
from .model import Outline


@dataclass(frozen=True)
class Cost:
    """The cost of a part of a model.

    flops: of convolutions, matrix products and attention at batch 1, two for each multiply-add; elementwise work,
    pooling and normalization do not count. parameters: how many numbers, without buffers. parameter_bytes: their size.
    """

    flops: int = 0
    parameters: int = 0
    parameter_bytes: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(sum, zip(vars(self).values(), vars(other).values(), strict=True)))


def before_points(outline: Outline) -> tuple[Cost, ...]:
    """The cost of all that runs before each point; the last is the whole model's. Computes no values."""
    return tuple(itertools.accumulate(of_units(outline), initial=Cost()))


def of_units(outline: Outline) -> tuple[Cost, ...]:
    """The cost of each unit: of what runs between two neighbouring points."""
    costs, ends = [Cost()], {point.after for point in outline.points[1:]}
    for node, cost in zip(outline.traced.nodes, of_nodes(outline.traced), strict=True):
        costs[-1] += cost
        if node.name in ends:
            costs.append(Cost())
    return tuple(costs[:-1])


def activation_bytes(outline: Outline) -> tuple[int, ...]:
    """The size of all tensors that each unit makes at batch 1; a view of another tensor is none, nor are parameters."""
    traced, sizes = outline.traced, [0]
    ends = {point.after for point in outline.points[1:]}
    known = set[int]().union(*(storages(traced.values[node]) for node in traced.inputs))
    for node in traced.nodes[len(traced.inputs) :]:
        memory = storages(traced.values[node])
        if node.op != "get_attr" and not memory <= known and node in traced.specs:
            sizes[-1] += traced.specs[node].nbytes
        known |= memory
        if node.name in ends:
            sizes.append(0)
    return tuple(sizes[:-1])


def held(outline: Outline) -> tuple[tuple[int, int], ...]:
    """Bytes of each unit's parameters, and of the tensors that its widest operator reads and makes at batch 1."""
    traced, widest = outline.traced, [0]
    ends = {point.after for point in outline.points[1:]}
    for node in traced.nodes:
        sizes = (traced.specs[each].nbytes for each in (node, *node.all_input_nodes) if each in traced.specs)
        widest[-1] = max(widest[-1], sum(sizes))
        if node.name in ends:
            widest.append(0)
    return tuple(zip((cost.parameter_bytes for cost in of_units(outline)), widest, strict=False))


def of_nodes(traced: TracedModel) -> list[Cost]:
    """The cost of each node of a graph. A parameter is counted once, at the first node that reads it."""
    costs, counted, flops = list[Cost](), set[int](), 0
    run = propagate(traced.module, traced.nodes[0].graph, *(traced.values[node] for node in traced.inputs))
    with FlopCounterMode(display=False) as counter:
        for node, _ in run:
            target = target_of(traced.module, node)
            read = target.parameters() if isinstance(target, nn.Module) else [target]
            new = [one for one in read if isinstance(one, nn.Parameter) and id(one) not in counted]
            counted.update(map(id, new))
            before, flops = flops, counter.get_total_flops()
            costs.append(
                Cost(flops - before, sum(one.numel() for one in new), sum(one.nbytes for one in new))
            )
    return costs
