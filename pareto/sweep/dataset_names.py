"""Names that a data set can have, known without loading it: a built-in one's, a user's own, or a package's."""

from __future__ import annotations

from pathlib import Path

from pareto.protocol.own import Kind

SYNTHETIC, CIFAR10, FOLDER = "synthetic", "cifar10", "folder"
BUILT_IN = (SYNTHETIC, CIFAR10, FOLDER)
IN_PATH = (CIFAR10, FOLDER)
"""Those that are read from --data-path."""
OWN = Kind("data set", "make", "pareto.datasets")


def shown(name: str) -> str:
    """A data set's name as results have it: without a file's folder."""
    made = OWN.own(name)
    return f"{Path(made.file).stem}.{made.attribute}" if made else name


def runs_code(name: str) -> bool:
    """Whether somebody's code makes the data set."""
    return name not in BUILT_IN


def checked(name: str) -> str:
    """The name, that of a user's file by an absolute path. Raises ValueError."""
    offered = OWN.offered()
    if OWN.own(name) or name in BUILT_IN or name in offered:
        return OWN.typed(name)
    OWN.check_named(name)
    there_are = ", ".join((*BUILT_IN, *sorted({*offered} - {*BUILT_IN})))
    raise ValueError(f"there are {there_are}, and your own: path/to/file.py:{OWN.example}")
