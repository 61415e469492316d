"""Stages of small models made for the traps: in-place operators, views, non-contiguous values, shared memory."""

import copy
import itertools
from collections import OrderedDict

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from partitions import points
from partitions.graph import analyse
from partitions.recipe import Cuts
from partitions.stage import cut, paths
from partitions.tracing import trace


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


def structure_and_state(net):
    net.eval().requires_grad_(False)
    return trace(copy.deepcopy(net).to("meta"), (4,)), net.state_dict()


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


def test_an_activation_that_no_input_reaches_stays_in_place():
    net = Net(lambda net, x: net.act(net.middle(x)), act=nn.ReLU(inplace=True), middle=nn.Linear(4, 4))
    traced, state = structure_and_state(net)
    stage = cut(traced, state, "before", "head")
    assert stage.get_submodule("body.act").inplace
    assert not [node for node in stage.body.graph.nodes if node.target == "clone"]


def test_a_function_behind_the_cut_costs_no_copy():
    traced, state = structure_and_state(Net(AFTER["function"][0]))
    stage = cut(traced, state, "before", "head")
    assert [node.kwargs.get("inplace") for node in stage.body.graph.nodes if node.name == "relu"] == [False]
    assert not [node for node in stage.body.graph.nodes if node.target == "clone"]


def test_an_activation_behind_the_cut_costs_no_copy():
    traced, state = structure_and_state(Net(lambda net, x: net.act(x), act=nn.ReLU(inplace=True)))
    stage = cut(traced, state, "before", "head")
    assert not stage.get_submodule("body.act").inplace
    assert not [node for node in stage.body.graph.nodes if node.target == "clone"]
    # Where nothing is behind a cut, the model keeps its operators.
    assert cut(traced, state, "x", "head").get_submodule("body.act").inplace
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
    assert {name for name, _ in stage.named_buffers()} >= {"body.shift", "body.norm.running_mean"}
    assert {name for name, _ in stage.named_parameters()} >= {"body.scale", "body.head.weight"}


class Skips(nn.Module):
    """Several values live on past layers; `body` says what becomes of them."""

    def __init__(self, body):
        super().__init__()
        self.one = nn.Linear(4, 4)
        self.two = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)
        self.body = body

    def forward(self, x):
        return self.body(self, x)


def adds_in_place(net, x):
    y = net.one(x)
    return net.head(net.two(y).add_(y))


def adds_another_dtype_in_place(net, x):
    y = net.one(x).double()
    return net.head(net.two(x).add_(y))


def overwrites_what_is_read_again(net, x):
    y = net.one(x)
    z = net.two(y)
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
    y = net.one(x)
    half = y[:, :2]
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


def returns_its_input(net, x):
    return net.head(net.one(x)), x


SKIPS = [
    adds_in_place, adds_another_dtype_in_place, overwrites_what_is_read_again, overwrites_the_input_of_the_model,
    sends_an_alias, writes_through_an_alias, returns_what_is_overwritten, returns_early_results, ends_in_a_write,
    returns_its_input,
]  # fmt: skip


def leaves(value):
    if isinstance(value, dict):
        return leaves(list(value.values()))
    return (
        [tensor for item in value for tensor in leaves(item)] if isinstance(value, list | tuple) else [value]
    )


def skips(body):
    torch.manual_seed(1)
    net = Skips(body)
    traced, state = structure_and_state(net)
    return net, traced, state, points.find(traced, Cuts("op", 4, fold=False))


@pytest.mark.parametrize("body", SKIPS)
def test_every_chain_of_three_stages_computes_what_the_model_does(body):
    net, traced, state, found = skips(body)
    assert len(found) >= 3
    images = torch.randn(2, 4)
    with torch.inference_mode():
        expected = leaves(net(images.clone()))
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


def copies(stage):
    return [str(node.args[0]) for node in stage.body.graph.nodes if node.target == "clone"]


def test_an_addition_behind_the_cut_costs_no_copy():
    _, traced, state, _ = skips(adds_in_place)
    assert copies(cut(traced, state, "two", "head")) == []
    _, traced, state, _ = skips(adds_another_dtype_in_place)
    assert len(copies(cut(traced, state, "two", "head"))) == 1  # out of place its result would be a double


def test_only_the_tensor_that_is_overwritten_is_copied():
    _, traced, state, _ = skips(overwrites_what_is_read_again)
    assert copies(cut(traced, state, "two", "mul")) == ["one"]


def test_an_aten_operator_behind_the_cut_costs_no_copy():
    module, graph = nn.Module(), fx.Graph()
    x = graph.placeholder("x")
    first = graph.call_function(torch.ops.aten.neg.default, (x,))
    second = graph.call_function(torch.ops.aten.relu_.default, (first,))
    graph.output((graph.call_function(torch.ops.aten.add_.Tensor, (second, 1)),))
    traced = analyse(module, graph, (4,), torch.float32, "torch.export")
    stage = cut(traced, {}, "neg_default", "add__tensor")
    assert copies(stage) == []
    received = torch.tensor([[-1.0, 1.0, 2.0, -2.0]])
    assert stage((received,))[0].tolist() == [[1, 2, 3, 1]]
    assert received.tolist() == [[-1, 1, 2, -2]]
    whole = cut(traced, {}, "x", "add__tensor")
    assert torch.ops.aten.relu_.default in [node.target for node in whole.body.graph.nodes]


def test_results_come_in_the_order_of_the_model():
    _, traced, _, found = skips(returns_early_results)
    assert [str(node) for node in traced.results] == ["head", "two", "two"]
    assert [str(node) for node in traced.live[2]] == ["one", "two"]
    (early,) = [point for point in found if point.after == "two"]
    assert len(early.payload) == 2
