"""Which ways of splitting a model are asked for."""

from __future__ import annotations

import pytest

from pareto import splits
from pareto.spec import SpecError
from partitions.points import Point, TensorSpec

NAMES = ("input", "stem", "body.0", "body.1", "head", "output")
SPEC = (TensorSpec((1, 8), "float32"),)
POINTS = tuple(Point(number, name, name, SPEC) for number, name in enumerate(NAMES))


def chosen(*selectors: str, links: int = 1) -> tuple[splits.Split, ...]:
    return splits.chosen("net", POINTS, selectors, links)


def test_points_are_chosen_by_number_name_and_range() -> None:
    assert chosen("all") == tuple((i,) for i in range(6))
    assert chosen("4", "stem", "0", "4") == ((0,), (1,), (4,))
    assert chosen("2-4") == chosen("body.0-head") == ((2,), (3,), (4,))


def test_a_chain_is_cut_at_or_after_the_cut_before() -> None:
    assert chosen("0", "2", "5", links=2) == ((0, 0), (0, 2), (0, 5), (2, 2), (2, 5), (5, 5))
    assert len(chosen("all", links=2)) == 6 * 7 / 2
    assert len(chosen("all", links=3)) == 6 * 7 * 8 / 6


def test_a_way_of_splitting_can_be_named() -> None:
    assert chosen("1+3", "stem+head", links=2) == ((1, 3), (1, 4))
    assert chosen("0-1+1-2", links=2) == ((0, 1), (0, 2), (1, 1), (1, 2))
    assert chosen("0+1-2", "3", links=2) == ((0, 1), (0, 2), (3, 3))
    assert chosen("4+all", links=2) == ((4, 4), (4, 5))


@pytest.mark.parametrize(
    ("selectors", "links", "says"),
    [
        (["9"], 1, "--points: net: no point '9': the points are 0 to 5"),
        (["boddy.0"], 1, "body.0"),
        (["1+2"], 1, "--points 1+2 names 2 points, and 2 hosts are cut at 1: write 3"),
        (["1+2+3"], 2, "--points 1+2+3 names 3 points, and 3 hosts are cut at 2: write 3+6"),
        (["3+1"], 2, "--points 3+1 goes back"),
    ],
)
def test_what_cannot_be_is_one_line(selectors: list[str], links: int, says: str) -> None:
    with pytest.raises(SpecError) as refused:
        chosen(*selectors, links=links)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_too_many_ways_are_refused_before_they_are_made() -> None:
    many = tuple(Point(number, f"u{number}", f"u{number}", SPEC) for number in range(500))
    with pytest.raises(SpecError, match="net: 125250 ways to split it over 3 hosts are more than 400"):
        splits.chosen("net", many, ["all"], 2)
    with pytest.raises(SpecError, match="choose fewer with --points, as in 0,4,9"):
        splits.chosen("net", many, ["all"], 7)
    with pytest.raises(SpecError, match="net: 496 ways"):
        splits.chosen("net", many, ["0-30+0-30"], 2)
    with pytest.raises(SpecError, match="are too many"):
        splits.chosen("net", many, ["0-499+0-499"], 2)
    assert len(splits.chosen("net", many, ["all"], 1)) == 500
