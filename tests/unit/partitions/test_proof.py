"""The proof finds what would make a split wrong: other values, weights held twice, a graph that is not the module."""

import copy
import math
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from pareto.partitions import proof, registry
from pareto.partitions.model import PartitionedModel
from pareto.partitions.recipe import Cuts
from tests.unit.partitions.builders import load_own

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
