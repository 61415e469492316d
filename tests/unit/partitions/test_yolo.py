"""Ultralytics' YOLO: what it maps images to, what its import leaves behind, and what is said where it is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pareto import partitions
from pareto.partitions import model as partitioned
from pareto.partitions import proof, registry, weights, yolo
from pareto.partitions.recipe import Cuts, Recipe
from pareto.partitions.seeded import seeded
from pareto.protocol.errors import UserError
from tests.unit.refusals import refusal
from tests.unit.small_models import small

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = 128
BOXES = 16**2 + 8**2 + 4**2
"""One each 8, 16 and 32 pixels."""

installed = pytest.mark.skipif(not yolo.names(), reason=f"ultralytics is not installed: {yolo.INSTALL}")


IMPORTING = """
import os, sys, threading, torch
from pareto.partitions import registry

seen = []
sys.addaudithook(lambda event, args: seen.append(event))
before = dict(os.environ), torch.save, torch.get_num_threads(), threading.active_count()
structure = registry.build_structure("yolov8n")
after = dict(os.environ), torch.save, torch.get_num_threads(), threading.active_count()
assert before == after
assert {parameter.device.type for parameter in structure.parameters()} == {"meta"}
print(*sorted({event for event in seen if event.startswith(("socket.", "subprocess.", "os.system"))}))
"""


@installed
@pytest.mark.deep
def test_importing_it_asks_no_network_and_leaves_nothing_behind(tmp_path):
    paths = [str(Path(partitions.__file__).parents[2]), *filter(None, sys.path)]
    folders = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "TMPDIR"), str(tmp_path))
    environment = {**os.environ, **folders, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", IMPORTING], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", "")
    assert [*tmp_path.iterdir()] == []


@installed
@pytest.mark.parametrize("name", ["yolov8n", "YOLOv5n"])
def test_its_boxes_are_those_of_the_package_itself(name):
    name = registry.canonical(name)
    with small(name, SIZE) as called:
        ours = registry.build(called)
    package = sys.modules["ultralytics.nn.tasks"]
    theirs = package.DetectionModel(f"{name}.yaml", verbose=False).eval()
    theirs.load_state_dict(ours.state_dict())
    for batch in (1, 2):
        images = torch.rand(batch, 3, SIZE, SIZE)
        with torch.no_grad():
            boxes = ours(images)
            assert boxes.shape == (batch, 84, BOXES)
            assert torch.equal(boxes, theirs(images)[0])


@installed
def test_it_takes_images_of_640_pixels_and_every_part_of_a_result_depends_on_them():
    model, shape = registry.build_structure("yolov8n").to("meta"), registry.entry("yolov8n").images.shape
    assert shape == (3, 640, 640)
    assert model(torch.empty(1, *shape, device="meta")).shape == (1, 84, 8400)
    with small("yolov8n", SIZE) as name:
        model = seeded(name, 0)
    assert model.get_submodule("model.22.dfl.conv").weight.flatten().tolist() == [*range(16)]
    with torch.no_grad():
        one, other = model(torch.rand(2, 3, SIZE, SIZE))
    corners, scores = (one - other)[:4].abs(), (one - other)[4:].abs()
    assert float(corners.mean()) > 0.1  # pixels
    assert float(scores.mean()) > 0.01


@installed
def test_it_is_traced_and_cut_across_its_skip_connections(tmp_path):
    with small("yolov8n", SIZE) as name:
        made = weights.make(name, "seeded", 0, tmp_path)
        model = partitioned.load(Recipe(name, Cuts("op", live_tensors=3)), made.path)
        images = torch.rand(1, 3, SIZE, SIZE)
        expected = proof.reference(model, images)
    assert model.traced_by == "torch.fx"
    assert [spec.shape for spec in model.results] == [(1, 84, BOXES)]
    alive = [len(point.payload) for point in model.points]
    assert {1, 2, 3} <= set(alive)
    assert {"model.1.act", "model.4.cv2.act"} <= {point.name for point in model.points}
    last = len(model.points) - 1
    for point in (alive.index(2), alive.index(3), last - 1):
        with torch.inference_mode():
            (boxes,) = model.stage(point, last)(model.stage(0, point)((images,)))
        assert torch.equal(boxes, expected[0])


def test_without_the_package_its_models_are_not_listed_and_it_is_said_how_to_get_it(monkeypatch, snapshot):
    monkeypatch.setitem(sys.modules, "ultralytics", None)
    assert not set(yolo.NAMES) & set(registry.names())
    assert refusal(UserError, registry.canonical, "YOLO-v8n") == snapshot


def test_a_package_that_cannot_be_imported_is_told_in_one_line(monkeypatch, tmp_path, snapshot):
    for name in [name for name in sys.modules if name.partition(".")[0] == "ultralytics"]:
        monkeypatch.delitem(sys.modules, name)
    text = "raise ImportError('libGL.so.1: cannot open\\nshared file')"
    (tmp_path / "ultralytics.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    environment = dict(os.environ)
    assert refusal(UserError, registry.build_structure, "yolov5n") == snapshot
    assert dict(os.environ) == environment
