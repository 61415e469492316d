"""All that it takes to build a model and cut it at the same points somewhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

GRANULARITIES = ("block", "op")
INPUTS = ("float32", "uint8")
MAX_LIVE_TENSORS = 8


@dataclass(frozen=True)
class Cuts:
    """Which cuts of a model's graph are its points.

    granularity: 'block', those that papers count, or 'op', every cut. live_tensors: the most tensors that may cross
    at one. fold: of neighbours at 'op' that send tensors of the same size, with nothing but cheap elementwise work
    between, only the last is a point.
    """

    granularity: str = "block"
    live_tensors: int = 1
    fold: bool = True


@dataclass(frozen=True)
class Handmade:
    """Points that somebody chose, from partitions/<model>.yaml.

    points: names of cuts of the traced graph, in order. chain: for a model that defies tracing, the submodules that
    one after another are the model. Exactly one of the two is not empty.
    """

    points: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """A model, where its code is, and how it is cut; the same recipe gives the same graph and points on every host.

    name: the registry's. file, attribute: for a user's own model, the Python file and what in it builds the model.
    handmade: None where the points are found in the graph. input: dtype of the images; 'uint8' ones are normalised by
    the first unit.
    """

    name: str
    cuts: Cuts = Cuts()
    file: Path | None = None
    attribute: str = ""
    handmade: Handmade | None = None
    input: str = "float32"

    def at(self, file: Path) -> Recipe:
        """The same with the model's code at another place."""
        return replace(self, file=file)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "file": str(self.file) if self.file else None}

    @classmethod
    def of_dict(cls, fields: Mapping[str, Any]) -> Recipe:
        """What `to_dict` gave, after JSON."""
        handmade = fields["handmade"]
        return cls(
            fields["name"],
            Cuts(**fields["cuts"]),
            Path(fields["file"]) if fields["file"] else None,
            fields["attribute"],
            Handmade(tuple(handmade["points"]), tuple(handmade["chain"])) if handmade else None,
            fields["input"],
        )
