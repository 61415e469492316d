"""What a device has in memory: the weights of one stage, those of the next when it changes; and shards, a unit each."""

import hashlib
import weakref

import pytest
import torch
from safetensors.torch import load, load_file

from pareto.partitions import model as partitioned
from pareto.partitions import shards, weights
from pareto.partitions.model import ResidentStage
from pareto.partitions.recipe import Cuts, Recipe
from pareto.protocol.errors import UserError
from tests.unit.partitions.builders import images, recipe_of
from tests.unit.small_models import small

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = 64


@pytest.fixture
def resident(tmp_path):
    """Nothing of ResNet18 yet."""
    with small("resnet18", SIZE) as name:
        file = weights.make(name, "seeded", 7, tmp_path)
        yield ResidentStage(partitioned.outline(Recipe(name)), [file.path])


def tensors_of(stage):
    return [*stage.named_parameters(remove_duplicate=False), *stage.named_buffers(remove_duplicate=False)]


def test_a_changed_stage_keeps_what_both_need_and_lets_go_of_the_rest_first(resident, monkeypatch):
    it = resident
    it.change(0, 3)
    old = it.stage  # as a thread that is waiting for its next request holds it
    before = {path: tensor.data_ptr() for path, tensor in it._state.items()}
    memory = {path: weakref.ref(tensor.untyped_storage()) for path, tensor in it._state.items()}
    gone_at_reading = {}
    read = weights.Reader.read

    def watched(reader, keys):
        keys = list(keys)
        gone_at_reading.update({path: storage() is None for path, storage in memory.items()})
        read_now.extend(keys)
        return read(reader, keys)

    read_now = []
    monkeypatch.setattr(weights.Reader, "read", watched)
    it.change(2, 5)
    after = {path: tensor.data_ptr() for path, tensor in it._state.items()}
    assert {tensor.data_ptr() for _, tensor in tensors_of(it.stage)} == {*after.values()}
    both = before.keys() & after.keys()
    assert both
    assert all(before[path] == after[path] for path in both)
    assert {*read_now} == after.keys() - both
    left = memory.keys() - both
    assert left
    assert all(gone_at_reading[path] for path in left)
    assert all(tensor.is_meta for _, tensor in tensors_of(old))


def test_a_stage_that_cannot_be_read_leaves_none(resident, tmp_path):
    it = resident
    it.change(0, 2)
    next(tmp_path.glob("*.safetensors")).unlink()
    with pytest.raises(UserError):
        it.change(0, 4)
    assert it.stage.body is None
    it.change(0, 1)  # all of it is there still, and the file is not needed
    assert it.stage.body is not None
    it.change(0, 0)
    assert it.nbytes == 0


def test_a_marked_stage_computes_the_same_and_calls_between_its_units(resident):
    model = resident._outline
    resident.change(1, 5)
    payload = tuple(torch.rand(spec.shape) for spec in model.points[1].payload)
    called = []
    with torch.inference_mode():
        expected = resident.stage(payload)
        for units, marks in ((False, 2), (True, 5)):
            with resident.marked(lambda: called.append(None), units=units) as marked:
                called.clear()
                result = marked(payload)
                assert len(called) == marks
                ours, theirs = ([*stage.parameters()] for stage in (marked, resident.stage))
                assert [one.data_ptr() for one in ours] == [one.data_ptr() for one in theirs]
            assert all(map(torch.equal, result, expected))
            assert {one.device.type for one in marked.parameters()} == {"meta"}, "it lets go of the weights"
        assert all(map(torch.equal, resident.stage(payload), expected))


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


def test_a_shard_is_what_its_units_read_by_its_digest_and_those_of_a_stage_are_enough(made, tmp_path):
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
    last = len(outline.points) - 1
    cut = last // 2
    near = ResidentStage(outline, write(tmp_path, [part for part in parts if part.unit < cut]))
    far = ResidentStage(outline, write(tmp_path, [part for part in parts if part.unit >= cut]))
    near.change(0, cut)
    far.change(cut, last)
    whole = ResidentStage(outline, [file])
    whole.change(0, last)
    inputs = (images(SIZE),)
    with torch.inference_mode():
        assert torch.equal(far.stage(near.stage(inputs))[0], whole.stage(inputs)[0])
    with pytest.raises(UserError, match=r"is in none of this host's weights files$"):
        near.change(0, last)
    assert near.stage.body is None


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
    recipe = recipe_of(tmp_path / "tied.py", Cuts("op", fold=False))
    made = weights.make(recipe.name, "seeded", 0, tmp_path)
    outline = partitioned.outline(recipe)
    parts = shards.of(outline, made.path)
    keys = [key for part in parts for key in load(b"".join(part.blocks()))]
    assert sorted(keys) == sorted(key for key in load_file(made.path) if not key.startswith("unused"))
    assert {"twice.weight", "norm.running_mean"} < set(keys)
