"""How fast each codec is on one core, and what it makes of real activations, beside its library called directly.

    ./pareto.sh test tests/perf/test_codecs.py

The payloads are those of MobileNetV2, ResNet50 and VGG16 with seeded weights at an early, a middle and a late point,
for an image of smoothed noise. MB/s are 10^6 bytes of the payload, not of what is sent, by the
fastest of its repetitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from pareto.backends.base import Tensors, layout
from pareto.codecs import registry
from partitions import model as partitioned
from partitions import weights
from partitions.recipe import Recipe

pytestmark = [pytest.mark.perf, pytest.mark.usefixtures("one_thread")]

MODELS = ("mobilenet_v2", "resnet50", "vgg16")
PLACES = {"early": 0.15, "middle": 0.5, "late": 0.85}
CODECS = (
    "fp16",
    "bf16",
    "int8",
    "int8:channel",
    "uint4",
    "zstd:3",
    "lz4",
    "blosc2:blosclz:9:shuffle",
    "int8+zstd:3",
    "int8+lz4",
)
PICTURES = ("jpeg:90", "webp:80", "png")
SAMPLE_S = 0.15


def image() -> torch.Tensor:
    """An image of bytes whose neighbouring pixels are alike, as a photograph's are: noise of several sizes."""
    drawn = torch.Generator().manual_seed(0)
    sides = (7, 28, 112, 224)
    layers = [torch.randn(1, 3, side, side, generator=drawn) * 7 / side**0.5 for side in sides]
    smooth = sum(torch.nn.functional.interpolate(layer, (224, 224), mode="bicubic") for layer in layers)
    assert isinstance(smooth, torch.Tensor)
    return (128 + 28 * smooth).clamp(0, 255).to(torch.uint8)


def payloads(name: str, folder: Path) -> Iterator[tuple[str, Tensors]]:
    """What crosses at each place, named by its point."""
    recipe = Recipe(name, input="uint8")
    model = partitioned.load(recipe, weights.make(name, "seeded", 0, folder).path)
    last = len(model.points) - 1
    for place, share in PLACES.items():
        point = round(share * last)
        with torch.inference_mode():
            yield f"{name} {place} ({point} of {last})", tuple(model.stage(0, point)((image(),)))


def seconds(job: Callable[[], object]) -> float:
    """The fastest of as many calls as fit into the time of a sample, and at least three."""
    best, end, done = float("inf"), time.perf_counter() + SAMPLE_S, 0
    while done < 3 or time.perf_counter() < end:
        began = time.perf_counter()
        job()
        best = min(best, time.perf_counter() - began)
        done += 1
    return best


def row(codec: str, tensors: Tensors) -> tuple[float, float, float]:
    """Ratio, and MB/s of encoding and of decoding."""
    made, of = registry.parse(codec), layout(tensors)
    encoded = made.encode(tensors)
    megabytes = sum(tensor.nbytes for tensor in tensors) / 1e6
    sent = sum(tensor.nbytes for tensor in encoded) / 1e6
    return (
        megabytes / sent,
        megabytes / seconds(lambda: made.encode(tensors)),
        megabytes / seconds(lambda: made.decode(encoded, of)),
    )


@pytest.mark.parametrize("name", MODELS)
def test_codecs_of_activations(name: str, tmp_path: Path, printed: Callable[[str], None]) -> None:
    for place, tensors in payloads(name, tmp_path):
        printed(f"\n{place}, {sum(tensor.nbytes for tensor in tensors) / 1e3:.0f} kB")
        printed(f"{'codec':26} {'ratio':>6} {'encode':>8} {'decode':>8}  MB/s")
        for codec in CODECS:
            ratio, encode, decode = row(codec, tensors)
            printed(f"{codec:26} {ratio:6.2f} {encode:8.0f} {decode:8.0f}")
        for library, encode, decode in directly(tensors):
            printed(f"{library:26} {'':6} {encode:8.0f} {decode:8.0f}  by itself")


def directly(tensors: Tensors) -> Iterator[tuple[str, float, float]]:
    """MB/s of each library, called with the bytes of the payload and nothing else."""
    import blosc2
    import lz4.block
    import zstandard

    (tensor,) = tensors
    data = tensor.numpy().tobytes()
    compressor, decompressor = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()
    blosc = {
        "codec": blosc2.Codec.BLOSCLZ,
        "clevel": 9,
        "filters": [blosc2.Filter.SHUFFLE],
        "filters_meta": [0],
    }
    ways: dict[str, tuple[Callable[[], bytes], Callable[[bytes], object]]] = {
        "zstd:3": (lambda: compressor.compress(data), decompressor.decompress),
        "lz4": (
            lambda: lz4.block.compress(data, store_size=False),
            lambda part: lz4.block.decompress(part, uncompressed_size=len(data)),
        ),
        "blosc2:blosclz:9:shuffle": (
            lambda: blosc2.compress2(data, typesize=4, nthreads=1, **blosc),
            lambda part: blosc2.decompress2(part, nthreads=1),
        ),
    }
    for library, (encode, decode) in ways.items():
        part = encode()
        yield (
            library,
            len(data) / 1e6 / seconds(encode),
            len(data) / 1e6 / seconds(lambda decode=decode, part=part: decode(part)),
        )


def test_codecs_of_pictures(printed: Callable[[str], None]) -> None:
    printed(f"\nimage, {image().nbytes / 1e3:.0f} kB")
    for codec in (*PICTURES, "zstd:3", "lz4"):
        ratio, encode, decode = row(codec, (image(),))
        printed(f"{codec:26} {ratio:6.2f} {encode:8.0f} {decode:8.0f}")
