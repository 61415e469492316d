from __future__ import annotations

import pytest

from analysis.errors import AnalysisError
from analysis.fronts.front import COLUMNS
from analysis.fronts.objectives import DEFAULT, OBJECTIVES, chosen


def test_every_objective_is_a_column_of_the_front() -> None:
    assert {objective.column for objective in OBJECTIVES.values()} <= set(COLUMNS)
    assert [name for name, objective in OBJECTIVES.items() if objective.maximise] == ["throughput"]
    assert all(name == objective.name for name, objective in OBJECTIVES.items())


def test_chosen_keeps_the_order() -> None:
    assert [objective.column for objective in chosen(DEFAULT)] == ["latency_s", "throughput_ips"]
    assert [objective.name for objective in chosen(["energy", "p95", "latency"])] == [
        "energy",
        "p95",
        "latency",
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["latency", "cost"], "no objective 'cost'; there are latency, throughput, p95, energy, payload"),
        (["latency"], "objectives latency: name at least two, each once"),
        ([], "objectives none: name at least two"),
        (["latency", "energy", "latency"], "name at least two, each once"),
    ],
)
def test_what_cannot_be_chosen(names: list[str], message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        chosen(names)
