"""Which ways of splitting a model are asked for."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.partitions.points import Point, TensorSpec
from pareto.protocol.errors import UserError
from pareto.sweep import splits
from pareto.sweep.sweep import Sweep

NAMES = ("input", "stem", "body.0", "body.1", "head", "output")
SPEC = (TensorSpec((1, 8), "float32"),)
POINTS = tuple(Point(number, name, name, SPEC) for number, name in enumerate(NAMES))


def chosen(*selectors: str, links: int = 1) -> tuple[splits.Split, ...]:
    return splits.find("net", POINTS, selectors, links)


def test_points_are_chosen_by_number_name_and_range() -> None:
    assert chosen("all") == tuple((i,) for i in range(6))
    assert chosen("4", "stem", "0", "4") == ((0,), (1,), (4,))
    assert chosen("2-4") == chosen("body.0-head") == ((2,), (3,), (4,))


def test_a_chain_is_cut_at_or_after_the_cut_before() -> None:
    assert chosen("0", "2", "5", links=2) == ((0, 0), (0, 2), (0, 5), (2, 2), (2, 5), (5, 5))
    assert len(chosen("all", links=2)) == 6 * 7 / 2
    assert len(chosen("all", links=3)) == 6 * 7 * 8 / 6


def measured(*selectors: str, links: int = 1, only: bool = False) -> tuple[splits.Split, ...]:
    return splits.to_measure("net", POINTS, Sweep(model="net", points=selectors, only=only), links)


def test_the_ends_are_added_where_they_were_not_asked_for() -> None:
    assert measured("2", "4") == ((0,), (2,), (4,), (5,))
    assert measured("2", "4", only=True) == ((2,), (4,))
    assert measured("all") == chosen("all")
    assert measured("1+3", links=2) == ((0, 0), (0, 5), (1, 3), (5, 5))


def test_added_ends_are_said(snapshot: SnapshotAssertion) -> None:
    assert splits.ends_note(()) == ""
    assert [splits.ends_note(added) for added in ({(0,)}, {(0,), (5,)}, {(0, 0), (0, 5), (5, 5)})] == snapshot


def test_a_way_of_splitting_can_be_named() -> None:
    assert chosen("1+3", "stem+head", links=2) == ((1, 3), (1, 4))
    assert chosen("0-1+1-2", links=2) == ((0, 1), (0, 2), (1, 1), (1, 2))
    assert chosen("0+1-2", "3", links=2) == ((0, 1), (0, 2), (3, 3))
    assert chosen("4+all", links=2) == ((4, 4), (4, 5))


@pytest.mark.parametrize(
    ("selectors", "links", "named"),
    [
        (["9"], 1, "'9'"),
        (["boddy.0"], 1, "boddy.0"),
        (["1+2"], 1, "1+2"),
        (["1+2+3"], 2, "1+2+3"),
        (["3+1"], 2, "3+1"),
    ],
)
def test_what_cannot_be_is_one_line(
    selectors: list[str], links: int, named: str, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(UserError) as refused:
        chosen(*selectors, links=links)
    line = str(refused.value)
    assert named in line
    assert "\n" not in line
    assert line == snapshot


def test_too_many_ways_are_refused_before_they_are_made(snapshot: SnapshotAssertion) -> None:
    many = tuple(Point(number, f"u{number}", f"u{number}", SPEC) for number in range(500))
    lines = []
    for selector, links in (("all", 2), ("all", 7), ("0-30+0-30", 2), ("0-499+0-499", 2)):
        with pytest.raises(UserError) as refused:
            splits.find("net", many, [selector], links)
        lines.append(str(refused.value))
    assert "125250" in lines[0]
    assert "496" in lines[2]
    assert lines == snapshot
    assert len(splits.find("net", many, ["all"], 1)) == 500


def test_a_single_host_runs_all_of_it() -> None:
    assert measured("all", links=0) == ((5,),)


def test_what_folds_or_merges_is_counted_in_one_line() -> None:
    assert splits.fold_note(POINTS, 5) == ""
    assert splits.fold_note(POINTS, 8) == "5 of 8 cuts are points (--granularity op has the others)"
