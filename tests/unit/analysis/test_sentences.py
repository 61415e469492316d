"""Backends in pairs, in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing.paired import ALL, paired
from pareto.analysis.comparing.sentences import verdicts
from pareto.analysis.runs.load import load
from tests.unit.analysis.test_paired import AA, compared, measured, over_all
from tests.unit.example_run import trials, write


def test_each_kind_of_difference_in_words(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    single = [row for row in measured(later_s=0.05) if row["point"] == 3]
    of = {
        "longer": measured(later_s=0.05, slower=0.05),
        "shorter": measured(rounds=8, later_s=-0.05, slower=0.05),
        "significantly": measured(rounds=12, later_s=0.05, slower=0.05),
        "none": measured(AA, rounds=6),
        "none significantly": measured(AA, rounds=12),
        "a single point": single,
        "in flight": [row | {"in_flight_asked": "4"} for row in measured(AA)],
        "nothing crosses": [row for row in measured() if not row["payload_bytes"]],
    }
    said = {kind: list(verdicts(compared(tmp_path / kind, rows))) for kind, rows in of.items()}
    assert said == snapshot


def test_that_one_program_is_compared_with_itself_is_said(tmp_path: Path) -> None:
    """tcp:a and tcp:b are both tcp; rpc is not."""
    texts = list(verdicts(compared(tmp_path, measured(("rpc", *AA)))))
    assert [text.endswith("both are tcp") for text in texts] == [True, False, False]


def test_a_run_against_itself_shows_no_difference(tmp_path: Path) -> None:
    seen = 0
    for seed in range(5):
        rows = compared(tmp_path / str(seed), measured(AA, rounds=3 if seed % 2 else 6, seed=seed))
        every, (text,) = over_all(rows), verdicts(rows)
        differs = not every["latency_low_s"] <= 0 <= every["latency_high_s"]
        assert ("no difference seen over all points between tcp:a and tcp:b: " in text) != differs
        seen += differs
    assert seen <= 1, "one in twenty is what 95 % means"


def test_beyond_the_bound(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """A stage that happened to be slower under one backend is not the backend's cost."""
    rows = measured(rounds=6, later_s=0.002)
    for row in rows:
        rpc = row["backend"] == "rpc" and row["payload_bytes"]  # elsewhere it is no other than tcp
        row["latency_s"] = row["latency_bound_s"] + (0.004 if rpc else 0.002)
        if rpc:
            row |= {"latency_s": row["latency_s"] + 0.1, "latency_bound_s": row["latency_bound_s"] + 0.1}
    found = over_all(compared(tmp_path, rows))
    assert found["latency_difference_s"] == pytest.approx(0.102)
    assert found["overhead_difference_s"] == pytest.approx(0.002)
    (text,) = verdicts(compared(tmp_path, rows))
    assert "beyond stages and link 2.00 ms (2.00 to 2.00 ms)" in text
    assert text == snapshot


def test_rounds_that_one_backend_lacks_altogether(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    apart = [row for row in measured(rounds=2) if (row["backend"] == "rpc") == (row["round"] == 1)]
    rows = compared(tmp_path, apart)
    assert rows["point"].tolist() == [ALL]
    assert list(verdicts(rows)) == snapshot


def test_no_difference_in_images_is_claimed_from_an_interval_that_holds_it(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    rows = compared(tmp_path, measured(AA, rounds=6))
    (of_all,) = rows.index[rows["point"] == ALL]
    interval_ends = {"difference": -5.4, "low": -12.0, "high": 2.1}
    for name, percent in interval_ends.items():
        rows.loc[of_all, f"throughput_{name}_percent"] = percent
    (text,) = verdicts(rows)
    assert text.split("; ")[-2] == snapshot


def test_throughput_that_was_not_measured(tmp_path: Path) -> None:
    rows = compared(tmp_path, [row | {"throughput_ips": ""} for row in measured(later_s=0.05)])
    assert rows["throughput_difference_percent"].isna().all()
    (text,) = verdicts(rows)
    assert "images/s" not in text


def test_it_is_said_where_a_difference_is_though_there_is_none_over_all(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    rows = measured(AA, rounds=6)
    for row in rows:
        if row["backend"] == "tcp:b" and row["point"] == 4:
            row["latency_s"] += 0.9
    text, _ = verdicts(compared(tmp_path, rows + [row | {"netem": "wifi"} for row in rows]))
    assert text == snapshot


def test_engines_without_latencies_in_one_round_are_said_to_have_none(tmp_path: Path) -> None:
    rows = [row | {"engine": "eager"} for row in trials(backends=("tcp",)) if row["point"] in (7, 17)]
    onnx = [row | {"engine": "onnx", "status": "throughput only"} for row in rows]
    (text,) = verdicts(paired(load([write(tmp_path / "run", rows + onnx)]), "engine"))
    assert "no latencies of eager and onnx in one round" in text
    assert "most at" not in text
