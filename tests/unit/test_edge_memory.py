"""An edge with little memory: what its part of a model needs, which points are left out, and what holds it to that."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pareto.hosts.local import cpu
from pareto.hosts.local.journal import Journal
from pareto.partitions import costs
from pareto.partitions import model as partitioned
from pareto.partitions.recipe import Recipe
from pareto.protocol.errors import UserError
from pareto.protocol.jsonlines import Refused
from pareto.sweep import plan
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.foreseen import RUNTIME_BYTES, ModelFacts
from tests.program import command
from tests.unit.refusals import refusal

MIB = 1 << 20
UNITS = ((1_000_000, 20_000_000), (300_000_000, 5_000_000), (2_000_000, 1_000_000))
MODEL = ModelFacts(
    (("input", 600_000), ("one", 80_000), ("two", 8_000), ("output", 0)),
    0.05,
    splits=((0,), (1,), (2,), (3,)),
    units=UNITS,
)


def sweep(**options: Any) -> Any:
    return make_sweep({"model": "m", "backend": "tcp", "trials": 1, **options})


def test_an_edge_needs_its_weights_its_widest_unit_and_what_runs_it() -> None:
    needs = [MODEL.edge_bytes(cut, 1) - RUNTIME_BYTES for cut in range(4)]
    assert needs == [0, 89_000_000, 389_000_000, 391_000_000]
    assert MODEL.edge_bytes(2, 8) - MODEL.edge_bytes(2, 1) == 7 * 60_000_000


@pytest.mark.parametrize(
    ("given", "points"), [(None, [0, 1, 2, 3]), ("edge=2gib", [0, 1, 2, 3]), ("edge=512mib", [0, 1])]
)
def test_points_that_do_not_fit_are_no_cells(given: str | None, points: list[int]) -> None:
    wanted = sweep(memory=given) if given else sweep()
    assert [cell.cuts[0] for cell in plan.cells((wanted, {"m": MODEL}, ["none"]))] == points


def test_nothing_that_fits_is_said_and_a_larger_batch_needs_more() -> None:
    line = refusal(UserError, plan.check_fits, sweep(memory="edge=200mib"), {"m": MODEL})
    assert line == "--memory edge=200mib: no point of m fits: the least needs 303 MB"
    both = plan.cells((sweep(memory="edge=512mib", batch_size="1,8"), {"m": MODEL}, ["none"]))
    assert [(cell.cuts[0], cell.batch_size) for cell in both] == [(0, 1), (1, 1), (0, 8)]


@pytest.mark.parametrize("text", ["512mib", "server=512mib", "edge=", "edge=5", "edge=-1mib"])
def test_what_is_no_memory_of_the_edge(text: str) -> None:
    assert "--memory" in refusal(UserError, sweep, memory=text)


def test_the_plan_says_which_points_are_left_out() -> None:
    """AlexNet's first linear layer holds 151 MB."""
    job = ("--model", "alexnet", "--netem", "wifi", "--testbed", "simulated", "--dry-run")
    done = command(*job, "--memory", "edge=400mib")
    said = " ".join(done.out.split())
    assert done.code == 0 and "memory alexnet does not fit into 419 MB at" in said
    assert "memory" not in command(*job).out


def test_a_models_units_are_its_weights_and_what_it_makes() -> None:
    outline = partitioned.outline(Recipe("alexnet"))
    units = costs.held(outline)
    assert len(units) == outline.last
    assert sum(weights for weights, _ in units) == 4 * 61_100_840
    assert max(made for _, made in units) == 2 * 4 * 64 * 55 * 55


@pytest.mark.parametrize("version", [1, 2])
def test_a_cgroup_holds_the_edge_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """In version 1 each controller has a tree of its own; in version 2 a process is in one group."""
    trees = {name: tmp_path / (name if version == 1 else "all") for name in ("cpu", "memory")}
    for tree in {*trees.values()}:
        tree.mkdir()
        (tree / "cgroup.subtree_control").write_text("cpu memory")
    monkeypatch.setattr(cpu, "_controller", lambda name: (trees[name], version))
    noted: list[str] = []
    journal = cast(Journal, SimpleNamespace(slot=3, note=lambda kind, path: noted.append(path)))
    takes = cpu.limit(journal, "edge", 0.25, 512 * MIB)
    groups = [path.parent for path in takes]
    assert groups == [trees["cpu"] / "pareto3-edge", trees["memory"] / "pareto3-edge"][: 3 - version]
    assert noted == [str(group) for group in groups]
    limits = ["cpu.max", "memory.max"] if version == 2 else ["cpu.cfs_quota_us", "memory.limit_in_bytes"]
    told = [(trees[file.partition(".")[0]] / "pareto3-edge" / file).read_text() for file in limits]
    assert told == (["1250 5000", str(512 * MIB)] if version == 2 else ["1250", str(512 * MIB)])
    assert cpu.limit(journal, "server", 1.0, 0) == []


def test_without_a_cgroup_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(name: str) -> None:
        raise Refused(f"{cpu.OPTIONS[name]} needs")

    monkeypatch.setattr(cpu, "_controller", lacks)
    assert cpu.refused(cpu.limited(1.0, 0)) == "" and cpu.refused(cpu.limited(1.0, 5)) == "--memory needs"
