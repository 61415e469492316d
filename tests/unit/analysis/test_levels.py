"""Runs, starts of the workers, rounds and requests: how much each varies, from trials of known spread."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.fronts.front import front
from analysis.runs.load import load
from analysis.statistics.noise import levels, spread_of_runs, spread_sentences
from tests.unit.example_run import trials as example
from tests.unit.example_run import write
from tests.unit.simulated_rounds import trials


def measured(
    *,
    runs: int,
    starts: int,
    rounds: int,
    spreads: tuple[float, float, float],
    cells: int = 40,
    seed: int = 0,
) -> pd.DataFrame:
    """Of so many rounds for each start, so many starts in each run; spreads: of runs, starts, rounds."""
    rng = np.random.default_rng(seed)
    shape = (runs, starts, rounds, cells)
    parts = ((runs, 1, 1, cells), (runs, starts, 1, cells), shape)
    logs = sum(spread * rng.standard_normal(of) for spread, of in zip(spreads, parts, strict=True))
    data = trials(np.exp(logs).reshape(1, -1, cells), np.ones((1, runs * starts * rounds, cells)))
    number = data["round"].to_numpy()
    return data.assign(
        run=[f"run {n}" for n in number // (starts * rounds)], restart=1.0 + number // rounds % starts
    )


def test_each_level_is_what_was_put_in() -> None:
    found = levels(measured(runs=4, starts=3, rounds=4, spreads=(0.05, 0.1, 0.2)), 0.08, 1000)
    assert [level.name for level in found] == ["runs", "starts of the workers", "rounds", "requests"]
    spreads = np.sqrt([level.variance for level in found])
    assert spreads == pytest.approx([0.05, 0.1, 0.2, 0.08**0.5], rel=0.25)
    alone = levels(measured(runs=1, starts=1, rounds=6, spreads=(0, 0, 0.1)), 0.04, 10)
    assert alone[2].variance == pytest.approx(0.1**2 - np.pi / 2 * 0.004, rel=0.3), (
        "less what few requests make of it"
    )


@pytest.mark.parametrize(
    ("runs", "starts", "rounds", "unknown"),
    [(1, 1, 6, ["runs", "starts of the workers"]), (1, 6, 1, ["runs", "starts of the workers", "rounds"]),
     (3, 1, 4, ["starts of the workers"]), (2, 2, 2, [])],
)  # fmt: skip
def test_what_cannot_be_told_is_said(runs: int, starts: int, rounds: int, unknown: list[str]) -> None:
    found = levels(measured(runs=runs, starts=starts, rounds=rounds, spreads=(0.1, 0.1, 0.1)), 0.01, 50)
    assert [level.name for level in found if np.isnan(level.variance)] == unknown
    assert all(bool(level.why) == np.isnan(level.variance) for level in found)


def test_runs_that_differ_as_a_whole_make_probabilities_less_sure() -> None:
    """Two runs of 20 rounds each: rounds alone would be sure of what another day turns round."""
    rng = np.random.default_rng(3)
    logs = rng.normal(0, 0.1, (2, 1, 30, 1)) + rng.normal(0, 0.01, (2, 20, 30, 1))
    run = np.repeat([0, 1], 20)
    assert spread_of_runs(logs.reshape(40, 30, 1), run) == pytest.approx(0.1 / np.sqrt(2), rel=0.3)
    assert spread_of_runs(logs.reshape(40, 30, 1), np.zeros(40, dtype=int)) == 0
    sure = []
    for spread in (0.0, 0.05):
        data = measured(runs=2, starts=1, rounds=10, spreads=(spread, 0, 0.02), seed=5)
        data["throughput_ips"] = 1 / data["latency_s"]
        p = front(data, resamples=1)["probability"]
        sure.append(p.max())
    assert sure[1] < 0.9 * sure[0]


def test_the_spread_is_told(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    run = write(tmp_path / "run", [row | {"restart": 1 + row["round"] // 2} for row in example(rounds=6)])
    once = write(tmp_path / "once", example(rounds=4))
    assert [list(spread_sentences(load([each]), [each])) for each in (run, once)] == snapshot
