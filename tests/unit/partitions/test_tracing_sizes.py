"""Sizes and devices in a graph: constants where they are the same for every batch, else read where they are used."""

import operator

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from partitions import points
from partitions.graph import Input
from partitions.recipe import Cuts
from partitions.stage import cut
from partitions.tracing import analyse, trace


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


def test_a_tensor_as_large_as_the_batch_is_no_constant():
    class Doubled(nn.Module):
        def forward(self, x):
            both = torch.cat([x, -x])
            return both.view(x.shape[0] * 2, 2, 2).sum(0, keepdim=True).expand(x.shape[0] * 2, 2, 2) + 1

    model = trace(Doubled(), (Input((4,)),))
    (result,) = cut(model, {}, "x", model.nodes[-1].name)((torch.randn(3, 4),))
    assert result.shape == (6, 2, 2)
