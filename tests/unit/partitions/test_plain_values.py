"""Values that are no tensors: constants if they are the same for every batch, else worked out where they are used."""

import operator

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from pareto.partitions import points
from pareto.partitions.graph import Input, UntraceableModel
from pareto.partitions.recipe import Cuts
from pareto.partitions.stage import cut
from pareto.partitions.tracing import analyse, trace
from tests.unit.gating import gating
from tests.unit.partitions.builders import Made, linears, named, names, of_ops, structure_and_state
from tests.unit.refusals import refusal


def sizes(net, x):
    """Sizes of the input, and of what is made of it, are used at the end."""
    shape = x.shape[-2:]
    batch, width = x.size(0), x.shape[3] // 2
    y = functional.interpolate(net.head(net.shrink(net.layer(x))), size=shape)
    return y.reshape(batch, 2, -1, width) * torch.arange(width, device=x.device)


@pytest.fixture
def sized():
    shrink = nn.Conv2d(4, 4, 3, stride=2)
    module = Made(sizes, layer=nn.Conv2d(3, 4, 1), shrink=shrink, head=nn.Conv2d(4, 2, 1))
    return *structure_and_state(module, 3, 8, 8), module


def assert_split_equals_whole(found, model, state, module, x):
    """At each of the points, with what crosses as announced."""
    source, last = model.inputs[-1].name, found[-1].after
    with torch.inference_mode():
        expected = module(x)
        assert torch.equal(cut(model, state, source, last)((x,))[0], expected)
        for point in found[1:-1]:
            crossing = cut(model, state, source, point.after)((x,))
            assert [tuple(tensor.shape) for tensor in crossing] == [spec.at(len(x)) for spec in point.payload]
            (result,) = cut(model, state, point.after, last)(crossing)
            assert torch.equal(result, expected)


@pytest.mark.parametrize("batch", [1, 3])
def test_sizes_block_no_cut_and_stages_take_any_batch(sized, batch):
    found = of_ops(sized[0])
    assert names(found) == ["input", "layer", "shrink", "head", "interpolate", "reshape", "output"]
    assert_split_equals_whole(found, *sized, torch.randn(batch, 3, 8, 8))


def test_what_stays_of_sizes_is_read_next_to_its_use(sized):
    nodes = sized[0].nodes
    _, size, reshape, device, arange, _ = nodes[-6:]
    assert (size.target, str(size.args), [*size.users]) == ("size", "(interpolate, 0)", [reshape])
    assert (device.target, str(device.args), [*device.users]) == (getattr, "(reshape, 'device')", [arange])
    assert not [node for node in nodes if node.target in (operator.getitem, operator.floordiv)]


def test_a_tensor_that_is_made_is_where_the_weights_are_and_as_large_as_the_batch() -> None:
    """Positions as of EdgeNeXt: made on the CPU, sent to where the weights are."""

    def placed(net, x):
        return net.layer(x) + torch.zeros(x.shape).to(net.layer.weight.device).cumsum(1)

    model = trace(Made(placed, **linears("layer")), (Input((4,)),))
    (sent,) = (node for node in model.nodes if node.target == "to")
    assert sent.args[1].args[0].name == "layer"

    def doubled(_, x):
        both = torch.cat([x, -x])
        return both.view(x.shape[0] * 2, 2, 2).sum(0, keepdim=True).expand(x.shape[0] * 2, 2, 2) + 1

    model = trace(Made(doubled), (Input((4,)),))
    (result,) = cut(model, {}, "x", model.nodes[-1].name)((torch.randn(3, 4),))
    assert result.shape == (6, 2, 2)
    # A new tensor is made where its stage is. As torch.export notes it, on the device that it ran on.
    graph = fx.Graph()
    first = graph.call_function(torch.neg, (graph.placeholder("x"),))
    grid = graph.call_function(torch.arange, (4,), {"device": torch.device("cpu")})
    graph.output(graph.call_function(torch.mul, (first, grid)))
    model = analyse(nn.Module(), graph, (Input((4,)),), "torch.export", None)
    for device in ("cpu", "meta"):
        stage = cut(model, {}, "neg", "mul").to(device)
        assert stage((torch.ones(2, 4, device=device),))[0].device.type == device


# Over (batch, 4, 6). Each keeps something beside the layers' tensors from the first to the last.
def layers(net, x):
    return net.c(net.b(net.a(x)))


def shape(net, x):
    size, dtype = x.shape, x.dtype
    return layers(net, x).flatten(1).to(dtype).view(size)


def proportion(net, x):
    """Where the batch is asked for, no tensor has it, but one that has four times as much."""
    n, rows, columns = x.shape
    return layers(net, x).reshape(n * rows, columns).reshape(n, rows, columns)


def share(net, x):
    part, more = 1.0 / x.shape[0], x.shape[0] + 1
    return layers(net, x) * part + torch.arange(more).sum()


def written(net, x):
    mask = torch.zeros(6, device=x.device)
    before = mask + 1
    mask.add_(2.0)
    return layers(net, x) * before + mask


def halved(net, x):
    halves = x.chunk(2, 1)
    return layers(net, x).sum(1, keepdim=True) + halves[0] + halves[1] + halves[0]


def most(net, x):
    found = x.max(2, keepdim=True)
    return layers(net, x) + found.values * found.indices


def table(net, x):
    values = {"x": x, "scale": 2.0, "rows": x.shape[1], "nothing": None}
    values["x"] = layers(net, values["x"])
    return values["x"].view(-1, values["rows"], 6) * values["scale"]


def whole(net, x):
    """The list itself is needed at the end."""
    halves = x.chunk(2, 1)
    return layers(net, x) + torch.cat(halves, 1)


def spectral(net, x):
    spectrum = torch.fft.fft(x)
    return layers(net, x) * spectrum.abs()


CROSSING = {
    "shape": shape,
    "proportion": proportion,
    "share": share,
    "positions": lambda net, x: torch.arange(x.shape[2], device=x.device).float() / 6 + layers(net, x),
    "halves": halved,
    "most": most,
    "table": table,
    # torch.fx does not trace it.
    "looping": lambda net, x: share(net, sum(x.unsqueeze(3).unbind(3)) if x.shape[1] > 1 else x),
}
NOT_CROSSING = {
    "Read": lambda net, x: (x.abs().max().item() * 2) * layers(net, x),
    "Scalar": lambda net, x: x.abs().max() * layers(net, x),
    "Whole": whole,
    "Complex": spectral,
}


def over_three(work, name="Three"):
    module = named(name, work, lambda: {each: nn.Linear(6, 6) for each in "abc"})()
    model, state = structure_and_state(module, 4, 6)
    return model, {**state, **model.computed}, module


def proved(work, batch):
    """The names of all points, at each of which the split computes what the whole does, and what hinders others."""
    model, state, module = over_three(work)
    found = of_ops(model, 9)
    assert_split_equals_whole(found, model, state, module, torch.randn(batch, 4, 6))
    return {*names(found)}, [*points.hindered(model)]


@pytest.mark.parametrize("batch", gating([1, 3], 3))
@pytest.mark.parametrize("work", CROSSING.values(), ids=CROSSING)
def test_nothing_but_tensors_crosses_and_any_layer_ends_at_a_cut(work, batch):
    found, hindered = proved(work, batch)
    assert {"a", "b", "c"} <= found
    assert not hindered


def test_a_constant_is_read_before_it_is_overwritten(snapshot) -> None:
    proved(written, 3)
    # Items of a tuple cross once.
    (after_c,) = (point for point in points.find(over_three(halved)[0], Cuts("op", 9)) if point.name == "c")
    assert len(after_c.payload) == 3
    # A shape that depends on values is refused with its node.
    said = refusal(
        UntraceableModel, over_three, lambda net, x: layers(net, x)[:, : x.sum().int().item()], "Cropped"
    )
    assert "slice_1" in said
    assert said == snapshot


@pytest.mark.parametrize("work", NOT_CROSSING.values(), ids=NOT_CROSSING)
def test_what_cannot_cross_is_named_with_its_node_and_no_cut_parts_it_from_its_use(work, snapshot):
    found, hindered = proved(work, 3)
    assert not {"a", "b", "c"} & found
    (sentence,) = hindered
    assert sentence == snapshot
