"""The test matrix: at each point the split computes what the whole model does, bit for bit, and parts its weights."""

import dataclasses

import pytest
import torch

from pareto.partitions import model as partitioned
from pareto.partitions import proof
from pareto.partitions.model import PartitionedModel
from pareto.partitions.recipe import Cuts, Recipe
from pareto.partitions.seeded import seeded
from tests.unit.gating import gating
from tests.unit.small_models import small

pytestmark = pytest.mark.usefixtures("one_thread")

# Pixels a side, as few as leave every layer something to do.
PUBLISHED = {
    "alexnet": 64,
    "vgg16": 32,
    "resnet18": 64,
    "resnet50": 64,
    "mobilenet_v2": 64,
    "inception_v3": 96,
}
SAMPLED = {
    "convnext_tiny": 64,
    "densenet121": 64,
    "efficientnet_b0": 64,
    "googlenet": 64,
    "lraspp_mobilenet_v3_large": 64,
    "mnasnet0_5": 64,
    "mobilenet_v3_large": 64,
    "regnet_y_400mf": 64,
    "shufflenet_v2_x0_5": 64,
    "squeezenet1_1": 64,
    "swin_t": 64,
    "vit_b_16": 64,
    "yolov8n": 128,
}


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


def load(name, cuts):
    outline = partitioned.outline(Recipe(name, cuts))
    state = {**outline.traced.computed, **seeded(name, 7).state_dict()}
    return Watched(**vars(outline), state=state)


def assert_proved(model):
    images = torch.randn(2, *model.input_shape, generator=torch.Generator().manual_seed(3))
    found = list(proof.prove(model, images))
    assert [it.point for it in found] == list(range(len(model.points)))
    faults = [model.points[it.point].name for it in found if not (it.bitwise and it.parted and it.error == 0)]
    assert not faults
    for result in proof.reference(model, images):
        differ = proof.max_error([result[:1]], [result[1:]])
        assert differ > 3 * proof.TOLERANCE  # equality says something


@pytest.mark.parametrize("name", gating(PUBLISHED, "resnet18"))
def test_every_point_of_the_published_work(name):
    with small(name, PUBLISHED[name]) as name:
        assert_proved(load(name, Cuts()))


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
    with small(name, SAMPLED[name]) as name:
        model = load(name, Cuts("op", live_tensors=3))
        assert max(len(point.payload) for point in model.points) > 1
        assert_proved(dataclasses.replace(model, points=spread(model.points)))
