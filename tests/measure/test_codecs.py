"""How fast each codec is on one core, and what it makes of real activations, beside its library called directly.

    ./pareto.sh test --measure -k codecs

The payloads are those of MobileNetV2, ResNet50 and VGG16 with seeded weights at an early, a middle and a late point,
for an image of smoothed noise. MB/s are 10^6 bytes of the payload, not of what is sent, by the
fastest of its repetitions.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest
import torch

from pareto.partitions import allocator, weights
from pareto.partitions import model as partitioned
from pareto.partitions.recipe import Recipe
from pareto.remote.backends.base import Tensors, layout
from pareto.remote.codecs import registry
from tests.measure.conftest import Figures, Printed

pytestmark = pytest.mark.usefixtures("one_thread")

MODELS = ("mobilenet_v2", "resnet50", "vgg16")
PLACES = {"early": 0.15, "middle": 0.5, "late": 0.85}
BITS = ("fp16", "bf16", "int8", "int8:channel", "uint4")
CODECS = (*BITS, "zstd:3", "lz4", "blosc2:blosclz:9:shuffle", "int8+zstd:3", "int8+lz4")
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
    model = partitioned.load(recipe, weights.make(name, "seeded", 0, folder))
    last = len(model.points) - 1
    for place, share in PLACES.items():
        point = round(share * last)
        with torch.inference_mode():
            yield f"{name} {place} ({point} of {last})", tuple(model.stage(0, point)((image(),)))


def fastest_s(*jobs: Callable[[], object]) -> list[float]:
    """The fastest call of each job, in turns, of as many as fit into the time of a sample for each; at least three."""
    best, end, done = [float("inf")] * len(jobs), time.perf_counter() + SAMPLE_S * len(jobs), 0
    while done < 3 or time.perf_counter() < end:
        for which, job in enumerate(jobs):
            began = time.perf_counter()
            job()
            best[which] = min(best[which], time.perf_counter() - began)
        done += 1
    return best


def row(codec: str, tensors: Tensors) -> tuple[str, list[float]]:
    """Ratio, MB/s of encoding and of decoding; and of a compressor, beside them, those of its library by itself.

    The second are the shares of its library's speed, where it has one.
    """
    made, of = registry.parse(codec), layout(tensors)
    encoded = made.encode(tensors)
    size = sum(tensor.nbytes for tensor in tensors)
    library = directly(codec, tensors[0])
    encode = fastest_s(lambda: made.encode(tensors), *library[:1])
    decode = fastest_s(lambda: made.decode(encoded, of), *library[1:])
    words, shares = f"{size / sum(tensor.nbytes for tensor in encoded):6.2f}", []
    for times in (encode, decode):
        words += "".join(f" {size / 1e6 / each:8.0f}" for each in times)
        if library:
            shares.append(times[1] / times[0])
            words += f" {shares[-1]:5.2f} {1e6 * (times[0] - times[1]):6.1f}"
    return words, shares


def test_codecs_of_activations(tmp_path: Path, printed: Printed, figures: Figures) -> None:
    allocator.keep_freed()  # as a worker does
    found: dict[str, list[list[float]]] = defaultdict(list)
    printed(
        "\nMB/s of encoding and decoding; of a library also its own, the share of it, and what is on top in us"
    )
    for place, tensors in (each for name in MODELS for each in payloads(name, tmp_path)):
        printed(f"\n{place}, {sum(tensor.nbytes for tensor in tensors) / 1e3:.0f} kB")
        for codec in CODECS:
            words, shares = row(codec, tensors)
            printed(f"{codec:26} {words}")
            found[codec] += [shares] if shares else []
    for codec, each in found.items():
        for what, shares in zip(("encodes", "decodes"), zip(*each, strict=True), strict=bool(each)):
            name = f"codec {codec}: {what} at its library's speed, median of payloads"
            figures.state(name, median(shares), "", least=0.9)


def directly(codec: str, tensor: torch.Tensor) -> tuple[Callable[[], object], ...]:
    """Encoding and decoding by a compressor's library, with the bytes of the payload and nothing else."""
    data = tensor.numpy().tobytes()
    if codec == "zstd:3":
        import zstandard

        compressor, decompressor = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()
        part = compressor.compress(data)
        return lambda: compressor.compress(data), lambda: decompressor.decompress(part)
    if codec == "lz4":
        import lz4.block

        def pack() -> bytes:
            return bytes(lz4.block.compress(data, store_size=False))

        part = pack()
        return pack, lambda: lz4.block.decompress(part, uncompressed_size=len(data))
    if codec == "blosc2:blosclz:9:shuffle":
        import blosc2

        blosc: dict[str, object] = {"codec": blosc2.Codec.BLOSCLZ, "clevel": 9, "nthreads": 1}
        blosc |= {"filters": [blosc2.Filter.SHUFFLE], "filters_meta": [0], "typesize": tensor.itemsize}
        part = blosc2.compress2(data, **blosc)
        return lambda: blosc2.compress2(data, **blosc), lambda: blosc2.decompress2(part, nthreads=1)
    return ()


def test_codecs_of_pictures(printed: Printed) -> None:
    printed(f"\nimage, {image().nbytes / 1e3:.0f} kB")
    for codec in (*PICTURES, "zstd:3", "lz4"):
        printed(f"{codec:26} {row(codec, (image(),))[0]}")
