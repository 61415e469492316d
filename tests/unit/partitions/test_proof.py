"""What would make a split wrong is found; what a device has in memory of it; and shards, whose tensors a unit reads."""

import copy
import hashlib
import math
import weakref
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load, load_file
from torch import Tensor

from pareto.partitions import model as partitioned
from pareto.partitions import proof, registry, shards, weights
from pareto.partitions.model import PartitionedModel, ResidentStage
from pareto.partitions.recipe import Cuts, Recipe
from pareto.protocol.errors import UserError
from tests.unit.partitions.builders import images, load_own, recipe_of
from tests.unit.small_models import small

pytestmark = pytest.mark.usefixtures("one_thread")


NET = """
import torch
from torch import fx, nn

class Net(nn.Module):
    input_shape = (3, 8, 8)
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1) for _ in range(8)), nn.BatchNorm2d(3))
        self.head = nn.Linear(3, 5)
    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3)))
class Another(Net):
    def forward(self, x):
        return super().forward(x) * (2 if isinstance(x, fx.Proxy) else 1)
"""
LAST = 11  # eight convolutions, normalization, mean, head


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Makes a small model as a user writes it, cut after each of its operators."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "net.py").write_text(NET)

    def load(builder="Net", kind=PartitionedModel, dtype="float32"):
        model = load_own(f"{folder / 'net.py'}:{builder}", folder, Cuts("op", fold=False), input=dtype)
        return kind(**{field: getattr(model, field) for field in model.__dataclass_fields__})

    with patch.dict(registry._adopted):
        yield load


def proved(model):
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return list(proof.prove(model, images))


def test_every_point_of_a_good_model_and_none_of_a_graph_that_is_not_the_module(loaded):
    found = proved(loaded())
    assert found == [proof.PointProof(point, 0.0, bitwise=True, parted=True) for point in range(LAST + 1)]
    model = loaded(dtype="uint8")
    images = torch.randint(256, (2, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    assert all(found.bitwise and found.parted for found in proof.prove(model, images))
    assert proof.max_error(proof.reference(model, images), proof.reference(model, images.flip(3))) > 0.01
    found = proved(loaded("Another"))
    assert all(not it.bitwise and it.error > 0.1 for it in found)


def off(work, applies=lambda start, end: True):
    """A kind of model whose stages, those that this applies to, return what work makes of their outputs."""

    class Off(PartitionedModel):
        def stage(self, start, end):
            stage = super().stage(start, end)
            if applies(start, end):
                stage.register_forward_hook(lambda _stage, _inputs, outputs: tuple(map(work, outputs)))
            return stage

    return Off


def test_one_bit_is_seen_and_what_is_no_number_is_no_proof(loaded) -> None:
    """Of a last stage that is not the whole model."""
    kind = off(lambda it: it.nextafter(it + 1), lambda start, end: 0 < start < end == LAST)
    found = proved(loaded(kind=kind))
    assert [it.bitwise for it in found] == [it.point in (0, LAST) for it in found]
    assert all(0 < it.error < 1e-5 for it in found[1:-1])
    found = proved(loaded(kind=off(lambda it: it * math.nan)))
    assert {(it.error, it.bitwise) for it in found} == {(math.inf, False)}
    # Chains of three are tried along the model. A stage that neither begins nor ends with the model is wrong.
    kind = off(lambda it: it + 1, lambda start, end: start > 0 and end < LAST)
    wrong = [it.point for it in proved(loaded(kind=kind)) if not it.bitwise]
    assert len(wrong) >= 4
    assert wrong[0] < LAST / 3
    assert wrong[-1] > LAST / 2


def greedy(more):
    """The first stage holds one weight too many."""

    class Greedy(PartitionedModel):
        def stage(self, start, end):
            stage = super().stage(start, end)
            if start == 0 and 0 < end < LAST:
                stage.register_buffer("extra", more(self, stage))
            return stage

    return Greedy


def the_others(model, _):
    return model.state["head.bias"]


class Copying(PartitionedModel):
    """The second stage has copies of its weights: in memory there are more than one model's."""

    def stage(self, start, end):
        stage = super().stage(start, end)
        return copy.deepcopy(stage) if start else stage


class Misplacing(PartitionedModel):
    """The second stage holds a weight that the first one claims."""

    def paths(self, start, end):
        mine = super().paths(start, end)
        if start == 0 and 0 < end < LAST:
            return mine | {"head.bias"}
        return mine - {"head.bias"} if start else mine


class Sharing(greedy(the_others)):
    """Both stages claim and hold the same weight."""

    def paths(self, start, end):
        return super().paths(start, end) | ({"head.bias"} if start == 0 and 0 < end < LAST else set())


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(greedy(the_others), id="the other stage's"),
        pytest.param(greedy(lambda _model, _stage: torch.zeros(1)), id="nobody's"),
        pytest.param(greedy(lambda _, stage: next(stage.parameters()).clone()), id="a copy of its own"),
        *(Copying, Misplacing, Sharing),
    ],
)
def test_weights_held_elsewhere_or_without_need_are_seen(loaded, kind):
    found = proved(loaded(kind=kind))
    assert all(it.bitwise for it in found)
    assert [it.parted for it in found] == [it.point in (0, LAST) for it in found]


def test_an_error_is_a_share_of_the_largest_value() -> None:
    one = torch.tensor([1.0, -2.0])
    assert proof.max_error([one], [one]) == 0
    assert proof.max_error([one, one], [one, torch.tensor([1.0, -2.5])]) == 0.2
    assert proof.max_error([one / 4], [one / 8]) == 0.25, "noise does not shrink with small values"
    for another in ([torch.tensor([1.0])], [one.double()], [one, one], []):
        assert proof.max_error([one], another) == math.inf
    for broken in (torch.tensor([1.0, math.inf]), torch.tensor([1.0, math.nan])):
        assert proof.max_error([one], [broken]) == math.inf
        assert proof.max_error([one, broken], [one, one]) == math.inf
    assert proof.max_error([broken], [broken]) == math.inf, "it proves nothing"
    masked = torch.tensor([1.0, -math.inf])
    assert proof.max_error([masked], [masked]) == 0
    assert proof.max_error([masked], [-masked]) == math.inf
    assert proof.max_error([masked + 0.5], [masked]) == 0.5
    waves = torch.tensor([1.0 + 2.0j])
    assert proof.max_error([waves], [waves]) == 0
    assert proof.max_error([waves.conj()], [waves]) == 2
    numbers = torch.tensor([[7, 100_000]])
    assert proof.max_error([numbers], [numbers]) == 0, "whole ones are equal or not"
    assert proof.max_error([numbers + 1], [numbers]) == 1
    errors = {3e-7: "within 1e-6", 1e-6: "within 1e-6", 0.0: "equal", 0.5: proof.NO}
    found = (proof.PointProof(1, parted=True, bitwise=False, error=error) for error in errors)
    assert [*map(proof.word, found)] == [*errors.values()]
    # There is no column where there are fewer values than columns. Some of 1000 classes are near zero by chance,
    # which says nothing of the noise in them.
    logits = 50 * torch.randn(1, 2, 1000, generator=torch.Generator().manual_seed(0))
    logits[0, :, 3] = 0
    noisy = logits + 1e-6 * logits.abs().max()
    assert proof.max_error([noisy], [logits]) < 2e-6


def detected(classes: int) -> Tensor:
    """As a YOLO sees one image: 400 places with boxes in pixels and scores, of which those of the last class are 0."""
    chance = torch.Generator().manual_seed(0)
    boxes, scores = (torch.rand(1, columns, 400, generator=chance) for columns in (4, classes))
    return torch.cat((640 * boxes, scores[:, 1:], torch.zeros(1, 1, 400)), 1)


def laid_out(layout: str, detections: Tensor) -> list[Tensor]:
    boxes, scores = detections[:, :4], detections[:, 4:]
    return {
        "columns first": [detections],
        "columns last": [detections.transpose(1, 2)],
        "outputs of their own": [scores.transpose(1, 2), boxes.transpose(1, 2)],
        "a row each": [boxes.flatten(1), scores.flatten(1)],
    }[layout]


@pytest.mark.parametrize("classes", [2, 80])
@pytest.mark.parametrize("layout", ["columns first", "columns last", "outputs of their own", "a row each"])
def test_a_score_is_not_judged_by_the_pixels_of_the_box_beside_it(classes: int, layout: str) -> None:
    right = detected(classes)
    noise = 1e-6 * torch.randn(right.shape, generator=torch.Generator().manual_seed(1))
    noisy = right * (1 + noise) + noise  # also where a class is never seen
    assert 0 < proof.max_error(laid_out(layout, noisy), laid_out(layout, right)) < proof.TOLERANCE / 10
    for column, off in ((4, 0.01), (3 + classes, 0.01), (0, 0.5)):
        wrong = right.clone()
        wrong[0, column, 7] += off
        assert proof.max_error(laid_out(layout, wrong), laid_out(layout, right)) > proof.TOLERANCE


SIZE = 64


@pytest.fixture
def resident(tmp_path):
    """Nothing of ResNet18 yet."""
    with small("resnet18", SIZE) as name:
        file = weights.make(name, "seeded", 7, tmp_path)
        yield ResidentStage(partitioned.outline(Recipe(name)), [file])


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
        file = weights.make(name, "seeded", 7, tmp_path_factory.mktemp("weights"))
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
    parts = shards.of(outline, made)
    keys = [key for part in parts for key in load(b"".join(part.blocks()))]
    assert sorted(keys) == sorted(key for key in load_file(made) if not key.startswith("unused"))
    assert {"twice.weight", "norm.running_mean"} < set(keys)
