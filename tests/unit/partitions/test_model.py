"""Whole models: a split computes what the whole does, bit for bit, and each stage holds its own weights and no others.

The test matrix: every point of the published models, and some cuts of every kind of model.
"""

import dataclasses
from contextlib import ExitStack
from itertools import pairwise

import pytest
import torch

from pareto.partitions import model as partitions_model
from pareto.partitions import proof, registry, tracing, weights
from pareto.partitions.model import PartitionedModel, ResidentStage
from pareto.partitions.points import hindered
from pareto.partitions.recipe import Cuts, Recipe
from pareto.partitions.seeded import seeded
from pareto.protocol.errors import UserError
from tests.unit.gating import gating
from tests.unit.partitions.builders import images, load_own, names, recipe_of
from tests.unit.refusals import refusal
from tests.unit.small_models import small

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = 64
"""Pixels a side: small, as what is cut does not depend on it."""
# Pixels a side, as few as leave every layer something to do.
PUBLISHED = {
    "alexnet": 64, "vgg16": 32, "resnet18": 64, "resnet50": 64, "mobilenet_v2": 64, "inception_v3": 96,
}  # fmt: skip
SAMPLED = {
    "convnext_tiny": 64, "densenet121": 64, "efficientnet_b0": 64, "googlenet": 64, "lraspp_mobilenet_v3_large": 64,
    "mnasnet0_5": 64, "mobilenet_v3_large": 64, "regnet_y_400mf": 64, "shufflenet_v2_x0_5": 64, "squeezenet1_1": 64,
    "swin_t": 64, "vit_b_16": 64, "yolov8n": 128,
}  # fmt: skip


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    loaded = {}
    with ExitStack() as undo:

        def cached(name):
            if name not in loaded:
                called = undo.enter_context(small(name, SIZE))
                file = weights.make(called, "seeded", 7, tmp_path_factory.mktemp("weights"))
                loaded[name] = partitions_model.load(Recipe(called), file)
            return loaded[name]

        yield cached


OWN = """
import torch
from torch import nn
input_shape = (3, 8, 8)

class Positional(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 1)
        self.register_buffer("offset", torch.tensor([1.0, 2.0]).view(1, 2, 1, 1), persistent=False)
        self.scale = torch.tensor([2.0, 3.0]).view(1, 2, 1, 1)  # no buffer
    def forward(self, x):
        return self.head(self.layer(x) + self.offset)
class Constant(Positional):
    def forward(self, x):
        return self.head((self.layer(x) + self.offset) * self.scale)
class Greedy(Positional):
    def forward(self, x):
        return super().forward(x.relu_())
class Listing(Constant):
    def forward(self, x):
        parts = list(x.split(1, 1))
        parts[1] = parts[1].relu()
        return super().forward(torch.cat(parts, 1))
"""


def own(folder, builder, cuts):
    """A model as a user writes it."""
    (folder / "own.py").write_text(OWN)
    return load_own(f"{folder / 'own.py'}:{builder}", folder, cuts)


class Watched(PartitionedModel):
    """Each of its stages leaves its inputs alone and returns what can be sent."""

    def stage(self, start, end):
        stage, kept = super().stage(start, end), []

        def before(_stage, inputs):
            kept[:] = [it.clone() for it in inputs[0]]

        def after(_stage, inputs, outputs):
            at = f"{self.name} from point {start} to {end}"
            assert all(torch.equal(*pair) for pair in zip(inputs[0], kept, strict=True)), at
            assert all(it.is_contiguous() for it in outputs), at

        stage.register_forward_pre_hook(before)
        stage.register_forward_hook(after)
        return stage


def assert_proved(model, inputs):
    """At each of its points. Gives the results of the whole."""
    model = Watched(**{field.name: getattr(model, field.name) for field in dataclasses.fields(model)})
    found = list(proof.prove(model, inputs))
    assert [it.point for it in found] == list(range(len(model.points)))
    faults = [model.points[it.point].name for it in found if not (it.bitwise and it.parted and it.error == 0)]
    assert not faults
    results = proof.reference(model, inputs)
    for result in results:
        assert proof.max_error([result[:1]], [result[1:]]) > 3 * proof.TOLERANCE  # equality says something
    return results


def test_images_as_bytes_are_normalised_by_the_first_unit(tmp_path) -> None:
    file = weights.make("squeezenet1_1", "seeded", 0, tmp_path)
    as_bytes = partitions_model.load(Recipe("squeezenet1_1", input="uint8"), file)
    as_floats = partitions_model.load(Recipe("squeezenet1_1"), file)
    inputs = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    takes = registry.entry("squeezenet1_1").images
    values = tracing.normalized(inputs, takes.mean, takes.std)
    assert names(as_bytes.points) == names(as_floats.points)
    both = ([point.payload_bytes for point in model.points] for model in (as_bytes, as_floats))
    first, *others = zip(*both, strict=True)
    assert first == (3 * 224 * 224, 3 * 224 * 224 * 4)
    assert all(ours == theirs for ours, theirs in others)
    expected = assert_proved(as_bytes, inputs)
    assert torch.equal(expected[0], proof.reference(as_floats, values)[0])
    # No cut lies behind that.
    recipes = (Recipe("alexnet", Cuts("op", fold=False), input=dtype) for dtype in ("uint8", "float32"))
    as_bytes, as_floats = (names(partitions_model.describe(recipe)[0]) for recipe in recipes)
    assert as_bytes == as_floats
    # Normalising follows the definition.
    image = torch.randint(0, 256, (1, 3, 4, 4), dtype=torch.uint8)
    mean, std = (0.5, 0.25, 0.0), (0.5, 0.25, 1.0)
    result = tracing.normalized(image, mean, std)
    assert result.dtype == torch.float32
    for channel in range(3):
        expected = (image[0, channel].double() / 255 - mean[channel]) / std[channel]
        assert torch.allclose(result[0, channel].double(), expected, atol=1e-6)


def test_describe_and_load_agree_and_each_unit_has_as_many_operators_as_its_stage(load) -> None:
    model = load("mobilenet_v2")
    described = partitions_model.describe(Recipe(f"MobileNet-V2-{SIZE}-Pixels"))
    assert (model.points, model.inputs[0].shape, model.graph_digest) == described
    assert model.name == f"mobilenet_v2_{SIZE}_pixels"
    assert not any(tensor.is_meta or tensor.requires_grad for tensor in model.state.values())
    assert {tensor.data_ptr() % 64 for tensor in model.state.values()} == {0}, "aligned"
    graphs = (model.stage(*unit).body.graph for unit in pairwise(range(len(model.points))))
    operators = [sum(node.op.startswith("call_") for node in graph.nodes) for graph in graphs]
    # A stage has one more, which takes its payload apart.
    assert [end - start + 1 for start, end in pairwise(model.nodes)] == operators
    assert model.nodes[0] == 0
    # Payloads are as announced.
    inputs = images(SIZE, batch=1)
    with torch.inference_mode():
        for point in model.points[:-1]:
            crossing = model.stage(0, point.index)((inputs,))
            assert [tuple(tensor.shape) for tensor in crossing] == [spec.shape for spec in point.payload]
            assert sum(tensor.nbytes for tensor in crossing) == point.payload_bytes


def test_impossible_stages_are_refused(load, snapshot):
    stage, impossible = load("resnet18").stage, ((3, 2), (-1, 2), (0, 99))
    assert [refusal(ValueError, stage, *each) for each in impossible] == snapshot


@pytest.mark.parametrize(
    ("builder", "traced_by"),
    [("Positional", "torch.fx"), ("Constant", "torch.export"), ("Listing", "torch.export")],
)
def test_what_no_file_holds_comes_from_the_constructor(builder, traced_by, tmp_path):
    model = own(tmp_path, builder, Cuts("op", 2, fold=False))
    assert model.traced.traced_by == traced_by
    assert "offset" in model.traced.computed
    inputs = images(8)
    (expected,) = assert_proved(model, inputs)
    it = ResidentStage(model, [*tmp_path.glob("*.safetensors")])
    last = len(model.points) - 1
    it.change(0, last)
    whole = it.nbytes
    assert torch.equal(it.stage((inputs,))[0], expected)
    for behind in range(last):
        it.change(0, behind)
        first, payload = it.nbytes, it.stage((inputs,))
        it.change(behind, last)
        assert first + it.nbytes == whole
        assert torch.equal(it.stage(payload)[0], expected)


def test_a_reference_leaves_its_inputs_alone(tmp_path):
    model = own(tmp_path, "Greedy", Cuts())
    inputs = images(8)
    kept = inputs.clone()
    proof.reference(model, inputs)
    assert torch.equal(inputs, kept)


ANSWERS = """
import torch
from torch import nn
inputs = lambda batch, seed: torch.rand(batch, 4)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        return self.answer(self.last(self.first(x).relu()))
class Waves(Net):
    answer = staticmethod(torch.fft.fft)
class Many(Net):
    def answer(self, x):
        return [x + number for number in range(17)]
class Deep(Net):
    def answer(self, x):
        return x.reshape(-1, *[1] * 7, 4)
class Tied(Net):
    def __init__(self):
        super().__init__()
        self.last.weight = self.first.weight
    answer = staticmethod(lambda x: x)
"""


@pytest.fixture
def answering(tmp_path, none_adopted):
    (tmp_path / "answers.py").write_text(ANSWERS)
    return lambda kind: recipe_of(f"{tmp_path / 'answers.py'}:{kind}", Cuts("op"))


@pytest.mark.parametrize(
    ("kind", "said"), [("Waves", "complex64"), ("Many", "17 tensors"), ("Deep", "9 dimensions")]
)
def test_an_answer_that_cannot_be_sent_is_refused_before_anything_is(kind, said, answering):
    recipe = answering(kind)
    with pytest.raises(UserError, match=said):
        partitions_model.describe(recipe)
    assert said in partitions_model.outline(recipe).unsendable
    assert all(each.bitwise for each in proof.each(recipe)), "the proof needs no link"


def test_a_weight_that_two_layers_share_is_in_memory_and_on_the_wire_once(answering, tmp_path):
    recipe = answering("Tied")
    file = weights.make(recipe.name, "seeded", 0, tmp_path)
    model = partitions_model.load(recipe, file)
    assert "last.weight" not in weights.layout(file)
    assert len(model.points) == 2
    (said,) = hindered(model.traced)
    assert said == "no cut from first to last: both read first.weight, which one host has"
    held = ResidentStage(model, [file])
    held.change(0, 1)
    assert held.nbytes == 4 * (16 + 4 + 4)
    assert all(each.bitwise and each.parted for each in proof.prove(model, torch.rand(2, 4)))


def of_seed(name, cuts):
    outline = partitions_model.outline(Recipe(name, cuts))
    state = {**outline.traced.computed, **seeded(name, 7).state_dict()}
    return PartitionedModel(**vars(outline), state=state)


@pytest.mark.parametrize("name", gating(PUBLISHED, "resnet18"))
def test_every_point_of_the_published_work(name):
    with small(name, PUBLISHED[name]) as called:
        assert_proved(of_seed(called, Cuts()), images(PUBLISHED[name]))


def spread(points):
    """A few of the points, among them one where the most tensors cross; numbered as if there were no others."""
    inner = points[1:-1]
    most = max(inner, key=lambda point: len(point.payload))
    some = {point.index: point for point in (inner[len(inner) // 3], inner[2 * len(inner) // 3], most)}
    chosen = (points[0], *(some[index] for index in sorted(some)), points[-1])
    return tuple(dataclasses.replace(point, index=index) for index, point in enumerate(chosen))


@pytest.mark.parametrize("name", gating(SAMPLED, "shufflenet_v2_x0_5"))
def test_some_cuts_of_every_kind_of_model(name):
    if "yolo" in name:
        pytest.importorskip("ultralytics")
    with small(name, SAMPLED[name]) as called:
        model = of_seed(called, Cuts("op", live_tensors=3))
        assert max(len(point.payload) for point in model.points) > 1
        assert_proved(dataclasses.replace(model, points=spread(model.points)), images(SAMPLED[name]))
