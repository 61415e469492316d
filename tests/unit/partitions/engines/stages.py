"""A stage through which several tensors pass, and what is to be made of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pareto.partitions.graph import Input
from pareto.partitions.stage import Payload, Stage, cut
from pareto.partitions.tracing import trace


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
    traced = trace(model, (Input((3, 8, 8)),), mean_and_std=((0.4, 0.5, 0.6), (0.2, 0.2, 0.3)))
    first, last = traced.nodes[0].name, traced.nodes[-1].name
    return cut(traced, state, first, "left"), cut(traced, state, "left", last)


def images(batch: int = 2) -> Payload:
    drawn = torch.Generator().manual_seed(1)
    return (torch.randint(256, (batch, 3, 8, 8), dtype=torch.uint8, generator=drawn),)
