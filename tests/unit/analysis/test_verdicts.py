"""Backends in pairs, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.comparing.paired import ALL, paired
from analysis.comparing.verdicts import verdicts
from analysis.runs.trials import load
from tests.unit.example_run import PAYLOAD_KIB, trials, write

AA = ("tcp:a", "tcp:b")
CROSSING = len(PAYLOAD_KIB) - 1


def measured(
    backends: Sequence[str] = ("tcp", "rpc"),
    *,
    rounds: int = 3,
    later_s: float = 0.0,
    slower: float = 0.0,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Trials whose rounds drift by half, with noise of 1 % of the network; the second backend is `later_s` later where
    something crosses, and has fewer images/s by the share `slower`."""
    rng = np.random.default_rng(seed)
    rows = trials(rounds=rounds, backends=("tcp",), noise=0)
    drift = rng.uniform(1, 1.5, rounds)
    made = []
    for row in rows:
        crosses = bool(row["payload_bytes"])
        for place, backend in enumerate(backends):
            late_s = later_s if place and crosses else 0.0
            latency_s = row["latency_s"] * drift[row["round"]] * rng.normal(1, 0.01) + late_s
            throughput_ips = row["throughput_ips"] * rng.normal(1, 0.01) * (1 - place * slower)
            made.append(row | {"backend": backend, "latency_s": latency_s, "throughput_ips": throughput_ips})
    return made


def compared(folder: Path, rows: list[dict[str, Any]]) -> pd.DataFrame:
    return paired(load([write(folder, rows)]))


def over_all(rows: pd.DataFrame) -> dict[Any, Any]:
    (row,) = rows[rows["point"] == ALL].to_dict("records")
    return row


def points_of(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["point"] != ALL].set_index("point")


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
    for seed in range(20):
        rows = compared(tmp_path / str(seed), measured(AA, rounds=3 if seed % 2 else 6, seed=seed))
        every, (text,) = over_all(rows), verdicts(rows)
        differs = not every["latency_low_s"] <= 0 <= every["latency_high_s"]
        assert ("no difference seen between tcp:a and tcp:b: " in text) != differs
        seen += differs
    assert seen <= 2, "one in twenty is what 95 % means"


def test_beyond_the_bound(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """A stage that happened to be slower under one backend is not the backend's cost."""
    rows = measured(rounds=6, later_s=0.002)
    for row in rows:
        row["latency_s"] = row["latency_bound_s"] + (0.004 if row["backend"] == "rpc" else 0.002)
        if row["backend"] == "rpc":
            row |= {"latency_s": row["latency_s"] + 0.1, "latency_bound_s": row["latency_bound_s"] + 0.1}
    found = over_all(compared(tmp_path, rows))
    assert found["latency_difference_s"] == pytest.approx(0.102)
    assert found["overhead_difference_s"] == pytest.approx(0.002)
    (text,) = verdicts(compared(tmp_path, rows))
    assert "2.00 ms, 2.00 to 2.00 ms" in text
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
    rows.loc[of_all, ["first_surely_more", "other_surely_more"]] = 0
    (without,) = verdicts(rows)
    rows.loc[of_all, "first_surely_more"] = 3
    (of_three,) = verdicts(rows)
    assert [text.split("; ")[2:] for text in (without, of_three)] == snapshot


def test_throughput_that_was_not_measured(tmp_path: Path) -> None:
    rows = compared(tmp_path, [row | {"throughput_ips": ""} for row in measured(later_s=0.05)])
    assert rows["throughput_difference_percent"].isna().all()
    (text,) = verdicts(rows)
    assert "images/s" not in text


def test_too_few_rounds_to_tell_at_a_single_point(tmp_path: Path) -> None:
    """Ten rounds that all say the same have p = 0.002, which among 42 tests is no more than chance."""
    rows = compared(tmp_path, measured(rounds=10, later_s=0.5))
    points = points_of(rows)
    assert points["latency_p_value"].min() == pytest.approx(2 / 2**10)
    assert not rows["latency_significant"].any()
    (text,) = verdicts(rows)
    assert f"tcp at {CROSSING}; too few rounds" in text
    assert "needs 11" in text
    assert "significantly" not in text
