"""Costs on each side of a point, against published figures and against a count by hand."""

import pytest
import torch
from torch import nn

from pareto.partitions import costs, model
from pareto.partitions.recipe import Cuts, Recipe
from tests.unit.gating import gating
from tests.unit.partitions.builders import Made, of_ops, traced

# GFLOP and million parameters, as published with the models.
PUBLISHED = {
    "alexnet": (1.43, 61.1),
    "vgg16": (30.94, 138.4),
    "resnet50": (8.18, 25.6),
    "mobilenet_v2": (0.60, 3.5),
    "inception_v3": (11.43, 23.8),
    "swin_t": (8.98, 28.3),
    "resnet18": (3.63, 11.7),
    "vit_b_16": (35.13, 86.6),
}


@pytest.mark.parametrize("name", gating(PUBLISHED, "mobilenet_v2", "vit_b_16"))
def test_published_costs(name):
    outline = model.outline(Recipe(name))
    running = costs.before_points(outline)
    assert running[0] == costs.Cost()
    assert (round(running[-1].flops / 1e9, 2), round(running[-1].parameters / 1e6, 1)) == PUBLISHED[name]
    assert running[-1].parameter_bytes == 4 * running[-1].parameters
    assert len(running) == len(outline.points)


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16"])
def test_parameters_are_those_of_the_stage(name):
    """What is counted before a point is what a stage up to it takes from the weights file."""
    outline = model.outline(Recipe(name))
    parameters = dict(outline.traced.module.named_parameters())
    for point, cost in zip(outline.points, costs.before_points(outline), strict=True):
        held = [parameters[path] for path in outline.paths(0, point.index) if path in parameters]
        assert cost.parameters == sum(parameter.numel() for parameter in held), point.name


def test_each_node_by_hand() -> None:
    """3x8x8 -> convolution 4x6x6 -> pooled 4 -> twice the same layer -> product with itself."""

    def small(net, x):
        x = torch.relu(net.norm(net.convolution(x))).mean((2, 3))
        x = net.layer(net.layer(x)) * net.scale
        return x @ x.transpose(0, 1)

    layers = {"convolution": nn.Conv2d(3, 4, 3), "norm": nn.BatchNorm2d(4), "layer": nn.Linear(4, 4)}
    made = traced(Made(small, **layers, scale=nn.Parameter(torch.ones(4))).to("meta"), 3, 8, 8)
    found = {node.name: cost for node, cost in zip(made.nodes, costs.of_nodes(made), strict=True)}
    assert {name: cost.flops for name, cost in found.items() if cost.flops} == {
        "convolution": 2 * (4 * 6 * 6) * (3 * 3 * 3),
        "layer": 2 * 4 * 4,
        "layer_1": 2 * 4 * 4,
        "matmul": 2 * 4,
    }
    assert {name: cost.parameters for name, cost in found.items() if cost.parameters} == {
        "convolution": 4 * 3 * 9 + 4,
        "norm": 8,  # its running statistics are buffers
        "layer": 20,
        "scale": 4,
    }
    # Tensors that are made are counted once and views are none. 3x4x4 -> convolution 2x4x4, activated in place
    # -> a view of it -> a product.
    layers = {"convolution": nn.Conv2d(3, 2, 1), "act": nn.ReLU(inplace=True), "layer": nn.Linear(32, 5)}
    views = Made(lambda net, x: net.layer(net.act(net.convolution(x)).flatten(1)), **layers).to("meta")
    outline = model.Outline("views", (3, 4, 4), of_ops(graph := traced(views, 3, 4, 4)), "", graph, 0)
    names = [point.name for point in outline.points[1:]]
    made = dict(zip(names, costs.activation_bytes(outline), strict=True))
    assert made == {"convolution": 4 * 2 * 16, "act": 0, "flatten": 0, "output": 4 * 5}


def test_the_units_of_a_model_make_all_of_its_tensors():
    outlines = (model.outline(Recipe("mobilenet_v2", Cuts(granularity))) for granularity in ("op", "block"))
    fine, coarse = (sum(costs.activation_bytes(outline)) for outline in outlines)
    assert fine == coarse > 10_000_000
