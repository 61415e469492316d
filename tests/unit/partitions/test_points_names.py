"""What points are called."""

import torch
from torch import nn

from pareto.partitions import points
from pareto.partitions.recipe import Cuts
from tests.unit.partitions.builders import Made, linears, names, of_ops, traced
from tests.unit.partitions.test_points import Branching, Residual


def test_nodes_are_named_by_their_modules_and_no_name_is_there_twice():
    def work(net, x):
        x = net.act(net.input(x))
        return net.output(net.act(net.block(x) * 2 * 3))

    named = Made(work, **linears("input", "output"), act=nn.ReLU(), block=Residual())
    assert names(of_ops(traced(named), 2)) == [
        "input", "input_1", "act", "block.first", "block.second", "block.third", "block.add", "block.head",
        "mul", "mul_1", "act_1", "output",
    ]  # fmt: skip
    branching = traced(Branching(("input", "output")))
    assert names(points.find(branching, Cuts(live_tensors=2))) == [
        "input", "input_1", "output_1", "pool", "output",
    ]  # fmt: skip


class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x + 1)


def test_what_ends_a_module_has_its_name():
    module = nn.Sequential(nn.Linear(4, 4), Swish(), nn.Linear(4, 4))
    assert names(of_ops(traced(module), 2)) == ["input", "0", "1.add", "1.sigmoid", "1", "output"]
