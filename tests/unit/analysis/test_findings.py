"""What is worth a line beside the tables."""

from __future__ import annotations

from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from analysis import findings as notes
from analysis.findings import Options, find
from analysis.runs.load import load
from tests.unit import example_chain
from tests.unit.example_run import trials, write


def test_the_notes_name_what_bounds_the_best_points_and_what_was_busiest_there(
    snapshot: SnapshotAssertion,
) -> None:
    rows, _ = example_chain.analysed([(3, 5), (5, 5), (21, 21)])
    best, nearest = rows.loc[rows["throughput_ips"].idxmax()], rows.loc[rows["latency_s"].idxmin()]
    assert (best["point"], nearest["point"]) == ("3+5", "5+5")
    one = rows[rows["point"] == "5+5"]
    assert [*notes.best_points(rows, "mobilenetv2 wifi"), *notes.best_points(one, "x")] == snapshot
    assert list(notes.best_points(rows.assign(bound_by=""), "x")) == []
    told = rows.assign(busiest="middle1", busiest_utilization=0.864)
    assert all("busiest: middle1, 86%" in note for note in notes.best_points(told, "x"))
    (same,) = notes.best_points(told[told["point"] == "5+5"].assign(busiest="edge"), "x")
    assert "bound by edge (busy 86%)" in same
    constrained = rows.assign(feasible=rows["point"] == "5+5")
    (note,) = notes.best_points(constrained, "x")
    assert "5+5" in note and "3+5" not in note
    assert list(notes.best_points(rows.assign(feasible=False), "x")) == []


def test_where_nothing_crosses_no_backend_is_named(snapshot: SnapshotAssertion) -> None:
    rows, _ = example_chain.analysed([(3, 5), (21, 21)])
    (alone,) = notes.best_points(rows[rows["point"] == "21+21"], "x")
    assert "tcp" not in alone and "rpc" not in alone
    assert alone == snapshot


def test_a_note_where_splitting_changes_top1(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = trials(rounds=1, top1=0.75, top1_images=16)
    assert find([write(tmp_path / "same", rows[:1])], Options()).notes == []
    rows[1] |= {"top1": 0.5, "top1_images": 8}
    assert list(notes.differing_top1(load([write(tmp_path / "fewer", rows)]))) == [], "they saw other images"
    rows[4] |= {"top1": 0.625}
    rows[5] |= {"top1": 0.125, "status": "invalid"}
    assert list(notes.differing_top1(load([write(tmp_path / "other", rows)]))) == snapshot
