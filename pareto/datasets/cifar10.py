"""The test split of CIFAR-10, from the files that its authors publish."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path

from PIL import Image

from pareto.datasets.dataset import Dataset, Sample
from pareto.errors import UserError
from partitions import torchvision_compat  # noqa: F401 - torchvision can be imported after it


def load(path: Path) -> Dataset:
    """The images in `path`, which holds the folder cifar-10-batches-py or is it; never downloaded.

    Their digests are checked before anything is unpickled. Raises UserError.
    """
    published = importlib.import_module("torchvision.datasets").CIFAR10
    root = path.parent if path.name == published.base_folder else path
    try:
        found = published(root, train=False, download=False)
    except RuntimeError as error:
        raise UserError(
            f"no whole CIFAR-10 in {path}: unpack {published.filename} there ({published.url}), "
            f"so that it has {published.base_folder}/"
        ) from error
    samples = tuple(
        Sample(label, partial(Image.fromarray, pixels))
        for label, pixels in zip(found.targets, found.data, strict=True)
    )
    return Dataset(path, samples, tuple(found.classes))
