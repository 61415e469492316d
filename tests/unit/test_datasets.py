"""Images: found, chosen, decoded ahead of their use, and labelled as the model knows them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from pareto.models.datasets import Dataset, Labelled, cifar10, folder, match, open_named
from pareto.protocol.errors import UserError
from tests.unit import example_images


def pixels(sample: Labelled) -> bytes:
    return sample.read().tobytes()


def names(dataset: Dataset) -> list[str]:
    return [dataset.classes[sample.label] for sample in dataset.samples if sample.label is not None]


# What is in a folder


def test_a_folder_for_each_class(tmp_path):
    path = example_images.folders(tmp_path, {"dog": 1, "cat": 2})
    example_images.flat(path / "dog" / "deeper", 1)
    (path / "cat" / "list.txt").write_text("")
    (path / ".cache").mkdir()
    found = folder(path)
    assert found.classes == ("cat", "dog")
    assert names(found) == ["cat", "cat", "dog", "dog"]
    assert pixels(found.samples[1]) == example_images.image(2).tobytes()


def test_images_without_labels(tmp_path):
    found = folder(example_images.flat(tmp_path, 3))
    assert found.classes == ()
    assert [sample.label for sample in found.samples] == [None] * 3
    assert pixels(found.samples[2]) == example_images.image(2).tobytes()


@pytest.mark.parametrize(
    ("mode", "name"), [("L", "a.jpg"), ("P", "a.png"), ("RGBA", "a.PNG"), ("CMYK", "a.jpeg"), ("1", "a.bmp")]
)
def test_images_of_every_kind_are_read_in_colour(mode, name, tmp_path):
    example_images.image(1, mode=mode).save(tmp_path / name)
    read = folder(tmp_path).samples[0].read()
    assert (read.mode, read.size) == ("RGB", (40, 30))


@pytest.mark.parametrize("name", ["no", "empty", "both"])
def test_a_folder_that_is_none_is_one_clear_line(name, tmp_path, snapshot):
    (tmp_path / "empty").mkdir()
    example_images.flat(example_images.folders(tmp_path / "both", {"cat": 1}), 1)
    with pytest.raises(UserError) as refused:
        folder(tmp_path / name)
    line = str(refused.value)
    assert f"{tmp_path}/{name}" in line and "\n" not in line
    assert line == snapshot


@pytest.mark.parametrize("name", ["folder", "cifar10"])
def test_a_name_that_is_too_long_is_said(name: str) -> None:
    with pytest.raises(UserError, match=r"^--data-path a+: File name too long$"):
        open_named(name, Path("a" * 300))


@pytest.mark.parametrize(
    "spoil",
    [lambda png: png[:-60], lambda png: b"GIF" + png[3:], lambda _: b""],
    ids=["cut short", "of another kind", "empty"],
)
def test_a_broken_image_is_one_line_with_its_name(spoil, tmp_path, snapshot):
    example_images.flat(tmp_path, 1)
    file = tmp_path / "0.png"
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(UserError) as refused:
        folder(tmp_path).samples[0].read()
    line, named, why = str(refused.value).partition(f"{file}: ")
    assert named and why and "\n" not in why
    assert line == snapshot


# CIFAR-10


def test_the_test_split_of_cifar10(tmp_path, monkeypatch):
    root = example_images.cifar(tmp_path, monkeypatch)
    for path in (root, root / "cifar-10-batches-py"):
        found = cifar10(path)
        assert found.classes == tuple(example_images.CIFAR_CLASSES)
        assert [sample.label for sample in found.samples] == [i % 10 for i in range(40)]
        assert {sample.read().size for sample in found.samples} == {(32, 32)}
        assert len({pixels(sample) for sample in found.samples}) == 40


def test_cifar10_is_never_downloaded(tmp_path, snapshot):
    with pytest.raises(UserError) as refused:
        cifar10(tmp_path)
    line = str(refused.value)
    assert str(tmp_path) in line and "\n" not in line
    assert line == snapshot
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_not_those_published_are_not_unpickled(tmp_path, monkeypatch, snapshot):
    root = example_images.cifar(tmp_path, monkeypatch)
    with (root / "cifar-10-batches-py" / "test_batch").open("ab") as file:
        file.write(b".")
    with pytest.raises(UserError) as refused:
        cifar10(root)
    assert str(refused.value) == snapshot


# Which images


def unread() -> Image.Image:
    raise AssertionError("no image is read to choose it")


def set_of(tmp_path, *counts: int) -> Dataset:
    samples = (Labelled(label, unread) for label, count in enumerate(counts) for _ in range(count))
    return Dataset(str(tmp_path), tuple(samples), tuple(str(label) for label in range(len(counts))))


def test_each_beginning_is_spread_over_the_classes(tmp_path):
    order = set_of(tmp_path, 20, 3, 20, 20).spread(1)
    assert len(set(map(id, order))) == 63
    for length in (1, 2, 4, 8, 12):
        counts = Counter(sample.label for sample in order[:length])
        assert max(counts.values()) - min(counts.get(label, 0) for label in range(4)) <= 1
    assert Counter(sample.label for sample in order[:15]) == {0: 4, 1: 3, 2: 4, 3: 4}


def test_the_seed_decides_which_images_are_taken(tmp_path):
    dataset = set_of(tmp_path, 20, 20)
    first, again, other = (list(map(id, dataset.spread(seed))) for seed in (1, 1, 2))
    assert first == again != other and sorted(first) == sorted(other)


# What they show

ANIMALS = ("tench", "great white shark", "cock")


@pytest.mark.parametrize(
    ("classes", "outputs", "categories", "indices"),
    [
        (["cock", "Great_White-Shark"], 3, ANIMALS, (2, 1)),
        (["2", "0"], 3, ANIMALS, (2, 0)),
        (["0", "1", "10"], 11, (), (0, 1, 10)),
        (["n01", "n02", "n03"], 3, ANIMALS, (0, 1, 2)),
        (["left", "right"], 2, (), (0, 1)),
    ],
)
def test_classes_are_matched_by_name_by_number_or_in_order(classes, outputs, categories, indices):
    assert match(classes, outputs, categories)[0] == indices


@pytest.mark.parametrize(
    ("classes", "outputs", "named"),
    [([], 3, ""), (["cock"], None, ""), (["cock", "lynx"], 3, "'lynx'"), (["0", "3"], 3, "'0'")],
    ids=["no classes", "no classifier", "a stranger", "other numbers"],
)
def test_classes_that_do_not_fit_give_no_labels_and_say_why(classes, outputs, named, snapshot):
    indices, how = match(classes, outputs, ANIMALS)
    assert indices == ()
    assert named in how
    assert how == snapshot
