"""What two runs have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.comparing.between_runs import Comparison, compare, numbers
from pareto.errors import UserError
from tests.unit.example_run import PAYLOAD_KIB, trials, write

Rows = list[dict[str, Any]]
POINTS = len(PAYLOAD_KIB)


def measured(run: str, *, rounds: int = 8, backends: tuple[str, ...] = ("tcp",), seed: int = 0) -> Rows:
    return trials(rounds=rounds, backends=backends, seed=seed, noise=0.02, run=run)


def compared(folder: Path, a: Rows, b: Rows, **options: Any) -> Comparison:
    return compare(write(folder / "a", a), write(folder / "b", b), **options)


def at(rows: Rows, *points: int) -> Rows:
    return [row for row in rows if row["point"] in points]


def test_only_what_both_have_is_compared_and_the_rest_is_named(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    a = measured("a", backends=("tcp", "rpc")) + [row | {"netem": "wifi"} for row in measured("a")]
    b = at(measured("b"), *range(3, POINTS)) + [
        row | {"netem": "lte", "batch_size": 8} for row in measured("b")
    ]
    for row in b:
        if (row["point"], row["netem"]) == (5, "200ms-5mbit"):
            row |= {"status": "failed", "reason": "out of memory"}
    found = compared(tmp_path, a, b)
    assert found.differences["point"].tolist() == ["3", "4", *map(str, range(6, POINTS))]
    assert {"A": found.only_first, "B": found.only_second} == snapshot


def test_a_combination_that_one_lacks(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    a = [row | {"netem": netem} for netem in ("wifi", "lte") for row in at(measured("a"), 1, 2)]
    a += [row | {"batch_size": 8} for row in a if row["netem"] == "wifi"]
    b = [row for row in a if not (row["netem"] == "wifi" and row["batch_size"] == 1)]
    found = compared(tmp_path, a, b)
    assert found.only_first == snapshot
    assert found.only_second == []


def test_runs_without_anything_in_common(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    a = measured("a")
    with pytest.raises(UserError) as other_profiles:
        compared(tmp_path, a, [row | {"netem": "wifi"} for row in a])
    assert "\n" not in str(other_profiles.value)
    failed = [row | {"status": "failed"} for row in a]
    with pytest.raises(UserError) as no_valid_point:
        compared(tmp_path / "failed", a, failed)
    assert [str(refused.value) for refused in (other_profiles, no_valid_point)] == snapshot


def test_runs_over_other_backends_share_the_point_where_nothing_crosses(tmp_path: Path) -> None:
    a, b = measured("a"), measured("b", backends=("rpc",))
    found = compared(tmp_path, a, b)
    assert found.differences[["backend", "point"]].to_numpy().tolist() == [["", str(POINTS - 1)]]
    assert (found.only_first, found.only_second) == (["backend tcp"], ["backend rpc"])
    with pytest.raises(UserError, match="no backend in common: tcp in A, rpc in B"):
        compared(tmp_path / "cuts", at(a, 3, 4), at(b, *range(3, POINTS)))


@pytest.mark.parametrize(
    ("points", "text"),
    [
        (["10", "2", "3", "4"], "2 to 4, 10"),
        (["7", "8"], "7, 8"),
        (["3+10", "3+7"], "3+7, 3+10"),
        (["0"], "0"),
    ],
)
def test_points_in_words(points: list[str], text: str) -> None:
    assert numbers(points) == text
