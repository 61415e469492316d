"""Which points are not known well enough yet, and of which more rounds could tell nothing."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from analysis.statistics.stability import Standing, standing
from tests.unit.analysis.test_stability import INVALID, NO_INTERVAL, WIFI, point

LTE = ("m", "lte", 1, "none", "auto")


def found(*rows: dict[str, Any], within: float = 0.05) -> Standing:
    return standing(pd.DataFrame(rows), within)


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
    assert found(point(0, latency=0.0499), point(1, throughput=0.0499)) == Standing(
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
