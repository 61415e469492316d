"""A folder of images: one folder a class, as torchvision's ImageFolder has it, or images without labels."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from PIL import Image

from pareto.datasets.dataset import Dataset, Sample
from pareto.errors import UserError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")


def load(path: Path) -> Dataset:
    """What lies in `path`, sorted by name; no image is read yet. Raises UserError."""
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
        return Dataset(path, tuple(Sample(None, partial(_read, file)) for file in loose))
    samples = (Sample(label, partial(_read, file)) for label, files in enumerate(inside) for file in files)
    return Dataset(path, tuple(samples), tuple(folder.name for folder in folders))


def _images(files: Iterable[Path]) -> list[Path]:
    return sorted(file for file in files if file.suffix.lower() in SUFFIXES and file.is_file())


def _read(file: Path) -> Image.Image:
    try:
        with Image.open(file) as image:
            colour: Image.Image = image.convert("RGB")
    except (
        Exception
    ) as error:  # on broken files Pillow's decoders raise OSError, ValueError, SyntaxError, TypeError
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"cannot read image {file}: {reason}") from error
    return colour
