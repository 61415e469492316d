"""The test matrix: at each point the split computes what the whole model does, bit for bit, and parts its weights."""

import dataclasses
import importlib.util

import pytest
import torch

from partitions import model as partitioned
from partitions import proof
from partitions.model import PartitionedModel
from partitions.recipe import Cuts, Recipe
from partitions.seeded import seeded

# Pixels: small images where the model takes any size, for what is cut does not depend on it.
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
    "lraspp_mobilenet_v3_large": 520,
    "mobilenet_v3_large": 64,
    "regnet_y_400mf": 64,
    "shufflenet_v2_x0_5": 224,
    "swin_t": 224,
    "vit_b_16": 224,
    "yolov8n": 640,
}
YOLO = pytest.mark.skipif(
    not importlib.util.find_spec("ultralytics"), reason="the package ultralytics is not installed"
)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def load(name, cuts):
    outline = partitioned.outline(Recipe(name, cuts))
    state = {**outline.traced.computed, **seeded(name, 7).state_dict()}
    return PartitionedModel(**vars(outline), state=state)


def assert_proved(model, size):
    images = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(3))
    found = list(proof.prove(model, images))
    assert [it.point for it in found] == list(range(len(model.points)))
    faults = [model.points[it.point].name for it in found if not (it.bitwise and it.parted and it.error == 0)]
    assert not faults
    whole, other = (proof.reference(model, it) for it in (images, images.flip(3)))
    assert proof.max_abs_error(whole, other) > 10 * proof.tolerance(whole)  # equality says something


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_point_of_the_published_work(name):
    assert_proved(load(name, Cuts()), PUBLISHED[name])


def spread(points):
    """A few of the points, among them one where the most tensors cross; numbered as if there were no others."""
    inner = points[1:-1]
    most = max(inner, key=lambda point: len(point.payload))
    some = {point.index: point for point in (inner[len(inner) // 3], inner[2 * len(inner) // 3], most)}
    chosen = (points[0], *(some[index] for index in sorted(some)), points[-1])
    return tuple(dataclasses.replace(point, index=index) for index, point in enumerate(chosen))


@pytest.mark.parametrize("name", [pytest.param(it, marks=YOLO) if "yolo" in it else it for it in SAMPLED])
def test_some_cuts_of_every_kind_of_model(name):
    model = load(name, Cuts("op", live_tensors=3))
    assert max(len(point.payload) for point in model.points) > 1
    assert_proved(dataclasses.replace(model, points=spread(model.points)), SAMPLED[name])
