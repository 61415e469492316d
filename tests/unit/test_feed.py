"""Batches of images or noise, as a model takes them."""

from __future__ import annotations

import threading
from functools import partial

import pytest
import torch
from PIL import Image

from pareto.models.datasets import Labelled
from pareto.models.feed import AHEAD, INPUTS, THREADS, Samples, Synthetic, ahead
from pareto.partitions.inputs import Images
from pareto.partitions.torchvision_models import models
from pareto.protocol.errors import UserError
from pareto.remote.codecs.camera import Crop, crop_for
from tests.unit import example_images

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
    with pytest.raises(UserError) as refused:
        crop_for("mine", (4, 32, 48))
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


def test_no_image_is_taken_twice_to_fill_a_batch():
    assert [pictures(20, 20).count(size) for size in (1, 8, 20)] == [20, 2, 1]


def test_images_whose_classes_are_not_the_models_have_no_labels():
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
