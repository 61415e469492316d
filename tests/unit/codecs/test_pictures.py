"""Images of bytes as pictures: what comes back, what is refused before a library allocates anything for it.

Files of a camera: what they are decoded to, and how they cross in place of the images in them.
"""

from __future__ import annotations

import io
import struct
import zlib

import pytest
import torch
from PIL import Image
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from pareto.protocol.errors import BackendError
from pareto.remote.backends.base import BYTES, Layout, layout
from pareto.remote.codecs import camera, pictures
from pareto.remote.codecs.camera import Camera, Crop
from pareto.remote.codecs.registry import NONE, parse
from tests.unit import example_images
from tests.unit.refusals import refusal

NAMES = ("jpeg:90", "webp:80", "png")


def images(count: int, channels: int, height: int, width: int) -> Tensor:
    """A slope in each, with a step in it: what pictures keep well."""
    row = torch.linspace(20, 200, width).expand(count, channels, height, width).clone()
    row[..., height // 2 :, :] += 40
    return row.to(torch.uint8)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 3, 48, 32), (3, 1, 17, 9), (2, 3, 1, 1)])
def test_pictures_come_back_in_their_shape_and_nearly_the_same(name: str, shape: tuple[int, ...]) -> None:
    batch = images(*shape)
    codec, of = parse(name), layout((batch,))
    encoded = codec.encode((batch,))
    ((kind, (bound,)),) = codec.encoded(of)
    assert kind == BYTES and encoded[0].numel() <= bound
    (decoded,) = codec.decode(encoded, of)
    assert layout((decoded,)) == of
    off = int((decoded.int() - batch.int()).abs().max())
    assert off == 0 if codec.lossless else off <= 24


@pytest.mark.parametrize("name", ("jpeg:100", "webp:100", "png"))
def test_noise_fits_into_the_bound_and_takes_more_in_a_higher_quality(name: str) -> None:
    batch = torch.randint(256, (2, 3, 33, 65), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    ((_, (bound,)),) = parse(name).encoded(layout((batch,)))
    assert parse(name).encode((batch,))[0].numel() <= bound
    batch = torch.randint(256, (1, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for kind in ("jpeg", "webp"):
        low, high = (parse(f"{kind}:{quality}") for quality in (20, 95))
        assert low.encode((batch,))[0].numel() < high.encode((batch,))[0].numel()


def test_what_is_no_image_of_bytes_is_refused() -> None:
    wrong = (("float32", (1, 3, 4, 4)), ("uint8", (1, 4, 4, 4)), ("uint8", (3, 4, 4)))
    for of in (*((each,) for each in wrong), (("uint8", (1, 3, 4, 4)),) * 2, ()):
        with pytest.raises(BackendError, match="images of bytes"):
            parse("jpeg").encoded(of)


def refused(name: str, data: bytes, shape: tuple[int, ...] = (1, 3, 8, 8)) -> str:
    encoded = (torch.frombuffer(bytearray(data), dtype=torch.uint8),)
    return refusal(BackendError, parse(name).decode, encoded, (("uint8", shape),))


def saved(kind: str, size: tuple[int, int] = (8, 8), **options: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size).save(file, kind, **options)
    return file.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("jpeg", saved("JPEG", (9, 8)), "another size"),
        ("jpeg", saved("JPEG", progressive=True), "no encoder here writes"),
        ("jpeg", saved("JPEG", comment=b"hello"), "no encoder here writes"),
        ("jpeg", saved("PNG"), "does not begin"),
        ("jpeg", saved("JPEG")[:300], "no whole jpeg"),
        ("png", saved("PNG", (8, 9)), "another size"),
        ("png", saved("PNG")[:-12].replace(b"IDAT", b"IDAX"), "no encoder here writes"),
        ("png", saved("PNG")[:33] + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(9999))), "no encoder here"),
        ("png", saved("PNG")[:8] + chunk(b"IDAT", b"") + saved("PNG")[8:], "first part"),
        ("png", saved("PNG")[:50], "does not end"),
        ("webp", saved("WEBP", (16000, 8)), "another size"),
        ("webp", saved("WEBP", lossless=True), "no encoder here writes"),
        ("webp", saved("WEBP", save_all=True, append_images=[Image.new("RGB", (8, 8), "red")]), "no encoder"),
        ("webp", saved("WEBP")[:-1], "does not end"),
        ("jpeg", saved("JPEG")[:-1], "no end"),
    ],
)
def test_what_the_encoder_does_not_write_is_refused(name: str, data: bytes, words: str) -> None:
    assert words in refused(name, data)


def test_the_lengths_of_pictures_are_not_trusted() -> None:
    picture = saved("PNG")
    for length in (0xFFFFFFFF, len(picture) + 1, 0):
        assert "png" in refused("png", struct.pack("<I", length) + picture, (2, 3, 8, 8))
    assert "longer" in refused("png", b"\1\2", (2, 3, 8, 8))
    with pytest.raises(BackendError, match="longer"):
        parse("png").decode((torch.empty(0, dtype=torch.uint8),), (("uint8", (1, 3, 8, 8)),))


CROP = Crop((3, 20, 16), 24)
TAKES: Layout = (("uint8", (2, 3, 20, 16)),)


def jpeg(seed: int, **options: object) -> bytes:
    file = io.BytesIO()
    example_images.image(seed, (60, 40)).save(file, "JPEG", **options)
    return file.getvalue()


FILES = [jpeg(1), jpeg(2, progressive=True, comment=b"taken by hand")]


def test_the_files_of_a_batch_cross_as_they_are_and_are_decoded_and_cut_behind_as_any_image_is() -> None:
    for file in FILES:
        with Image.open(io.BytesIO(file)) as picture:
            assert torch.equal(camera.pixels(file, CROP), CROP(picture))
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
    refusal(BackendError, Camera(CROP, max(map(len, FILES))).decode, (frame,), TAKES)


def test_a_huge_file_is_not_decoded(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    monkeypatch.setattr(camera, "MOST_PIXELS", 60 * 40 - 1)
    monkeypatch.setattr(Image.Image, "convert", None)
    assert refusal(ValueError, camera.pixels, FILES[0], CROP) == snapshot


def test_it_sends_files_where_images_cross_and_is_none_elsewhere() -> None:
    file = parse("file")
    assert file.lossless and file.file and not file.pictures
    assert all(file.fits((cut,), 5) for cut in range(6))
    assert file.at({"uint8"}) == file
    assert file.at({"float32"}).text == file.at(()).text == NONE
    with pytest.raises(ValueError, match="no codec"):
        parse("file+zstd")
