"""Images: found, chosen, labelled as the model knows them, cut to size, decoded ahead of their use, and in batches."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image

from pareto.models.datasets import Dataset, Labelled, cifar10, folder, match, open_named
from pareto.models.feed import AHEAD, INPUTS, THREADS, Samples, Synthetic, ahead
from pareto.partitions.inputs import Images
from pareto.partitions.torchvision_models import models
from pareto.protocol.errors import UserError
from pareto.remote.codecs.camera import Crop, crop_for
from tests.unit import example_images
from tests.unit.refusals import refusal


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
    assert (found.classes, [sample.label for sample in found.samples]) == ((), [None] * 3)
    assert pixels(found.samples[2]) == example_images.image(2).tobytes()


def test_images_of_every_kind_are_read_in_colour(tmp_path):
    kinds = {"L": "a.jpg", "P": "b.png", "RGBA": "c.PNG", "CMYK": "d.jpeg", "1": "e.bmp"}
    for mode, name in kinds.items():
        example_images.image(1, mode=mode).save(tmp_path / name)
    read = [sample.read() for sample in folder(tmp_path).samples]
    assert [(each.mode, each.size) for each in read] == [("RGB", (40, 30))] * len(kinds)


def test_a_folder_that_is_none_is_one_clear_line(tmp_path, snapshot):
    (tmp_path / "empty").mkdir()
    example_images.flat(example_images.folders(tmp_path / "both", {"cat": 1}), 1)
    lines = {name: refusal(UserError, folder, tmp_path / name) for name in ("no", "empty", "both")}
    assert all(f"{tmp_path}/{name}" in line for name, line in lines.items())
    assert [*lines.values()] == snapshot
    for name in ("folder", "cifar10"):
        long = refusal(UserError, open_named, name, Path("a" * 300))
        assert long == f"--data-path {'a' * 300}: File name too long"


def test_a_broken_image_is_one_line_with_its_name(tmp_path, snapshot):
    example_images.flat(tmp_path, 1)
    file = tmp_path / "0.png"
    png = file.read_bytes()
    for spoilt in (png[:-60], b"GIF" + png[3:], b""):
        file.write_bytes(spoilt)
        line, named, why = refusal(UserError, folder(tmp_path).samples[0].read).partition(f"{file}: ")
        assert named and why
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


def test_cifar10_is_never_downloaded_nor_unpickled_where_not_as_published(tmp_path, monkeypatch, snapshot):
    (tmp_path / "none").mkdir()
    line = refusal(UserError, cifar10, tmp_path / "none")
    assert f"{tmp_path}/none" in line
    assert line == snapshot
    assert list((tmp_path / "none").iterdir()) == []
    root = example_images.cifar(tmp_path, monkeypatch)
    with (root / "cifar-10-batches-py" / "test_batch").open("ab") as file:
        file.write(b".")
    assert refusal(UserError, cifar10, root) == snapshot


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


def test_classes_are_matched_by_name_by_number_or_in_order():
    assert match(["cock", "Great_White-Shark"], 3, ANIMALS)[0] == (2, 1)
    assert match(["2", "0"], 3, ANIMALS)[0] == (2, 0)
    assert match(["0", "1", "10"], 11, ())[0] == (0, 1, 10)
    assert match(["n01", "n02", "n03"], 3, ANIMALS)[0] == (0, 1, 2)
    assert match(["left", "right"], 2, ())[0] == (0, 1)


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


# Cutting to size


@pytest.mark.parametrize("name", ["mobilenet_v2", "inception_v3", "alexnet", "efficientnet_b0"])
@pytest.mark.parametrize("size", [(500, 300), (400, 700), (32, 32)])
def test_images_are_cut_as_in_the_models_evaluation(name, size):
    preset = models.get_model_weights(name).DEFAULT.transforms()
    height = preset.crop_size[0]
    image = example_images.image(1, size)
    cut = crop_for(name, (3, height, height))(image)
    assert (cut.dtype, cut.shape) == (torch.uint8, (3, height, height))
    mean, std = (torch.tensor(values)[:, None, None] for values in (preset.mean, preset.std))
    assert torch.allclose((cut / 255 - mean) / std, preset(image), atol=1e-6)


def test_a_model_of_the_users_own_sees_all_that_there_is_room_for(snapshot):
    assert crop_for("mine", (3, 32, 48)).resize == 48
    image = example_images.image(1, (48, 48))
    middle = image.crop((0, 8, 48, 40))
    cut = crop_for("mine", (3, 32, 48))(image)
    assert cut.permute(1, 2, 0).numpy().tobytes() == middle.tobytes()
    grey = crop_for("mine", (1, 32, 48))(image)
    assert grey.shape == (1, 32, 48) and grey.numpy().tobytes() == middle.convert("L").tobytes()
    assert refusal(UserError, crop_for, "mine", (4, 32, 48)) == snapshot


# Ahead of their use


def test_results_come_in_order_and_work_is_done_by_several_at_once():
    together = threading.Barrier(THREADS, timeout=30)

    def job(number: int) -> int:
        if number < THREADS:
            together.wait()
        return number

    assert list(ahead(partial(job, number) for number in range(20))) == list(range(20))


def test_only_so_much_is_done_ahead_and_a_fault_comes_when_its_turn_does():
    begun = []

    def job(number: int) -> int:
        begun.append(number)
        if number == 5:
            raise UserError("fifth")
        return number

    results = ahead(partial(job, number) for number in range(1000))
    for number in range(5):
        assert next(results) == number
        assert len(begun) <= number + 1 + AHEAD
    with pytest.raises(UserError, match="fifth"):
        next(results)
    results.close()
    assert len(begun) <= 6 + AHEAD
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("decode")]


# Batches


def pictures(count: int, images: int, classes: tuple[int, ...] = ()) -> Samples:
    samples = tuple(Labelled(i % 3, partial(Image.new, "RGB", (1, 1), (i, 0, 0))) for i in range(count))
    crop = Crop((3, 1, 1), 1)
    return Samples(samples, images, lambda image: (crop(image),), torch.Tensor.float, classes)


def test_whole_batches_of_images_each_taken_once():
    feed = pictures(50, 20, (7, 8, 9))
    for batch_size, count in ((1, 20), (8, 3), (32, 1)):
        batches = torch.stack([batch for (batch,) in feed.batches(batch_size)])
        assert batches.shape == (count, batch_size, 3, 1, 1) and batches.dtype == torch.float32
        assert batches[:, :, 0].flatten().tolist() == list(range(count * batch_size))
        labels = feed.labels(batch_size)
        assert (labels.shape, labels.dtype) == ((count, batch_size), torch.int64)
        assert labels.flatten().tolist() == [7 + i % 3 for i in range(count * batch_size)]


def test_no_image_is_taken_twice_to_fill_a_batch_and_other_classes_are_no_labels():
    assert [pictures(20, 20).count(size) for size in (1, 8, 20)] == [20, 2, 1]
    assert pictures(20, 20).labels(4) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_noise_depends_on_the_seed_and_no_two_batches_are_the_same(dtype):
    def feed(images: int | None, seed: int) -> Synthetic:
        return Synthetic(Images((3, 8, 6)), str(dtype).removeprefix("torch."), images, seed)

    def made(seed: int, batch_size: int) -> torch.Tensor:
        return torch.stack([batch for (batch,) in feed(None, seed).batches(batch_size)])

    noise = made(1, 2)
    assert (noise.shape, noise.dtype) == ((INPUTS, 2, 3, 8, 6), dtype)
    assert torch.equal(noise, made(1, 2)) and not torch.equal(noise, made(2, 2))
    assert len({batch.numpy().tobytes() for batch in noise}) == INPUTS
    assert feed(10, 1).count(4) == 3


def test_noise_is_of_the_kind_that_the_model_takes():
    (real,) = next(Synthetic(Images((3, 64, 64)), "float32", None, 1).batches(2))
    assert abs(float(real.mean())) < 0.05 and abs(float(real.std()) - 1) < 0.05
    (raw,) = next(Synthetic(Images((3, 64, 64)), "uint8", None, 1).batches(2))
    assert (int(raw.min()), int(raw.max())) == (0, 255)
