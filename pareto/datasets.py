"""Images that the user has: what is in a data set, and what its classes are to a model."""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PIL import Image

from pareto.errors import UserError, one_line
from partitions import torchvision_models  # noqa: F401 - only after it torchvision can be imported

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")


@dataclass(frozen=True)
class Labelled:
    """One image. label: index into its data set's classes; None where it has none. read: raises UserError."""

    label: int | None
    read: Callable[[], Image.Image]


@dataclass(frozen=True)
class Dataset:
    """Images and the names of their classes, which are empty where nobody said what the images show."""

    path: Path
    samples: tuple[Labelled, ...]
    classes: tuple[str, ...] = ()

    def spread(self, seed: int) -> tuple[Labelled, ...]:
        """All samples in an order of which each beginning is spread as evenly over the classes as it can be.

        The order depends on nothing but the seed and the set's content.
        """
        # Not cryptography: a choice that anybody can make again from the manifest.
        shuffled = random.Random(f"{seed}/images")  # noqa: S311
        by_class: dict[int | None, list[Labelled]] = {}
        for sample in self.samples:
            by_class.setdefault(sample.label, []).append(sample)
        kinds = list(by_class.values())
        for kind in kinds:
            shuffled.shuffle(kind)
        shuffled.shuffle(kinds)
        turns = range(max(map(len, kinds), default=0))
        return tuple(kind[turn] for turn in turns for kind in kinds if turn < len(kind))


def folder(path: Path) -> Dataset:
    """The images in `path`, sorted by name: one folder a class, as for torchvision's ImageFolder, or without labels.

    No image is read yet. Raises UserError.
    """
    if not path.is_dir():
        raise UserError(f"no folder {path}: --data-path is the one with the images, or with a folder a class")
    try:
        folders = sorted(
            child for child in path.iterdir() if child.is_dir() and not child.name.startswith(".")
        )
        loose = _images(path.iterdir())
        inside = [_images(folder.rglob("*")) for folder in folders]
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if loose and any(inside):
        raise UserError(
            f"{path} has images ({loose[0].name}, ...) beside folders of images ({folders[0].name}, ...): keep either"
        )
    if not loose and not any(inside):
        raise UserError(f"no images in {path}: it looks for {' '.join(SUFFIXES)}")
    if loose:
        return Dataset(path, tuple(Labelled(None, partial(_read, file)) for file in loose))
    samples = (Labelled(label, partial(_read, file)) for label, files in enumerate(inside) for file in files)
    return Dataset(path, tuple(samples), tuple(folder.name for folder in folders))


def _images(files: Iterable[Path]) -> list[Path]:
    return sorted(file for file in files if file.suffix.lower() in SUFFIXES and file.is_file())


def _read(file: Path) -> Image.Image:
    try:
        with Image.open(file) as image:
            colour: Image.Image = image.convert("RGB")
    except Exception as error:  # Pillow's decoders raise OSError, ValueError, SyntaxError, TypeError
        raise UserError(f"cannot read image {file}: {one_line(error)}") from error
    return colour


def cifar10(path: Path) -> Dataset:
    """CIFAR-10's test images in `path`, which holds the folder cifar-10-batches-py or is it; never downloaded.

    The files' digests are checked before anything is unpickled. Raises UserError.
    """
    published = importlib.import_module("torchvision.datasets").CIFAR10
    root = path.parent if path.name == published.base_folder else path
    try:
        images = published(root, train=False, download=False)
    except RuntimeError as error:
        raise UserError(
            f"no whole CIFAR-10 in {path}: unpack {published.filename} there ({published.url}), "
            f"so that it has {published.base_folder}/"
        ) from error
    samples = tuple(
        Labelled(label, partial(Image.fromarray, pixels))
        for label, pixels in zip(images.targets, images.data, strict=True)
    )
    return Dataset(path, samples, tuple(images.classes))


@dataclass(frozen=True)
class Labels:
    """indices: for each class of a data set, the model's output that stands for it; empty where there is none.

    how: by what they are matched, or why they cannot be.
    """

    indices: tuple[int, ...]
    how: str


def match(classes: Sequence[str], outputs: int | None, categories: Sequence[str]) -> Labels:
    """The model's outputs for the `classes` of a data set, by names, numbers or order.

    outputs: how many classes the model tells apart, None where it is no classifier. categories: their names, where
    the model's author gives them.
    """
    if not classes:
        return Labels((), "the images are in no class folders")
    if outputs is None:
        return Labels((), "the model is no classifier")
    known = {_plain(name): index for index, name in enumerate(categories)}
    if all(_plain(name) in known for name in classes):
        return Labels(tuple(known[_plain(name)] for name in classes), "names")
    if all(name.isdecimal() and int(name) < outputs for name in classes):
        return Labels(tuple(map(int, classes)), "numbers")
    if len(classes) == outputs:
        return Labels(tuple(range(outputs)), "order")
    strange = next(name for name in classes if _plain(name) not in known)
    return Labels(
        (),
        f"the data set has {len(classes)} classes and the model {outputs}, and {strange!r} is neither the name nor the "
        "number of one of them",
    )


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", " ", name).strip().casefold()
