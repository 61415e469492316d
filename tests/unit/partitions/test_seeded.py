"""Modules without the memory of their parameters, and random weights by which every output depends on the image."""

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from pareto.partitions import registry
from pareto.partitions.entry import with_forward, without_memory
from pareto.partitions.inputs import Images
from pareto.partitions.seeded import seeded
from tests.unit.partitions.builders import Made


def trunk():
    """Deep, with normalization of no use as long as it is untrained: its signal fades with depth."""
    deep = [nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(6)]
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), *deep)
    for module in layers.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.data.mul_(0.1)
            module.bias.data.fill_(1.0)
    return layers


class Heads(nn.Module):
    """Two heads and a third that serves two maps, behind activations, slices and writes; and a layer that is none."""

    def __init__(self):
        super().__init__()
        self.trunk, self.shared = trunk(), nn.Linear(4, 3)
        self.boxes, self.scores = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 1)
        self.shared.bias.data.copy_(torch.tensor([50.0, 0.0, -50.0]))
        nn.init.zeros_(self.scores.weight)
        nn.init.constant_(self.scores.bias, -9.0)
        self.expectation = nn.Conv2d(4, 1, 1, bias=False).requires_grad_(False)
        self.expectation.weight.copy_(torch.arange(4.0).view(1, 4, 1, 1))

    def forward(self, x):
        x = self.trunk(x)
        rows = x.new_zeros(len(x), 2, 4)
        rows[:, 0] = x.mean((2, 3))
        rows[:, 1] = x.amax((2, 3))
        return {
            "boxes": self.expectation(self.boxes(x).softmax(1)),
            "scores": [torch.sigmoid_(self.scores(x))],
            "tags": (self.shared(rows[:, :1]), self.shared(rows[:, 1:])),
        }


def normalized():
    """Neither ends in a layer with weights nor has 2d normalization only."""
    parts = {
        "layer": nn.Linear(3 * 8 * 8, 16),
        "norm": nn.BatchNorm1d(16),
        "scale": nn.Parameter(torch.ones(16)),
    }
    return Made(lambda net, x: (net.norm(net.layer(x.flatten(1)) * 1e-2) * net.scale).softmax(1), **parts)


KINDS = {"Heads": Heads, "Normalized": normalized, "Weightless": lambda: Made(lambda _, x: x.mean((2, 3)))}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for name, kind in KINDS.items():
        monkeypatch.setitem(registry._adopted, name, registry.Entry(name, kind, Images((3, 8, 8))))


def spread(model, images):
    """Of each output, how much it differs between images, in parts of its size."""
    with torch.no_grad():
        return [float((it[0] - it[1]).abs().max() / it.abs().max()) for it in tree_leaves(model(images))]


@pytest.mark.parametrize("name", KINDS)
def test_every_output_depends_on_the_image(name):
    model = seeded(name, 3)
    assert not any(module.training for module in model.modules())
    assert not any(parameter.requires_grad for parameter in model.parameters())
    for images in (torch.randn(2, 3, 8, 8), torch.rand(2, 3, 8, 8)):
        assert all(it > 1e-3 for it in spread(model, images))


def test_without_it_outputs_would_hardly_differ():
    assert max(spread(Heads().eval(), torch.randn(2, 3, 8, 8))) < 1e-3


def test_heads_are_scaled_each_by_itself_and_normalization_takes_its_statistics():
    model = seeded("Heads", 3)
    assert model.expectation.weight.flatten().tolist() == [0.0, 1.0, 2.0, 3.0], "its builder froze it"
    found = {name: [] for name in ("boxes", "scores", "shared")}
    for name, outputs in found.items():
        kept = lambda _module, _inputs, output, outputs=outputs: outputs.append(output.clone())  # noqa: E731
        model.get_submodule(name).register_forward_hook(kept)
    model(torch.cat([torch.randn(32, 3, 8, 8), torch.rand(32, 3, 8, 8)]))
    for name, outputs in found.items():
        last = [it if name == "shared" else it.movedim(1, -1) for it in outputs]
        channels = torch.cat([it.flatten(0, -2) for it in last])
        assert 0.3 < float((channels - channels.mean(0)).std()) < 3
        assert float(channels.mean(0).abs().max()) < 1
    assert float(seeded("Normalized", 3).norm.running_var.max()) < 0.01  # untrained 1


def test_the_same_seed_gives_the_same_weights_and_leaves_no_trace():
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    one, again, other = (seeded("Heads", seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert not torch.equal(one["boxes.weight"], other["boxes.weight"])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    norms = (module for module in seeded("Heads", 1).modules() if isinstance(module, nn.BatchNorm2d))
    assert {module.momentum for module in norms} == {0.1}


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
