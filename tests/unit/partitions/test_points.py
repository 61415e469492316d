"""Partition points: their numbers, against what was published and against a count by hand; their names; blocks."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional

from pareto.partitions import costs, points, registry
from pareto.partitions.graph import Input, TensorSpec, UntraceableModel
from pareto.partitions.model import describe, outline
from pareto.partitions.recipe import Cuts, Recipe
from pareto.partitions.torchvision_models import models
from pareto.partitions.tracing import trace
from tests.unit.gating import gating
from tests.unit.partitions.builders import Made, linears, named, names, of_ops, traced
from tests.unit.refusals import refusal

MODELS = [
    *("mobilenet_v2", "alexnet", "vgg16", "resnet18", "resnet50", "inception_v3"),  # published work
    "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "maxvit_t", "mnasnet0_5",
    "mobilenet_v3_small", "regnet_y_400mf", "shufflenet_v2_x0_5", "squeezenet1_1", "swin_t", "vit_b_16",
]  # fmt: skip
GATING = ("alexnet", "mobilenet_v2", "resnet18", "shufflenet_v2_x0_5", "squeezenet1_1", "vit_b_16")


def in_words(point, cost):
    """What crosses there, and what a stage up to it takes."""
    mflop, parameters = cost.flops / 1e6, cost.parameters
    return f"{point.name}: {point.payload_bytes / 1024} KiB, {mflop:.1f} MFLOP, {parameters} parameters"


@pytest.mark.parametrize("name", gating(MODELS, *GATING))
def test_numbers_names_and_sizes_of_points_and_how_many_operators_allow_a_cut(name, snapshot):
    """The last point is no cut. Of published work the numbers, names, sizes and sums are as published."""
    found, shape, digest = describe(Recipe(name))
    every, _, _ = describe(Recipe(name, Cuts("op", fold=False)))
    running = costs.before_points(outline(Recipe(name)))
    assert [len(every) - 1, *map(in_words, found, running)] == snapshot
    assert running[0] == costs.Cost()
    assert running[-1].parameter_bytes == 4 * running[-1].parameters
    assert [point.index for point in found] == list(range(len(found)))
    assert (found[0].after, found[0].payload) == ("", (TensorSpec((1, *shape), "float32"),))
    assert all(len(point.payload) == 1 and point.payload_bytes > 0 for point in found[:-1])
    assert found[-1].payload == ()
    assert {point.after for point in found} <= {point.after for point in every}
    assert len(digest) == 64


def test_a_recipe_is_told_apart_by_its_digest() -> None:
    recipes = [Recipe(name) for name in ("vgg11", "vgg13", "vgg16", "resnet18", "resnet34")]
    recipes += [Recipe("vgg11", cuts) for cuts in (Cuts("op"), Cuts("op", fold=False))]
    recipes += [Recipe("vgg11", input="uint8")]
    digests = {describe(recipe)[2] for recipe in recipes}
    assert len(digests) == len(recipes)
    describe.cache_clear()
    assert describe(Recipe("vgg11"))[2] in digests
    # Bytes follow shape and dtype.
    dtypes = "float32", "float16", "int64"
    assert [TensorSpec((1, 3, 5), dtype).nbytes for dtype in dtypes] == [60, 30, 120]
    # No memory is used to describe.
    before = torch.get_rng_state()
    structure = registry.build_structure("vgg11")
    values = trace(structure, (Input((3, 224, 224)),)).values.values()
    assert {value.device.type for value in values if isinstance(value, torch.Tensor)} == {"meta"}
    assert torch.equal(torch.get_rng_state(), before)


def cuts(model, live_tensors=1):
    """Nodes that a point is behind."""
    return [point.after for point in of_ops(model, live_tensors)]


Residual = named(
    *("Residual", lambda net, x: net.head(net.third(net.second(kept := net.first(x))) + kept)),
    lambda: linears("first", "second", "third", "head"),
)


def test_no_cut_where_two_tensors_are_live_unless_two_may_be() -> None:
    model = traced(Residual())
    live = zip(model.nodes, model.live, strict=True)
    assert {node.name: " ".join(alive.name for alive in each) for node, each in live} == {
        "x": "x", "first": "first", "second": "first second", "third": "first third", "add": "add", "head": "head",
    }  # fmt: skip
    assert cuts(model) == ["", "first", "add", "head"]
    assert cuts(model, 2) == ["", "first", "second", "third", "add", "head"]
    found = of_ops(model, 2)
    assert [len(point.payload) for point in found] == [1, 1, 2, 2, 1, 0]
    assert found[2].payload_bytes == 2 * found[1].payload_bytes == 32
    found = of_ops(traced(Made(late, **LATE)), 2)  # the input is alive, too
    shapes = [[spec.shape for spec in point.payload] for point in found]
    assert shapes == [[(1, 4)], [(1, 4), (1, 8)], [(1, 4), (1, 4)], []]

    # Tensors that the parameters alone make never cross. A parameter that is read before it is used, and something
    # made of another, which does not see the input.
    def bare(net, x):
        scale = net.scale
        token = net.token.expand(x.shape[0], 4)
        return net.head(net.layer(x) * scale + token)

    parameters = {"scale": nn.Parameter(torch.ones(4)), "token": nn.Parameter(torch.ones(1, 4))}
    model = traced(Made(bare, **parameters, **linears("layer", "head")))
    assert cuts(model, 3) == ["", "add", "head"]
    order = [node.name for node in model.nodes]
    assert order.index("layer") < order.index("scale") < order.index("mul")


LATE = {"layer": nn.Linear(4, 8), "head": nn.Linear(8, 4)}


def late(net, x):
    return net.head(net.layer(x)) + x


def chunked(net, x):
    left, right = x.chunk(2, dim=1)
    return net.head(left + right)


def aliased(net, x):
    x = net.before(x)
    left = x[:, :2]
    right = torch.sigmoid(x)
    left.relu_()
    return net.head(x) + right


@pytest.mark.parametrize(
    ("work", "parts", "live_tensors", "expected"),
    [
        pytest.param(late, LATE, 1, "add", id="the input is needed again"),
        pytest.param(
            *(lambda net, x: net.head(net.layer(net.between(net.layer(x)))),),
            *({**linears("layer", "head"), "between": nn.ReLU()}, 3, "layer_1 head"),
            id="one weight on both sides",
        ),
        pytest.param(chunked, {"head": nn.Linear(2, 4)}, 1, "add head", id="a tuple"),
        pytest.param(chunked, {"head": nn.Linear(2, 4)}, 2, "getitem_1 add head", id="its items"),
        pytest.param(
            *(lambda net, x: net.layer(x) - x.mean(0), linears("layer"), 3, "layer sub"),
            id="a tensor of the images that has no batch",
        ),
        pytest.param(
            *(aliased, linears("before", "head"), 3, "before relu_ head add"),
            id="two that share memory, and a write to it",
        ),
    ],
)
def test_no_cut_where_what_is_live_cannot_cross(work, parts, live_tensors, expected):
    assert cuts(traced(Made(work, **parts)), live_tensors) == ["", *expected.split()]


def blocks():
    parts = {"blocks": nn.Sequential(Residual(), Residual()), "head": nn.Linear(4, 4)}
    return Made(lambda net, x: net.head(net.blocks(x)), **parts)


def branching(one="first", two="second"):
    parts = {one: Residual(), two: Residual(), **linears("head")}
    return Made(lambda net, x: net.head(getattr(net, two)(getattr(net, one)(x)) + x), **parts)


@pytest.mark.parametrize(
    ("build", "live_tensors", "expected"),
    [
        (blocks, 1, "blocks.0 blocks.1"),
        (branching, 1, "pool"),
        (branching, 2, "first second pool"),
        (lambda: Made(lambda net, x: net.model(x), model=blocks()), 1, "model.blocks.0 model.blocks.1"),
    ],
    ids=["blocks", "two live tensors merge with the next", "two may be live", "wrapped"],
)
def test_blocks(build, live_tensors, expected):
    found = points.find(traced(build()), Cuts(live_tensors=live_tensors))
    assert names(found) == ["input", *expected.split(), "output"]


class TwoInputs(nn.Module):
    def forward(self, x, y):
        return x + y


@pytest.mark.parametrize(
    "kind",
    [
        named("Undecided", lambda _, x: x if x.sum() > 0 else -x),
        named("Numbers", lambda _, x: (x.shape[0], None)),
        TwoInputs,
    ],
)
def test_what_has_no_static_graph_is_refused(kind, snapshot):
    said = re.sub(r"\.py:\d+\)$", ".py:LINE)", refusal(UntraceableModel, traced, kind()))
    for others in ("symbolically .*(?=; )", "missing a required argument.*"):
        said = re.sub(others, "IN OTHERS' WORDS", said)
    assert said == snapshot


def test_nodes_are_named_by_the_modules_that_they_end_and_no_name_is_there_twice():
    def work(net, x):
        x = net.act(net.input(x))
        return net.output(net.act(net.block(x) * 2 * 3))

    made = Made(work, **linears("input", "output"), act=nn.ReLU(), block=Residual())
    assert names(of_ops(traced(made), 2)) == [
        "input", "input_1", "act", "block.first", "block.second", "block.third", "block.add", "block.head",
        "mul", "mul_1", "act_1", "output",
    ]  # fmt: skip
    found = points.find(traced(branching("input", "output")), Cuts(live_tensors=2))
    assert names(found) == ["input", "input_1", "output_1", "pool", "output"]
    module = nn.Sequential(nn.Linear(4, 4), Made(lambda _, x: x * torch.sigmoid(x + 1)), nn.Linear(4, 4))
    assert names(of_ops(traced(module), 2)) == ["input", "0", "1.add", "1.sigmoid", "1", "output"]


def layers():
    """One net, which is written in many ways below."""
    one, two = (
        Made(lambda net, x: x + net.layer(x).relu(), layer=nn.Conv2d(4, 4, 3, padding=1)) for _ in range(2)
    )
    first = {"stem": nn.Conv2d(3, 4, 3), "norm": nn.BatchNorm2d(4), "one": one, "two": two}
    return first | {"neck": nn.Conv2d(4, 8, 3), "pool": nn.AdaptiveAvgPool2d(1), "head": nn.Linear(8, 5)}


def written(act=functional.relu, turn=list):
    """Children in the order in which they run, or not; one activation module for all, or functions."""

    def work(net, x):
        x = net.act(net.norm(net.stem(x)))
        x = net.act(net.two(net.act(net.one(x))))
        return net.head(net.pool(net.act(net.neck(x))).flatten(1))

    made = layers()
    net = Made(work, **{name: made[name] for name in turn(made)})
    net.act = act
    return net


def staged():
    """As published networks have them: a list of blocks, with something around it."""

    def work(net, x):
        x = net.stage(net.norm(net.stem(x)).relu())
        return net.head(net.pool(net.neck(x).relu()).flatten(1))

    made = layers()
    blocks = nn.Sequential(made.pop("one"), nn.ReLU(), made.pop("two"), nn.ReLU())
    stage = Made(lambda net, x: net.blocks(net.before(x)), before=nn.Identity(), blocks=blocks)
    return Made(work, **made, stage=stage)


def necked():
    """Its last child is not what runs last."""
    made = layers()
    stem = nn.Sequential(made["stem"], made["norm"], nn.ReLU())
    body = nn.Sequential(made["one"], nn.ReLU(), made["two"], nn.ReLU())
    parts = {"stem": stem, "body": body, "head": made["head"], "neck": nn.Sequential(made["neck"], nn.ReLU())}
    return Made(lambda net, x: net.head(net.neck(net.body(net.stem(x))).mean((2, 3))), **parts)


def in_sequence():
    (*first, neck, pool, head), act = layers().values(), nn.ReLU
    stem, norm, one, two = first
    return nn.Sequential(
        stem, norm, act(), one, act(), two, act(), neck, act(), pool, nn.Dropout(), nn.Flatten(), head
    )


def cut(module, granularity="block"):
    return points.find(trace(module.eval(), (Input((3, 32, 32)),)), Cuts(granularity), is_own=True)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(written, id="functions"),
        pytest.param(lambda: written(turn=reversed), id="children in another order"),
        pytest.param(lambda: written(nn.ReLU(inplace=True)), id="one activation for all"),
        pytest.param(necked, id="the neck is the last child"),
        pytest.param(in_sequence, id="a sequence"),
        pytest.param(staged, id="stages"),
    ],
)
def test_one_net_has_the_same_points_in_whatever_way_it_is_written(write):
    numbers = [point.payload_bytes // 4 for point in cut(write())]
    assert numbers == [3 * 32 * 32, *[4 * 30 * 30] * 3, 8 * 28 * 28, 8, 0]
    assert len(cut(write(), "op")) == len(numbers)


def test_where_a_block_begins_and_what_is_none():
    class Branched(nn.Sequential):
        """Blocks of layers that activate first, as Xception's: what they branch from is no longer all that crosses."""

        def forward(self, x):
            stem, *pairs = self
            x = stem(x)
            for one, two in zip(pairs[::2], pairs[1::2], strict=True):
                x = x + two(one(x.relu()).relu())
            return x

    same = (nn.Conv2d(4, 4, 1) for _ in range(4))
    assert [point.after for point in cut(Branched(nn.Conv2d(3, 4, 1), *same))[1:-1]] == ["_0", "add"]
    # Layers of no block are units with what follows them.
    convs = nn.Conv2d(3, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 3, 3), nn.ReLU()
    found = cut(nn.Sequential(*convs, nn.Flatten(), nn.Linear(507, 9), nn.ReLU(), nn.Linear(9, 2)))
    assert names(found) == ["input", "0", "2", "3", "6", "output"]
    # A backbone with most of a net is no block.
    parts = {"head": nn.Linear(1000, 5), "backbone": models.resnet18()}
    found = names(cut(Made(lambda net, x: net.head(net.backbone(x).relu()), **parts)))
    expected = [f"backbone.layer{layer}.{block}" for layer in (1, 2, 3, 4) for block in (0, 1)]
    assert found[3:11] == expected
