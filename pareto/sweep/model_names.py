"""Names that a model can have, known in milliseconds: torch, which knows them for certain, takes seconds to import."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

from pareto.partitions.recipe import squashed

_BUILDER = re.compile(r"^def (\w+)\(", re.MULTILINE)


def may_be_model(name: str) -> bool:
    """Whether a model may have this name; what is False here, `partitions.registry` is about to refuse."""
    file, is_file, _ = name.partition(".py")
    if is_file:
        return Path(f"{file}.py").is_file()
    return squashed(name).startswith("yolo") or squashed(name) in _builders()


@functools.cache
def _builders() -> frozenset[str]:
    """The names of all functions that torchvision's models are made by, and of some others; read, not imported."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return frozenset()
    sources = (Path(spec.origin).parent / "models").rglob("*.py")
    return frozenset(
        squashed(name) for source in sources for name in _BUILDER.findall(source.read_text("utf-8"))
    )
