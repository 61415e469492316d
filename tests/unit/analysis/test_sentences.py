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
    later = measured(later_s=0.05)
    apart_at_one = measured(AA, rounds=6)
    for row in apart_at_one:
        row["latency_s"] += 0.9 * (row["backend"] == "tcp:b" and row["point"] == 4)
    of = {
        "longer": measured(later_s=0.05, slower=0.05),
        "shorter": measured(rounds=8, later_s=-0.05, slower=0.05),
        "significantly": measured(rounds=12, later_s=0.05, slower=0.05),
        "none": measured(AA, rounds=6),
        "none significantly": measured(AA, rounds=12),
        "apart at one point alone": apart_at_one + [row | {"netem": "wifi"} for row in apart_at_one],
        "a single point": [row for row in later if row["point"] == 3],
        "in flight": [row | {"in_flight_asked": "4"} for row in measured(AA)],
        "three, of which two are one program": measured(("rpc", *AA)),
        "no throughput": [row | {"throughput_ips": ""} for row in later],
        "nothing crosses": [row for row in measured() if not row["payload_bytes"]],
        "no round has both": [
            row for row in measured(rounds=2) if (row["backend"] == "rpc") == (row["round"] == 1)
        ],
    }
    said = {kind: list(verdicts(compared(tmp_path / kind, rows))) for kind, rows in of.items()}
    assert said == snapshot


def test_a_run_against_itself_shows_no_difference(tmp_path: Path) -> None:
    seen = 0
    for seed in range(5):
        rows = compared(tmp_path / str(seed), measured(AA, rounds=3 if seed % 2 else 6, seed=seed))
        every, (text,) = over_all(rows), verdicts(rows)
        differs = not every["latency_low_s"] <= 0 <= every["latency_high_s"]
        assert ("no difference seen over all points between tcp:a and tcp:b: " in text) != differs
        seen += differs
    assert seen <= 1, "one in twenty is what 95 % means"


def test_beyond_the_bound(tmp_path: Path) -> None:
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


def test_no_difference_in_images_is_claimed_from_an_interval_that_holds_it(tmp_path: Path) -> None:
    rows = compared(tmp_path, measured(AA, rounds=6))
    ends = [f"throughput_{end}_percent" for end in ("difference", "low", "high")]
    rows.loc[rows["point"] == ALL, ends] = [-5.4, -12.0, 2.1]
    (text,) = verdicts(rows)
    assert "; no difference seen in images/s: -5.4 % (-12 to 2.1 %); " in text


def test_engines_without_latencies_in_one_round_are_said_to_have_none(tmp_path: Path) -> None:
    rows = [row | {"engine": "eager"} for row in trials(backends=("tcp",)) if row["point"] in (7, 17)]
    onnx = [row | {"engine": "onnx", "status": "throughput only"} for row in rows]
    (text,) = verdicts(paired(load([write(tmp_path / "run", rows + onnx)]), "engine"))
    assert "no latencies of eager and onnx in one round" in text
    assert "apart" not in text
