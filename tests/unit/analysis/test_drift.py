"""Drift over rounds: found where it is, not found where it is not, and not feigned from a few rounds."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import theilslopes
from syrupy.assertion import SnapshotAssertion

from analysis.points import CONDITION
from analysis.statistics import drift
from analysis.statistics.drift import COLUMNS, LEAST_ROUNDS, drifts
from analysis.statistics.samples import Floats

POINTS = ("0", "7", "21")
LEVELS = {"0": 0.4, "7": 0.1, "21": 0.03}


def trials(
    rounds: int,
    *,
    per_round: float = 0.0,
    noise: float = 0.01,
    shared: float = 0.0,
    seed: int = 0,
    backends: tuple[str, ...] = ("tcp",),
    run: str = "a",
) -> pd.DataFrame:
    """Latencies that grow by `per_round` a round, throughputs that do not; `shared`: noise of a round as a whole."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(rounds):
        whole = rng.normal(0, shared)
        for backend, point in itertools.product(backends, POINTS):
            jitter = np.exp(rng.normal(0, noise, 2) + whole)
            rows.append(
                dict.fromkeys(CONDITION, "")
                | {"model": "m", "netem": "wifi", "batch_size": 1, "backend": backend, "point": point}
                | {"run": run, "round": number + 1, "status": "ok"}
                | {"latency_s": LEVELS[point] * math.exp(per_round * number) * jitter[0]}
                | {"throughput_ips": jitter[1] / LEVELS[point]}
            )
    return pd.DataFrame(rows)


def found(of: pd.DataFrame, measure: str = "latency") -> pd.Series:
    rows = drifts(of)
    assert list(rows.columns) == COLUMNS
    (row,) = (row for _, row in rows.iterrows() if row["measure"] == measure)
    return row


def test_a_drift_is_found_with_its_size() -> None:
    of = trials(12, per_round=0.01)
    row = found(of)
    assert row["drifts"]
    assert row["rounds"] == 12
    assert row["change_percent"] == pytest.approx(100 * math.expm1(0.11), abs=1.5)
    assert not found(of, "throughput")["drifts"]


def test_rounds_that_fall_have_a_negative_change() -> None:
    row = found(trials(10, per_round=-0.02))
    assert row["drifts"]
    assert row["change_percent"] == pytest.approx(100 * math.expm1(-0.18), abs=1.5)


def test_without_drift_one_run_in_twenty_has_one() -> None:
    """Both tests together; a round that is slow as a whole is no drift."""
    alarms = [drifts(trials(8, shared=0.05, seed=seed))["drifts"].any() for seed in range(150)]
    assert np.mean(alarms) < 0.1


@pytest.mark.parametrize("rounds", range(1, LEAST_ROUNDS))
def test_too_few_rounds_are_not_tested(rounds: int) -> None:
    row = found(trials(rounds, per_round=1.0))
    assert not row["drifts"]
    assert math.isnan(row["p_value"])
    assert row["note"].startswith(f"{rounds} of the {LEAST_ROUNDS} ")


def test_the_least_p_value_is_that_of_the_only_order() -> None:
    row = found(trials(6, per_round=0.1, noise=0.0001))
    assert row["p_value"] == pytest.approx(2 / math.factorial(6))
    assert row["p_corrected"] == pytest.approx(4 / math.factorial(6))  # two tests
    assert row["note"] == ""


def test_more_tests_need_more_rounds_and_say_so(snapshot: SnapshotAssertion) -> None:
    of = trials(5, per_round=0.5, noise=0.001, backends=("tcp", "rpc"))
    rows = drifts(of)
    assert (rows["p_value"].min(), len(rows)) == (pytest.approx(2 / 120), 4)
    assert not rows["drifts"].any()
    assert rows["note"].unique().tolist() == snapshot


def test_a_cell_that_was_left_out_in_late_rounds_makes_no_drift() -> None:
    """Each cell is compared with itself: the slow point's absence is not a fall."""
    of = trials(10)
    row = found(of[~((of["point"] == "0") & (of["round"] > 5))])
    assert not row["drifts"]
    assert abs(row["change_percent"]) < 3


def test_only_trials_that_are_ok_count() -> None:
    of = trials(8)
    of.loc[of["round"] > 4, ["status", "latency_s"]] = ["invalid", 9.0]
    row = found(of)
    assert row["rounds"] == 4
    assert math.isnan(row["p_value"])
    assert drifts(of[of["status"] == "none"]).empty


def test_a_step_between_two_runs_is_no_drift() -> None:
    early, late = trials(8, run="a", noise=0.0), trials(8, run="b", noise=0.0)
    late["latency_s"] *= 1.25
    rows = drifts(pd.concat([late, early]))
    assert sorted(zip(rows["run"], rows["measure"], strict=True)) == [
        (run, measure) for run in "ab" for measure in ("latency", "throughput")
    ]
    assert (rows["rounds"] == 8).all()
    assert not rows["drifts"].any()
    late["latency_s"] *= np.exp(0.02 * late["round"])
    rows = drifts(pd.concat([late, early])).set_index(["run", "measure"])
    assert rows.index[rows["drifts"]].tolist() == [("b", "latency")]
    assert rows.loc[("b", "latency"), "change_percent"] == pytest.approx(100 * math.expm1(0.02 * 7))


def test_rounds_that_are_all_the_same_do_not_drift() -> None:
    row = found(trials(7, noise=0.0))
    assert (row["p_value"], row["change_percent"], row["drifts"]) == (1.0, 0.0, False)


def test_conditions_and_backends_are_told_apart() -> None:
    steady, drifting = trials(9), trials(9, per_round=0.05)
    drifting["netem"] = "lte"
    rows = drifts(pd.concat([steady, drifting])).set_index(["netem", "measure"])["drifts"]
    assert rows.to_dict() == {
        ("wifi", "latency"): False,
        ("wifi", "throughput"): False,
        ("lte", "latency"): True,
        ("lte", "throughput"): False,
    }


def test_of_very_many_rounds_a_line_takes_few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []

    def counted(y: Floats, x: Floats) -> Any:
        looked_at.append(len(y))
        return theilslopes(y, x)

    monkeypatch.setattr(drift, "theilslopes", counted)
    away = np.linspace(0, 0.1, 1000) + np.random.default_rng(1).normal(0, 0.02, 1000)
    slope = drift._slope(away)
    assert looked_at == [drift.MOST_IN_PAIRS]
    assert slope == pytest.approx(theilslopes(away, np.linspace(0, 1, 1000)).slope, abs=0.003)
