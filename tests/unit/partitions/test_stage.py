"""Stages of small models made for the traps: in-place operators, views, non-contiguous values, shared memory."""

import copy
import itertools
import keyword

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from pareto.partitions.graph import Input
from pareto.partitions.stage import cut, paths
from pareto.partitions.tracing import trace
from tests.unit.partitions.builders import Made, linears


class Net(Made):
    """`before`, a cut after it, then `after`, which is a function of the value at the cut."""

    def __init__(self, after, **parts):
        super().__init__(
            lambda net, x: net.head(after(net, net.before(x))), **linears("before", "head"), **parts
        )


def structure_and_state(net, shape=(4,)):
    net.eval().requires_grad_(False)
    return trace(copy.deepcopy(net), (Input(shape),)), net.state_dict()


def copies(stage):
    return [node for node in stage.body.graph.nodes if node.target == "clone"]


def in_place(stage):
    return [module.inplace for module in stage.modules() if isinstance(module, nn.ReLU)]


def test_an_activation_that_no_input_reaches_stays_in_place():
    net = Net(lambda net, x: net.act(net.middle(x)), act=nn.ReLU(inplace=True), **linears("middle"))
    stage = cut(*structure_and_state(net), "before", "head")
    assert in_place(stage) == [True]
    assert not copies(stage)


def test_an_activation_behind_the_cut_costs_no_copy():
    net = Net(lambda net, x: functional.relu(x, inplace=True))
    stage = cut(*structure_and_state(net), "before", "head")
    assert [node.kwargs.get("inplace") for node in stage.body.graph.nodes if node.name == "relu"] == [False]
    assert not copies(stage)
    traced, state = structure_and_state(Net(lambda net, x: net.act(x), act=nn.ReLU(inplace=True)))
    stage = cut(traced, state, "before", "head")
    assert in_place(stage) == [False]
    assert not copies(stage)
    # Where nothing is behind a cut, the model keeps its operators.
    assert in_place(cut(traced, state, "x", "head")) == [True]
    assert traced.module.act.inplace


def test_a_stage_of_views_returns_memory_of_its_own():
    net = Net(lambda net, x: net.drop(net.flat(x)), flat=nn.Flatten(), drop=nn.Dropout())
    traced, state = structure_and_state(net)
    stage = cut(traced, state, "before", "drop")
    received = torch.randn(2, 4)
    with torch.inference_mode():
        (result,) = stage((received,))
        kept = result.clone()
        received.zero_()
    assert torch.equal(result, kept)
    assert result.any()


@pytest.mark.parametrize(
    ("after", "at"),
    [
        (lambda net, x: x.reshape(-1, 2, 2).transpose(1, 2).reshape(-1, 4), "transpose"),
        # as_strided shows the layout that a value has within the model: kernels take another path, and round otherwise.
        (
            lambda net, x: net.same(x.view(-1, 2, 2).transpose(1, 2)).as_strided((x.size(0), 4), (4, 1)),
            "same",
        ),
    ],
)
def test_results_are_contiguous_and_have_their_own_layout_behind(after, at):
    net = Net(after, same=nn.Identity())
    traced, state = structure_and_state(net)
    assert not traced.values[next(node for node in traced.nodes if node.name == at)].is_contiguous()
    images = torch.randn(3, 4)
    with torch.inference_mode():
        (crossing,) = cut(traced, state, "x", at)((images,))
        (result,) = cut(traced, state, at, "head")((crossing,))
        assert torch.equal(result, net(images))
    assert crossing.is_contiguous()
    assert crossing.shape == (3, 2, 2)


def test_a_stage_without_units_hands_its_input_on():
    traced, state = structure_and_state(Net(lambda net, x: x))
    payload = (torch.randn(1, 4),)
    assert cut(traced, state, "before", "before")(payload)[0] is payload[0]


def test_stages_can_be_made_and_used_in_inference_mode():
    with torch.inference_mode():
        net = Net(lambda net, x: net.act(x), act=nn.ReLU(inplace=True))
        traced, state = structure_and_state(net)
        images = torch.randn(2, 4)
        result = cut(traced, state, "before", "head")(cut(traced, state, "x", "before")((images,)))
        assert torch.equal(result[0], net(images))


def test_moving_a_stage_leaves_the_state_where_it_is():
    traced, state = structure_and_state(Net(lambda net, x: x))
    stage = cut(traced, state, "before", "head")
    assert {p.data_ptr() for p in stage.parameters()} == {
        state[f"head.{n}"].data_ptr() for n in ("weight", "bias")
    }
    stage.to(torch.float64)
    assert state["head.weight"].dtype == torch.float32
    assert {p.dtype for p in cut(traced, state, "before", "head").parameters()} == {torch.float32}


class Taken(dict):
    """A state that notes what is taken from it."""

    def __init__(self, state):
        super().__init__(state)
        self.keys_taken = set()

    def __getitem__(self, key):
        self.keys_taken.add(key)
        return super().__getitem__(key)


@pytest.mark.parametrize(
    ("start", "end"), [("x", "before"), ("before", "head"), ("x", "head"), ("head", "head")]
)
def test_paths_are_what_a_cut_takes(start, end):
    net = Net(
        *(lambda net, x: net.norm(x) * net.scale + net.blocks(x),),
        norm=nn.BatchNorm1d(4),
        scale=nn.Parameter(torch.randn(4)),
        blocks=nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
        **linears("unused"),
    )
    traced, state = structure_and_state(net)
    taken = Taken(state)
    cut(traced, taken, start, end)
    assert paths(traced, start, end) == taken.keys_taken
    assert len(taken.keys_taken) == {"before": 2, "head": 10 if start == "before" else 12}[end] * (
        start != end
    )


def test_buffers_and_bare_parameters_are_filled():
    parts = {"scale": nn.Parameter(torch.randn(4)), "shift": torch.randn(2, 2)}
    net = Net(lambda net, x: net.norm(x) * net.scale + net.shift.flatten(), norm=nn.BatchNorm1d(4), **parts)
    net.norm.running_mean.fill_(3.0)
    traced, state = structure_and_state(net)
    images = torch.randn(2, 4)
    stage = cut(traced, state, "x", "head")
    with torch.inference_mode():
        assert torch.equal(stage((images,))[0], net(images))
    held = {tensor.data_ptr() for tensor in (*stage.buffers(), *stage.parameters())}
    of_net = ("shift", "norm.running_mean", "scale", "head.weight")
    assert held >= {state[path].data_ptr() for path in of_net}


def test_modules_and_buffers_may_be_called_as_anything_is():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.names = [
                name
                for name in sorted(
                    {*dir(fx.GraphModule), *dir(torch.Tensor), *keyword.kwlist, "input", "output", "x"}
                )
                if not hasattr(self, name) and not name.startswith("__")
            ]
            for name in self.names[::2]:
                self.add_module(name, nn.Linear(2, 2))
            for name in self.names[1::2]:
                self.register_buffer(name, torch.randn(2))

        def forward(self, x):
            for name in self.names:
                own = getattr(self, name)
                x = own(x) if isinstance(own, nn.Module) else (x + own).sigmoid()
            return x.mean(1, keepdim=True) + x

    net = Named()
    assert {"output", "mean", "graph", "class", "input", "code"} <= {*net.names}
    traced, state = structure_and_state(net, (2,))
    middle = traced.nodes[len(traced.nodes) // 2].name
    images = torch.randn(3, 2)
    with torch.inference_mode():
        for points in (("x", traced.nodes[-1].name), ("x", middle, traced.nodes[-1].name)):
            payload = (images,)
            for start, end in itertools.pairwise(points):
                payload = cut(traced, state, start, end)(payload)
            assert torch.equal(payload[0], net(images))


def test_parametrized_modules_are_cut_and_a_shared_tensor_is_in_one_stage_once():
    net = Net(lambda net, x: net.more(x), more=nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)))
    net.head.weight = net.before.weight
    net.before.register_buffer("scale", torch.ones(4))
    net.head.register_buffer("scale", net.before.scale)
    traced, state = structure_and_state(net)
    assert traced.first == {"head.weight": "before.weight", "head.scale": "before.scale"}
    assert not any(traced.cuttable[1:-1]), "each cut would part two layers with one tensor"
    assert "head.weight" not in paths(traced, "x", "head")
    stage = cut(traced, state, "x", "head")
    with torch.inference_mode():
        assert torch.equal(stage((torch.eye(4),))[0], net(torch.eye(4)))
