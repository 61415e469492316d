"""The units of a user's own net are the same in whatever way the net is written."""

import pytest
from torch import nn
from torch.nn import functional

from pareto.partitions import points
from pareto.partitions.graph import Input
from pareto.partitions.recipe import Cuts
from pareto.partitions.torchvision_models import models
from pareto.partitions.tracing import trace


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return x + self.layer(x).relu()


def layers():
    return {
        "stem": nn.Conv2d(3, 4, 3),
        "norm": nn.BatchNorm2d(4),
        "one": Block(),
        "two": Block(),
        "neck": nn.Conv2d(4, 8, 3),
        "pool": nn.AdaptiveAvgPool2d(1),
        "head": nn.Linear(8, 5),
    }


class Written(nn.Module):
    """Children in the order in which they run, or not; one activation module for all, or functions."""

    def __init__(self, order=None, activation=functional.relu):
        super().__init__()
        made = layers()
        for name in order or made:
            self.add_module(name, made[name])
        self.act = activation

    def forward(self, x):
        x = self.act(self.norm(self.stem(x)))
        x = self.act(self.two(self.act(self.one(x))))
        return self.head(self.pool(self.act(self.neck(x))).flatten(1))


class Stage(nn.Module):
    """As published networks have them: a list of blocks, with something around it."""

    def __init__(self):
        super().__init__()
        self.before, self.blocks = nn.Identity(), nn.Sequential(Block(), nn.ReLU(), Block(), nn.ReLU())

    def forward(self, x):
        return self.blocks(self.before(x))


class Staged(Written):
    def __init__(self):
        super().__init__()
        self.stage = Stage()
        del self.one, self.two

    def forward(self, x):
        x = self.stage(self.norm(self.stem(x)).relu())
        return self.head(self.pool(self.neck(x).relu()).flatten(1))


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        made = layers()
        self.stem = nn.Sequential(made["stem"], made["norm"], nn.ReLU())
        self.body = nn.Sequential(made["one"], nn.ReLU(), made["two"], nn.ReLU())
        self.head = made["head"]

    def after(self, x):
        return x

    def forward(self, x):
        return self.head(self.after(self.body(self.stem(x))).mean((2, 3)))


class Necked(Base):
    """Its last child is not what runs last."""

    def __init__(self):
        super().__init__()
        self.neck = nn.Sequential(layers()["neck"], nn.ReLU())

    def after(self, x):
        return self.neck(x)


def in_sequence():
    stem, norm, one, two, neck, pool, head = layers().values()
    act = nn.ReLU
    return nn.Sequential(
        stem, norm, act(), one, act(), two, act(), neck, act(), pool, nn.Dropout(), nn.Flatten(), head
    )


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1000, 5)
        self.backbone = models.resnet18()

    def forward(self, x):
        return self.head(self.backbone(x).relu())


def cut(module, granularity="block"):
    module.eval()
    traced = trace(module, (Input((3, 32, 32)),))
    return points.find(traced, Cuts(granularity), is_own=True)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(Written, id="functions"),
        pytest.param(lambda: Written([*reversed(layers())]), id="children in another order"),
        pytest.param(lambda: Written(activation=nn.ReLU(inplace=True)), id="one activation for all"),
        pytest.param(Necked, id="a subclass with a neck"),
        pytest.param(in_sequence, id="a sequence"),
        pytest.param(Staged, id="stages"),
    ],
)
def test_one_net_has_the_same_points_in_whatever_way_it_is_written(write):
    numbers = [point.payload_bytes // 4 for point in cut(write())]
    assert numbers == [3 * 32 * 32, *[4 * 30 * 30] * 3, 8 * 28 * 28, 8, 0]
    assert len(cut(write(), "op")) == len(numbers)


def test_an_activation_before_a_branch_begins_the_next_block():
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


def test_layers_of_no_block_are_units_with_what_follows_them():
    conv, pool = (lambda: nn.Conv2d(3, 3, 3)), (lambda: nn.MaxPool2d(2))
    net = nn.Sequential(
        conv(),
        nn.ReLU(),
        pool(),
        conv(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(507, 9),
        nn.ReLU(),
        nn.Linear(9, 2),
    )
    assert [point.name for point in cut(net)] == ["input", "0", "2", "3", "6", "output"]


def test_a_backbone_with_most_of_a_net_is_no_block():
    names = [point.name.removeprefix("backbone.") for point in cut(Backbone())]
    assert names[3:11] == [f"layer{layer}.{block}" for layer in (1, 2, 3, 4) for block in (0, 1)]
