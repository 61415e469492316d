from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.findings import Options, find
from pareto.analysis.fronts.front import COLUMNS
from pareto.analysis.fronts.objectives import DEFAULT, OBJECTIVES, chosen
from pareto.protocol.errors import UserError
from tests.unit import example_run


def test_every_objective_is_a_column_of_the_front() -> None:
    assert {objective.column for objective in OBJECTIVES.values()} <= set(COLUMNS)
    assert [name for name, each in OBJECTIVES.items() if each.maximise] == ["throughput", "accuracy"]
    assert [each.column for each in chosen(DEFAULT)] == ["latency_s", "throughput_ips"]
    assert [each.name for each in chosen(["energy", "p95", "latency"])] == ["energy", "p95", "latency"]


def test_what_cannot_be_chosen(snapshot: SnapshotAssertion) -> None:
    said = []
    for names in (["latency", "cost"], ["latency"], [], ["latency", "energy", "latency"]):
        with pytest.raises(UserError) as refused:
            chosen(names)
        said.append(str(refused.value))
    assert said == snapshot


def test_an_objective_that_no_point_has_is_said(tmp_path: Path) -> None:
    columns = dict.fromkeys(("latency_p95_s", "loaded_latency_p95_s", "edge_energy_j", "server_energy_j"), "")
    run = example_run.write(tmp_path, [row | columns for row in example_run.trials(rounds=2)])
    said = r"--objectives \S+: no point of these runs has it \(.+\): choose others"
    for objectives in (("p95", "throughput"), ("latency", "energy"), ("loaded-p95", "latency")):
        with pytest.raises(UserError, match=said):
            find([run], Options(objectives=objectives))
    assert not find([run], Options(objectives=("latency", "payload"))).front.empty
