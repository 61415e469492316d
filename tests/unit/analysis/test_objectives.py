from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.fronts.front import COLUMNS
from pareto.analysis.fronts.objectives import DEFAULT, OBJECTIVES, chosen
from pareto.protocol.errors import UserError


def test_every_objective_is_a_column_of_the_front() -> None:
    assert {objective.column for objective in OBJECTIVES.values()} <= set(COLUMNS)
    assert [name for name, objective in OBJECTIVES.items() if objective.maximise] == [
        "throughput",
        "accuracy",
    ]
    assert all(name == objective.name for name, objective in OBJECTIVES.items())


def test_chosen_keeps_the_order() -> None:
    assert [objective.column for objective in chosen(DEFAULT)] == ["latency_s", "throughput_ips"]
    assert [objective.name for objective in chosen(["energy", "p95", "latency"])] == [
        "energy",
        "p95",
        "latency",
    ]


@pytest.mark.parametrize(
    "names",
    [["latency", "cost"], ["latency"], [], ["latency", "energy", "latency"]],
    ids=["unknown", "one", "none", "twice"],
)
def test_what_cannot_be_chosen(names: list[str], snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as refused:
        chosen(names)
    assert str(refused.value) == snapshot
