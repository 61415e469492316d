"""Small modules, and the points of what is traced of them."""

import copy

import torch
from torch import nn

from pareto.partitions import model as partitioned
from pareto.partitions import points, registry, weights
from pareto.partitions.graph import Input
from pareto.partitions.model import PartitionedModel
from pareto.partitions.points import Point
from pareto.partitions.recipe import Cuts, Recipe
from pareto.partitions.tracing import trace


class Made(nn.Module):
    """A function of itself and its input, over parts of these names: modules, parameters, and buffers."""

    def __init__(self, work, **parts):
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, nn.Module | nn.Parameter):
                setattr(self, name, part)
            else:
                self.register_buffer(name, part)
        self.work = work

    def forward(self, x):
        return self.work(self, x)


def named(name, work, parts=dict):
    """A class of that name, whose constructor makes such a module of new parts."""
    return type(name, (Made,), {"__init__": lambda self: Made.__init__(self, work, **parts())})


def linears(*names):
    """Layers of 4 by 4."""
    return {name: nn.Linear(4, 4) for name in names}


def traced(module, *shape):
    return trace(module.eval().requires_grad_(False), (Input(shape or (4,)),))


def structure_and_state(net, *shape):
    """What is traced of a copy of it, without its weights, and these."""
    net.eval().requires_grad_(False)
    return traced(copy.deepcopy(net), *shape), net.state_dict()


def of_ops(model, live_tensors=1, *, fold=False) -> tuple[Point, ...]:
    """The points of a traced model between its operators."""
    return points.find(model, Cuts("op", live_tensors, fold))


def names(found):
    return [point.name for point in found]


def recipe_of(reference, cuts: Cuts, handmade=None, **more) -> Recipe:
    """A user's model: by a reference to its file, which is read."""
    name = registry.canonical(str(reference))
    return Recipe(name, cuts, *registry.source(name), handmade, **more)


def load_own(reference, folder, cuts: Cuts, handmade=None, **more) -> PartitionedModel:
    """A user's model with seeded weights."""
    recipe = recipe_of(reference, cuts, handmade, **more)
    return partitioned.load(recipe, weights.make(recipe.name, "seeded", 0, folder).path)


def images(size: int, batch: int = 2):
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(3))
