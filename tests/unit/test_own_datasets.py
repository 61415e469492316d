"""A data set of the user's own: its forms, what it says of classes, and what can be wrong with it, a line each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from pareto.models.datasets import open_named
from pareto.models.feed import image, own_inputs
from pareto.models.prepare import canonical, prepare
from pareto.partitions.graph import Input
from pareto.protocol.errors import UserError
from pareto.remote.codecs.camera import Crop
from pareto.sweep import dataset_names
from pareto.sweep.checked_sweep import make_sweep
from tests import REPOSITORY
from tests.unit.offered import installed
from tests.unit.refusals import refusal

TEXT = """
class Numbers:
    classes = {classes}

    def __init__(self, path):
        self.path = path
        {more}

    def __len__(self):
        return {length}

    def __getitem__(self, number):
        {first}
        return {sample}
"""


def written(folder: Path, **parts: object) -> str:
    """The name of a data set of twelve samples, with these parts in place of the usual ones."""
    usual = {"classes": None, "more": "", "length": 12, "first": "", "sample": "number, number % 3"}
    file = folder / "own.py"
    file.write_text(TEXT.format(**usual | parts))
    return f"{file}:Numbers"


def test_it_is_made_with_the_path_and_read_only_where_a_sample_is_chosen(tmp_path: Path) -> None:
    more = "self.read = (path / 'read').open('a') if path else None"
    first = "print(number, file=self.read, flush=True)"
    made = open_named(written(tmp_path, more=more, first=first), tmp_path)
    assert len(made.samples) == 12
    assert (tmp_path / "read").read_text() == ""
    chosen = made.chosen(0, 4)
    assert len((tmp_path / "read").read_text().split()) == len(chosen.samples) == 4
    assert [sample.read() % 3 for sample in chosen.samples] == [sample.label for sample in chosen.samples]


def test_what_it_says_of_classes(tmp_path: Path) -> None:
    """Labels without names are the model's numbers; names and targets spread the samples as those of folders."""
    assert open_named(written(tmp_path), None).chosen(0, 12).classes == ("0", "1", "2")
    spread = {"classes": ["a", "b", "c"], "more": "self.targets = [number % 3 for number in range(12)]"}
    chosen = open_named(written(tmp_path, **spread), None).chosen(0, 6)
    assert chosen.classes == ("a", "b", "c")
    assert sorted(sample.label for sample in chosen.samples if sample.label is not None) == [0, 0, 1, 1, 2, 2]
    chosen = open_named(written(tmp_path, classes=["a"], sample="number, None"), None).chosen(0, 6)
    assert (chosen.classes, {sample.label for sample in chosen.samples}) == ((), {None})


WRONG = [
    {"more": "raise OSError('no\\ndisk')"},
    *({"length": "0"}, {"length": "1 / 0"}, {"first": "raise KeyError('gone')"}),
    *({"sample": sample} for sample in ("number", "number, 'cat'", "number, -1", "number, 10 ** 9")),
    *({"sample": "number, 3", "classes": ["a", "b"]}, {"sample": "number, None if number % 2 else 0"}),
    {"more": "self.targets = [1, 2]"},
]


def fault(folder: Path, make: Callable[[], object]) -> str:
    """What is said: one line that names the data set's file."""
    line = refusal(UserError, make)
    assert str(folder / "own.py") in line
    return line.replace(str(folder), "FOLDER")


@pytest.mark.parametrize("parts", WRONG, ids=str)
def test_what_is_wrong_with_it_is_one_line_naming_it(parts: Any, tmp_path: Path, snapshot: object) -> None:
    assert fault(tmp_path, lambda: open_named(written(tmp_path, **parts), None).chosen(0, 12)) == snapshot


def test_what_makes_no_data_set_is_one_line(tmp_path: Path, snapshot: object) -> None:
    file = tmp_path / "own.py"
    for text in ("make = 3", "def make(path):\n    return 3", "import gone_package"):
        file.write_text(text)
        assert fault(tmp_path, lambda: open_named(f"{file}:make", None)) == snapshot


def test_its_file_is_found_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = written(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert make_sweep({"model": "m", "dataset": "own.py:Numbers"}).dataset == name
    assert dataset_names.shown(name) == "own.Numbers"
    of_nobody = "~nobody-here/own.py:make"
    gone = str(tmp_path / "gone.py")
    for given, named in (("own.py", "own.py:make"), ("gone.py:make", gone), (of_nobody, "home directory")):
        with pytest.raises(UserError, match=named):
            make_sweep({"model": "m", "dataset": given})


def test_a_package_offers_one_by_an_entry_point(tmp_path: Path) -> None:
    text = Path(written(tmp_path).rpartition(":")[0]).read_text()
    with installed(tmp_path / "site", {"theirs.py": text}, datasets="theirs = theirs:Numbers"):
        assert make_sweep({"model": "m", "dataset": "theirs"}).dataset == "theirs"
        assert dataset_names.shown("theirs") == "theirs"
        assert len(open_named("theirs", None).samples) == 12
        with pytest.raises(UserError, match="theirs"):
            make_sweep({"model": "m", "dataset": "others"})


def test_an_image_is_one_of_pil_or_a_tensor_of_bytes_or_of_floats_from_0_to_1() -> None:
    pixels = torch.arange(2 * 3 * 3, dtype=torch.uint8).reshape(3, 2, 3) * 14
    crop = Crop((3, 2, 3), 2)
    pil = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    for given in (pixels, pixels / 255, pil):
        (made,) = image(given, (3, 2, 3), crop)
        assert torch.equal(made, pixels)
    (larger,) = image(torch.full((1, 20, 40), 7, dtype=torch.uint8), (3, 2, 3), crop)
    assert torch.equal(larger, torch.full((3, 2, 3), 7, dtype=torch.uint8))
    deep = torch.zeros(4, 2, 3, dtype=torch.uint8)
    assert torch.equal(image(deep, (4, 2, 3), None)[0], deep)


NO_IMAGES = [
    *("a.png", torch.zeros(2, 3, dtype=torch.uint8), torch.zeros(3, 2, 2, dtype=torch.int64)),
    *(torch.full((3, 2, 2), 2.6), torch.full((3, 2, 2), torch.nan), torch.zeros(3, 5, 5)),
]
INPUTS = (Input((4,), torch.int64, "ids"), Input((4,), torch.bool, "padding"))
NO_INPUTS = [
    *(torch.arange(4), (torch.arange(4), torch.arange(4)), {"ids": torch.arange(4)}, ("hello", None)),
    (torch.arange(5), torch.ones(4, dtype=torch.bool)),
]


def test_what_is_no_image_or_other_inputs_than_the_models_are_said(snapshot: object) -> None:
    assert [refusal(ValueError, image, given, (4, 2, 2), None) for given in NO_IMAGES] == snapshot
    assert [refusal(ValueError, own_inputs, given, INPUTS) for given in NO_INPUTS] == snapshot


def test_inputs_of_the_models_own_are_a_tuple_or_have_names() -> None:
    ids, padding = torch.arange(4), torch.ones(4, dtype=torch.bool)
    for given in ((ids, padding), {"padding": padding, "ids": ids}):
        made = own_inputs(given, INPUTS)
        assert torch.equal(made[0], ids) and torch.equal(made[1], padding)
    (made,) = own_inputs(ids, INPUTS[:1])
    assert torch.equal(made, ids)


TOKENS = """
import torch
from pareto.partitions.registry import register

class Sum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(3, 3)

    def forward(self, ids, keep):
        return (self.embedding(ids) * keep.unsqueeze(-1)).sum(1)

@register(inputs=lambda batch, seed: {"ids": torch.zeros(batch, 4, dtype=torch.int64), "keep": torch.ones(batch, 4)})
def build():
    return Sum()

class Sentences:
    def __init__(self, path):
        self.targets = [number % 3 for number in range(12)]

    def __len__(self):
        return 12

    def __getitem__(self, number):
        return {"keep": torch.ones(4), "ids": torch.full((4,), number % 3)}, number % 3
"""


def test_a_model_with_inputs_of_its_own_has_labelled_accuracy(tmp_path: Path) -> None:
    file = tmp_path / "tokens_of_test_own_datasets.py"
    file.write_text(TOKENS)
    sweep = canonical(make_sweep({"model": f"{file}:build", "dataset": f"{file}:Sentences", "images": 6}))
    made = prepare(sweep.models[0], sweep)
    data = load_file(made.data[1].path)
    assert data["input0"].shape == (6, 1, 4) and data["input1"].dtype == torch.float32
    labels = data["input0"][:, 0, 0]
    quality = made.qualities[1]["none"]
    assert list(quality.wrong) == (labels != data["reference0"][:, 0].argmax(1)).tolist()
    told = made.manifest["dataset"]
    assert (told["name"], told["of"], made.facts.notes) == (f"{file.stem}.Sentences", 12, ())


FEATURES = """
import torch
from pareto.partitions.registry import register

@register(input_shape=(8, 4, 4))
def build():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(128, 2))

def make(path):
    return [(torch.randn(8, 4, 4), number % 2) for number in range(4)]

def pictures(path):
    return [(torch.rand(3, 4, 4), 0)]
"""


def test_a_model_that_takes_no_images_gets_tensors_as_they_are(tmp_path: Path, snapshot: object) -> None:
    file = tmp_path / "features_of_test_own_datasets.py"
    file.write_text(FEATURES)
    sweep = canonical(make_sweep({"model": f"{file}:build", "dataset": f"{file}:make"}))
    made = prepare(sweep.models[0], sweep)
    inputs: Tensor = load_file(made.data[1].path)["input0"]
    assert (inputs.shape, inputs.dtype) == ((4, 1, 8, 4, 4), torch.float32)
    assert float(inputs.min()) < 0
    other = sweep.model_copy(update={"dataset": f"{file}:pictures"})
    assert refusal(UserError, prepare, sweep.models[0], other).replace(str(tmp_path), "FOLDER") == snapshot


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "own-models.md").read_text().partition("\n## Your own data\n")[2]
    file = tmp_path / "squares.py"
    file.write_text(text.partition("```python\n")[2].partition("```")[0])
    chosen = open_named(f"{file}:Squares", None).chosen(0, 100)
    assert chosen.classes == ("dark", "light")
    assert all(image(sample.read(), (3, 224, 224), None)[0].dtype == torch.uint8 for sample in chosen.samples)
