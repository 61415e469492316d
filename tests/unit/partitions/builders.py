"""Small modules, and the points of what is traced of them."""

import copy

import torch
from torch import Tensor, nn

from pareto.partitions import model as partitioned
from pareto.partitions import points, registry, weights
from pareto.partitions.graph import Input
from pareto.partitions.model import PartitionedModel
from pareto.partitions.points import Point
from pareto.partitions.recipe import Cuts, Recipe
from pareto.partitions.stage import Payload, Stage, cut
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
    return partitioned.load(recipe, weights.make(recipe.name, "seeded", 0, folder))


def images(size: int, batch: int = 2):
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(3))


class Forked(nn.Module):
    """A convolution with a batch norm whose result is used twice, so that two tensors are alive behind it."""

    def __init__(self) -> None:
        super().__init__()
        drawn = torch.Generator().manual_seed(3)
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.left = nn.Conv2d(4, 4, 3, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(4, 5)
        for tensor in (*self.parameters(), self.norm.running_mean):
            tensor.detach().copy_(torch.randn(tensor.shape, generator=drawn))  # type: ignore[union-attr]

    def forward(self, x: Tensor) -> Tensor:
        stem = self.norm(self.stem(x))
        left = self.left(stem)
        return self.head(self.act(left + stem).mean((2, 3)))


def stages() -> tuple[Stage, Stage]:
    """From the input to a point where two tensors cross, and from there to the result."""
    model = Forked().eval()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    traced = trace(model, (Input((3, 8, 8)),), scaling=((0.4, 0.5, 0.6), (0.2, 0.2, 0.3)))
    first, last = traced.nodes[0].name, traced.nodes[-1].name
    return cut(traced, state, first, "left"), cut(traced, state, "left", last)


def byte_images(batch: int = 2) -> Payload:
    drawn = torch.Generator().manual_seed(1)
    return (torch.randint(256, (batch, 3, 8, 8), dtype=torch.uint8, generator=drawn),)
