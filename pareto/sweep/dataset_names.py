"""Names that a data set can have, known without loading it: a built-in one's, a user's own, or a package's."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import NamedTuple

SYNTHETIC, CIFAR10, FOLDER = "synthetic", "cifar10", "folder"
BUILT_IN = (SYNTHETIC, CIFAR10, FOLDER)
IN_PATH = (CIFAR10, FOLDER)
"""Those that are read from --data-path."""
GROUP = "pareto.datasets"
"""The entry points by which an installed package offers data sets."""
_OWN = re.compile(r"(?P<file>.+\.py):(?P<attribute>[^\W\d]\w*)")


class OwnName(NamedTuple):
    """A user's own data set. attribute: of the Python file, what makes it."""

    file: Path
    attribute: str


def own(name: str) -> OwnName | None:
    """The file and what in it makes the data set; None for other names."""
    match = _OWN.fullmatch(name)
    return OwnName(Path(match["file"]), match["attribute"]) if match else None


def shown(name: str) -> str:
    """A data set's name as results have it: without a file's folder."""
    in_file = own(name)
    return f"{in_file.file.stem}.{in_file.attribute}" if in_file else name


def runs_code(name: str) -> bool:
    """Whether somebody's code makes the data set."""
    return name not in BUILT_IN


def offered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def checked(name: str) -> str:
    """The name, with the absolute path of a user's file: a run may go on from another folder. Raises ValueError."""
    if in_file := own(name):
        file = in_file.file.expanduser().absolute()
        return f"{file}:{in_file.attribute}"
    if name in BUILT_IN or name in offered():
        return name
    if name.endswith(".py"):
        raise ValueError(f"say what in the file makes the data set, as in {Path(name).name}:make")
    there_are = ", ".join((*BUILT_IN, *sorted({*offered()} - {*BUILT_IN})))
    raise ValueError(f"there are {there_are}, and your own: path/to/file.py:make")
