"""Images: found, chosen, decoded ahead of their use, and labelled as the model knows them."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial

import pytest
import torch
from PIL import Image

from pareto.datasets import cifar10, folder
from pareto.datasets.ahead import AHEAD, THREADS, ahead
from pareto.datasets.crop import Crop, evaluated
from pareto.datasets.dataset import Dataset, Sample
from pareto.datasets.feed import INPUTS, Noise, Pictures
from pareto.datasets.labels import match
from pareto.errors import UserError
from partitions.torchvision_compat import models
from tests.unit import example_images


def pixels(sample: Sample) -> bytes:
    return sample.read().tobytes()


def names(dataset: Dataset) -> list[str]:
    return [dataset.classes[sample.label] for sample in dataset.samples if sample.label is not None]


# What is in a folder


def test_a_folder_for_each_class(tmp_path):
    path = example_images.folders(tmp_path, {"dog": 1, "cat": 2})
    example_images.flat(path / "dog" / "deeper", 1)
    (path / "cat" / "list.txt").write_text("")
    (path / ".cache").mkdir()
    found = folder.load(path)
    assert found.classes == ("cat", "dog")
    assert names(found) == ["cat", "cat", "dog", "dog"]
    assert pixels(found.samples[1]) == example_images.image(2).tobytes()


def test_images_without_labels(tmp_path):
    found = folder.load(example_images.flat(tmp_path, 3))
    assert found.classes == ()
    assert [sample.label for sample in found.samples] == [None] * 3
    assert pixels(found.samples[2]) == example_images.image(2).tobytes()


@pytest.mark.parametrize(
    ("mode", "name"), [("L", "a.jpg"), ("P", "a.png"), ("RGBA", "a.PNG"), ("CMYK", "a.jpeg"), ("1", "a.bmp")]
)
def test_images_of_every_kind_are_read_in_colour(mode, name, tmp_path):
    example_images.image(1, mode=mode).save(tmp_path / name)
    read = folder.load(tmp_path).samples[0].read()
    assert (read.mode, read.size) == ("RGB", (40, 30))


@pytest.mark.parametrize("name", ["no", "empty", "both"])
def test_a_folder_that_is_none_is_one_clear_line(name, tmp_path, snapshot):
    (tmp_path / "empty").mkdir()
    example_images.flat(example_images.folders(tmp_path / "both", {"cat": 1}), 1)
    with pytest.raises(UserError) as refused:
        folder.load(tmp_path / name)
    line = str(refused.value)
    assert f"{tmp_path}/{name}" in line and "\n" not in line
    assert line == snapshot


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
        folder.load(tmp_path).samples[0].read()
    line, named, why = str(refused.value).partition(f"{file}: ")
    assert named and why and "\n" not in why
    assert line == snapshot


# CIFAR-10


def test_the_test_split_of_cifar10(tmp_path, monkeypatch):
    root = example_images.cifar(tmp_path, monkeypatch)
    for path in (root, root / "cifar-10-batches-py"):
        found = cifar10.load(path)
        assert found.classes == tuple(example_images.CIFAR_CLASSES)
        assert [sample.label for sample in found.samples] == [i % 10 for i in range(40)]
        assert {sample.read().size for sample in found.samples} == {(32, 32)}
        assert len({pixels(sample) for sample in found.samples}) == 40


def test_cifar10_is_never_downloaded(tmp_path, snapshot):
    with pytest.raises(UserError) as refused:
        cifar10.load(tmp_path)
    line = str(refused.value)
    assert str(tmp_path) in line and "\n" not in line
    assert line == snapshot
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_not_those_published_are_not_unpickled(tmp_path, monkeypatch, snapshot):
    root = example_images.cifar(tmp_path, monkeypatch)
    with (root / "cifar-10-batches-py" / "test_batch").open("ab") as file:
        file.write(b".")
    with pytest.raises(UserError) as refused:
        cifar10.load(root)
    assert str(refused.value) == snapshot


# Which images


def unread() -> Image.Image:
    raise AssertionError("no image is read to choose it")


def set_of(tmp_path, *counts: int) -> Dataset:
    samples = (Sample(label, unread) for label, count in enumerate(counts) for _ in range(count))
    return Dataset(tmp_path, tuple(samples), tuple(str(label) for label in range(len(counts))))


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
    assert match(classes, outputs, categories).indices == indices


@pytest.mark.parametrize(
    ("classes", "outputs", "named"),
    [([], 3, ""), (["cock"], None, ""), (["cock", "lynx"], 3, "'lynx'"), (["0", "3"], 3, "'0'")],
    ids=["no classes", "no classifier", "a stranger", "other numbers"],
)
def test_classes_that_do_not_fit_give_no_labels_and_say_why(classes, outputs, named, snapshot):
    labels = match(classes, outputs, ANIMALS)
    assert labels.indices == ()
    assert named in labels.how
    assert labels.how == snapshot


# Cutting to size


@pytest.mark.parametrize("name", ["mobilenet_v2", "inception_v3", "alexnet", "efficientnet_b0"])
@pytest.mark.parametrize("size", [(500, 300), (400, 700), (32, 32)])
def test_images_are_cut_as_in_the_models_evaluation(name, size):
    preset = models.get_model_weights(name).DEFAULT.transforms()
    height = preset.crop_size[0]
    image = example_images.image(1, size)
    cut = evaluated(name, (3, height, height))(image)
    assert (cut.dtype, cut.shape) == (torch.uint8, (3, height, height))
    mean, std = (torch.tensor(values)[:, None, None] for values in (preset.mean, preset.std))
    assert torch.allclose((cut / 255 - mean) / std, preset(image), atol=1e-6)


def test_a_model_of_the_users_own_sees_all_that_there_is_room_for(snapshot):
    assert evaluated("mine", (3, 32, 48)).resize == 48
    image = example_images.image(1, (48, 48))
    middle = image.crop((0, 8, 48, 40))
    cut = evaluated("mine", (3, 32, 48))(image)
    assert cut.permute(1, 2, 0).numpy().tobytes() == middle.tobytes()
    grey = evaluated("mine", (1, 32, 48))(image)
    assert grey.shape == (1, 32, 48) and grey.numpy().tobytes() == middle.convert("L").tobytes()
    with pytest.raises(UserError) as refused:
        evaluated("mine", (4, 32, 48))
    assert str(refused.value) == snapshot


# Ahead of their use


def test_results_come_in_order_and_work_is_done_by_several_at_once():
    together = threading.Barrier(THREADS, timeout=30)

    def job(number: int) -> int:
        if number < THREADS:
            together.wait()
        return number

    assert list(ahead(partial(job, number) for number in range(20))) == list(range(20))


def test_only_so_much_is_done_ahead():
    begun = []

    def job(number: int) -> int:
        begun.append(number)
        return number

    results = ahead(partial(job, number) for number in range(1000))
    for number in range(5):
        assert next(results) == number
        assert len(begun) <= number + 1 + AHEAD
    results.close()
    assert len(begun) <= 5 + AHEAD
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("decode")]


def test_a_fault_comes_when_its_turn_does():
    def job(number: int) -> int:
        if number == 3:
            raise UserError("third")
        return number

    results = ahead(partial(job, number) for number in range(1000))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UserError, match="third"):
        next(results)


# Batches


def pictures(count: int, images: int, classes: tuple[int, ...] = ()) -> Pictures:
    samples = tuple(Sample(i % 3, partial(Image.new, "RGB", (1, 1), (i, 0, 0))) for i in range(count))
    return Pictures(samples, images, Crop((3, 1, 1), 1), torch.Tensor.float, classes)


def test_whole_batches_of_images_each_taken_once():
    feed = pictures(50, 20, (7, 8, 9))
    for batch_size, count in ((1, 20), (8, 3), (32, 1)):
        batches = torch.stack(list(feed.batches(batch_size)))
        assert batches.shape == (count, batch_size, 3, 1, 1) and batches.dtype == torch.float32
        assert batches[:, :, 0].flatten().tolist() == list(range(count * batch_size))
        labels = feed.labels(batch_size)
        assert (labels.shape, labels.dtype) == ((count, batch_size), torch.int64)
        assert labels.flatten().tolist() == [7 + i % 3 for i in range(count * batch_size)]


def test_no_image_is_taken_twice_to_fill_a_batch():
    assert [pictures(20, 20).count(size) for size in (1, 8, 20)] == [20, 2, 1]


def test_images_whose_classes_are_not_the_models_have_no_labels():
    assert pictures(20, 20).labels(4) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_noise_depends_on_the_seed_and_no_two_batches_are_the_same(dtype):
    def made(seed: int, batch_size: int) -> torch.Tensor:
        return torch.stack(list(Noise((3, 8, 6), dtype, None, seed).batches(batch_size)))

    noise = made(1, 2)
    assert (noise.shape, noise.dtype) == ((INPUTS, 2, 3, 8, 6), dtype)
    assert torch.equal(noise, made(1, 2)) and not torch.equal(noise, made(2, 2))
    assert len({batch.numpy().tobytes() for batch in noise}) == INPUTS
    assert Noise((3, 8, 6), dtype, 10, 1).count(4) == 3


def test_noise_is_of_the_kind_that_the_model_takes():
    real = next(Noise((3, 64, 64), torch.float32, None, 1).batches(2))
    assert abs(float(real.mean())) < 0.05 and abs(float(real.std()) - 1) < 0.05
    raw = next(Noise((3, 64, 64), torch.uint8, None, 1).batches(2))
    assert (int(raw.min()), int(raw.max())) == (0, 255)
