"""Values that are no tensors: constants if they are the same for every batch, else worked out where they are used."""

import operator

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import fx, nn
from torch.nn import functional

from pareto.partitions import points
from pareto.partitions.graph import Input, TracedModel, UntraceableModel
from pareto.partitions.recipe import Cuts
from pareto.partitions.stage import cut
from pareto.partitions.tracing import analyse, trace
from tests.unit.gating import gating


class Sized(nn.Module):
    """Sizes of the input, and of what is made of it, are used at the end."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 1)
        self.shrink = nn.Conv2d(4, 4, 3, stride=2)
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        shape = x.shape[-2:]
        batch, width = x.size(0), x.shape[3] // 2
        y = functional.interpolate(self.head(self.shrink(self.layer(x))), size=shape)
        return y.reshape(batch, 2, -1, width) * torch.arange(width, device=x.device)


@pytest.fixture
def sized():
    torch.manual_seed(0)
    module = Sized().eval().requires_grad_(False)
    state = {path: tensor.clone() for path, tensor in module.state_dict().items()}
    return trace(Sized().eval(), (Input((3, 8, 8)),)), state, module


def test_sizes_block_no_cut(sized):
    model, _, _ = sized
    found = points.find(model, Cuts("op", fold=False))
    assert [point.name for point in found] == [
        "input",
        "layer",
        "shrink",
        "head",
        "interpolate",
        "reshape",
        "output",
    ]


@pytest.mark.parametrize("batch", [1, 3])
def test_stages_take_any_batch(sized, batch):
    model, state, module = sized
    images = torch.randn(batch, 3, 8, 8)
    found = points.find(model, Cuts("op", fold=False))
    with torch.inference_mode():
        for point in found[1:-1]:
            crossing = cut(model, state, "x", point.after)((images,))
            assert [tuple(tensor.shape) for tensor in crossing] == [spec.at(batch) for spec in point.payload]
            (result,) = cut(model, state, point.after, found[-1].after)(crossing)
            assert torch.equal(result, module(images))


def test_what_stays_of_sizes_is_read_next_to_its_use(sized):
    model, _, _ = sized
    _, size, reshape, device, arange, _ = model.nodes[-6:]
    assert (size.target, str(size.args), [*size.users]) == ("size", "(interpolate, 0)", [reshape])
    assert (device.target, str(device.args), [*device.users]) == (getattr, "(reshape, 'device')", [arange])
    assert not [node for node in model.nodes if node.target in (operator.getitem, operator.floordiv)]


def test_a_new_tensor_is_made_where_its_stage_is():
    """As torch.export notes it, on the device that it ran on."""
    module, graph = nn.Module(), fx.Graph()
    x = graph.placeholder("x")
    first = graph.call_function(torch.neg, (x,))
    grid = graph.call_function(torch.arange, (4,), {"device": torch.device("cpu")})
    graph.output(graph.call_function(torch.mul, (first, grid)))
    model = analyse(module, graph, (Input((4,)),), "torch.export")
    for device in ("cpu", "meta"):
        stage = cut(model, {}, "neg", "mul").to(device)
        assert stage((torch.ones(2, 4, device=device),))[0].device.type == device


def test_a_tensor_that_goes_to_the_models_device_goes_there():
    """Positions as of EdgeNeXt: made on the CPU, sent to where the weights are."""

    class Placed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x) + torch.zeros(x.shape).to(self.layer.weight.device).cumsum(1)

    model = trace(Placed(), (Input((4,)),))
    sent = next(node for node in model.nodes if node.target == "to")
    assert sent.args[1].args[0].name == "layer"


def test_a_tensor_as_large_as_the_batch_is_no_constant():
    class Doubled(nn.Module):
        def forward(self, x):
            both = torch.cat([x, -x])
            return both.view(x.shape[0] * 2, 2, 2).sum(0, keepdim=True).expand(x.shape[0] * 2, 2, 2) + 1

    model = trace(Doubled(), (Input((4,)),))
    (result,) = cut(model, {}, "x", model.nodes[-1].name)((torch.randn(3, 4),))
    assert result.shape == (6, 2, 2)


class Three(nn.Module):
    """Three layers over (batch, 4, 6); each model keeps something beside their tensors from the first to the last."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(6, 6) for _ in range(3))

    def layers(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.b(self.a(x)))


class Shape(Three):
    def forward(self, x):
        shape, dtype = x.shape, x.dtype
        return self.layers(x).flatten(1).to(dtype).view(shape)


class Proportion(Three):
    """Where the batch is asked for, no tensor has it, but one that has four times as much."""

    def forward(self, x):
        n, rows, columns = x.shape
        return self.layers(x).reshape(n * rows, columns).reshape(n, rows, columns)


class Share(Three):
    def forward(self, x):
        share, more = 1.0 / x.shape[0], x.shape[0] + 1
        return self.layers(x) * share + torch.arange(more).sum()


class Positions(Three):
    def forward(self, x):
        positions = torch.arange(x.shape[2], device=x.device).float() / 6
        return self.layers(x) + positions


class Written(Three):
    """A constant is read before it is overwritten."""

    def forward(self, x):
        mask = torch.zeros(6, device=x.device)
        before = mask + 1
        mask.add_(2.0)
        return self.layers(x) * before + mask


class Halves(Three):
    def forward(self, x):
        halves = x.chunk(2, 1)
        return self.layers(x).sum(1, keepdim=True) + halves[0] + halves[1] + halves[0]


class Most(Three):
    def forward(self, x):
        most = x.max(2, keepdim=True)
        return self.layers(x) + most.values * most.indices


class Table(Three):
    def forward(self, x):
        values = {"x": x, "scale": 2.0, "rows": x.shape[1], "nothing": None}
        values["x"] = self.layers(values["x"])
        return values["x"].view(-1, values["rows"], 6) * values["scale"]


class Looping(Share):
    """torch.fx does not trace it."""

    def forward(self, x):
        return super().forward(sum(x.unsqueeze(3).unbind(3)) if x.shape[1] > 1 else x)


class Read(Three):
    def forward(self, x):
        largest = x.abs().max().item() * 2
        return self.layers(x) * largest


class Scalar(Three):
    def forward(self, x):
        largest = x.abs().max()
        return self.layers(x) * largest


class Whole(Three):
    """The list itself is needed at the end."""

    def forward(self, x):
        halves = x.chunk(2, 1)
        return self.layers(x) + torch.cat(halves, 1)


def seeded(kind: type[Three]) -> tuple[TracedModel, dict[str, torch.Tensor], nn.Module]:
    torch.manual_seed(0)
    module = kind().eval().requires_grad_(False)
    model = trace(kind().eval(), (Input((4, 6)),))
    return model, {**module.state_dict(), **model.computed}, module


def proved(kind: type[Three], batch: int) -> list[str]:
    """The names of all points, at each of which the split computes what the whole does."""
    model, state, module = seeded(kind)
    found = points.find(model, Cuts("op", 9, fold=False))
    x = torch.randn(batch, 4, 6)
    source = model.inputs[-1].name
    assert torch.equal(cut(model, state, source, found[-1].after)((x,))[0], module(x))
    for point in found[1:-1]:
        crossing = cut(model, state, source, point.after)((x,))
        assert [tuple(tensor.shape) for tensor in crossing] == [spec.at(batch) for spec in point.payload]
        (result,) = cut(model, state, point.after, found[-1].after)(crossing)
        assert torch.equal(result, module(x))
    return [point.name for point in found]


@pytest.mark.parametrize("batch", gating([1, 3], 3))
@pytest.mark.parametrize(
    "kind",
    [Shape, Proportion, Share, Positions, Halves, Most, Table, Looping],
    ids=lambda kind: kind.__name__,
)
def test_nothing_but_tensors_crosses_and_any_layer_ends_at_a_cut(kind: type[Three], batch: int) -> None:
    names = proved(kind, batch)
    assert {"a", "b", "c"} <= {*names}
    assert not [*points.hindered(seeded(kind)[0])]


def test_a_constant_is_read_before_it_is_overwritten() -> None:
    proved(Written, 3)


def test_items_of_a_tuple_cross_once() -> None:
    model, _, _ = seeded(Halves)
    (after_c,) = (point for point in points.find(model, Cuts("op", 9)) if point.name == "c")
    assert len(after_c.payload) == 3


class Complex(Three):
    def forward(self, x):
        spectrum = torch.fft.fft(x)
        return self.layers(x) * spectrum.abs()


@pytest.mark.parametrize("kind", [Read, Scalar, Whole, Complex], ids=lambda kind: kind.__name__)
def test_what_cannot_cross_is_named_with_its_node_and_no_cut_parts_it_from_its_use(
    kind: type[Three], snapshot: SnapshotAssertion
) -> None:
    assert not {"a", "b", "c"} & {*proved(kind, 3)}
    (sentence,) = points.hindered(seeded(kind)[0])
    assert sentence == snapshot


def test_a_shape_that_depends_on_values_is_refused_with_its_node(snapshot: SnapshotAssertion) -> None:
    class Cropped(Three):
        def forward(self, x):
            return self.layers(x)[:, : x.sum().int().item()]

    with pytest.raises(UntraceableModel) as refused:
        seeded(Cropped)
    assert "slice_1" in str(refused.value)
    assert str(refused.value) == snapshot
