"""Modules without the memory of their parameters, whatever their constructors do."""

import pytest
import torch
from torch import nn

from pareto.partitions.entry import with_forward, without_memory
from tests.unit.partitions.builders import Made


class RunsItself(nn.Module):
    """Learns a size by a forward pass, in which parameters meet tensors that have memory."""

    made = 0

    def __init__(self):
        super().__init__()
        RunsItself.made += 1
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()).eval()
        self.head = nn.Linear(self.body(torch.zeros(1, 3, 8, 8)).shape[1], 2)


def with_layer(**of_weight):
    """A layer, and what these functions make of its weight."""
    made = Made(None, layer=nn.Linear(3, 2))
    for name, function in of_weight.items():
        found = function(made.layer.weight)
        if isinstance(found, float):
            setattr(made, name, found)
        else:
            made.register_buffer(name, found, persistent=False)
    return made


def devices(model):
    return {parameter.device.type for parameter in model.parameters()}


def test_a_constructor_may_run_the_model_and_use_the_values_of_its_parameters() -> None:
    model = without_memory(RunsItself)
    assert RunsItself.made == 1  # a second time would be with memory
    assert devices(model) == {"meta"}
    assert model.head.in_features == 4 * 6 * 6
    assert model.body[1].running_var.tolist() == [1.0] * 4
    model = without_memory(lambda: with_layer(scale=lambda weight: float(weight.detach().abs().max())))
    assert devices(model) == {"meta"}
    assert model.scale > 0

    # Random buffers are the same everywhere and the RNG is left alone.
    def build():
        return Made(None, features=torch.randn(4))

    state = torch.get_rng_state()
    one = without_memory(build).features
    torch.randn(3)
    assert torch.equal(one, without_memory(build).features)
    torch.set_rng_state(state)
    without_memory(build)
    assert torch.equal(torch.get_rng_state(), state)

    # An error of the constructor is its own.
    def build():
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        without_memory(build)
    assert nn.Linear(2, 2).weight.device.type == "cpu"


@pytest.mark.parametrize(
    "function",
    [lambda weight: weight.norm(), lambda weight: torch.zeros(2, 3).copy_(weight.detach())],
    ids=["a function", "a copy"],
)
def test_buffers_computed_from_parameters_are_real_and_the_same_everywhere(function):
    models = [without_memory(lambda: with_layer(made=function)) for _ in range(2)]
    (one,), (other,) = ([*model.buffers()] for model in models)
    assert not one.is_meta
    assert one.abs().sum() > 0
    assert torch.equal(one, other)
    assert devices(models[0]) == {"meta"}


def test_another_forward_keeps_class_names_and_parameters():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    keys = [*model.state_dict()]
    changed = with_forward(model, lambda it, images: it[0](images) + 1)
    assert isinstance(changed, nn.Sequential)
    assert (type(changed).__name__, [*changed.state_dict()]) == ("Sequential", keys)
    images = torch.randn(2, 3)
    assert torch.equal(changed(images), changed[0](images) + 1)
