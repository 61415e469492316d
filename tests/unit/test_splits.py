"""Which ways of splitting a model are asked for, and points and chains that somebody wrote down."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.partitions.points import Point, TensorSpec
from pareto.partitions.recipe import Handmade
from pareto.protocol.errors import UserError
from pareto.sweep import splits
from pareto.sweep.sweep import Sweep
from tests.unit.refusals import refusal

NAMES = ("input", "stem", "body.0", "body.1", "head", "output")
SPEC = (TensorSpec((1, 8), "float32"),)
POINTS = tuple(Point(number, name, name, SPEC) for number, name in enumerate(NAMES))


def chosen(*selectors: str, links: int = 1) -> tuple[splits.Split, ...]:
    return splits.find("net", POINTS, selectors, links)


def test_points_are_chosen_by_number_name_and_range() -> None:
    assert chosen("all") == tuple((i,) for i in range(6))
    assert chosen("4", "stem", "0", "4") == ((0,), (1,), (4,))
    assert chosen("2-4") == chosen("body.0-head") == ((2,), (3,), (4,))
    # A chain is cut at or after the cut before.
    assert chosen("0", "2", "5", links=2) == ((0, 0), (0, 2), (0, 5), (2, 2), (2, 5), (5, 5))
    assert len(chosen("all", links=2)) == 6 * 7 / 2
    assert len(chosen("all", links=3)) == 6 * 7 * 8 / 6
    # A way of splitting can be named.
    assert chosen("1+3", "stem+head", links=2) == ((1, 3), (1, 4))
    assert chosen("0-1+1-2", links=2) == ((0, 1), (0, 2), (1, 1), (1, 2))
    assert chosen("0+1-2", "3", links=2) == ((0, 1), (0, 2), (3, 3))
    assert chosen("4+all", links=2) == ((4, 4), (4, 5))


def measured(*selectors: str, links: int = 1, only: bool = False) -> tuple[splits.Split, ...]:
    return splits.to_measure("net", POINTS, Sweep(model="net", points=selectors, only=only), links)


def test_the_ends_are_added_where_they_were_not_asked_for_and_that_is_said(
    snapshot: SnapshotAssertion,
) -> None:
    assert measured("2", "4") == ((0,), (2,), (4,), (5,))
    assert measured("2", "4", only=True) == ((2,), (4,))
    assert measured("all") == chosen("all")
    assert measured("1+3", links=2) == ((0, 0), (0, 5), (1, 3), (5, 5))
    assert measured("all", links=0) == ((5,),), "a single host runs all of it"
    assert splits.ends_note(()) == ""
    assert [splits.ends_note(added) for added in ({(0,)}, {(0,), (5,)}, {(0, 0), (0, 5), (5, 5)})] == snapshot
    # What folds or merges is counted.
    assert splits.fold_note(POINTS, 5) == ""
    assert splits.fold_note(POINTS, 8) == "5 of 8 cuts are points (--granularity op has the others)"


MANY = tuple(Point(number, f"u{number}", f"u{number}", SPEC) for number in range(500))


CANNOT_BE: dict[str, tuple[tuple[Point, ...], str, int, str]] = {
    "9": (POINTS, "9", 1, "'9'"),
    "boddy": (POINTS, "boddy.0", 1, "boddy.0"),
    "1+2": (POINTS, "1+2", 1, "1+2"),
    "1+2+3": (POINTS, "1+2+3", 2, "1+2+3"),
    "3+1": (POINTS, "3+1", 2, "3+1"),
    # Too many are refused before they are made.
    "two links": (MANY, "all", 2, "125250"),
    "seven": (MANY, "all", 7, ""),
    "31 by 31": (MANY, "0-30+0-30", 2, "496"),
    "all by all": (MANY, "0-499+0-499", 2, ""),
}


def test_what_cannot_be_is_one_line(snapshot: SnapshotAssertion) -> None:
    said = {}
    for name, (points, selector, links, named) in CANNOT_BE.items():
        said[name] = refusal(UserError, splits.find, "net", points, [selector], links)
        assert named in said[name]
        assert len(splits.find("net", points, ["all"], 1)) == len(points)
    assert said == snapshot


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(splits, "FOLDER", tmp_path / "partitions")
    (tmp_path / "partitions").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("points: [features.3, features.6]\n", Handmade(points=("features.3", "features.6"))),
        ("# why\npoints:\n  - add_1\n  - 7\n", Handmade(points=("add_1", "7"))),
        ("chain: [stem, body, body, head]\n", Handmade(chain=("stem", "body", "body", "head"))),
    ],
)
def test_what_a_file_says(text: str, expected: Handmade, folder: Path) -> None:
    """For a user's model it lies beside the file, and has the model's name."""
    for name, mine in (("alexnet.yaml", text), ("net.build.yaml", "points: [wrong]")):
        (folder / "partitions" / name).write_text(mine)
    (folder / "net.build.yaml").write_text(text)
    assert splits.chosen_points("alexnet", "") == expected
    assert splits.chosen_points("resnet18", "") is None
    assert splits.chosen_points("net.build", str(folder / "net.py")) == expected
    assert splits.chosen_points("net.other", str(folder / "net.py")) is None


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "alexnet.yaml"),
        ("points: [a]\nchain: [b]\n", "alexnet.yaml:1"),
        ("{}\n", "alexnet.yaml:1"),
        ("\npoint: [a]\n", "alexnet.yaml:2"),
        ("- a\n", "alexnet.yaml:1"),
        ("points: features.3\n", "alexnet.yaml:1"),
        ("chain: []\n", "alexnet.yaml:1"),
        ("points:\n  - a\n  - {b: c}\n", "alexnet.yaml:3"),
        ("points:\n  - a\n  - ''\n", "alexnet.yaml:3"),
        ("points:\n  - a\n  - b\n  - a\n", "alexnet.yaml:4"),
        ("points: [a\n", "alexnet.yaml:2"),
    ],
)
def test_a_fault_names_the_file_and_the_line(
    text: str, where: str, folder: Path, snapshot: SnapshotAssertion
) -> None:
    (folder / "partitions" / "alexnet.yaml").write_text(text)
    line = refusal(UserError, splits.chosen_points, "alexnet", "")
    assert f"{where}: " in line
    assert line == snapshot
