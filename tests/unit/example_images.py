"""Image sets in the forms that users have them in, with random content."""

from __future__ import annotations

import hashlib
import pickle
import random
from pathlib import Path

import pytest
from PIL import Image

from pareto.partitions import torchvision_models  # noqa: F401 - only after it torchvision can be imported

CIFAR_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def image(seed: int, size: tuple[int, int] = (40, 30), mode: str = "RGB") -> Image.Image:
    """Random pixels; size: width, height."""
    content = random.Random(seed).randbytes(size[0] * size[1] * 3)  # noqa: S311 - not cryptography
    return Image.frombytes("RGB", size, content).convert(mode)


def flat(folder: Path, count: int, size: tuple[int, int] = (40, 30), first: int = 0) -> Path:
    """0.png, 1.png, ...: `image(first)` and those after it."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        image(first + number, size).save(folder / f"{number}.png")
    return folder


def folders(folder: Path, counts: dict[str, int], size: tuple[int, int] = (40, 30)) -> Path:
    """A folder for each class, with so many images in it; no two are the same."""
    first = 0
    for name, count in counts.items():
        flat(folder / name, count, size, first)
        first += count
    return folder


def cifar(root: Path, monkeypatch: pytest.MonkeyPatch, count: int = 40) -> Path:
    """CIFAR-10's files with `count` random test images, whose digests are made known as those of the real ones."""
    import numpy as np
    from torchvision.datasets import CIFAR10

    folder = root / CIFAR10.base_folder
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3072), dtype=np.uint8)
    batch = {"batch_label": "testing", "labels": [i % 10 for i in range(count)], "data": pixels}
    contents = {"test_batch": batch, "batches.meta": {"label_names": CIFAR_CLASSES, "num_vis": 3072}}
    digests = {}
    for name, content in contents.items():
        (folder / name).write_bytes(pickle.dumps(content))
        digests[name] = hashlib.md5((folder / name).read_bytes()).hexdigest()  # noqa: S324 - as CIFAR-10 has them
    monkeypatch.setattr(CIFAR10, "train_list", [])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", digests["test_batch"]]])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": digests["batches.meta"]})
    return root
