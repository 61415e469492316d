"""The rooms of the package: their sizes, what they import, and the one name that a wheel has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests import REPOSITORY, house

FAULTS: dict[str, Callable[[], list[str]]] = {
    "imports run in a circle": lambda: house.circle(house.graph()),
    "a room imports from one above it": lambda: house.upward(house.graph()),
    "what is sent to hosts needs much": house.heavy,
    "a docstring's sentence does not begin with what it is about": house.riddles,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_house_has_no_fault(fault: str) -> None:
    assert FAULTS[fault]() == []


def test_every_module_is_in_a_room() -> None:
    assert [name for name in house.modules() if not house.room(name)] == sorted(house.OUTSIDE)


@pytest.mark.parametrize("room", house.LAYERS)
def test_a_room_keeps_to_its_budget(room: str) -> None:
    _, lines = house.lines()[room]
    assert lines <= house.LAYERS[room], "take as much away as came, or move its budget here from another room"


def test_circles_and_arrows_are_found() -> None:
    edges = {"pareto.sweep.plan": {"pareto.driver.job"}, "pareto.driver.job": {"pareto.sweep.plan"}}
    assert set(house.circle(edges)) == set(edges)
    assert house.upward(edges) == ["pareto.sweep.plan imports pareto.driver.job"]


@pytest.mark.parametrize("name", ["analysis", "partitions"])
def test_a_part_of_the_package_has_one_name(name: str) -> None:
    """Two copies of a module would have two registries of models."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == f"ImportError: import it as pareto.{name}"
