"""Stages of small models made for the traps: in-place operators, views, early results, shared memory, skips."""

import itertools
import keyword
from collections import OrderedDict

import pytest
import torch
from torch import fx, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from pareto.partitions.stage import cut, paths
from tests.unit.partitions.builders import Made, linears, of_ops, structure_and_state


def net_of(after, **parts):
    """`before`, a cut after it, then `after`, which is a function of the value at the cut."""
    return Made(lambda net, x: net.head(after(net, net.before(x))), **linears("before", "head"), **parts)


def copies(stage):
    return [str(node.args[0]) for node in stage.body.graph.nodes if node.target == "clone"]


def in_place(stage):
    return [module.inplace for module in stage.modules() if isinstance(module, nn.ReLU)]


def test_an_activation_costs_no_copy_and_stays_in_place_where_no_input_reaches_it():
    net = net_of(lambda net, x: net.act(net.middle(x)), act=nn.ReLU(inplace=True), **linears("middle"))
    stage = cut(*structure_and_state(net), "before", "head")
    assert in_place(stage) == [True]
    assert not copies(stage)
    net = net_of(lambda net, x: functional.relu(x, inplace=True))
    stage = cut(*structure_and_state(net), "before", "head")
    assert [node.kwargs.get("inplace") for node in stage.body.graph.nodes if node.name == "relu"] == [False]
    assert not copies(stage)
    traced, state = structure_and_state(net_of(lambda net, x: net.act(x), act=nn.ReLU(inplace=True)))
    stage = cut(traced, state, "before", "head")
    assert in_place(stage) == [False]
    assert not copies(stage)
    # Where nothing is behind a cut, the model keeps its operators.
    assert in_place(cut(traced, state, "x", "head")) == [True]
    assert traced.module.act.inplace


def test_moving_a_stage_leaves_the_state_where_it_is() -> None:
    traced, state = structure_and_state(net_of(lambda net, x: x))
    stage = cut(traced, state, "before", "head")
    own = {state[f"head.{name}"].data_ptr() for name in ("weight", "bias")}
    assert {parameter.data_ptr() for parameter in stage.parameters()} == own
    stage.to(torch.float64)
    assert state["head.weight"].dtype == torch.float32
    assert {p.dtype for p in cut(traced, state, "before", "head").parameters()} == {torch.float32}
    # Buffers and bare parameters are filled.
    parts = {"scale": nn.Parameter(torch.randn(4)), "shift": torch.randn(2, 2)}
    net = net_of(
        lambda net, x: net.norm(x) * net.scale + net.shift.flatten(), norm=nn.BatchNorm1d(4), **parts
    )
    net.norm.running_mean.fill_(3.0)
    traced, state = structure_and_state(net)
    images = torch.randn(2, 4)
    stage = cut(traced, state, "x", "head")
    with torch.inference_mode():
        assert torch.equal(stage((images,))[0], net(images))
    held = {tensor.data_ptr() for tensor in (*stage.buffers(), *stage.parameters())}
    of_net = ("shift", "norm.running_mean", "scale", "head.weight")
    assert held >= {state[path].data_ptr() for path in of_net}


class Taken(dict):
    """A state that notes what is taken from it."""

    def __init__(self, state):
        super().__init__(state)
        self.keys_taken = set()

    def __getitem__(self, key):
        self.keys_taken.add(key)
        return super().__getitem__(key)


@pytest.mark.parametrize(
    ("start", "end", "number"),
    [("x", "before", 2), ("before", "head", 10), ("x", "head", 12), ("head", "head", 0)],
)
def test_paths_are_what_a_cut_takes(start, end, number):
    parts = {
        "norm": nn.BatchNorm1d(4),
        "blocks": nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
        **linears("unused"),
    }
    parts |= {"scale": nn.Parameter(torch.randn(4))}
    net = net_of(lambda net, x: net.norm(x) * net.scale + net.blocks(x), **parts)
    traced, state = structure_and_state(net)
    taken = Taken(state)
    cut(traced, taken, start, end)
    assert paths(traced, start, end) == taken.keys_taken
    assert len(taken.keys_taken) == number


def test_modules_and_buffers_may_be_called_as_anything_is():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            words = {*dir(fx.GraphModule), *dir(torch.Tensor), *keyword.kwlist, "input", "output", "x"}
            own = (name for name in sorted(words) if not name.startswith("__"))
            self.names = [name for name in own if not hasattr(self, name)]
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
    traced, state = structure_and_state(net, 2)
    middle = traced.nodes[len(traced.nodes) // 2].name
    images = torch.randn(3, 2)
    with torch.inference_mode():
        for points in (("x", traced.nodes[-1].name), ("x", middle, traced.nodes[-1].name)):
            payload = (images,)
            for start, end in itertools.pairwise(points):
                payload = cut(traced, state, start, end)(payload)
            assert torch.equal(payload[0], net(images))


def test_parametrized_modules_are_cut_and_a_shared_tensor_is_in_one_stage_once():
    net = net_of(lambda net, x: net.more(x), more=nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)))
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


def adds_in_place(net, x):
    y = net.one(x)
    return net.head(net.two(y).add_(y))


def adds_another_dtype_in_place(net, x):
    y = net.one(x).double()
    return net.head(net.two(x).add_(y))


def overwrites_what_is_read_again(net, x):
    z = net.two(y := net.one(x))
    net.act(y)
    return net.head(z + y) * y.sigmoid()


def overwrites_the_input_of_the_model(net, x):
    y = net.one(x)
    return net.head(y) + x.relu_() + x


def sends_an_alias(net, x):
    y = net.one(x)
    flat = y.view(-1, 2, 2)
    return net.head(torch.tanh(y)) + flat.transpose(1, 2).reshape(-1, 4)


def writes_through_an_alias(net, x):
    half = (y := net.one(x))[:, :2]
    z = net.two(x)
    half.relu_()
    return net.head(y) + z


def returns_what_is_overwritten(net, x):
    y = net.one(x)
    z = net.head(y)
    return {"before": y, "after": [z, net.act(y)]}


def returns_early_results(net, x):
    y = net.one(x)
    aux = net.two(y)
    return OrderedDict(out=net.head(torch.sigmoid(y)), aux=aux, again=aux)


def ends_in_a_write(net, x):
    y = net.head(net.two(net.one(x)))
    y.relu_()
    return y


def transposes(net, x):
    return net.head(net.one(x).reshape(-1, 2, 2).transpose(1, 2).reshape(-1, 4))


def shows_the_layout(net, x):
    """That of a value within the model: kernels take another path, and round otherwise."""
    return net.head(net.drop(net.one(x).view(-1, 2, 2).transpose(1, 2)).as_strided((x.size(0), 4), (4, 1)))


SKIPS = [
    transposes, shows_the_layout,
    adds_in_place, adds_another_dtype_in_place, overwrites_what_is_read_again, overwrites_the_input_of_the_model,
    sends_an_alias, writes_through_an_alias, returns_what_is_overwritten, returns_early_results, ends_in_a_write,
    pytest.param(lambda net, x: (net.head(net.one(x)), x), id="returns_its_input"),
]  # fmt: skip


def overwrites_a_view(net, x):
    net.act(x.view(2, -1))
    return x


def overwrites_a_chunk(net, x):
    left, right = x.chunk(2, dim=1)
    return torch.cat([net.act(left), right], dim=1)


def overwrites_a_chunk_and_reads_again(net, x):
    left, right = x.chunk(2, dim=1)
    net.act(left)
    return torch.cat([left, right], dim=1) + x


AFTER = {
    "module": lambda net, x: net.act(x),
    "module that passes its input on": lambda net, x: net.hard(net.drop(x)),
    "through a view": lambda net, x: net.six(x.flatten(1)),
    "function": lambda net, x: functional.relu(x, inplace=True),
    "method": lambda net, x: x.relu_(),
    "method on a view": lambda net, x: x[:, 1:].relu_().sum(1, keepdim=True) + x,
    "chunks": overwrites_a_chunk,
    "chunks, and read again": overwrites_a_chunk_and_reads_again,
    "overwritten and read again": lambda net, x: x.relu_() + x,
    "overwritten through a view and read again": overwrites_a_view,
    "twice": lambda net, x: net.act(net.act(x)),
}
"""What overwrites the value at a cut."""


def behind_a_cut(after):
    return lambda net, x: net.head(after(net, net.one(x)))


def skips(body):
    torch.manual_seed(1)
    kinds = {"act": nn.ReLU, "hard": nn.Hardswish, "six": nn.ReLU6}
    activations = {name: kind(inplace=True) for name, kind in kinds.items()}
    net = Made(body, **linears("one", "two", "head"), **activations, drop=nn.Dropout())
    model, state = structure_and_state(net)
    return net, model, state, of_ops(model, 4)


@pytest.mark.parametrize(
    "body", [*SKIPS, *(pytest.param(behind_a_cut(after), id=name) for name, after in AFTER.items())]
)
def test_every_chain_of_three_stages_computes_what_the_model_does(body):
    net, traced, state, found = skips(body)
    assert len(found) >= 3
    images = torch.randn(2, 4)
    assert (net.one(images) < 0).any(), "there is something for a ReLU to overwrite"
    with torch.inference_mode():
        expected = tree_leaves(net(images.clone()))
        names = [point.after or "x" for point in found]
        for first, second in itertools.combinations_with_replacement(names, 2):
            payload = (images,)
            for start, end in itertools.pairwise((names[0], first, second, names[-1])):
                received = tuple(tensor.clone() for tensor in payload)
                result = cut(traced, state, start, end)(received)
                untouched = zip(received, payload, strict=True)
                assert all(torch.equal(*pair) for pair in untouched), (first, second, start)
                memory = {tensor.untyped_storage().data_ptr() for tensor in received}
                if start != end:
                    assert memory.isdisjoint(tensor.untyped_storage().data_ptr() for tensor in result)
                    assert all(tensor.is_contiguous() for tensor in result)
                payload = result
            assert len(payload) == len(expected)
            assert all(torch.equal(*pair) for pair in zip(payload, expected, strict=True)), (first, second)


def test_only_what_is_overwritten_and_read_again_is_copied() -> None:
    def copied(body, end):
        _, traced, state, _ = skips(body)
        return copies(cut(traced, state, "two", end))

    assert copied(adds_in_place, "head") == []
    assert len(copied(adds_another_dtype_in_place, "head")) == 1  # out of place its result would be a double
    assert copied(overwrites_what_is_read_again, "mul") == ["one"]
    # Results come in the order of the model.
    _, traced, _, found = skips(returns_early_results)
    assert [str(node) for node in traced.results] == ["head", "two", "two"]
    assert [str(node) for node in traced.live[2]] == ["one", "two"]
    (early,) = [point for point in found if point.after == "two"]
    assert len(early.payload) == 2
