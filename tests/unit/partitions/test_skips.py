"""Stages between which several tensors cross: in-place operators, aliases, early results, values that pass through."""

import copy
import itertools
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn import functional

from pareto.partitions.stage import cut
from tests.unit.partitions.builders import Made, linears, of_ops, traced


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


def leaves(value):
    if isinstance(value, dict):
        return leaves(list(value.values()))
    return (
        [tensor for item in value for tensor in leaves(item)] if isinstance(value, list | tuple) else [value]
    )


def skips(body):
    torch.manual_seed(1)
    activations = {
        "act": nn.ReLU(inplace=True),
        "hard": nn.Hardswish(inplace=True),
        "six": nn.ReLU6(inplace=True),
    }
    net = Made(body, **linears("one", "two", "head"), **activations, drop=nn.Dropout())
    model = traced(copy.deepcopy(net))
    return net.eval().requires_grad_(False), model, net.state_dict(), of_ops(model, 4)


@pytest.mark.parametrize(
    "body", [*SKIPS, *(pytest.param(behind_a_cut(after), id=name) for name, after in AFTER.items())]
)
def test_every_chain_of_three_stages_computes_what_the_model_does(body):
    net, traced, state, found = skips(body)
    assert len(found) >= 3
    images = torch.randn(2, 4)
    assert (net.one(images) < 0).any(), "there is something for a ReLU to overwrite"
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


def test_results_come_in_the_order_of_the_model():
    _, traced, _, found = skips(returns_early_results)
    assert [str(node) for node in traced.results] == ["head", "two", "two"]
    assert [str(node) for node in traced.live[2]] == ["one", "two"]
    (early,) = [point for point in found if point.after == "two"]
    assert len(early.payload) == 2
