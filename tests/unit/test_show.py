"""Pictures of results: the split model's answers, drawn beside the uncut one's, or one line that says why not."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from syrupy.assertion import SnapshotAssertion

from pareto.driver.manifest import new_manifest, resumed_sweep
from pareto.models import sheet
from pareto.models.prepare import canonical, full_names, prepare, recipe
from pareto.partitions import model as partitioned
from pareto.partitions import registry
from pareto.partitions.entry import DETECTION
from pareto.partitions.model import describe
from pareto.partitions.quality import Answers, Boxes
from pareto.partitions.tracing import normalized
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import networks_of
from pareto.sweep.splits import to_measure
from tests.program import refused, well
from tests.unit import example_images, example_run
from tests.unit.own_codecs import simple, written

MODELS = """
import torch
from torch import nn
from pareto.partitions import registry

class Places(nn.Module):
    def forward(self, images):
        # As YOLO's: one box, left where the image is dark, right where it is bright.
        bright = (images.mean((1, 2, 3)) > 0).float()
        ones = torch.ones_like(bright)
        return torch.stack((8 + 16 * bright, 16 * ones, 8 * ones, 16 * ones, 0.9 * ones, 0 * ones), 1)[:, :, None]

class Masks(nn.Module):
    def forward(self, images):
        return {"out": torch.cat((0 * images[:, :1], images[:, :1]), 1)}

class Rows(nn.Module):
    def forward(self, images):
        return images.mean(3)

def declared(*, classes=()):
    return registry.register(input_shape=(3, 32, 32), mean=(0.5,) * 3, std=(0.5,) * 3, classes=classes)

@declared(classes=("left", "right", "middle"))
def classes():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3600, 3))

@declared(classes=("__background__", "bright"))
def masks():
    return nn.Sequential(nn.Identity(), Masks())

@declared(classes=("dark", "bright"))
def places():
    return nn.Sequential(nn.Identity(), Places())

@declared()
def rows():
    return nn.Sequential(nn.Identity(), Rows())
"""
NAME = "model_of_test_show"
IMAGES = 6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / f"{NAME}.py"
    file.write_text(MODELS)
    return file


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Images, half of them dark and half of them bright."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(IMAGES):
        noise = np.asarray(example_images.image(number, (32, 32))) // 8
        Image.fromarray((noise + (200 if number % 2 else 20)).astype("uint8")).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def run(tmp_path: Path, model: Path, photos: Path) -> Callable[..., Path]:
    """A run's folder of one of the models, whose rows say that point 2 is the quickest."""

    def made(which: str = "classes", **fields: Any) -> Path:
        data = {"dataset": "folder", "data_path": str(photos), "images": IMAGES}
        asked = {"model": f"{model}:{which}", "netem": "lan-1gbit", "backend": "tcp", **data, **fields}
        sweep = canonical(make_sweep(asked))
        (name,) = full_names(sweep)
        prepared = prepare(name, sweep, to_measure(name, describe(recipe(name, sweep))[0], sweep, 1))
        points = prepared.manifest["points"]
        manifest = new_manifest(sweep, {name: prepared.manifest}, networks_of(sweep, 1))
        rows = [
            dict.fromkeys(example_run.TRIALS.columns, "")
            | {"run": "shown", "model": name, "netem": "lan-1gbit", "batch_size": 1, "backend": "tcp"}
            | {"point": number, "point_name": point["name"], "round": number_of_round, "codec": codec.text}
            | {"status": "ok", "testbed": "local", "engine": "eager", "payload_bytes": point["payload_bytes"]}
            | {
                "network_s": 0.01,
                "latency_s": 0.1 + abs(number - 2),
                "throughput_ips": 9.0,
                "in_flight_asked": "auto",
            }
            for codec in sweep.coding
            for number_of_round in (1, 2)
            for number, point in enumerate(points)
        ]
        return example_run.write(tmp_path / "run", rows, beyond=True, **manifest)

    return made


@pytest.fixture
def again(model: Path, photos: Path) -> Callable[..., tuple[str, ...]]:
    """The options that name the files of a run again."""
    return lambda which="classes": ("--model", f"{model}:{which}", "--data-path", str(photos))


def test_the_answer_of_a_run_is_drawn_and_the_page_has_the_sheet(run, again, snapshot: SnapshotAssertion):
    folder = run()
    assert well("show", str(folder), *again(), "--images", "4").out == snapshot
    drawn, alone = folder / "pictures" / "sheet.png", sorted(folder.glob("pictures/0*.png"))
    assert len(alone) == 8
    with Image.open(drawn) as whole, Image.open(alone[0]) as one:
        assert whole.width == 2 * one.width + 3 * sheet.PADDING
        assert whole.height > 4 * (one.height + sheet.PADDING)
    before = drawn.read_bytes()
    for _ in range(2):  # the second report removes nothing that is not its own
        assert base64.b64encode(before).decode() in page(folder)
    well("show", str(folder), *again(), "--images", "4")
    assert drawn.read_bytes() == before
    well("show", str(folder), *again(), "--images", "2")
    assert len([*drawn.parent.iterdir()]) == 5, "nothing is left of what was drawn before"


def test_pictures_go_where_the_user_says(run, again, tmp_path):
    folder = run()
    out = well("show", str(folder), *again(), "--point", "1", "--out", f"{tmp_path}/out").out
    assert len(list((tmp_path / "out" / "pictures").iterdir())) == 2 * IMAGES + 1
    assert not (folder / "pictures").exists() and "report" not in out


def test_what_crosses_goes_through_the_codec(run, again, tmp_path):
    codec = written(
        tmp_path, simple(decode="return tuple(torch.zeros_like(each) for each in tensors)"), "zero.py"
    )
    coded, printed = f"none,{codec}:Own", {}
    folder = run(codec=coded)
    for name in ("none", "Own"):
        choice = ("--codec", coded, "--point", "1", "--where", f"codec == {name}")
        printed[name] = well("show", str(folder), *again(), *choice).out
    made = prepare(f"{NAME}.classes", resumed_sweep(folder, named(*again(), "--codec", coded)))
    whole = partitioned.load(made.recipe, made.weights.path)
    inputs = load_file(made.data[1].path)["input0"].flatten(0, 1)
    with torch.inference_mode():
        layers, images = whole.eager, normalized(inputs, (0.5,) * 3, (0.5,) * 3)
        of_zeros = layers[1:](torch.zeros_like(layers[:1](images)))
        same = int((layers(images).argmax(1) == of_zeros.argmax(1)).sum())
    assert same < IMAGES
    assert f"agree in {IMAGES} of {IMAGES} images" in printed["none"]
    assert f"agree in {same} of {IMAGES} images" in printed["Own"]


def named(*words: str) -> dict[str, str]:
    return {
        name.strip("-").replace("-", "_"): value for name, value in zip(words[::2], words[1::2], strict=True)
    }


def test_masks_are_drawn_in_the_colour_of_their_class(run, again):
    folder = run("masks")
    out = well("show", str(folder), *again("masks"), "--point", "1").out
    assert f"agree in {IMAGES} of {IMAGES} images" in out
    seen = {pixel(file, 160, 160) for file in folder.glob("pictures/0*split.png")}
    dark, bright = sorted(seen)[:3], sorted(seen)[3:]
    assert all(blue < 60 for _, _, blue in dark), "the background is left as it is"
    assert all(blue > green - 10 for _, green, blue in bright)
    assert all(blue - red > 80 for red, _, blue in bright), "aqua is the second colour"


def pixel(file: Path, x: int, y: int) -> tuple[int, int, int]:
    with Image.open(file) as picture:
        red, green, blue = picture.convert("RGB").getpixel((x, y))
    return red, green, blue


def test_boxes_are_drawn_where_the_model_sees_them(run, again, monkeypatch):
    folder, entry = run("places"), registry.entry
    monkeypatch.setattr(registry, "entry", lambda name: dataclasses.replace(entry(name), task=DETECTION))
    out = well("show", str(folder), *again("places"), "--point", "1").out
    assert f"agree in {IMAGES} of {IMAGES} images" in out
    files = sorted(folder.glob("pictures/0*split.png"))
    # The frame is of the colour of class 0, at the left edge of a box on either side.
    left, right = ([pixel(file, x, 160) == (255, 255, 0) for file in files] for x in (41, 201))
    assert left.count(True) == IMAGES // 2
    assert [not each for each in left] == right


def test_other_boxes_do_not_agree():
    box = torch.tensor([[0.0, 0.0, 4.0, 4.0]])
    kinds = {
        "same": Boxes(box, torch.ones(1), torch.zeros(1)),
        "more": Boxes(torch.cat((box, box + 9)), torch.tensor([1.0, 0.5]), torch.zeros(2)),
        "none": Boxes(box[:0], torch.ones(0), torch.zeros(0)),
        "class": Boxes(box, torch.ones(1), torch.ones(1)),
        "place": Boxes(box + 3, torch.ones(1), torch.zeros(1)),
        "flat": Boxes(box * torch.tensor([1, 0, 1, 0]), torch.ones(1), torch.zeros(1)),
    }
    for name, boxes in kinds.items():
        assert sheet.agreement(Answers((), None, [boxes]), Answers((), None, [boxes])) == [1], name
        other = sheet.agreement(Answers((), None, [boxes]), Answers((), None, [kinds["same"]]))
        assert other == [float(name == "same")], name


def test_no_number_is_no_agreement():
    rows = torch.tensor([[0.1, 0.9], [float("nan"), 0.9]])
    both = Answers.of([rows])
    assert sheet.agreement(both, both) == [1, 0]


def test_probabilities_are_not_made_of_probabilities():
    logits = torch.tensor([0.2, 0.7, 3.0])
    shares = sheet.probabilities(logits)
    assert float(shares.sum()) == pytest.approx(1) and torch.equal(sheet.probabilities(shares), shares)


@pytest.mark.parametrize(
    ("name", "number", "what"),
    [
        ("ssdlite320_mobilenet_v3_large", 0, "person"),
        ("retinanet_resnet50_fpn", 1, "person"),
        ("lraspp_mobilenet_v3_large", 12, "dog"),
        ("mobilenet_v2", 0, "tench"),
    ],
)
def test_classes_have_the_names_that_their_authors_give_them(name, number, what):
    assert registry.entry(name).classes[number] == what


# What is not drawn


def test_files_are_named_again(run):
    folder = run()
    line = refused("show", str(folder))
    assert "--model" in line and "--data-path" in line and " show " in line


def test_other_files_than_the_run_had_are_refused(run, again, photos, model):
    folder = run()
    example_images.image(99, (32, 32)).save(photos / "0.png")
    assert "images at batch size 1 was" in refused("show", str(folder), *again())


def test_other_code_than_the_run_had_is_refused(run, again, tmp_path):
    folder = run()
    other = written(tmp_path, MODELS + "# another", f"{NAME}.py")
    registry._adopted.pop(f"{NAME}.classes")  # a process has one file of a name
    line = refused("show", str(folder), "--model", f"{other}:classes", *again()[2:])
    registry._adopted.pop(f"{NAME}.classes")
    assert "source was" in line


def test_a_run_without_images_has_no_picture(run, again):
    folder = run(dataset="synthetic", data_path=None)
    line = refused("show", str(folder), *again()[:2])
    assert "noise" in line and "--dataset" in line


def test_results_of_an_unknown_kind_are_not_drawn(run, again):
    folder = run("rows")
    assert "not drawn" in refused("show", str(folder), *again("rows"), "--point", "1")


@pytest.mark.parametrize(
    ("column", "value"), [("codec", "int8"), ("engine", "onnx"), ("batch_size", "2"), ("point", "9")]
)
def test_a_trial_that_the_manifest_does_not_ask_for(run, again, column, value):
    folder = run()
    rows = pd.read_csv(folder / "trials.csv", dtype=str, keep_default_na=False)
    rows.assign(**{column: value}).to_csv(folder / "trials.csv", index=False)
    line = refused("show", str(folder), *again(), "--point", value if column == "point" else "1")
    assert "none that its manifest asks for" in line


def test_a_point_that_was_not_measured(run, again):
    line = refused("show", str(run()), *again(), "--point", "7", "--where", "codec == none")
    assert "7" in line and "0, 1, 2" in line


def test_the_page_takes_nothing_but_sheets_that_were_written_there(run, again, tmp_path):
    folder = run()
    well("show", str(folder), *again(), "--images", "1")
    drawn = folder / "pictures" / "sheet.png"
    content = base64.b64encode(drawn.read_bytes()).decode()
    drawn.rename(tmp_path / "elsewhere.png")
    drawn.symlink_to(tmp_path / "elsewhere.png")
    assert content not in page(folder)
    (tmp_path / "elsewhere.png").rename(drawn)
    assert page(folder).count(content) == 1
    listed = folder / ".made"
    listed.write_text(listed.read_text().replace("pictures/sheet.png\n", ""))
    assert content not in page(folder)


def page(folder: Path) -> str:
    well("report", str(folder), "--figures", "none")
    return (folder / "report.html").read_text()
