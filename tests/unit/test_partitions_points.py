"""The numbering of partition points, against what was published and against a count by hand."""

import pytest
import torch
from torch import nn

from partitions import registry
from partitions.graph import UntraceableModel, trace
from partitions.model import describe
from partitions.points import TensorSpec, block_points, op_points

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


@pytest.mark.parametrize("name", PUBLISHED_KIB)
def test_published_numbering(name):
    points, shape, _ = describe(name)
    assert [point.payload_bytes / 1024 for point in points] == PUBLISHED_KIB[name]
    assert [point.name for point in points] == ["input", *PUBLISHED_NAMES[name], "output"]
    assert [point.index for point in points] == list(range(len(points)))
    assert points[0].after == ""
    assert points[0].payload == (TensorSpec((1, *shape), "float32"),)
    assert points[-1].payload == ()


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
    "vit_h_14": (36, "encoder.layers.encoder_layer_0", "pool"),
    "vit_b_16": (16, "encoder.layers.encoder_layer_0", "pool"),
    "wide_resnet50_2": (19, "layer1.0", "avgpool"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_points(name):
    points, shape, digest = describe(name)
    units, second, last_cut = FAMILIES[name]
    assert (points[-1].index, points[2].name, points[-2].name) == (units, second, last_cut)
    assert points[0].payload[0].shape == (1, *shape)
    assert all(len(point.payload) == 1 and point.payload_bytes > 0 for point in points[:-1])
    assert len({point.name for point in points}) == len(points)
    assert len(digest) == 64


@pytest.mark.parametrize(
    ("name", "cuts"), [("alexnet", 22), ("vgg16", 40), ("resnet18", 23), ("mobilenet_v2", 73)]
)
def test_op_granularity_has_every_cut_with_one_live_tensor(name, cuts):
    points, _, _ = describe(name, "op")
    assert len(points) - 1 == cuts  # the last point is no cut
    blocks, _, _ = describe(name)
    assert {point.after for point in blocks} <= {point.after for point in points}


def test_a_structure_is_told_apart_by_its_digest():
    digests = {describe(name)[2] for name in ("vgg11", "vgg13", "vgg16", "resnet18", "resnet34")}
    assert len(digests) == 5
    assert describe("vgg11", "op")[2] not in digests
    describe.cache_clear()
    assert describe("vgg11")[2] in digests


def test_bytes_follow_shape_and_dtype():
    assert TensorSpec((1, 3, 5), "float32").nbytes == 60
    assert TensorSpec((1, 3, 5), "float16").nbytes == 30
    assert TensorSpec((1, 3, 5), "int64").nbytes == 120


def traced(module):
    return trace(module.eval().requires_grad_(False).to("meta"), (4,))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.third = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        kept = self.first(x)
        return self.head(self.third(self.second(kept)) + kept)


def test_no_cut_where_two_tensors_are_live():
    model = traced(Residual())
    names = [node.name for node in model.nodes]
    live = {name: [node.name for node in alive] for name, alive in zip(names, model.live, strict=True)}
    assert live == {
        "x": ["x"],
        "first": ["first"],
        "second": ["first", "second"],
        "third": ["first", "third"],
        "add": ["add"],
        "head": ["head"],
    }
    assert [point.after for point in op_points(model)] == ["", "first", "add", "head"]


class Tied(nn.Module):
    """One weight on both sides of a cut."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.between = nn.ReLU()
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        return self.head(self.layer(self.between(self.layer(x))))


def test_no_cut_between_two_uses_of_one_weight():
    assert [point.after for point in op_points(traced(Tied()))] == ["", "layer_1", "head"]


class Sized(nn.Module):
    """A size, which is no tensor, lives across `layer`."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        batch = x.shape[0]
        return self.head(self.layer(x).reshape(batch, 4))


def test_no_cut_where_a_size_is_live():
    assert "layer" not in [point.after for point in op_points(traced(Sized()))]


class Chunked(nn.Module):
    """The one value that is live after `chunk` is a tuple."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 4)

    def forward(self, x):
        left, right = x.chunk(2, dim=1)
        return self.head(left + right)


def test_no_cut_where_a_tuple_is_live():
    assert [point.after for point in op_points(traced(Chunked()))] == ["", "add", "head"]


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Residual(), Residual())
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        return self.head(self.blocks(x))


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Residual(), Residual()])
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        return self.head(self.blocks[1](self.blocks[0](x)) + x)


def test_a_boundary_with_two_live_tensors_merges_with_the_next():
    assert [point.name for point in block_points(traced(Blocks()))] == [
        "input",
        "blocks.0",
        "blocks.1",
        "output",
    ]
    assert [point.name for point in block_points(traced(Branching()))] == ["input", "pool", "output"]


class Undecided(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = torch.ones(4, device="meta")

    def forward(self, x):
        return x + self.offset


class Pair(nn.Module):
    def forward(self, x):
        return x + 1, x + 2


@pytest.mark.parametrize(
    ("module", "says"), [(Undecided(), "cannot be traced"), (Pair(), "one tensor"), (Constant(), "a buffer")]
)
def test_what_has_no_static_graph_is_refused(module, says):
    with pytest.raises(UntraceableModel, match=says):
        traced(module)


def test_no_memory_is_used_to_describe():
    before = torch.get_rng_state()
    structure = registry.build_structure("vgg11").to("meta")
    values = trace(structure, (3, 224, 224)).values.values()
    assert {value.device.type for value in values if isinstance(value, torch.Tensor)} == {"meta"}
    assert torch.equal(torch.get_rng_state(), before)
