"""Warnings: a few lines, about what is unsteady, and none about what is not.

Which points are not known well enough yet, and of which more rounds could tell nothing. Drift over rounds: found where
it is, not found where it is not, and not feigned from a few rounds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import theilslopes
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.runs.points import CONDITION
from pareto.analysis.statistics import stability
from pareto.analysis.statistics.doubt import cures
from pareto.analysis.statistics.samples import Floats
from pareto.analysis.statistics.stability import (
    COLUMNS,
    LEAST_ROUNDS,
    MOST_IN_PAIRS,
    Certainty,
    certainty,
    doubts,
    drifts,
    halves,
)
from tests.unit.simulated_rounds import trials as simulated

WIFI = ("m", "wifi", 1, "none", "eager", "auto", 0, "tuned", "none")


def point(
    number: int = 7, *, latency: float = 0.02, throughput: float = 0.01, **other: Any
) -> dict[str, Any]:
    """A row of a front whose interval reaches so far above its median, as shares of it, and half as far below."""
    row = {**dict(zip(CONDITION, (*WIFI, ""), strict=True)), "backend": "tcp", "point": str(number)}
    row |= {
        "rounds": 6,
        "excluded": 0,
        "outliers": 0.0,
        "feasible": True,
        "on_front": False,
        "probability_all": 0.5,
    }
    for measure, unit, median, off in (
        ("latency", "s", 0.4, latency),
        ("throughput", "ips", 9.0, throughput),
    ):
        ends = {"": 1.0, "_low": 1 - off / 2, "_high": 1 + off, "_least": 1 - off, "_most": 1 + 2 * off}
        row |= {f"{measure}{end}_{unit}": median * share for end, share in ends.items()}
    return row | other


NO_INTERVAL = {
    f"{measure}_{end}_{unit}": math.nan
    for measure, unit in (("latency", "s"), ("throughput", "ips"))
    for end in ("low", "high")
}
NO_FIGURES = {key: math.nan for key in point() if key.endswith(("_s", "_ips"))}
INVALID = {"rounds": 0, "excluded": 6, "outliers": math.nan, "probability_all": math.nan, **NO_FIGURES}


def drift_rows(*percent: float, drifting: bool = True) -> pd.DataFrame:
    rows = [
        dict(zip(CONDITION, (*WIFI, ""), strict=True))
        | {"backend": "tcp", "measure": "latency", "rounds": 9, "change_percent": change, "drifts": drifting}
        for change in percent
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def said(*rows: dict[str, Any], drifting: pd.DataFrame | None = None) -> list[str]:
    found = doubts(pd.DataFrame(rows), drift_rows() if drifting is None else drifting)
    return [f"{doubt}. {cures([doubt])}" for doubt in found]


FEW: dict[str, Any] = {"rounds": 3, "outliers": math.nan, **NO_INTERVAL}
FIVE = {**FEW, "rounds": 5, "excluded": 1}
ONCE = {**FEW, "rounds": 1}
OF_TWO: dict[str, Any] = {"rounds": 2, "excluded": 4, "outliers": math.nan}
OF_TWO |= {"throughput_low_ips": math.nan, "throughput_high_ips": math.nan}


STEADY = {
    "few outliers": [point(0), point(7, outliers=1.0), point(8)],
    "few rounds alike": [point(latency=0.02, **FEW)],
    "its rounds range over twice as much as its interval": [point(latency=0.04, **OF_TWO)],
    "a point without a valid trial": [point(), point(8, **INVALID)],
    "no valid trial": [point(8, **INVALID)],
}
DOUBTFUL = {
    # 0.12 is 2.4 times too wide: 5.76 times as many rounds.
    "worst": [point(3, latency=0.06), point(14, throughput=0.12, backend="rpc"), point(21)],
    "no rounds can mend it": [point(latency=0.4)],
    "range of few rounds": [point(latency=0.04, **FEW), point(8, latency=0.02, **FEW)],
    "lost rounds": [point(0), point(7, latency=0.04, **FIVE), point(8, latency=0.03, **FIVE)],
    "all but one lost": [point(**{**FIVE, "rounds": 1, "excluded": 5})],
    "a throughput is lacking": [point(latency=0.1, **OF_TWO)],
    "two kinds": [point(0, latency=0.1), point(7, latency=0.1, **{**FIVE, "excluded": 0})],
    "as many will be lost": [point(latency=0.06, rounds=6, excluded=6)],
    "one round": [point(number, **ONCE) for number in range(3)],
    "one round beside nothing": [point(**ONCE), point(8, **INVALID)],
    "outliers": [point(outliers=0.0), point(8, outliers=2.0)],
}


def test_doubts_name_the_worst_and_a_remedy_and_nothing_is_said_of_what_is_steady(
    snapshot: SnapshotAssertion,
) -> None:
    for rows in STEADY.values():
        assert (
            said(*rows, drifting=drift_rows(0.4, -0.9))
            == said(*rows, drifting=drift_rows(30.0, drifting=False))
            == []
        )
    lines = {name: said(*rows) for name, rows in DOUBTFUL.items()}
    assert lines | {"drift": said(point(), drifting=drift_rows(3.0, -12.5, 0.2))} == snapshot


def test_an_interval_is_as_wide_as_its_longer_half() -> None:
    rows = pd.DataFrame([point(latency=0.08), point(throughput=0.5)])
    assert halves(rows).to_numpy().T.tolist() == [pytest.approx([0.08, 0.02]), pytest.approx([0.01, 0.5])]


LTE = ("m", "lte", 1, "none", "eager", "auto", 0, "tuned", "none")
ONNX = (*WIFI[:4], "onnx", *WIFI[5:])
OF_LATENCY = {key: value for key, value in NO_FIGURES.items() if key.startswith("throughput")}
# At five of twelve rounds none of the 100 that there may be would be enough for some points.
RARE: dict[str, Any] = {"rounds": 5, "latency": 0.9, "probability_all": 0.9, **NO_INTERVAL}
NONE: frozenset[Any] = frozenset()
CERTAIN: dict[str, tuple[list[dict[str, Any]], Certainty]] = {
    "what may be on the front is to be known": (
        [
            point(0, latency=0.04), point(1, latency=0.07), point(2, throughput=0.081, backend="rpc"),
            point(3, latency=0.9, probability_all=0.01), point(4, latency=0.9, feasible=False),
        ],
        Certainty(6, 3, 2, "rpc 2 throughput ±8.1 %", frozenset({WIFI}), ()),
    ),
    "near enough": (
        [point(0, latency=0.0499), point(1, throughput=0.0499)], Certainty(6, 2, 0, "", NONE, ()),
    ),
    "an engine is a condition of its own, a setup is not": (
        [point(0, latency=0.07, engine="onnx"), point(1, latency=0.07, setup="simulated")],
        Certainty(6, 2, 2, "tcp 0 (m at wifi, batch size 1, engine onnx) latency ±7.0 %", frozenset({ONNX, WIFI}), ()),
    ),
    "it is on the front whatever the draws say": (
        [point(latency=0.9, probability_all=0.0, on_front=True)],
        Certainty(6, 1, 1, "tcp 7 latency ±90.0 %", frozenset({WIFI}), ()),
    ),
    "too early for any interval": (
        [point(rounds=2, probability_all=math.nan, **NO_INTERVAL)], Certainty(2, 1, 1, "", frozenset({WIFI}), ()),
    ),
    "of several conditions the worst is named with its own": (
        [point(0), point(0, netem="lte", latency=0.2), point(1, netem="lte")],
        Certainty(6, 3, 1, "tcp 0 (m at lte, batch size 1) latency ±20.0 %", frozenset({LTE}), ()),
    ),
    "never a figure": ([point(0), point(8, **INVALID)], Certainty(6, 1, 0, "", NONE, ("tcp 8",))),
    "never a throughput": ([point(0), point(8, **OF_LATENCY)], Certainty(6, 1, 0, "", NONE, ("tcp 8",))),
    "no figure so far": (
        [point(0), point(8, **{**INVALID, "excluded": 5})], Certainty(6, 2, 1, "", frozenset({WIFI}), ()),
    ),
    "nothing at all": ([point(8, **INVALID)], Certainty(6, 0, 0, "", NONE, ("tcp 8",))),
    "what is mostly invalid is not waited for": (
        [point(0), point(8, excluded=7, **RARE)], Certainty(12, 1, 0, "", NONE, (), ("tcp 8",)),
    ),
    "too early to say that it mostly is": (
        [point(0), point(8, excluded=6, **RARE)], Certainty(11, 2, 1, "", frozenset({WIFI}), ()),
    ),
    "valid in half of them": (
        [point(8, rounds=6, excluded=6, latency=0.9)],
        Certainty(12, 1, 1, "tcp 8 latency ±90.0 %", frozenset({WIFI}), ()),
    ),
    "mostly invalid, and known": ([point(8, rounds=6, excluded=9)], Certainty(15, 1, 0, "", NONE, ())),
    "mostly invalid, and on no front": (
        [point(0), point(8, excluded=7, **{**RARE, "probability_all": 0.0})], Certainty(12, 1, 0, "", NONE, ()),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "expected"), CERTAIN.values(), ids=CERTAIN)
def test_how_certain_a_front_is(rows: list[dict[str, Any]], expected: Certainty) -> None:
    assert certainty(pd.DataFrame(rows), 0.05) == expected


LEVELS_S = (0.4, 0.1, 0.03)


def trials(
    rounds: int, *, per_round: float = 0.0, noise: float = 0.01, shared: float = 0.0, seed: int = 0,
    backends: tuple[str, ...] = ("tcp",), run: str = "a",
) -> pd.DataFrame:  # fmt: skip
    """Latencies that grow by `per_round` a round, throughputs that do not; `shared`: noise of a round as a whole."""
    rng = np.random.default_rng(seed)
    levels, grown = np.repeat(LEVELS_S, len(backends)), np.exp(per_round * np.arange(rounds))[:, None]
    jitter = np.exp(
        noise * rng.standard_normal((2, 1, rounds, len(levels))) + shared * rng.standard_normal((rounds, 1))
    )
    made = simulated(levels * grown * jitter[0], jitter[1] / levels, backends)
    return made.assign(run=run, round=made["round"] + 1, netem="wifi")


def found(of: pd.DataFrame, measure: str = "latency") -> pd.Series:
    rows = drifts(of)
    assert list(rows.columns) == COLUMNS
    (row,) = (row for _, row in rows.iterrows() if row["measure"] == measure)
    return row


@pytest.mark.parametrize(("rounds", "per_round"), [(12, 0.01), (10, -0.02)])
def test_a_drift_is_found_with_its_size(rounds: int, per_round: float) -> None:
    of = trials(rounds, per_round=per_round)
    row = found(of)
    assert (row["drifts"], row["rounds"]) == (True, rounds)
    assert row["change_percent"] == pytest.approx(100 * math.expm1(per_round * (rounds - 1)), abs=1.5)
    assert not found(of, "throughput")["drifts"]


@pytest.mark.deep
def test_without_drift_one_run_in_twenty_has_one() -> None:
    """Both tests together; a round that is slow as a whole is no drift."""
    alarms = [drifts(trials(8, shared=0.05, seed=seed))["drifts"].any() for seed in range(150)]
    assert np.mean(alarms) < 0.1


def test_few_rounds_are_not_tested_and_more_tests_need_more(snapshot: SnapshotAssertion) -> None:
    for rounds in range(1, LEAST_ROUNDS):
        row = found(trials(rounds, per_round=1.0))
        assert (row["drifts"], math.isnan(row["p_value"])) == (False, True)
        assert row["note"].startswith(f"{rounds} of the {LEAST_ROUNDS} ")
    row = found(trials(6, per_round=0.1, noise=0.0001))
    # The only order of all, in two tests.
    p_values = (row["p_value"], row["p_corrected"])
    assert p_values == pytest.approx((2 / math.factorial(6), 4 / math.factorial(6)))
    assert row["note"] == ""
    rows = drifts(trials(5, per_round=0.5, noise=0.001, backends=("tcp", "rpc")))
    assert (rows["p_value"].min(), len(rows), rows["drifts"].any()) == (pytest.approx(2 / 120), 4, False)
    assert rows["note"].unique().tolist() == snapshot


def test_what_is_no_drift() -> None:
    """Each cell is compared with itself: the slow point's absence is not a fall."""
    of = trials(10)
    row = found(of[~((of["point"] == "0") & (of["round"] > 5))])
    assert (row["drifts"], abs(row["change_percent"]) < 3) == (False, True)
    status = of["status"].mask(of["round"] > 4, "invalid")
    row = found(of.assign(status=status, latency_s=of["latency_s"].mask(of["round"] > 4, 9)))
    assert (row["rounds"], math.isnan(row["p_value"])) == (4, True), "only trials that are ok count"
    assert drifts(of[of["status"] == "none"]).empty
    row = found(trials(7, noise=0.0))
    assert (row["p_value"], row["change_percent"], row["drifts"]) == (1.0, 0.0, False), "all are the same"


def test_conditions_and_runs_drift_by_themselves() -> None:
    rows = drifts(pd.concat([trials(9), trials(9, per_round=0.05).assign(netem="lte")]))
    assert rows.loc[rows["drifts"], ["netem", "measure"]].to_numpy().tolist() == [["lte", "latency"]]
    early, late = trials(8, run="a", noise=0.0), trials(8, run="b", noise=0.0)
    late["latency_s"] *= 1.25
    rows = drifts(pd.concat([late, early]))
    assert rows["run"].value_counts().to_dict() == {"a": 2, "b": 2} and (rows["rounds"] == 8).all()
    assert not rows["drifts"].any(), "a step between two runs is no drift"
    late["latency_s"] *= np.exp(0.02 * late["round"])
    rows = drifts(pd.concat([late, early]))
    (one,) = rows[rows["drifts"]].to_dict("records")
    assert (one["run"], one["measure"]) == ("b", "latency")
    assert one["change_percent"] == pytest.approx(100 * math.expm1(0.02 * 7))


def test_of_very_many_rounds_a_line_takes_few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []

    def counted(y: Floats, x: Floats) -> Any:
        looked_at.append(len(y))
        return theilslopes(y, x)

    monkeypatch.setattr(stability, "theilslopes", counted)
    assert found(trials(900, per_round=1e-4))["change_percent"] == pytest.approx(9.4, abs=0.3)
    assert looked_at == [MOST_IN_PAIRS] * 2
