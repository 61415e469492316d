"""Points by number, name, module and range; what is one point, or somebody's choice; the costs on each side."""

import pytest
import torch
from torch import nn

from pareto.partitions import costs, model
from pareto.partitions.model import describe
from pareto.partitions.points import Point, select
from pareto.partitions.recipe import Cuts, Handmade, Recipe
from tests.unit.partitions.builders import Made, linears, names, of_ops, traced
from tests.unit.refusals import refusal


@pytest.fixture(scope="module")
def mobilenet():
    return describe(Recipe("mobilenet_v2", Cuts("op")))[0]


def picked(found, text):
    return [found[index].name for index in select(found, text)]


def test_selectors(mobilenet, snapshot):
    """Also by the name of what was folded into a point."""
    texts = [
        "0",
        "input",
        "output",
        "2",
        *(f"features.2{inner}" for inner in (".conv.0.2", ".conv.0.1", ".conv.0", "")),
    ]
    texts += ["1-3", "features.1-features.2.conv.0", "input-1", "3-3"]
    assert {text: picked(mobilenet, text) for text in texts} == snapshot


def test_a_range_takes_in_both_ends_and_what_is_no_point_is_one_clear_line(mobilenet, snapshot):
    last = len(mobilenet) - 1
    assert select(mobilenet, "features.17-output")[-1] == last
    assert select(mobilenet, f"input-{last}") == list(range(last + 1))
    texts = ("99", "-1", "", "features.2.conv.O.2", "feature", "9-4", "4-99", "4-")
    assert [refusal(ValueError, select, mobilenet, text) for text in texts] == snapshot


def test_names_with_a_dash(snapshot):
    blocks = describe(Recipe("regnet_y_400mf"))[0]
    first, second = (f"trunk_output.block{number}.block{number}-0" for number in (1, 2))
    assert picked(blocks, first) == [first]
    assert picked(blocks, f"{first}-{second}") == [first, second]
    assert select(blocks, f"1-{second}") == [1, 2, 3]
    odd = [Point(index, name, name, ()) for index, name in enumerate(("a", "a-b", "b-c", "c"))]
    assert select(odd, "a-b") == [1]
    assert refusal(ValueError, select, odd, "a-b-c") == snapshot


def cheap(net, x):
    kept = net.drop(torch.relu(net.norm(net.first(x.view(-1, 4) * 2))))
    y = net.second(net.layer_norm(kept)) * net.scale
    return net.head(torch.relu_(y + kept).contiguous() + 1) * 2


def grouped(live_tensors=1, fold=True):
    others = {"norm": nn.BatchNorm1d(4), "drop": nn.Dropout(), "layer_norm": nn.LayerNorm(4)}
    made = Made(cheap, **linears("first", "second", "head"), **others, scale=nn.Parameter(torch.ones(4)))
    return {point.name: point.folded for point in of_ops(traced(made), live_tensors, fold=fold)}


def test_neighbours_that_send_as_much_after_cheap_work_are_one_point_and_no_cut_is_lost() -> None:
    folded = {"mul": ("view",), "drop": ("first", "norm", "relu"), "add_1": ("add", "relu_", "contiguous")}
    assert grouped() == {"input": (), **folded, "head": (), "output": ()}
    found = [grouped(2)[name] for name in ("layer_norm", "mul_1", "add_1")]
    assert found == [(), ("second",), ("add", "relu_", "contiguous")]
    for live_tensors in (1, 2):
        every = grouped(live_tensors, fold=False)
        folded = grouped(live_tensors)
        assert [name for point, names in folded.items() for name in (*names, point)] == list(every)
        assert not any(every.values())

    # Work on two values or to another size is not folded.
    def distinct(net, x):
        one = net.first(x)
        two = net.second(one)
        both = one * two
        return net.head((both + two)[:, :2])

    made = Made(distinct, **linears("first", "second"), head=nn.Linear(2, 4))
    assert names(of_ops(traced(made), 2, fold=True)) == [
        "input", "first", "second", "mul", "add", "getitem", "output",
    ]  # fmt: skip
    # Blocks are never folded.
    folded, every = (describe(Recipe("vgg16", Cuts(fold=fold)))[0] for fold in (True, False))
    assert folded == every
    assert not any(point.folded for point in folded)


def chosen(*names):
    return describe(Recipe("resnet18", handmade=Handmade(names)))[0]


def test_chosen_points_replace_those_of_the_graph_and_are_cuts(snapshot):
    found = chosen("relu", "layer1.0.conv1", "layer2", "layer3.0.downsample.0")
    assert names(found) == [
        "input", "relu", "layer1.0.conv1", "layer2", "layer3.0.downsample.0", "output",
    ]  # fmt: skip
    assert [len(point.payload) for point in found] == [1, 1, 2, 1, 2, 0]
    assert found[3].after == "layer2_1_relu_1"
    wrong = [("layer1.0.konv1",), ("layer2", "layer1"), ("layer2", "layer2.1")]
    assert [refusal(ValueError, chosen, *each) for each in wrong] == snapshot


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
