"""What points are called."""

import torch
from torch import nn

from pareto.partitions.recipe import Cuts
from tests.unit.partitions.test_points import Branching, Residual, names


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.input = nn.Linear(4, 4)
        self.act = nn.ReLU()
        self.block = Residual()
        self.output = nn.Linear(4, 4)

    def forward(self, x):
        x = self.act(self.input(x))
        return self.output(self.act(self.block(x) * 2 * 3))


def test_nodes_are_named_by_their_modules_and_no_name_is_there_twice():
    assert names(Named(), Cuts("op", 2, fold=False)) == [
        "input", "input_1", "act", "block.first", "block.second", "block.third", "block.add", "block.head",
        "mul", "mul_1", "act_1", "output",
    ]  # fmt: skip
    assert names(Branching(("input", "output")), Cuts(live_tensors=2)) == [
        "input", "input_1", "output_1", "pool", "output",
    ]  # fmt: skip


class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x + 1)


def test_what_ends_a_module_has_its_name():
    module = nn.Sequential(nn.Linear(4, 4), Swish(), nn.Linear(4, 4))
    assert names(module, Cuts("op", 2, fold=False)) == ["input", "0", "1.add", "1.sigmoid", "1", "output"]
