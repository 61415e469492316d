"""Front, hypervolumes and attainment made together are what each says alone."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from analysis.fronts import draws
from analysis.fronts.front import front, fronts
from analysis.fronts.indicators import attainment, hypervolumes
from pareto.errors import UserError
from tests.unit.simulated_rounds import tradeoffs, trials

OTHER: dict[str, Any] = {"objectives": ("throughput", "latency")}


def measured(conditions: int = 2, rounds: int = 8) -> pd.DataFrame:
    *_, latency, throughput = tradeoffs(conditions, 7, rounds, noise=0.04, common=1.0, seed=4)
    return trials(latency, throughput, ["tcp", "rpc"])


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(one, other, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    "asked",
    [{}, {"where": "latency_s < 2"}, OTHER, OTHER | {"where": "latency_s < 2"}, {"seed": 3}],
    ids=["default", "where", "objectives", "both", "seed"],
)
def test_together_they_say_what_each_says_alone(asked: dict[str, Any]) -> None:
    data = measured()
    made = fronts(data, **asked)
    same(made.front, front(data, **asked))
    same(made.hypervolumes, hypervolumes(data, **asked))
    same(made.attainment, attainment(data, where=asked.get("where", ""), seed=asked.get("seed", 0)))
    assert made.front["probability"].between(0.01, 0.99).any()
    assert not made.attainment.empty


def test_a_condition_is_resampled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    resampled = draws.resampled

    def counted(*args: Any) -> draws.Resampled:
        calls.append(args)
        return resampled(*args)

    monkeypatch.setattr(draws, "resampled", counted)
    fronts(measured(conditions=3))
    assert len(calls) == 3


def test_nothing_valid_is_on_no_front() -> None:
    made = fronts(measured().assign(status="failed"))
    assert made.front["probability"].isna().all()
    assert set(made.front["ties"]) == {""}
    assert made.hypervolumes.empty
    assert made.attainment.empty


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(UserError):
        fronts(measured(), where="nonsense <")
