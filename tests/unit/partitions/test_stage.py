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


class Net(nn.Module):
    """`before`, a cut after it, then `after`, which is a function of the value at the cut."""

    def __init__(self, after, **children):
        super().__init__()
        self.before = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4)
        for name, child in children.items():
            self.add_module(name, child)
        self.after = after

    def forward(self, x):
        return self.head(self.after(self, self.before(x)))


def overwrite_and_read_again(net, x):
    return x.relu_() + x


def overwrite_a_view_and_read_again(net, x):
    net.act(x.view(2, -1))
    return x


def overwrite_a_chunk(net, x):
    left, right = x.chunk(2, dim=1)
    return torch.cat([net.act(left), right], dim=1)


def overwrite_a_chunk_and_read_again(net, x):
    left, right = x.chunk(2, dim=1)
    net.act(left)
    return torch.cat([left, right], dim=1) + x


AFTER = {
    "module": (lambda net, x: net.act(x), {"act": nn.ReLU(inplace=True)}),
    "module that passes its input on": (
        lambda net, x: net.act(net.drop(x)),
        {"act": nn.Hardswish(inplace=True), "drop": nn.Dropout()},
    ),
    "through a view": (lambda net, x: net.act(x.flatten(1)), {"act": nn.ReLU6(inplace=True)}),
    "function": (lambda net, x: functional.relu(x, inplace=True), {}),
    "method": (lambda net, x: x.relu_(), {}),
    "method on a view": (lambda net, x: x[:, 1:].relu_().sum(1, keepdim=True) + x, {}),
    "chunks": (overwrite_a_chunk, {"act": nn.ReLU(inplace=True)}),
    "chunks, and read again": (overwrite_a_chunk_and_read_again, {"act": nn.ReLU(inplace=True)}),
    "overwritten and read again": (overwrite_and_read_again, {}),
    "overwritten through a view and read again": (
        overwrite_a_view_and_read_again,
        {"act": nn.ReLU(inplace=True)},
    ),
    "twice": (lambda net, x: net.act(net.act(x)), {"act": nn.ReLU(inplace=True)}),
}


def structure_and_state(net, shape=(4,)):
    net.eval().requires_grad_(False)
    return trace(copy.deepcopy(net), (Input(shape),)), net.state_dict()


@pytest.mark.parametrize("kind", AFTER)
def test_a_stage_never_writes_to_its_input(kind):
    after, children = AFTER[kind]
    torch.manual_seed(0)
    net = Net(after, **children)
    traced, state = structure_and_state(net)
    images = torch.randn(2, 4)
    with torch.inference_mode():
        expected = net(images.clone())
        (crossing,) = cut(traced, state, "x", "before")((images,))
        received = crossing.clone()
        (result,) = cut(traced, state, "before", "head")((received,))
        again = cut(traced, state, "before", "head")((received,))[0]
    assert torch.equal(received, crossing)
    assert (crossing < 0).any()  # there was something for a ReLU to overwrite
    assert torch.equal(result, expected)
    assert torch.equal(again, expected)


def in_place(stage):
    return [module.inplace for module in stage.modules() if isinstance(module, nn.ReLU)]


def test_an_activation_that_no_input_reaches_stays_in_place():
    net = Net(lambda net, x: net.act(net.middle(x)), act=nn.ReLU(inplace=True), middle=nn.Linear(4, 4))
    traced, state = structure_and_state(net)
    stage = cut(traced, state, "before", "head")
    assert in_place(stage) == [True]
    assert not [node for node in stage.body.graph.nodes if node.target == "clone"]


def test_a_function_behind_the_cut_costs_no_copy():
    traced, state = structure_and_state(Net(AFTER["function"][0]))
    stage = cut(traced, state, "before", "head")
    assert [node.kwargs.get("inplace") for node in stage.body.graph.nodes if node.name == "relu"] == [False]
    assert not [node for node in stage.body.graph.nodes if node.target == "clone"]


def test_an_activation_behind_the_cut_costs_no_copy():
    traced, state = structure_and_state(Net(lambda net, x: net.act(x), act=nn.ReLU(inplace=True)))
    stage = cut(traced, state, "before", "head")
    assert in_place(stage) == [False]
    assert not [node for node in stage.body.graph.nodes if node.target == "clone"]
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


def test_results_are_contiguous():
    net = Net(lambda net, x: x.reshape(-1, 2, 2).transpose(1, 2).reshape(-1, 4), act=nn.ReLU())
    traced, state = structure_and_state(net)
    assert not traced.values[next(node for node in traced.nodes if node.name == "transpose")].is_contiguous()
    images = torch.randn(3, 4)
    with torch.inference_mode():
        (crossing,) = cut(traced, state, "x", "transpose")((images,))
        (result,) = cut(traced, state, "transpose", "head")((crossing,))
        expected = net(images)
    assert crossing.is_contiguous()
    assert crossing.shape == (3, 2, 2)
    assert torch.equal(result, expected)


def test_a_value_has_the_layout_that_it_has_within_the_model():
    """as_strided shows it: kernels take another path, and round otherwise."""
    net = Net(
        lambda net, x: net.same(x.view(-1, 2, 2).transpose(1, 2)).as_strided((x.size(0), 4), (4, 1)),
        same=nn.Identity(),
    )
    traced, state = structure_and_state(net)
    images = torch.randn(3, 4)
    with torch.inference_mode():
        (crossing,) = cut(traced, state, "x", "same")((images,))
        (result,) = cut(traced, state, "same", "head")((crossing,))
        assert torch.equal(result, net(images))
    assert crossing.is_contiguous()


def test_a_stage_without_units_hands_its_input_on():
    traced, state = structure_and_state(Net(lambda net, x: x))
    payload = (torch.randn(1, 4),)
    assert cut(traced, state, "before", "before")(payload)[0] is payload[0]


def test_stages_can_be_made_and_used_in_inference_mode():
    after, children = AFTER["module"]
    with torch.inference_mode():
        net = Net(after, **children)
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
    class Scaled(Net):
        def __init__(self):
            super().__init__(lambda net, x: net.norm(x) * net.scale + net.blocks(x), norm=nn.BatchNorm1d(4))
            self.scale = nn.Parameter(torch.randn(4))
            self.blocks = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
            self.unused = nn.Linear(4, 4)

    traced, state = structure_and_state(Scaled())
    taken = Taken(state)
    cut(traced, taken, start, end)
    assert paths(traced, start, end) == taken.keys_taken
    assert len(taken.keys_taken) == {"before": 2, "head": 10 if start == "before" else 12}[end] * (
        start != end
    )


def test_buffers_and_bare_parameters_are_filled():
    class Scaled(Net):
        def __init__(self):
            super().__init__(
                lambda net, x: net.norm(x) * net.scale + net.shift.flatten(), norm=nn.BatchNorm1d(4)
            )
            self.scale = nn.Parameter(torch.randn(4))
            self.register_buffer("shift", torch.randn(2, 2))
            self.norm.running_mean.fill_(3.0)

    net = Scaled()
    traced, state = structure_and_state(net)
    images = torch.randn(2, 4)
    stage = cut(traced, state, "x", "head")
    with torch.inference_mode():
        assert torch.equal(stage((images,))[0], net(images))
    assert {buffer.data_ptr() for buffer in stage.buffers()} >= {
        state[path].data_ptr() for path in ("shift", "norm.running_mean")
    }
    assert {parameter.data_ptr() for parameter in stage.parameters()} >= {
        state[path].data_ptr() for path in ("scale", "head.weight")
    }


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
