"""Names that a data set can have, known without loading it: a built-in one's, a user's own, or a package's."""

from __future__ import annotations

from pareto.protocol.own import Kind

SYNTHETIC, CIFAR10, FOLDER = "synthetic", "cifar10", "folder"
BUILT_IN = (SYNTHETIC, CIFAR10, FOLDER)
IN_PATH = (CIFAR10, FOLDER)
"""Those that are read from --data-path."""
OWN = Kind("data set", "make", "pareto.datasets", taken=frozenset(BUILT_IN))


def shown(name: str) -> str:
    """A data set's name as results have it: without a file's folder."""
    made = OWN.own(name)
    return made.name if made else name


def runs_code(name: str) -> bool:
    """Whether somebody's code makes the data set."""
    return name not in BUILT_IN


def checked(name: str) -> str:
    """The name, that of a user's file by an absolute path. Raises ValueError."""
    if name in BUILT_IN or OWN.own(name):
        return OWN.typed(name)
    OWN.check_named(name)
    there_are = ", ".join((*BUILT_IN, *OWN.others))
    raise ValueError(f"there are {there_are}, and your own: path/to/file.py:{OWN.example}")
