"""Two runs against each other: over what both have, by how much, how sure, and what else differs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing.between_runs import APART, Comparison, compare, differences, numbers
from pareto.analysis.runs.load import load
from pareto.protocol.errors import UserError
from tests.unit.example_run import PAYLOAD_KIB, trials, write

Rows = list[dict[str, Any]]
POINTS = len(PAYLOAD_KIB)


def measured(run: str, *, rounds: int = 8, backends: tuple[str, ...] = ("tcp",), seed: int = 0) -> Rows:
    return trials(rounds=rounds, backends=backends, seed=seed, noise=0.02, run=run)


def compared(folder: Path, a: Rows, b: Rows, **options: Any) -> Comparison:
    return compare(write(folder / "a", a), write(folder / "b", b), **options)


def loaded(folder: Path, a: Rows, b: Rows) -> tuple[pd.DataFrame, pd.DataFrame]:
    return load([write(folder / "a", a)]), load([write(folder / "b", b)])


def scaled(rows: Rows, **factors: float) -> Rows:
    return [row | {column: row[column] * factor for column, factor in factors.items()} for row in rows]


def at(rows: Rows, *points: int) -> Rows:
    return [row for row in rows if row["point"] in points]


def test_a_tenth_less_is_found_at_every_point(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    a, b = measured("a", seed=1), scaled(measured("b", seed=2), latency_s=0.9)
    found = compared(tmp_path, a, b)
    rows = found.differences
    assert len(rows) == POINTS
    assert rows["point"].tolist() == list(map(str, range(POINTS)))
    assert rows["tests"].eq(2 * POINTS).all()
    assert rows["latency_significant"].mean() > 0.9
    assert not rows["throughput_significant"].any()
    assert rows["latency_low_percent"].lt(-10).mean() > 0.85
    assert rows["latency_high_percent"].gt(-10).mean() > 0.85
    assert np.allclose(rows["latency_difference_s"] / rows["first_latency_s"], -0.1, atol=0.03)
    back = compared(tmp_path / "back", b, a)
    # Few points are no headline.
    one = [
        row | {"latency_s": row["latency_s"] * (1.5 if row["point"] == 3 else 1)}
        for row in measured("b", seed=2)
    ]
    few = compared(tmp_path / "few", a, one, where="latency_s < 1ms")
    assert len(few.differences) == POINTS, "a constraint is of the fronts alone"
    assert [*found.sentences, *back.sentences, *few.sentences, few.notes[0]] == snapshot


def test_a_run_against_itself_shows_no_difference(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    run = write(tmp_path / "a", measured("a"))
    found = compare(run, Path(shutil.copytree(run, tmp_path / "copy")))
    rows = found.differences
    assert rows["latency_difference_s"].eq(0).all()
    assert rows["throughput_difference_percent"].eq(0).all()
    assert rows["latency_low_s"].lt(0).all()
    assert rows["latency_high_s"].gt(0).all()
    assert rows["latency_p_value"].eq(1).all()
    assert not rows[["latency_significant", "throughput_significant"]].any(axis=None)
    (front,) = found.fronts.to_dict("records")
    assert front["hypervolume_ratio"] == 1
    assert front["ratio_low"] < 1 < front["ratio_high"]
    assert [front[name] for name in ("enter", "may_enter", "leave", "may_leave")] == [""] * 4
    assert str(8 * POINTS) in found.notes[0]
    assert [*found.sentences, *found.settings, *found.notes] == snapshot


def test_rounds_of_two_runs_are_not_pairs(tmp_path: Path) -> None:
    """In another order of rounds, the result is the same."""
    a, b = loaded(tmp_path, measured("a", seed=1), measured("b", seed=2))
    turned = b.assign(round=7 - b["round"])[::-1].reset_index(drop=True)
    pd.testing.assert_frame_equal(differences(a, b), differences(a, turned))


def test_few_rounds_are_told(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    found = compared(tmp_path, measured("a", rounds=3), scaled(measured("b", rounds=3, seed=2), latency_s=2))
    assert found.differences["rounds_needed"].eq(7).all()
    assert found.differences["latency_low_s"].isna().all()
    assert [found.differences["note"].unique().tolist(), found.sentences] == snapshot
    assert np.isnan(found.fronts["ratio_low"]).all()
    enough = differences(
        *loaded(tmp_path / "7", measured("a", rounds=7), scaled(measured("b", rounds=7), latency_s=2))
    )
    assert enough["latency_significant"].all()
    # Many rounds of one run make up for few of the other.
    many = differences(
        *loaded(tmp_path / "12", measured("a", rounds=5), scaled(measured("b", rounds=12), latency_s=2))
    )
    assert many["rounds_needed"].eq(7).all()
    assert many["note"].eq("").all()
    assert many["latency_significant"].all()


def test_what_is_not_valid_has_no_say_and_is_counted(tmp_path: Path) -> None:
    a, b = measured("a", seed=1), measured("b", seed=2)
    clean = differences(
        *loaded(tmp_path / "clean", a, [row for row in b if (row["point"], row["round"]) != (3, 2)])
    )
    for row in b:
        if (row["point"], row["round"]) == (3, 2):
            row |= {"status": "invalid", "latency_s": 99.0, "throughput_ips": 1e9, "reason": "link off"}
    marked = compared(tmp_path / "marked", a, b)
    pd.testing.assert_frame_equal(marked.differences, clean)
    assert marked.differences.set_index("point").loc["3", "other_rounds"] == 7
    assert f"B: 1 of {8 * POINTS} " in marked.notes[0]
    assert marked.notes[1:] == [APART]


def test_a_figure_that_one_run_lacks_is_in_no_sentence(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """No throughput; no latency of one point, and of all."""
    a, b = measured("a", seed=1), measured("b", seed=2)
    unmeasured = compared(tmp_path / "ips", [row | {"throughput_ips": ""} for row in a], b)
    assert unmeasured.differences["tests"].eq(POINTS).all()
    assert unmeasured.differences["throughput_p_corrected"].isna().all()
    some = [row | {"status": "throughput only"} if row["point"] == 3 else row for row in b]
    found = compared(tmp_path / "some", a, some)
    assert found.differences["note"].eq("").all(), "there are throughputs enough"
    none = compared(tmp_path / "none", a, [row | {"status": "throughput only"} for row in b])
    assert [*unmeasured.sentences, *found.sentences, *none.sentences] == snapshot


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
    a = [row | {"netem": netem} for netem in ("wifi", "lte") for row in at(measured("a"), 1, 2)]
    a += [row | {"batch_size": 8} for row in a if row["netem"] == "wifi"]
    b = [row for row in a if not (row["netem"] == "wifi" and row["batch_size"] == 1)]
    combination = compared(tmp_path / "combination", a, b)
    assert combination.only_second == []
    assert {
        "A": found.only_first,
        "B": found.only_second,
        "a combination": combination.only_first,
    } == snapshot


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
    assert found.differences[["backend", "point"]].to_numpy().tolist() == [["none", str(POINTS - 1)]]
    assert (found.only_first, found.only_second) == (["backend tcp"], ["backend rpc"])
    with pytest.raises(UserError, match="no backend in common: tcp in A, rpc in B"):
        compared(tmp_path / "cuts", at(a, 3, 4), at(b, *range(3, POINTS)))


def test_points_in_words() -> None:
    several = (["10", "2", "3", "4"], ["7", "8"], ["3+10", "3+7"], ["0"])
    assert list(map(numbers, several)) == ["2 to 4, 10", "7, 8", "3+7, 3+10", "0"]


def by_engine(run: str, **latency: float) -> Rows:
    """Trials of these engines; their latency is a multiple of what it was."""
    rows = at(measured(run, rounds=8), 3, 9)
    return [
        row | {"engine": name} for name, share in latency.items() for row in scaled(rows, latency_s=share)
    ]


def test_engines_of_a_run_are_compared_each_with_itself(tmp_path: Path) -> None:
    found = compared(tmp_path, by_engine("a", eager=2.0, onnx=1.0), by_engine("b", onnx=1.0, compile=3.0))
    rows = found.differences
    assert rows["engine"].tolist() == ["onnx"] * 2
    assert rows["latency_difference_s"].tolist() == [0, 0], "no trial of eager is in it"
    assert found.only_first == ["engine eager"]
    assert found.only_second == ["engine compile"]


def test_runs_of_another_engine_each_are_compared_and_say_so(tmp_path: Path) -> None:
    a = write(tmp_path / "a", by_engine("a", eager=2.0), sweep={"engines": ["eager"]})
    b = write(tmp_path / "b", by_engine("b", onnx=1.0), sweep={"engines": ["onnx"]})
    found = compare(a, b)
    assert found.differences["latency_difference_percent"].lt(-40).all()
    assert "engine: eager in A; onnx in B" in found.settings
    old = write(tmp_path / "old", by_engine("old", eager=2.0), sweep={})
    assert not any("engine" in line for line in compare(old, a).settings), "before engines all was eager"
