"""The house: modules and lines by room against their budgets, and imports that run in a circle or upwards.

`python -m tests.house` prints the table; `tests/unit/test_house.py` holds it. Imports within functions and for types
count like all others.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests import REPOSITORY

LAYERS = {
    "pareto.protocol": 1_547,
    "pareto.basics": 702,
    "pareto.partitions": 5_146,
    "pareto.remote": 11_674,
    "pareto.hosts": 6_006,
    "pareto.analysis.schema": 291,
    "pareto.sweep": 2_593,
    "pareto.analysis": 14_614,
    "pareto.models": 1_353,
    "pareto.trial": 2_601,
    "pareto.testing": 456,
    "pareto.predict": 1_524,
    "pareto.simulated": 808,
    "pareto.driver": 2_576,
    "pareto.commands": 3_039,
}
"""The rooms from the ground up, each with the most lines that it may have: a module imports from its own room and from
those below. A room grows where another shrinks by as much."""
OUTSIDE = ("pareto", "pareto.__main__", "pareto.api", "pareto.launcher")
"""The package's names, those for Python, and the entries, which belong to no room."""
HEAVY = {
    "pareto.protocol": ("pandas", "pydantic", "paramiko", "rich", "matplotlib", "torch"),
    "pareto.remote": ("pandas", "pydantic", "paramiko", "rich", "matplotlib"),
    "pareto.partitions": ("pandas", "pydantic", "paramiko", "rich", "matplotlib"),
}
"""By room that is sent to hosts, the packages that it must not import."""


@functools.cache
def modules() -> dict[str, Path]:
    """The files of the package's modules, by name."""
    found = {}
    for top in ("pareto", "analysis", "partitions"):
        for path in sorted((REPOSITORY / top).rglob("*.py")):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join(parts if top == "pareto" else ("pareto", *parts))] = path
    return found


def imports(path: Path) -> Iterator[str]:
    """Yield each name that a file imports, wherever in it: of `from a import b` both `a` and `a.b`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def graph() -> dict[str, set[str]]:
    """The modules of the package that each of them imports."""
    known = modules()
    edges = {}
    for name, path in known.items():
        used = {each for each in imports(path) if each in known}
        # `from a import b` of a module b needs no more of the package a than its name.
        edges[name] = {each for each in used if not any(more.startswith(f"{each}.") for more in used)} - {
            name
        }
    return edges


def room(module: str) -> str:
    """The room that a module is in; empty for what is outside of all."""
    inside = [each for each in LAYERS if module == each or module.startswith(f"{each}.")]
    return max(inside, key=len, default="")


def circle(edges: Mapping[str, set[str]]) -> list[str]:
    """The modules of a circle of imports; none where there is no circle."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def upward(edges: Mapping[str, set[str]]) -> list[str]:
    """The imports of a higher room by a lower one, in words."""
    order = {name: number for number, name in enumerate(LAYERS)}
    return [
        f"{module} imports {other}"
        for module, used in edges.items()
        for other in sorted(used)
        if room(module) and room(other) and order[room(other)] > order[room(module)]
    ]


def heavy() -> list[str]:
    """The imports, by what is sent to hosts, of packages that these need not have, in words."""
    return [
        f"{module} imports {name}"
        for module, path in modules().items()
        for name in imports(path)
        if name.partition(".")[0] in HEAVY.get(room(module), ())
    ]


def riddles() -> list[str]:
    """The sentences of docstrings that begin with a word that no noun has, with their modules."""
    return [
        f"{module}: {sentence}"
        for module, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for sentence in re.split(r"(?<=[.:;])\s+", str(node.value.value).strip())
        if re.match(r"(Of|That|Which|What)\b", sentence)
    ]


@functools.cache
def lines() -> dict[str, tuple[int, int]]:
    """By room, its modules and their lines."""
    found = dict.fromkeys(LAYERS, (0, 0))
    for module, path in modules().items():
        if name := room(module):
            files, count = found[name]
            found[name] = files + 1, count + len(path.read_text().splitlines())
    return found


def main() -> None:
    counted = lines()
    for name, (files, count) in counted.items():
        print(f"{name:<24}{files:>5} modules{count:>8} lines of {LAYERS[name]}")
    print(
        f"{'':<24}{sum(each[0] for each in counted.values()):>5}{sum(each[1] for each in counted.values()):>16}"
    )
    edges = graph()
    print("circle:", " -> ".join(circle(edges)) or "none")
    print("upward:", "; ".join(upward(edges)) or "none")


if __name__ == "__main__":
    main()
