"""The trained model that comes with its data: sweeps/digits.yaml, and what makes its weights and images."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from pareto.models.prepare import canonical, prepare
from pareto.sweep.checked_sweep import requested_sweep
from pareto.sweep.sweep import Sweep
from tests import digits
from tests.digits import needs_digits
from tests.program import refused

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The folder in which it was trained, and the share of held-out images that was right."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, digits.train(folder)


def asked(**fields: object) -> Sweep:
    """The sweep of the file; its paths are relative to the folder of the clone."""
    own = {"model": f"{digits.MODEL}:Net", "codec": f"none,{digits.BOTTLENECK}:Bottleneck"}
    return canonical(requested_sweep(digits.SWEEP, {**own, **fields}))


@needs_digits
@pytest.mark.deep
def test_what_is_trained_reads_digits(trained: tuple[Path, float], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, right = trained
    assert right > 0.2  # by chance it would be 0.1, with a standard error of 0.016
    monkeypatch.chdir(folder)
    sweep = asked(images=360)
    (name,) = sweep.models
    made = prepare(name, sweep)
    data = load_file(made.data[1].path)
    assert (data["input0"].dtype, data["input0"].shape) == (torch.uint8, (360, 1, 3, 96, 96))
    quality = made.qualities[1]["none"]
    assert (quality.images, quality.top1) == (360, pytest.approx(right, abs=0.01))
    assert made.manifest["dataset"]["labels"] == "names"


@needs_digits
@pytest.mark.deep
def test_the_learned_codec_sends_a_hundredth_with_the_weights_that_were_trained(
    trained: tuple[Path, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained[0])
    sweep = asked(images=360)
    made = prepare(sweep.models[0], sweep, [(1,), (2,), (3,)])
    (codec,) = made.codecs
    assert [cut.point for cut in codec.cuts] == [2]
    assert made.facts.unfit["Bottleneck"] >= {0, 1, 3, 4}
    assert made.facts.wire_shares["Bottleneck"][2] == 864 / 110_592
    quality = made.qualities[1]["Bottleneck@2"]
    assert quality.images == 360 and quality.agreement is not None
    trained_weights = torch.load(trained[0] / "results" / "digits" / "bottleneck.pth", weights_only=True)
    sent = load_file(codec.weights.path)
    assert sent.keys() == {f"2.{key}" for key in trained_weights}
    assert all(torch.equal(sent[f"2.{key}"], each) for key, each in trained_weights.items())


@needs_digits
def test_images_are_held_out_from_all_that_trained_the_model_and_drawn_by_the_seed() -> None:
    script = digits.script()
    shown, hidden = script._parts(torch.arange(90).expand(3, 2, 90))
    assert shown[0, 0].tolist() == [*range(60)]
    assert hidden[0, 0].tolist() == [*range(60, 90)]
    every, _ = script.digits(script.package())
    photos = script.photographs(script.package())
    drawn = [script.pictures(every[:4], photos, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert drawn[0].dtype == torch.uint8


@needs_digits
def test_what_is_written_replaces_what_was_there(tmp_path: Path) -> None:
    script = digits.script()
    model, codec = script.MODEL.build(), torch.nn.Linear(1, 1)
    for image in (7, 8):
        pixels = torch.full((1, 3, 2, 2), image, dtype=torch.uint8)
        script.save(tmp_path, model, codec, pixels, torch.tensor([image]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bottleneck.pth", "images", "weights.pth"]
    (left,) = (tmp_path / "images").rglob("*.png")
    assert left.parent.name == "8"
    with Image.open(left) as image:
        assert image.getpixel((0, 0)) == (8, 8, 8)


def test_without_the_package_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, snapshot: object
) -> None:
    script = digits.script()
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["train.py", "--folder", str(tmp_path / "made")])
    assert script.main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "requirements-digits.txt" in line
    assert line == snapshot
    assert not [*tmp_path.iterdir()]


def test_untrained_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: object
) -> None:
    monkeypatch.chdir(tmp_path)
    named = ("--model", f"{digits.MODEL}:Net", "--codec", f"{digits.BOTTLENECK}:Bottleneck")
    line = refused("run", str(digits.SWEEP), *named, "--dry-run")
    assert "sweeps/digits/train.py" in line
    assert line == snapshot
