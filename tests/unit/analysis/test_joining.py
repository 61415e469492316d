"""Which folders are meant, and several runs as one data set."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.points import TRIAL
from analysis.runs.load import joined, load, stages
from pareto.errors import UserError
from tests.unit import example_chain
from tests.unit.example_run import trials, write


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Run folders a and b, beside what is no run."""
    results = tmp_path / "results"
    runs = [write(results / name, trials(rounds=1, run=name)) for name in ("b", "a")]
    (results / "README.md").write_text("# results")
    (results / "joined").mkdir()
    return sorted(runs)


def test_the_same_run_twice_is_refused_under_whatever_path(
    two: list[Path], snapshot: SnapshotAssertion
) -> None:
    a, around = two[0], two[0].parent
    (around.parent / "link").symlink_to(a)
    for twice in ([a, a], [a, around], [a, around.parent / "link"], [a, os.path.relpath(a)]):
        with pytest.raises(UserError) as caught:
            load(twice)
        assert "\n" not in str(caught.value)
        assert str(a) in str(caught.value) or os.path.relpath(a) in str(caught.value)
    copy = shutil.copytree(a, around / "c")
    with pytest.raises(UserError) as refused:
        joined([a, copy])
    assert str(refused.value) == snapshot


def test_joined_runs_are_their_trials_and_stages_below_each_other(tmp_path: Path) -> None:
    runs = []
    for seed, name in enumerate("ab"):
        rows, staged = example_chain.trials([(3, 10), (3, 21)], seed=seed)
        for row in (*rows, *staged):
            row["run"] = name
        runs.append(example_chain.write(tmp_path / name, rows, staged))
    found = joined(runs)
    assert [run.folder for run in found.runs] == runs
    assert found.runs[0].manifest["testbed"].startswith("local")
    pd.testing.assert_frame_equal(found.trials, pd.concat([load(run) for run in runs], ignore_index=True))
    pd.testing.assert_frame_equal(found.stages, pd.concat([stages(run) for run in runs], ignore_index=True))
    pd.testing.assert_frame_equal(found.stages, stages(tmp_path))
    assert found.trials["setup"].eq("").all()
    assert found.notes == []


def test_a_run_without_stages_is_joined_with_one_that_has_them(tmp_path: Path) -> None:
    rows, staged = example_chain.trials([(3, 10)])
    chain = example_chain.write(tmp_path / "chain", rows, staged)
    old = write(tmp_path / "old", trials(rounds=1, run="old"))
    found = joined([old, chain])
    assert set(found.stages["run"]) == {"example"}
    assert len(found.stages.merge(found.trials, on=TRIAL)) == len(staged)
    assert joined([]).trials.empty


def test_versions_that_differ_are_told(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    def run(name: str, pareto: str, torch: str) -> Path:
        session = {"driver": {"hostname": "lab", "packages": {"torch": torch}}}
        return write(tmp_path / name, trials(rounds=1, run=name), pareto=pareto, sessions=[session])

    alike = [run("a", "0.1.0", "2.13.0"), run("b", "0.1.0", "2.13.0")]
    assert joined(alike).notes == []
    assert joined([*alike, run("c", "0.2.0", "2.12.0")]).notes == snapshot
