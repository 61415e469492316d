"""Models that defy tracing, as chains of their submodules."""

import pytest
import torch

from pareto.partitions import graph, proof, registry, tracing, weights
from pareto.partitions import model as partitioned
from pareto.partitions.graph import Input, UntraceableModel
from pareto.partitions.recipe import Cuts, Handmade, Recipe

# A gate lets easy images past the expensive block, and repeats a step until the signal is small: no static graph.
ADAPTIVE = """
from torch import nn

from pareto.partitions.registry import register

class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        while x.abs().mean() > 0.25:
            x = x / 2
        if x.mean() > 0:
            return self.block(x).relu()
        return x

class Adaptive(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.gates = nn.ModuleList(Gate() for _ in range(2))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))

    def forward(self, x):
        x = self.stem(x)
        for gate in self.gates:
            x = gate(x)
        return self.head(x)

@register(input_shape=(3, 16, 16))
def build():
    return Adaptive()
"""
CHAIN = ("stem", "gates.0", "gates.1", "head")


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_adopted", {})
    file = tmp_path / "adaptive.py"
    file.write_text(ADAPTIVE)
    name = registry.canonical(str(file))
    return Recipe(name, Cuts(), *registry.source(name))


def test_without_a_chain_it_cannot_be_cut(recipe, snapshot):
    with pytest.raises(UntraceableModel) as refused:
        partitioned.outline(recipe)
    by_fx, _, by_export = str(refused.value).partition("; ")
    assert "Adaptive" in by_fx  # and why, in the words of torch
    assert by_export == snapshot


def test_a_chain_is_cut_between_its_submodules_and_computes_what_the_model_computes(recipe, tmp_path):
    recipe = Recipe(recipe.name, recipe.cuts, recipe.file, recipe.attribute, Handmade(chain=CHAIN))
    made = weights.make(recipe.name, "seeded", 0, tmp_path)
    model = partitioned.load(recipe, made.path)
    assert model.traced_by == "chain"
    assert [point.name for point in model.points] == ["input", *CHAIN[:-1], "output"]
    assert [spec.shape for point in model.points for spec in point.payload] == [
        (1, 3, 16, 16),
        *[(1, 8, 14, 14)] * 3,
    ]
    ran = set()
    model.eager.gates[0].block.register_forward_hook(lambda *_: ran.add("block"))
    for sign in (1, -1):  # on either side of the branch
        images = sign * torch.rand(2, 3, 16, 16)
        assert all(it.bitwise and it.parted for it in proof.prove(model, images))
        ran.add(("block" in ran, sign))
    assert {it[0] for it in ran if isinstance(it, tuple)} <= {True, False}


def test_a_submodule_that_is_not_there_is_told_with_those_that_are(recipe, snapshot):
    with pytest.raises(UntraceableModel) as refused:
        tracing.trace(registry.build_structure(recipe.name), (Input((3, 16, 16)),), ("stem", "gate", "head"))
    assert str(refused.value) == snapshot


def test_a_value_that_decides_a_branch_may_be_on_the_meta_device():
    with graph.AnyBranch():
        unknown = torch.empty(3, device="meta").sum()
        assert (bool(unknown > 1), float(unknown), int(unknown.long())) == (False, 0.0, 0)
        assert float(torch.tensor(2.5)) == 2.5
