"""Shards: each unit's tensors in files of their own, which give the stage that the whole file gives."""

import hashlib

import pytest
import torch
from safetensors.torch import load, load_file, save_file

from pareto.partitions import model as partitioned
from pareto.partitions import registry, shards, weights
from pareto.partitions.model import ResidentStage
from pareto.partitions.recipe import Cuts, Recipe
from pareto.protocol.errors import UserError
from tests.unit.small_models import small

SIZE = 64


@pytest.fixture(scope="module", params=["block", "op"])
def made(request, tmp_path_factory):
    """A model without its weights, its weights file, and the shards of that."""
    with small("mobilenet_v2", SIZE) as name:
        file = weights.make(name, "seeded", 7, tmp_path_factory.mktemp("weights")).path
        outline = partitioned.outline(Recipe(name, Cuts(granularity=request.param)))
        yield outline, file, shards.of(outline, file)


def write(folder, parts):
    for part in parts:
        (folder / part.digest).write_bytes(b"".join(part.blocks()))
    return [folder / part.digest for part in parts]


def test_a_shard_is_what_its_units_read_by_its_digest(made):
    outline, file, parts = made
    whole = weights.read(file, outline.name)
    for part in parts:
        content = b"".join(part.blocks())
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (part.digest, part.size)
        held = load(content)
        assert held.keys() == outline.paths(part.unit, part.unit + 1)
        assert all(torch.equal(tensor, whole[key]) for key, tensor in held.items())
    units = [part.unit for part in parts]
    assert units == sorted(set(units))


def test_the_shards_of_a_stage_are_enough_for_it_and_no_other(made, tmp_path):
    outline, file, parts = made
    last = len(outline.points) - 1
    cut = last // 2
    near = ResidentStage(outline, write(tmp_path, [part for part in parts if part.unit < cut]))
    far = ResidentStage(outline, write(tmp_path, [part for part in parts if part.unit >= cut]))
    near.change(0, cut)
    far.change(cut, last)
    whole = ResidentStage(outline, [file])
    whole.change(0, last)
    images = torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        assert torch.equal(far.stage(near.stage((images,)))[0], whole.stage((images,))[0])
    with pytest.raises(UserError, match=r"is in none of this host's weights files$"):
        near.change(0, last)
    assert near.stage.body is None


def test_a_shard_of_another_model_is_refused(made, tmp_path):
    _, _, parts = made
    with small("resnet18", SIZE) as name, pytest.raises(UserError, match="unexpected"):
        ResidentStage(partitioned.outline(Recipe(name)), write(tmp_path, parts[:1]))


TIED = """
from torch import nn
from pareto.partitions import registry

@registry.register(input_shape=(3, 8, 8))
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.twice, self.last = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3), nn.Linear(16, 8)
        self.norm, self.unused = nn.BatchNorm2d(4), nn.Linear(8, 8)

    def forward(self, x):
        x = self.norm(self.twice(self.first(x))).relu()
        return self.last(self.twice(x).amax(2).flatten(1))
"""


def test_weights_that_are_used_twice_are_in_one_shard_and_unused_ones_in_none(tmp_path):
    (tmp_path / "tied.py").write_text(TIED)
    name = registry.canonical(f"{tmp_path / 'tied.py'}:Tied")
    made = weights.make(name, "seeded", 0, tmp_path)
    outline = partitioned.outline(Recipe(name, Cuts("op", fold=False), *registry.source(name)))
    parts = shards.of(outline, made.path)
    keys = [key for part in parts for key in load(b"".join(part.blocks()))]
    assert sorted(keys) == sorted(key for key in load_file(made.path) if not key.startswith("unused"))
    assert {"twice.weight", "norm.running_mean"} < set(keys)


def test_units_whose_weights_did_not_change_have_the_same_shards(tmp_path):
    """A host that has them does not get them again."""
    with small("resnet18", SIZE) as name:
        outline = partitioned.outline(Recipe(name))
        made = weights.make(name, "seeded", 7, tmp_path)
        state = load_file(made.path)
        state["fc.bias"] += 1
        save_file(state, tmp_path / "tuned.safetensors")
        before, after = (
            {part.digest for part in shards.of(outline, file)}
            for file in (made.path, tmp_path / "tuned.safetensors")
        )
    assert len(before) == len(after)
    assert len(after - before) == 1
