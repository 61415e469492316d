"""Model names, input shapes, construction, detectors' boxes, Ultralytics' YOLO, and what the package imports."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pareto import partitions
from pareto.partitions import model as partitioned
from pareto.partitions import proof, registry, torchvision_models, weights, yolo
from pareto.partitions.quality import boxes
from pareto.partitions.recipe import Cuts, Recipe
from pareto.partitions.seeded import seeded
from pareto.partitions.torchvision_models import Places, models
from pareto.protocol.errors import UserError
from tests.unit.gating import gating
from tests.unit.refusals import refusal
from tests.unit.small_models import small

pytestmark = pytest.mark.usefixtures("one_thread")


FrozenBatchNorm2d = models.detection.backbone_utils.misc_nn_ops.FrozenBatchNorm2d


def test_names_are_of_models_of_images() -> None:
    names = registry.names()
    assert names == sorted(set(names))
    assert {"mobilenet_v2", "alexnet", "vit_b_16", "fcn_resnet50", "retinanet_resnet50_fpn"} <= set(names)
    assert not any("quantized" in name or "3d" in name or "raft" in name for name in names)
    # Canonical names.
    names = {
        "mobilenet_v2": "mobilenet_v2",
        "mobilenetv2": "mobilenet_v2",
        "MobileNet-V2": "mobilenet_v2",
        "InceptionV3": "inception_v3",
        "regnet_x_16gf": "regnet_x_16gf",
        "regnet_x_1_6gf": "regnet_x_1_6gf",
        "ResNet-18@10": "resnet18@10",
    }
    assert [registry.canonical(written) for written in names] == [*names.values()]
    # Input shape.
    sizes = {
        "mobilenetv2": 224, "inception_v3": 299, "efficientnet_b1": 240, "vit_h_14": 518, "fcn_resnet50": 520,
        "ssd300_vgg16": 300,
    }  # fmt: skip
    found = {name: registry.entry(name).images.shape for name in sizes}
    assert found == {name: (3, size, size) for name, size in sizes.items()}
    # An entry tells how images are normalised and what a classifier says.
    entry = registry.entry("MobileNetV2")
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    assert (entry.name, entry.images.mean, entry.images.std) == ("mobilenet_v2", mean, std)
    assert (len(entry.classes), entry.classes[0], entry.classes[-1]) == (1000, "tench", "toilet tissue")
    assert entry.pretrained is not None
    assert registry.source("mobilenet_v2") == ("", "")
    assert registry.entry("efficientnet_v2_l").images.mean == (0.5, 0.5, 0.5)
    assert registry.entry("ssdlite320_mobilenet_v3_large").images.std == (0.5, 0.5, 0.5)
    assert registry.entry("fcn_resnet50").classes[:2] == ("__background__", "aeroplane")
    # Another number of classes is part of the name.
    name = "resnet18@10"
    assert registry.build_structure(name).fc.out_features == 10
    assert (registry.entry(name).name, registry.entry(name).classes) == (name, ())
    assert registry.build_structure("resnet18").fc.out_features == 1000


@pytest.mark.parametrize("name", ["mobilnetv2", "regnetx16gf"], ids=["of none", "of two"])
def test_a_name_of_no_model_or_of_two_is_refused_with_the_nearest(name, snapshot):
    said = refusal(UserError, registry.canonical, name)
    assert said == snapshot
    assert issubclass(UserError, ValueError)


@pytest.mark.parametrize("name", models.list_models(module=models.segmentation))
def test_segmentation_models_have_the_parameters_that_their_trained_weights_have(name):
    expected = models.get_model_weights(name).DEFAULT.meta["num_params"]
    model = registry.build_structure(name).to("meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == expected
    assert model(torch.empty(1, 3, 64, 64, device="meta"))["out"].shape == (1, 21, 64, 64)


ONE_STAGE = [name for name in models.list_models(module=models.detection) if "rcnn" not in name]


@pytest.mark.parametrize("name", gating(ONE_STAGE, "fcos_resnet50_fpn", "ssd300_vgg16"))
def test_a_one_stage_detector_is_its_network_up_to_the_heads(name):
    model, shape = registry.build_structure(name).to("meta"), registry.entry(name).images.shape
    outputs = model(torch.empty(2, *shape, device="meta"))
    assert type(model).__name__ in ("RetinaNet", "FCOS", "SSD")
    assert isinstance(model, models.detection.RetinaNet | models.detection.FCOS | models.detection.ssd.SSD)
    assert outputs["bbox_regression"].shape[0] == 2
    assert outputs["cls_logits"].shape == (*outputs["bbox_regression"].shape[:2], 91)


def test_a_two_stage_detector_is_refused_in_one_line(snapshot):
    names = set(models.list_models(module=models.detection)) - set(ONE_STAGE)
    assert len(names) >= 7
    said = {name: refusal(UserError, registry.build_structure, name) for name in names}
    assert all(name in line for name, line in said.items())
    assert [*{line.replace(name, "MODEL") for name, line in said.items()}] == snapshot


@pytest.mark.parametrize("name", gating(["retinanet_resnet50_fpn", "fcos_resnet50_fpn"], "fcos_resnet50_fpn"))
def test_trained_detectors_with_frozen_normalization_fit(name, monkeypatch):
    """Their trained form is another; here it is made without the download, so with random weights."""
    with monkeypatch.context() as patched:
        patched.setattr(models.WeightsEnum, "get_state_dict", lambda *_, **__: {})
        patched.setattr(torch.nn.Module, "load_state_dict", lambda *_, **__: None)
        trained = models.get_model(name, weights="DEFAULT").eval()
    for norm in trained.modules():
        if isinstance(norm, FrozenBatchNorm2d):  # so small that what is added to the variance shows
            norm.running_var.fill_(1e-4)
            norm.weight.fill_(1e-2)
    monkeypatch.setattr(models, "get_model", lambda *_, **__: trained)
    state = registry.entry(name).pretrained()
    monkeypatch.undo()
    model, images = registry.build_structure(name), torch.randn(1, 3, 64, 64)
    assert state.keys() == model.state_dict().keys()
    model.load_state_dict(state, assign=True)
    with torch.no_grad():
        expected = trained.head(list(trained.backbone(images).values()))
        for key, output in model(images).items():
            most = 1e-4 * float(expected[key].abs().max())
            torch.testing.assert_close(output, expected[key], rtol=0, atol=most)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_no_auxiliary_head_no_input_transform_no_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = registry.build_structure(name)
    assert model.transform_input is False
    assert not [key for key in model.state_dict() if key.startswith(("aux", "Aux"))]


def test_a_build_is_ready_for_inference_and_a_structure_has_no_parameters_in_memory():
    first, again = (torch.manual_seed(1) and registry.entry("squeezenet1_1").module() for _ in range(2))
    assert not first.training
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    structure = registry.build_structure("swin_t")
    assert {(each.device.type, each.requires_grad) for each in structure.parameters()} == {("meta", False)}
    index = structure.get_buffer("features.1.0.attn.relative_position_index")
    assert index.device.type == "cpu"
    assert int(index.max()) == 13 * 13 - 1  # a 7x7 window has 13x13 relative positions
    assert torch.nn.Linear(2, 2).weight.device.type == "cpu"  # the hook is gone


def test_matching_torch_and_torchvision_are_left_alone(monkeypatch):
    monkeypatch.delitem(sys.modules, "torchvision")
    monkeypatch.setattr(torchvision_models, "_load_operators", lambda: True)
    monkeypatch.setattr(torch.library, "Library", lambda *_: pytest.fail("declared what is there"))
    assert torchvision_models._declare_missing_operators() is None


def test_the_package_itself_does_not_import_torch():
    code = "import sys, pareto.partitions; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=Path(partitions.__file__).parents[2], check=True)


def test_the_package_needs_nothing_that_a_device_lacks():
    allowed = {"torch", "torchvision", "safetensors", *sys.stdlib_module_names}
    travels = {f"pareto.protocol.{name}" for name in ("constants", "errors", "own")}
    for path in Path(partitions.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed, path
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                assert node.module in travels or node.module.split(".")[0] in allowed, path


@pytest.mark.parametrize("name", ["resnet18@0", "resnet18@", "resnet18@ten", "ssd300_vgg16@10"])
def test_a_number_of_classes_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="class"):
        registry.entry(name)


SSDLITE = "ssdlite320_mobilenet_v3_large"


@cache
def places_of(name: str) -> Places:
    entry = registry.entry(name)
    return Places(entry.build, entry.images.shape[1])


def outputs(places: Places, seen: dict[int, tuple[int, float]], *, middle: bool = False) -> list[Tensor]:
    """What heads say where so many anchors see a class with a logit, and all others nothing: each box as its anchor."""
    anchors = len(places._anchors)
    logits = torch.full((1, anchors, 91), -9.0)
    for anchor, (number, logit) in seen.items():
        logits[0, anchor, number] = logit
    return [logits, torch.zeros(1, anchors, 4), *([torch.full((1, anchors, 1), 9.0)] if middle else [])]


@pytest.mark.parametrize("name", [SSDLITE, "retinanet_resnet50_fpn_v2", "fcos_resnet50_fpn"])
def test_a_box_is_where_its_anchor_is_with_its_class_and_score(name: str) -> None:
    places = places_of(name)
    size = places._size
    inside = ((places._anchors >= 0) & (places._anchors <= size)).all(1)
    anchor = int(inside.nonzero()[len(inside.nonzero()) // 2])
    is_fcos = name.startswith("fcos")
    (found,) = boxes(places(outputs(places, {anchor: (7, 9.0)}, middle=is_fcos)))
    if is_fcos:  # which codes distances from its middle: without any a box has no size
        middle = places._anchors[anchor].reshape(2, 2).mean(0)
        assert torch.allclose(found.corners.reshape(2, 2), middle.expand(2, 2))
    else:
        assert torch.allclose(found.corners, places._anchors[anchor][None], atol=1e-3)
    assert found.classes.tolist() == [6 if name == SSDLITE else 7], "the background of an SSD is no class"
    assert found.scores.item() > 0.99


def test_the_anchors_are_the_model_s_own() -> None:
    """Where the shapes of its features are known from running it."""
    entry = registry.entry(SSDLITE)
    size = entry.images.shape[1]
    model: Any = entry.module()
    images = torch.rand(1, 3, size, size)
    with torch.inference_mode():
        features = list(model.backbone(images).values())
    listed = models.detection.image_list.ImageList(images, [(size, size)])
    (anchors,) = model.anchor_generator(listed, features)
    assert torch.equal(places_of(SSDLITE)._anchors, anchors)


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
        ours = registry.entry(called).module()
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
        model = partitioned.load(Recipe(name, Cuts("op", live_tensors=3)), made)
        images = torch.rand(1, 3, SIZE, SIZE)
        expected = proof.reference(model, images)
    assert model.traced.traced_by == "torch.fx"
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
