"""What is made for a model before anything is sent: the inputs that were asked for, and true answers to them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from pareto.models.prepare import Prepared, canonical, prepare
from pareto.partitions import registry, weights
from pareto.partitions.torchvision_models import models
from pareto.partitions.tracing import normalized
from pareto.protocol.errors import UserError
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.sweep import Sweep
from tests.unit import example_images
from tests.unit.own_codecs import LEARNED, simple, written
from tests.unit.refusals import refusal

THEIRS = "squeezenet1_1"
"""torchvision's, for what needs its classes and its way of evaluation."""
SHAPE = (3, 18, 14)
MODULE = """
from torch import nn
from pareto.partitions import registry

@registry.register(input_shape=(3, 18, 14), classes=("left", "right"))
def tiny():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(768, 2))
"""

FEATURES = """
from torch import nn
from pareto.partitions import registry

@registry.register(input_shape=(64, 8, 8))
def head():
    return nn.Sequential(nn.Conv2d(64, 4, 3), nn.Flatten(), nn.Linear(144, 2))
"""


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A user's own model, by its name, which one file of a process may have; it takes no time."""
    file = tmp_path_factory.mktemp("model") / "model_of_test_prepare.py"
    file.write_text(MODULE)
    return registry.canonical(f"{file}:tiny")


@pytest.fixture(scope="module")
def animals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six images of each of three of ImageNet's classes."""
    counts = dict.fromkeys(CLASSES, 6)
    return example_images.folders(tmp_path_factory.mktemp("animals"), counts, (300, 260))


CLASSES = {"goldfish": 1, "tench": 0, "tiger_shark": 3}


def made(name: str, **fields: object) -> Prepared:
    return prepare(name, Sweep(model=name, **{"input": "float32", **fields}))


def data(prepared: Prepared, batch_size: int = 1) -> dict[str, Tensor]:
    return load_file(prepared.data[batch_size].path)


def answers(prepared: Prepared, images: Tensor) -> Tensor:
    """What the module yields with the weights that were made, for float32 images."""
    module = registry.entry(prepared.name).module()
    module.load_state_dict(load_file(prepared.weights.path))
    with torch.inference_mode():
        return torch.stack([module(batch) for batch in images])


def test_noise_and_the_whole_models_answers_for_each_batch_size(own):
    it = made(own, batch_sizes=(1, 3))
    assert it.data.keys() == {1, 3}
    for batch_size in (1, 3):
        tensors = data(it, batch_size)
        assert tensors.keys() == {"input0", "reference0"}
        assert (tensors["input0"].shape, tensors["input0"].dtype) == ((4, batch_size, *SHAPE), torch.float32)
        assert torch.equal(tensors["reference0"], answers(it, tensors["input0"]))
    # The same sweep is prepared the same and another seed otherwise.
    first, again, other = (made(own, seed=seed) for seed in (1, 1, 2))
    for of in (
        lambda it: it.data[1].digest,
        lambda it: it.weights.digest,
        lambda it: it.manifest["dataset"]["inputs"]["1"]["digest"],
    ):
        assert of(first) == of(again) != of(other)
    assert first.manifest == again.manifest


def as_images(own, raw):
    """The bytes, normalised."""
    images = registry.entry(own).images
    return torch.stack([normalized(batch, images.mean, images.std) for batch in raw])


def test_bytes_are_answered_as_the_normalised_images(own, animals):
    it = made(own, input="auto")
    tensors = data(it)
    assert (tensors["input0"].shape, tensors["input0"].dtype) == ((4, 1, *SHAPE), torch.uint8)
    assert torch.equal(tensors["reference0"], answers(it, as_images(own, tensors["input0"])))
    assert it.facts.points[0] == ("input", 3 * 18 * 14)
    assert it.manifest["input"] == it.recipe.input == "uint8"
    # Those of a folder are the same images.
    asked = {"dataset": "folder", "data_path": animals, "images": 3}
    floats, raw = (data(made(own, input=dtype, **asked)) for dtype in ("float32", "uint8"))
    assert raw["input0"].dtype == torch.uint8
    assert torch.equal(as_images(own, raw["input0"]), floats["input0"])
    assert torch.equal(raw["reference0"], floats["reference0"])


def test_a_model_that_takes_no_images_gets_no_bytes_and_pictures_have_one_or_three_channels(own, tmp_path):
    file = tmp_path / "features_of_test_prepare.py"
    file.write_text(FEATURES)
    features = registry.canonical(f"{file}:head")
    for asked, nbytes in (("auto", 4 * 64 * 8 * 8), ("uint8", 64 * 8 * 8)):
        it = made(features, input=asked)
        assert it.facts.points[0] == ("input", nbytes)
        assert it.manifest["input"] == it.facts.input == ("float32" if asked == "auto" else asked)
    for name, dtype, named in ((own, "float32", "--input uint8"), (features, "uint8", "64 channels")):
        line = refusal(UserError, made, name, codecs=("none", "jpeg"), input=dtype)
        assert "--codec jpeg:90" in line
        assert named in line


def test_a_folder_of_images_with_the_classes_that_the_model_knows(animals):
    it = made(THEIRS, dataset="folder", data_path=animals, images=6, batch_sizes=(1, 4))
    preset = models.get_model_weights(THEIRS).DEFAULT.transforms()
    there = {}
    for file in animals.rglob("*.png"):
        with Image.open(file) as image:
            there[file.parent.name, file.stem] = preset(image)
    for batch_size, count in ((1, 6), (4, 2)):
        tensors = data(it, batch_size)
        shown = []
        for image in tensors["input0"].flatten(0, 1):
            (same,) = [key for key, theirs in there.items() if torch.allclose(theirs, image, atol=1e-5)]
            shown.append(same)
        assert len(set(shown)) == count * batch_size
        tops = tensors["reference0"].flatten(0, 1).argmax(1).tolist()
        quality = it.qualities[batch_size]["none"]
        assert list(quality.wrong) == [
            CLASSES[name] != top for (name, _), top in zip(shown, tops, strict=True)
        ]
        assert quality.images == count * batch_size
        assert {name for name, _ in shown} == set(CLASSES)
        assert torch.equal(tensors["reference0"], answers(it, tensors["input0"]))
    assert it.facts.notes == ("12 of 23 cuts are points (--granularity op has the others)",)
    told = it.manifest["dataset"]
    assert (told["name"], told["images"], told["of"], told["classes"]) == ("folder", 6, 18, CLASSES)
    assert {size: fed["images"] for size, fed in told["inputs"].items()} == {"1": 6, "4": 8}


def test_files_of_a_camera_beside_the_images_in_them(own, animals, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(5):
        example_images.image(number, (40 + number, 30)).save(photos / f"{number}.jpg")
    asked = {"dataset": "folder", "data_path": photos, "images": 4, "input": "auto", "batch_sizes": (1, 2)}
    plain, it = made(own, **asked), made(own, source="jpeg", codecs=("none", "file"), **asked)
    for size, count in ((1, 4), (2, 2)):
        images, tensors = data(plain, size), data(it, size)
        files = {f"file{number}" for number in range(count)}
        assert tensors.keys() == {*images, *files}
        assert all(torch.equal(tensors[key], tensor) for key, tensor in images.items())
        assert max(len(tensors[file]) for file in files) <= size * it.file_bytes
    assert {bytes(data(it)[f"file{number}"].numpy()) for number in range(4)} < {
        photo.read_bytes() for photo in photos.iterdir()
    }
    shares = it.facts.wire_shares["file"]
    assert shares[0] > 0 and set(shares[1:]) == {1.0}
    assert it.manifest["input"] == it.facts.input == "jpeg-decoded uint8"
    assert plain.manifest["input"] == "uint8" and plain.file_bytes == 0
    said = refusal(UserError, made, own, source="jpeg", dataset="folder", data_path=animals, input="auto")
    assert said.startswith(str(animals)) and "no JPEG" in said


def test_cifar10_on_a_model_of_other_classes_has_no_labels_and_says_so(own, tmp_path, monkeypatch, snapshot):
    it = made(own, dataset="cifar10", data_path=example_images.cifar(tmp_path, monkeypatch))
    assert data(it)["input0"].shape == (16, 1, *SHAPE)
    assert it.qualities[1]["none"].top1 is None
    (note,) = it.facts.notes
    assert own in note
    assert note.replace(own, "OWN") == snapshot


def test_what_cannot_be_fed_is_one_clear_line(own, animals, tmp_path, snapshot):
    folder = {"dataset": "folder", "data_path": animals}
    for name, asked, named in (
        (THEIRS, {"images": 2000}, f"2000 images for {THEIRS} at batch size 1 "),
        (THEIRS, {"batch_sizes": (500,)}, f"2000 images for {THEIRS} at batch size 500 "),
        (own, {"images": 19, **folder}, "--images 19: "),
        (own, {"batch_sizes": (1, 19), **folder}, "--batch-size 19: "),
    ):
        line = refusal(UserError, made, name, **asked)
        assert named in line
        assert line.replace(str(animals), "ANIMALS") == snapshot
    assert "none" in refusal(UserError, made, own, **folder | {"data_path": tmp_path / "none"})
    assert "no.pt" in refusal(UserError, made, own, weights="no.pt")


def test_nothing_is_left_on_disk_but_the_users_own_file(own, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    it = made(own)
    assert list(tmp_path.iterdir()) == []
    assert it.code is not None and it.code.path.read_text() == MODULE
    assert Path(it.recipe.file).read_text() == MODULE
    for artifact in (it.weights, it.code, it.data[1]):
        assert artifact.path.readlink().name.endswith(" (deleted)")
        assert weights.file_digest(artifact.path) == artifact.digest
    assert it.manifest["source_digest"] == it.code.digest


def test_facts_and_manifest_tell_how_the_model_is_cut(tmp_path):
    it = made(THEIRS, granularity="op", live_tensors=2)
    names = [name for name, _ in it.facts.points]
    assert it.facts.points[0] == ("input", 4 * 3 * 224 * 224) and it.facts.points[-1][1] == 0
    assert it.facts.result_bytes == 4000 and it.facts.compute_s > 0
    assert it.code is None and it.manifest["source_digest"] is None
    told = it.manifest
    assert [point["name"] for point in told["points"]] == names
    assert (told["granularity"], told["live_tensors"], told["traced_by"]) == ("op", 2, "torch.fx")
    folded = [name for point in told["points"] for name in point["folded"]]
    every = made(THEIRS, granularity="op", live_tensors=2, fold=False, images=1)
    assert folded and told["folded"] == len(folded)
    assert len(names) + len(folded) == len(every.facts.points)
    # Models have their full names once.
    assert canonical(Sweep(model=("SqueezeNet1.1", THEIRS, "alexnet"))).models == (THEIRS, "alexnet")
    named = canonical(Sweep(model="alexnet", classes=10))
    assert named.models == canonical(named).models == ("alexnet@10",), "as where a run is gone on with"
    torch.save(registry.entry("squeezenet1_1@7").module().state_dict(), tmp_path / "own.pth")
    seven = Sweep(model="squeezenet1_1", weights=str(tmp_path / "own.pth"))
    assert canonical(seven).models == ("squeezenet1_1@7",)
    with pytest.raises(UserError):
        canonical(Sweep(model="squeezzenet"))


def made_with(name: str, codecs: str, splits: list[tuple[int, ...]]) -> Prepared:
    fields = {"model": name, "codec": codecs, "input": "uint8", "granularity": "op", "fold": False}
    return prepare(name, make_sweep(fields), splits)


def test_a_users_own_codec_is_made_run_and_packed(own, tmp_path, snapshot):
    file = written(tmp_path, LEARNED, "bottleneck.py")
    asked = made_with(own, f"none,{file}:Bottleneck,{file}:Bottleneck+zstd", [(0,), (1,)])
    (sent,) = asked.codecs
    assert sent.code.path.read_text() == LEARNED
    assert [cut.point for cut in sent.cuts] == [1]
    assert {*load_file(sent.weights.path)} >= {"1.down.weight", "1.norm.running_mean", "1.up.bias"}
    digests = {"source_digest": sent.code.digest, "weights_digest": sent.weights.digest}
    assert asked.manifest["own_codecs"] == {"Bottleneck": {**digests, "points": [1]}}
    for codec in ("Bottleneck", "Bottleneck+zstd:3"):
        assert asked.facts.unfit[codec] >= {0} and 1 not in asked.facts.unfit[codec]
        assert 0 < asked.facts.wire_shares[codec][1] < 1 == asked.facts.wire_shares[codec][0]
    assert {key for key in data(asked) if "@" in key} == {"Bottleneck@1.reference0"}
    ((of, encoded),) = sent.cuts[0].encoded
    assert (of[0][0], of[0][1][:2]) == ("float32", (1, 4))
    assert (encoded[0][0], encoded[0][1][:2]) == ("float16", (1, 2))
    assert "own_codecs" not in made(own).manifest
    wrong = written(tmp_path, simple(decode="return (tensors[0][:1, :1],)"))
    line = refusal(UserError, made_with, own, f"{wrong}:Own", [(1,)])
    assert line.replace(str(wrong), "own.py").replace(own, "OWN") == snapshot
