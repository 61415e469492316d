"""Files of a camera: what they are decoded to, and how they cross in place of the images in them."""

from __future__ import annotations

import io

import pytest
import torch
from PIL import Image
from syrupy.assertion import SnapshotAssertion

from pareto.protocol.errors import BackendError
from pareto.remote.backends.base import Layout, layout
from pareto.remote.codecs import camera, pictures
from pareto.remote.codecs.camera import Camera, Crop
from pareto.remote.codecs.registry import NONE, parse
from tests.unit import example_images

CROP = Crop((3, 20, 16), 24)
TAKES: Layout = (("uint8", (2, 3, 20, 16)),)


def jpeg(seed: int, **options: object) -> bytes:
    file = io.BytesIO()
    example_images.image(seed, (60, 40)).save(file, "JPEG", **options)
    return file.getvalue()


FILES = [jpeg(1), jpeg(2, progressive=True, comment=b"taken by hand")]


def test_a_file_is_decoded_and_cut_as_any_image_is() -> None:
    for file in FILES:
        with Image.open(io.BytesIO(file)) as picture:
            assert torch.equal(camera.pixels(file, CROP), CROP(picture))


def test_the_files_of_a_batch_cross_as_they_are_and_are_decoded_behind() -> None:
    frame = pictures.joined(FILES)
    assert sum(map(len, FILES)) <= len(frame) <= sum(map(len, FILES)) + 8
    eye = Camera(CROP, -(-len(frame) // 2))
    (images,) = eye.decode((frame,), TAKES)
    assert layout([images]) == TAKES
    assert torch.equal(images, torch.stack([camera.pixels(file, CROP) for file in FILES]))


@pytest.mark.parametrize(
    "frame",
    [
        pictures.joined([FILES[0], b"no picture"]),
        pictures.joined([FILES[0], FILES[1][:-300]]),
        pictures.joined([FILES[0], jpeg(3).replace(b"JFIF", b"")[:20]]),
        pictures.joined(FILES)[:100],
        torch.full((300,), 255, dtype=torch.uint8),
        torch.zeros(1 << 14, dtype=torch.uint8),
    ],
    ids=["other bytes", "cut short", "a header", "a short frame", "lengths beyond it", "too long"],
)
def test_what_is_no_frame_of_files_is_refused(frame: torch.Tensor) -> None:
    with pytest.raises(BackendError) as refused:
        Camera(CROP, max(map(len, FILES))).decode((frame,), TAKES)
    assert "\n" not in str(refused.value)


def test_a_file_that_says_it_is_huge_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(camera, "MOST_PIXELS", 60 * 40 - 1)
    monkeypatch.setattr(Image.Image, "convert", None)
    with pytest.raises(ValueError) as refused:
        camera.pixels(FILES[0], CROP)
    assert str(refused.value) == snapshot


def test_it_sends_files_where_images_cross_and_is_none_elsewhere() -> None:
    file = parse("file")
    assert file.lossless and file.file and not file.pictures
    assert all(file.fits((cut,), 5) for cut in range(6))
    assert file.at({"uint8"}) == file
    assert file.at({"float32"}).text == file.at(()).text == NONE
    with pytest.raises(ValueError, match="no codec"):
        parse("file+zstd")
