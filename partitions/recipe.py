"""A recipe: all that another host needs to build a model and cut it at the same points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Cuts:
    """Which cuts of a model's graph are its points.

    granularity: 'block' for the cuts that papers count, 'op' for every cut. live_tensors: the most tensors that may
    cross at a point. fold: at 'op', only the last of neighbouring cuts is a point where these send tensors of the same
    size with nothing but cheap elementwise work between them.
    """

    granularity: str = "block"
    live_tensors: int = 1
    fold: bool = True


@dataclass(frozen=True)
class Handmade:
    """Points that somebody chose, from partitions/<model>.yaml.

    points: names of cuts of the traced graph, in order. chain: the submodules that run one after another, for a model
    that cannot be traced. Exactly one of the two is not empty.
    """

    points: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """A model, where its code is, and how it is cut; the same recipe gives the same graph and points on every host.

    name: the registry's. file, attribute: for a user's own model, the Python file and the builder's name in it.
    handmade: None where the points come from the graph. input: dtype of the images; the first unit normalises 'uint8'.
    """

    name: str
    cuts: Cuts = Cuts()
    file: Path | None = None
    attribute: str = ""
    handmade: Handmade | None = None
    input: str = "float32"

    def at(self, file: Path) -> Recipe:
        """The same recipe with the model's code in another file."""
        return replace(self, file=file)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "file": str(self.file) if self.file else None}

    @classmethod
    def of_dict(cls, fields: Mapping[str, Any]) -> Recipe:
        """The recipe that `to_dict` made a dictionary of, after JSON."""
        handmade = fields["handmade"]
        return cls(
            fields["name"],
            Cuts(**fields["cuts"]),
            Path(fields["file"]) if fields["file"] else None,
            fields["attribute"],
            Handmade(tuple(handmade["points"]), tuple(handmade["chain"])) if handmade else None,
            fields["input"],
        )
