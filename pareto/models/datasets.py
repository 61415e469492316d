"""A user's data to feed a model with, and what its classes are to the model: folders of images, CIFAR-10, or a data set
that the user's own code makes. Nothing but names is read before samples are chosen."""

from __future__ import annotations

import importlib
import operator
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

from pareto.partitions import user_file
from pareto.protocol.errors import UserError, one_line
from pareto.sweep import dataset_names

MOST_CLASSES = 1_000_000
_T = TypeVar("_T")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")


@dataclass(frozen=True)
class Labelled:
    """One sample. label: index into its data set's classes; None where it has none, or where `look` reads it. read:
    gives an image of PIL, or tensors. name: for messages. file: that has it. `read` and `look` raise UserError."""

    label: int | None
    read: Callable[[], Any]
    name: str = ""
    look: Callable[[], int | None] | None = None
    file: Path | None = None

    @property
    def encoded(self) -> Labelled:
        """The same whose `read` has the bytes of its file. Raises UserError where it is in none."""
        if self.file is None:
            raise UserError(f"{self.name} is in no file of its own")
        return replace(self, read=partial(_bytes, self.file))


@dataclass(frozen=True)
class Dataset:
    """Samples and the names of their classes; none where nobody said what the samples show.

    where: for messages. numbered: the labels are numbers of the model's outputs, and nobody named them. pictures: all
    samples are. at_once: whether several threads may read.
    """

    where: str
    samples: tuple[Labelled, ...]
    classes: tuple[str, ...] = ()
    numbered: bool = False
    pictures: bool = True
    at_once: bool = True

    def spread(self, seed: int) -> tuple[Labelled, ...]:
        """All samples in an order of which each beginning is spread as evenly over the classes as it can be. It depends
        on nothing but the seed and the set's content, so that anybody can make it again from the manifest."""
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

    def chosen(self, seed: int, most: int) -> Dataset:
        """The same with the first samples of `spread` only, whose labels are known. Raises UserError."""
        samples = tuple(
            sample if sample.look is None else replace(sample, label=sample.look(), look=None)
            for sample in self.spread(seed)[:most]
        )
        labels = [sample.label for sample in samples]
        known = [label for label in labels if label is not None]
        if not known:
            return replace(self, samples=samples, classes=())
        if len(known) < len(labels):
            raise UserError(f"{self.where}: {samples[labels.index(None)].name} has no label, and others have")
        classes = tuple(map(str, range(max(known) + 1))) if self.numbered else self.classes
        return replace(self, samples=samples, classes=classes)


def folder(path: Path) -> Dataset:
    """The images in `path`, sorted by name: one folder a class, as for torchvision's ImageFolder, or without labels. No
    image is read yet. Raises UserError."""
    if not path.is_dir():
        raise UserError(f"no folder {path}: --data-path is the one with the images, or with a folder a class")
    try:
        children = sorted(path.iterdir())
        folders = [child for child in children if child.is_dir() and not child.name.startswith(".")]
        loose = _images(children)
        inside = [_images(folder.rglob("*")) for folder in folders]
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if loose and any(inside):
        raise UserError(
            f"{path} has images ({loose[0].name}, ...) beside folders of images ({folders[0].name}, ...): keep either"
        )
    if not loose and not any(inside):
        raise UserError(f"no images in {path}: it looks for {' '.join(SUFFIXES)}")
    groups: Iterable[tuple[int | None, list[Path]]] = [(None, loose)] if loose else enumerate(inside)
    samples = (
        Labelled(label, partial(_read, file), str(file), file=file)
        for label, files in groups
        for file in files
    )
    return Dataset(str(path), tuple(samples), tuple(folder.name for folder in folders if not loose))


def _images(files: Iterable[Path]) -> list[Path]:
    return sorted(file for file in files if file.suffix.lower() in SUFFIXES and file.is_file())


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read image {file}: {error.strerror}") from error


def _read(file: Path) -> Image.Image:
    try:
        with Image.open(file) as image:
            colour: Image.Image = image.convert("RGB")
    except Exception as error:  # Pillow's decoders raise OSError, ValueError, SyntaxError, TypeError
        raise UserError(f"cannot read image {file}: {one_line(error)}") from error
    return colour


def cifar10(path: Path) -> Dataset:
    """CIFAR-10's test images in `path`, which holds the folder cifar-10-batches-py or is it; never downloaded. The
    files' digests are checked before anything is unpickled. Raises UserError."""
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
    return Dataset(str(path), samples, tuple(images.classes))


def open_named(name: str, path: Path | None) -> Dataset:
    """The data set of a name, no sample of it read yet. path: as the user gave it. Raises UserError."""
    if name in dataset_names.IN_PATH:
        assert path is not None, name  # noqa: S101
        try:
            path.stat()
        except FileNotFoundError:
            pass  # what is to be there is said by whoever reads it
        except OSError as error:
            raise UserError(f"--data-path {path}: {error.strerror}") from None
        return cifar10(path) if name == dataset_names.CIFAR10 else folder(path)
    return _Own(name, path).dataset()


class _Own:
    """A data set that somebody's code makes: something with a length, of which [i] is (image or inputs, label). It may
    have `classes`, their names, and as torchvision's `targets`, all labels. It runs here, in one thread at a time."""

    def __init__(self, name: str, path: Path | None) -> None:
        """Raises UserError."""
        own = dataset_names.OWN.own(name)
        assert own is not None, name  # noqa: S101
        self._own, self._shown = own, f"data set {name}" if own.offered else name
        maker = partial(user_file.maker, own, dataset_names.OWN.what)
        made = self._calling(lambda: maker()(path), f"({str(path)!r})" if path else "(None)")
        if not (hasattr(made, "__len__") and hasattr(made, "__getitem__")):
            raise UserError(
                f"{self._shown} makes no data set but {type(made).__name__}: it needs len() and [i]"
            )
        self._set = made
        self._length = self._calling(lambda: len(made), ": its len()")
        if not self._length:
            raise UserError(f"{self._shown} makes a data set that is empty")
        classes = getattr(made, "classes", None)
        self._classes = self._calling(lambda: tuple(map(str, classes or ())), ": its classes")

    def dataset(self) -> Dataset:
        """Raises UserError for what it says of its labels."""
        targets, names = getattr(self._set, "targets", None), self._classes
        labels: list[int | None] = [None] * self._length
        if targets is not None:
            listed = self._calling(lambda: list(targets), ": its targets")
            if len(listed) != self._length:
                raise UserError(f"{self._shown} has {self._length} samples and {len(listed)} targets")
            labels = [self._label(label, number) for number, label in enumerate(listed)]
        samples = []
        for number, label in enumerate(labels):
            look = partial(self._looked_at, number) if targets is None else None
            samples.append(Labelled(label, partial(self._read, number), f"{self._shown}[{number}]", look))
        return Dataset(self._shown, tuple(samples), names, not names, pictures=False, at_once=False)

    def _pair(self, number: int) -> tuple[Any, Any]:
        pair = self._calling(lambda: self._set[number], f"[{number}]")
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise UserError(
                f"{self._shown}[{number}] is no pair of image and label but {type(pair).__name__}: "
                "where nobody knows the label, it is None"
            )
        return pair[0], pair[1]

    def _read(self, number: int) -> Any:
        return self._pair(number)[0]

    def _looked_at(self, number: int) -> int | None:
        return self._label(self._pair(number)[1], number)

    def _label(self, label: Any, number: int) -> int | None:
        if label is None:
            return None
        most, its = len(self._classes) or MOST_CLASSES, f"{self._shown}[{number}]: its label is"
        try:
            index = operator.index(label)
        except TypeError:
            raise UserError(f"{its} no whole number but {type(label).__name__}") from None
        if not 0 <= index < most:
            raise UserError(f"{its} {index}: labels are from 0 to {most - 1}")
        return index

    def _calling(self, call: Callable[[], _T], what: str) -> _T:
        """The result of somebody's code. what: is called, for messages. Raises UserError, whatever the code raises."""
        with self._own.guarded(what, passing=(UserError,)):
            return call()


def match(
    classes: Sequence[str], outputs: int | None, categories: Sequence[str]
) -> tuple[tuple[int, ...], str]:
    """The model's outputs for the `classes` of a data set, and by what they are matched: names, numbers or order; no
    outputs, and why not. outputs: how many classes the model tells apart, None where it is no classifier. categories:
    their names, where the model's author gives them."""
    if not classes:
        return (), "the images are in no class folders"
    if outputs is None:
        return (), "the model is no classifier"
    known = {_plain(name): index for index, name in enumerate(categories)}
    if all(_plain(name) in known for name in classes):
        return tuple(known[_plain(name)] for name in classes), "names"
    if all(name.isdecimal() and int(name) < outputs for name in classes):
        return tuple(map(int, classes)), "numbers"
    if len(classes) == outputs:
        return tuple(range(outputs)), "order"
    strange = next(name for name in classes if _plain(name) not in known)
    has = f"the data set has {len(classes)} classes and the model {outputs}"
    return (), f"{has}, and {strange!r} is neither the name nor the number of one of them"


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", " ", name).strip().casefold()
