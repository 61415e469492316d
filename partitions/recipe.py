"""A recipe: all that another host needs to build a model and cut it at the same points."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pareto.protocol.own import Kind

OWN = Kind("model", "build", alone=True)
CLASSES = "@"
"""The sign between a model's name and a number of classes that is not its own, as in 'resnet18@10'."""


def squashed(name: str) -> str:
    """A model's name without its case and separators, by which names are compared."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


@dataclass(frozen=True)
class Cuts:
    """The cuts of a model's graph that are its points.

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

    name: the registry's. file, attribute: for a user's own model, the Python file's path and the builder's name in it.
    handmade: None where the points come from the graph. input: dtype of the images; the first unit normalises 'uint8'.
    """

    name: str
    cuts: Cuts = Cuts()
    file: str = ""
    attribute: str = ""
    handmade: Handmade | None = None
    input: str = "float32"
