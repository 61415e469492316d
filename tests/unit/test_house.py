"""The rooms of the package: their sizes, what they import, and the one name that a wheel has."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import REPOSITORY, house


def test_no_imports_run_in_a_circle() -> None:
    assert house.circle(house.graph()) == []


def test_no_room_imports_from_one_above_it() -> None:
    assert house.upward(house.graph()) == []


def test_what_is_sent_to_hosts_needs_little() -> None:
    assert house.heavy() == []


def test_every_module_is_in_a_room() -> None:
    assert [name for name in house.modules() if not house.room(name)] == sorted(house.OUTSIDE)


def test_a_docstrings_sentence_begins_with_what_it_is_about() -> None:
    assert house.riddles() == []


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
