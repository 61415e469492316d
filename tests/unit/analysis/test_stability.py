"""Warnings: a few lines, about what is unsteady, and none about what is not.

Which points are not known well enough yet, and of which more rounds could tell nothing.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.points import CONDITION
from analysis.statistics import drift
from analysis.statistics.stability import Certainty, certainty, halves, warnings

WIFI = ("m", "wifi", 1, "none", "auto")


def point(
    number: int = 7, *, latency: float = 0.02, throughput: float = 0.01, **other: Any
) -> dict[str, Any]:
    """A row of a front whose interval reaches so far above its median, as shares of it, and half as far below."""
    return (
        dict(zip(CONDITION, (*WIFI, ""), strict=True))
        | {"backend": "tcp", "point": str(number), "rounds": 6, "excluded": 0, "outliers": 0.0}
        | {"latency_s": 0.4, "latency_low_s": 0.4 * (1 - latency / 2), "latency_high_s": 0.4 * (1 + latency)}
        | {"latency_least_s": 0.4 * (1 - latency), "latency_most_s": 0.4 * (1 + 2 * latency)}
        | {"throughput_ips": 9.0}
        | {"throughput_low_ips": 9 * (1 - throughput / 2), "throughput_high_ips": 9 * (1 + throughput)}
        | {"throughput_least_ips": 9 * (1 - throughput), "throughput_most_ips": 9 * (1 + throughput)}
        | {"feasible": True, "on_front": False, "probability_all": 0.5}
        | other
    )


NO_INTERVAL = {
    f"{measure}_{end}_{unit}": math.nan
    for measure, unit in (("latency", "s"), ("throughput", "ips"))
    for end in ("low", "high")
}
NO_FIGURES = {key: math.nan for key in point() if key.endswith(("_s", "_ips"))}
INVALID = {"rounds": 0, "excluded": 6, "outliers": math.nan, "probability_all": math.nan, **NO_FIGURES}


def drifts(*percent: float, drifting: bool = True) -> pd.DataFrame:
    rows = [
        dict(zip(CONDITION, (*WIFI, ""), strict=True))
        | {"backend": "tcp", "measure": "latency", "rounds": 9, "change_percent": change, "drifts": drifting}
        for change in percent
    ]
    return pd.DataFrame(rows, columns=drift.COLUMNS)


def said(*rows: dict[str, Any], drifting: pd.DataFrame | None = None) -> list[str]:
    return list(warnings(pd.DataFrame(rows), drifts() if drifting is None else drifting))


def test_nothing_is_said_of_what_is_steady() -> None:
    assert said(point(0), point(7, outliers=1.0), point(8), drifting=drifts(0.4, -0.9)) == []
    assert said(point(0), drifting=drifts(30.0, drifting=False)) == []


def test_points_are_grouped_and_the_worst_is_named(snapshot: SnapshotAssertion) -> None:
    (line,) = said(point(0), point(3, latency=0.06), point(14, throughput=0.12, backend="rpc"), point(21))
    assert "throughput of rpc 14" in line
    # 0.12 is 2.4 times too wide: 5.76 times as many rounds.
    assert "--trials 35," in line
    assert line == snapshot


def test_what_rounds_cannot_mend_is_not_to_be_mended_by_rounds(snapshot: SnapshotAssertion) -> None:
    (line,) = said(point(latency=0.4))
    assert "--trials" not in line
    assert "--until" not in line
    assert line == snapshot


def test_without_intervals_the_range_of_the_rounds_speaks(snapshot: SnapshotAssertion) -> None:
    few: dict[str, Any] = {"rounds": 3, "outliers": math.nan, **NO_INTERVAL}
    assert said(point(latency=0.02, **few)) == []
    (line,) = said(point(latency=0.04, **few), point(8, latency=0.02, **few))
    assert "--trials 6," in line
    assert line == snapshot


def test_a_run_that_lost_rounds_is_not_told_to_measure_as_many_again(snapshot: SnapshotAssertion) -> None:
    five: dict[str, Any] = {"rounds": 5, "excluded": 1, "outliers": math.nan, **NO_INTERVAL}
    (line,) = said(point(0), point(7, latency=0.04, **five), point(8, latency=0.03, **five))
    (once,) = said(point(**{**five, "rounds": 1, "excluded": 5}))
    for told in (line, once):
        assert "--trials" not in told
        assert "--resume it with --until" in told
    assert [line, once] == snapshot


def test_of_two_kinds_of_points_each_is_told_as_such(snapshot: SnapshotAssertion) -> None:
    wide, few = said(point(0, latency=0.1), point(7, latency=0.1, rounds=5, outliers=math.nan, **NO_INTERVAL))
    assert "tcp 0" in wide
    assert "tcp 7" in few
    assert [wide, few] == snapshot


def test_of_the_rounds_to_come_as_many_are_lost(snapshot: SnapshotAssertion) -> None:
    (line,) = said(point(latency=0.06, rounds=6, excluded=6))
    assert "--trials 18," in line
    assert line == snapshot


def test_one_round_says_nothing_of_steadiness(snapshot: SnapshotAssertion) -> None:
    (line,) = said(*(point(n, rounds=1, outliers=math.nan, **NO_INTERVAL) for n in range(3)))
    assert line == snapshot


def test_outliers_are_told_where_chance_would_flag_fewer(snapshot: SnapshotAssertion) -> None:
    assert said(point(outliers=0.0), point(8, outliers=1.0)) == []
    (line,) = said(point(outliers=0.0), point(8, outliers=2.0))
    assert "2 of 12" in line
    assert "tcp 8" in line
    assert line == snapshot


def test_drifts_are_one_line_with_the_worst(snapshot: SnapshotAssertion) -> None:
    (line,) = said(point(), drifting=drifts(3.0, -12.5, 0.2))
    assert "-12.5 %" in line
    assert line == snapshot


def test_points_without_a_valid_trial_are_not_called_unsteady(snapshot: SnapshotAssertion) -> None:
    assert said(point(), point(8, **INVALID)) == []
    assert said(point(8, **INVALID)) == []
    once = point(rounds=1, outliers=math.nan, **NO_INTERVAL)
    assert said(once, point(8, **INVALID)) == said(once) == snapshot


def test_an_interval_is_as_wide_as_its_longer_half() -> None:
    rows = pd.DataFrame([point(latency=0.08), point(throughput=0.5)])
    assert halves(rows, "latency").tolist() == pytest.approx([0.08, 0.02])
    assert halves(rows, "throughput").tolist() == pytest.approx([0.01, 0.5])


LTE = ("m", "lte", 1, "none", "auto")


def found(*rows: dict[str, Any], within: float = 0.05) -> Certainty:
    return certainty(pd.DataFrame(rows), within)


def test_what_may_be_on_the_front_is_to_be_known() -> None:
    now = found(
        point(0, latency=0.04),
        point(1, latency=0.07),
        point(2, throughput=0.081, backend="rpc"),
        point(3, latency=0.9, probability_all=0.01),
        point(4, latency=0.9, feasible=False),
    )
    assert (now.rounds, now.points, now.unsure) == (6, 3, 2)
    assert now.widest == "rpc 2 throughput ±8.1 %"
    assert now.conditions == {WIFI}
    assert found(point(0, latency=0.0499), point(1, throughput=0.0499)) == Certainty(
        6, 2, 0, "", frozenset(), ()
    )


def test_a_point_on_the_front_is_on_it_whatever_the_resamples_say() -> None:
    assert found(point(latency=0.9, probability_all=0.0, on_front=True)).unsure == 1


def test_before_there_are_intervals_nothing_is_sure() -> None:
    now = found(point(rounds=2, probability_all=math.nan, **NO_INTERVAL))
    assert (now.rounds, now.unsure, now.widest) == (2, 1, "")


def test_a_condition_is_sure_by_itself() -> None:
    now = found(point(0), point(0, netem="lte", latency=0.2), point(1, netem="lte"))
    assert now.conditions == {LTE}
    assert now.widest == "tcp 0 (m at lte, batch size 1) latency ±20.0 %"


def test_what_never_had_a_valid_trial_is_not_waited_for() -> None:
    now = found(point(0), point(8, **INVALID))
    assert (now.unsure, now.lost) == (0, ("tcp 8",))
    now = found(point(0), point(8, **{**INVALID, "excluded": 5}))
    assert (now.unsure, now.lost, now.conditions) == (1, (), {WIFI})
    assert found(point(8, **INVALID)).points == 0


def test_what_is_mostly_invalid_is_not_waited_for() -> None:
    """Five of twelve rounds: at that rate, none of the 100 that there may be would be enough for some points."""
    few: dict[str, Any] = {"rounds": 5, "latency": 0.9, "probability_all": 0.9, **NO_INTERVAL}
    now = found(point(0), point(8, excluded=7, **few))
    assert (now.rounds, now.points, now.unsure) == (12, 1, 0)
    assert (now.lost, now.mostly_invalid, now.conditions) == ((), ("tcp 8",), frozenset())
    assert found(point(0), point(8, excluded=6, **few)).unsure == 1, "too early to say"
    assert found(point(8, rounds=6, excluded=6, latency=0.9)).unsure == 1, "half of them"
    known = found(point(8, rounds=6, excluded=9))
    assert (known.points, known.unsure, known.mostly_invalid) == (1, 0, ())
    elsewhere = found(point(0), point(8, excluded=7, **{**few, "probability_all": 0.0}))
    assert elsewhere.mostly_invalid == (), "on no front: nobody waits for it"
