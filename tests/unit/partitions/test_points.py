"""The numbering of partition points, against what was published and against a count by hand."""

import re

import pytest
import torch
from torch import nn

from pareto.partitions import points, registry
from pareto.partitions.graph import Input, TensorSpec, UntraceableModel
from pareto.partitions.model import describe
from pareto.partitions.recipe import Cuts, Recipe
from pareto.partitions.tracing import trace
from tests.unit.gating import gating
from tests.unit.partitions.builders import Made, linears, names, of_ops, traced

INPUT = [588.0]
RESNET50 = [784.0, *[3136.0] * 3, *[1568.0] * 4, *[784.0] * 6, *[392.0] * 3]
VGG16 = (
    [12544.0] * 4
    + [3136.0]
    + [6272.0] * 4
    + [1568.0]
    + [3136.0] * 6
    + [784.0]
    + [1568.0] * 6
    + [392.0] * 7
    + [98.0]
)
PUBLISHED_KIB = {
    "mobilenet_v2": [
        *INPUT, 1568, 784, *[294] * 2, *[98] * 3, *[49] * 4, *[73.5] * 3, *[30.625] * 3, 61.25, 245, 5, 0,
    ],
    "alexnet": [
        *INPUT, 756.25, 756.25, 182.25, 546.75, 546.75, 126.75, 253.5, 253.5, *[169] * 4, 36, 36, 0,
    ],
    "vgg16": [*INPUT, *VGG16, 98, 0],
    "resnet18": [*INPUT, *[784] * 2, *[392] * 2, *[196] * 2, *[98] * 2, 2, 0],
    "resnet50": [*INPUT, *RESNET50, 8, 0],
    "inception_v3": [
        3 * 299 * 299 * 4 / 1024, 2775.125, 2701.125, 5402.25, 1332.25, 1665.3125, 3780.75, 918.75,
        1225, 1378.125, 1378.125, *[867] * 5, 320, *[512] * 2, 8, 0,
    ],
}  # fmt: skip
INCEPTION = ["Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3", "maxpool1"]
INCEPTION += ["Conv2d_3b_1x1", "Conv2d_4a_3x3", "maxpool2"]
INCEPTION += [
    f"Mixed_{block}" for block in ("5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c")
]
PUBLISHED_NAMES = {
    "mobilenet_v2": [*(f"features.{i}" for i in range(19)), "pool"],
    "alexnet": [*(f"features.{i}" for i in range(13)), "avgpool"],
    "vgg16": [*(f"features.{i}" for i in range(31)), "avgpool"],
    "resnet18": [*(f"layer{i}.{j}" for i in (1, 2, 3, 4) for j in (0, 1)), "avgpool"],
    "resnet50": [
        "stem",
        *(f"layer{i}.{j}" for i, blocks in enumerate((3, 4, 6, 3), start=1) for j in range(blocks)),
        "avgpool",
    ],
    "inception_v3": [*INCEPTION, "avgpool"],
}


@pytest.mark.parametrize("name", gating(PUBLISHED_KIB, "alexnet", "mobilenet_v2", "resnet18"))
def test_published_numbering(name):
    found, shape, _ = describe(Recipe(name))
    assert [point.payload_bytes / 1024 for point in found] == PUBLISHED_KIB[name]
    assert [point.name for point in found] == ["input", *PUBLISHED_NAMES[name], "output"]
    assert [point.index for point in found] == list(range(len(found)))
    assert found[0].after == ""
    assert found[0].payload == (TensorSpec((1, *shape), "float32"),)
    assert found[-1].payload == ()


# One of each family: the number of units, the name of the second point, and of the last but one.
FAMILIES = {
    "convnext_tiny": (24, "features.1.0", "avgpool"),
    "densenet121": (11, "features.denseblock1", "pool"),
    "efficientnet_b0": (20, "features.1.0", "avgpool"),
    "efficientnet_v2_s": (44, "features.1.0", "avgpool"),
    "googlenet": (18, "maxpool1", "avgpool"),
    "maxvit_t": (14, "stem.1", "blocks.3.layers.1"),
    "mnasnet0_5": (20, "layers.8.0", "pool"),
    "mobilenet_v3_small": (15, "features.1", "avgpool"),
    "regnet_y_400mf": (19, "trunk_output.block1.block1-0", "avgpool"),
    "resnet34": (18, "layer1.1", "avgpool"),
    "resnext50_32x4d": (19, "layer1.0", "avgpool"),
    "shufflenet_v2_x0_5": (21, "maxpool", "pool"),
    "squeezenet1_1": (12, "features.3", "features.12"),  # its classifier pools
    "swin_t": (18, "features.1.0", "norm"),
    "swin_v2_t": (18, "features.1.0", "norm"),
    "vgg11_bn": (31, "features.1", "avgpool"),
    "vit_h_14": (37, "encoder.dropout", "pool"),
    "vit_b_16": (17, "encoder.dropout", "pool"),
    "wide_resnet50_2": (19, "layer1.0", "avgpool"),
}


@pytest.mark.parametrize("name", gating(FAMILIES, "shufflenet_v2_x0_5", "squeezenet1_1", "vit_b_16"))
def test_every_family_has_points(name):
    found, shape, digest = describe(Recipe(name))
    units, second, last_cut = FAMILIES[name]
    assert (found[-1].index, found[2].name, found[-2].name) == (units, second, last_cut)
    assert found[0].payload[0].shape == (1, *shape)
    assert all(len(point.payload) == 1 and point.payload_bytes > 0 for point in found[:-1])
    assert len({point.name for point in found}) == len(found)
    assert len(digest) == 64


OF_OPS = {"alexnet": 22, "vgg16": 40, "resnet18": 23, "mobilenet_v2": 73}


@pytest.mark.parametrize("name", gating(OF_OPS, "alexnet", "resnet18"))
def test_op_granularity_has_every_cut_with_one_live_tensor(name):
    found, _, _ = describe(Recipe(name, Cuts("op", fold=False)))
    assert len(found) - 1 == OF_OPS[name]  # the last point is no cut
    blocks, _, _ = describe(Recipe(name))
    assert {point.after for point in blocks} <= {point.after for point in found}


def test_a_recipe_is_told_apart_by_its_digest():
    recipes = [Recipe(name) for name in ("vgg11", "vgg13", "vgg16", "resnet18", "resnet34")]
    recipes += [
        Recipe("vgg11", Cuts("op")),
        Recipe("vgg11", Cuts("op", fold=False)),
        Recipe("vgg11", input="uint8"),
    ]
    digests = {describe(recipe)[2] for recipe in recipes}
    assert len(digests) == len(recipes)
    describe.cache_clear()
    assert describe(Recipe("vgg11"))[2] in digests


def test_bytes_follow_shape_and_dtype():
    assert TensorSpec((1, 3, 5), "float32").nbytes == 60
    assert TensorSpec((1, 3, 5), "float16").nbytes == 30
    assert TensorSpec((1, 3, 5), "int64").nbytes == 120


def cuts(model, live_tensors=1):
    """Nodes that a point is behind."""
    return [point.after for point in of_ops(model, live_tensors)]


class Residual(Made):
    def __init__(self):
        def work(net, x):
            kept = net.first(x)
            return net.head(net.third(net.second(kept)) + kept)

        super().__init__(work, **linears("first", "second", "third", "head"))


def test_no_cut_where_two_tensors_are_live_unless_two_may_be():
    model = traced(Residual())
    live = zip(model.nodes, model.live, strict=True)
    assert {node.name: [alive.name for alive in each] for node, each in live} == {
        "x": ["x"],
        "first": ["first"],
        "second": ["first", "second"],
        "third": ["first", "third"],
        "add": ["add"],
        "head": ["head"],
    }
    assert cuts(model) == ["", "first", "add", "head"]
    assert cuts(model, 2) == ["", "first", "second", "third", "add", "head"]
    found = of_ops(model, 2)
    assert [len(point.payload) for point in found] == [1, 1, 2, 2, 1, 0]
    assert found[2].payload_bytes == 2 * found[1].payload_bytes == 32


def late(net, x):
    return net.head(net.layer(x)) + x


LATE = {"layer": nn.Linear(4, 8), "head": nn.Linear(8, 4)}


def test_the_input_counts_as_a_live_tensor():
    assert [[spec.shape for spec in point.payload] for point in of_ops(traced(Made(late, **LATE)), 2)] == [
        [(1, 4)], [(1, 4), (1, 8)], [(1, 4), (1, 4)], [],
    ]  # fmt: skip


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


def test_what_the_parameters_alone_make_never_crosses():
    """A parameter that is read before it is used, and something made of another, which does not see the input."""

    def bare(net, x):
        scale = net.scale
        token = net.token.expand(x.shape[0], 4)
        return net.head(net.layer(x) * scale + token)

    parameters = {"scale": nn.Parameter(torch.ones(4)), "token": nn.Parameter(torch.ones(1, 4))}
    model = traced(Made(bare, **parameters, **linears("layer", "head")))
    assert cuts(model, 3) == ["", "add", "head"]
    order = [node.name for node in model.nodes]
    assert order.index("layer") < order.index("scale") < order.index("mul")


def blocks():
    parts = {"blocks": nn.Sequential(Residual(), Residual()), "head": nn.Linear(4, 4)}
    return Made(lambda net, x: net.head(net.blocks(x)), **parts)


class Branching(nn.Module):
    def __init__(self, blocks=("first", "second")):
        super().__init__()
        self.blocks = blocks
        for name in blocks:
            self.add_module(name, Residual())
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        first, second = map(self.get_submodule, self.blocks)
        return self.head(second(first(x)) + x)


@pytest.mark.parametrize(
    ("build", "live_tensors", "expected"),
    [
        (blocks, 1, "blocks.0 blocks.1"),
        (Branching, 1, "pool"),
        (Branching, 2, "first second pool"),
        (lambda: Made(lambda net, x: net.model(x), model=blocks()), 1, "model.blocks.0 model.blocks.1"),
    ],
    ids=["blocks", "two live tensors merge with the next", "two may be live", "wrapped"],
)
def test_blocks(build, live_tensors, expected):
    found = points.find(traced(build()), Cuts(live_tensors=live_tensors))
    assert names(found) == ["input", *expected.split(), "output"]


class Undecided(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Numbers(nn.Module):
    def forward(self, x):
        return x.shape[0], None


class TwoInputs(nn.Module):
    def forward(self, x, y):
        return x + y


@pytest.mark.parametrize("kind", [Undecided, Numbers, TwoInputs])
def test_what_has_no_static_graph_is_refused(kind, snapshot):
    with pytest.raises(UntraceableModel) as refused:
        traced(kind())
    said = re.sub(r"\.py:\d+\)$", ".py:LINE)", str(refused.value))
    for others in ("symbolically .*(?=; )", "missing a required argument.*"):
        said = re.sub(others, "IN OTHERS' WORDS", said)
    assert said == snapshot
    assert "\n" not in said


def test_no_memory_is_used_to_describe():
    before = torch.get_rng_state()
    structure = registry.build_structure("vgg11")
    values = trace(structure, (Input((3, 224, 224)),)).values.values()
    assert {value.device.type for value in values if isinstance(value, torch.Tensor)} == {"meta"}
    assert torch.equal(torch.get_rng_state(), before)
