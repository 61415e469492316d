"""What became of a front from one run to the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing.changes import changes
from pareto.analysis.runs.load import load
from pareto.protocol.errors import UserError
from tests.unit.analysis.test_between_runs import Rows, at, compared, loaded, measured, scaled
from tests.unit.example_run import with_energy, write


def changed(folder: Path, a: Rows, b: Rows, **options: Any) -> pd.DataFrame:
    return changes(*loaded(folder, a, b), **options)


def test_a_point_enters_and_another_leaves(tmp_path: Path) -> None:
    a, b = at(measured("a", seed=1), 3, 13, 21), at(measured("b", seed=2), 3, 13, 21)
    for rows, best in ((a, 3), (b, 13)):
        for row in rows:
            row["throughput_ips"] = row["throughput_ips"] / 10 if row["point"] != best else 50
    front = compared(tmp_path, a, b).fronts.iloc[0]
    assert (front["enter"], front["leave"], front["stay"]) == ("tcp 13", "tcp 3", "any 21")
    assert re.fullmatch(r"latency [\d.]+ .*, throughput 0 .*", front["reference"])
    (sentence,) = compared(tmp_path / "again", a, b).sentences
    assert sentence.endswith("; tcp 13 enters it; tcp 3 leaves it")


def test_what_may_be_chance_is_said_to_be(tmp_path: Path) -> None:
    """Two points alike: which of them is the better one, either run's luck decides."""
    rng, seen = np.random.default_rng(0), set()
    for number in range(6):
        a, b = (
            [row | {"point": point} for point in (3, 4) for row in at(measured(name), 13)]
            for name in ("a", "b")
        )
        for row in (*a, *b):
            row |= {"latency_s": rng.normal(0.2, 0.01), "throughput_ips": rng.normal(10, 0.5)}
        front = changed(tmp_path / str(number), a, b).iloc[0]
        assert front["enter"] == front["leave"] == ""
        seen |= {column for column in ("may_enter", "may_leave") if front[column]}
        if len(seen) == 2:
            break
    assert seen == {"may_enter", "may_leave"}


def test_one_reference_for_both_and_a_ratio_that_follows_from_it(tmp_path: Path) -> None:
    a, b = at(measured("a", seed=1), 13), at(scaled(measured("b", seed=2), throughput_ips=2), 13)
    front = changed(tmp_path, a, b).iloc[0]
    medians = [
        np.median([[row["latency_s"], row["throughput_ips"]] for row in rows], axis=0) for rows in (a, b)
    ]
    bound = 1.1 * max(latency for latency, _ in medians)
    volumes = [(bound - latency) * throughput for latency, throughput in medians]
    assert front["first_hypervolume"] == pytest.approx(volumes[0], rel=1e-6)
    assert front["hypervolume_ratio"] == pytest.approx(volumes[1] / volumes[0], rel=1e-6)
    assert front["ratio_low"] < 2 < front["ratio_high"]


@pytest.mark.parametrize("runs", [6, pytest.param(40, marks=pytest.mark.deep)])
def test_ratios_of_runs_alike_hold_one(tmp_path: Path, runs: int) -> None:
    """Of runs of 6 and of 20 rounds, so that one has more luck in its front than the other."""
    frames = []
    for rounds in (6, 20):
        rows = []
        for number in range(runs):
            made = measured("run", rounds=rounds, seed=1000 * rounds + number)
            rows += [row | {"netem": str(number)} for row in at(made, 10, 12, 14, 20)]
        frames.append(load([write(tmp_path / str(rounds), rows)]))
    fronts = changes(*frames, resamples=400)
    assert ((fronts["ratio_low"] <= 1) & (fronts["ratio_high"] >= 1)).mean() >= 0.83
    assert (fronts["ratio_high"] / fronts["ratio_low"]).median() < 1.2


def test_resamples_without_a_feasible_point_leave_no_interval(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """A constraint that the best point meets by its median only: as a number, the ratio to nothing is infinite."""
    a, b = at(measured("a"), 21), at(measured("b", seed=2), 21)
    limit_s = max(np.median([row["latency_s"] for row in rows]) for rows in (a, b))
    with np.errstate(all="raise"):
        found = compared(tmp_path, a, b, where=f"latency_s <= {limit_s * 1.0001:.9f}")
    front = found.fronts.iloc[0]
    assert front["hypervolume_ratio"] > 0
    assert np.isnan([front["ratio_low"], front["ratio_high"]]).all()
    assert front["note"] == snapshot
    assert f"({front['note']})" in found.sentences[0]
    always = changed(tmp_path / "always", a, b, where=f"latency_s < {10 * limit_s}").iloc[0]
    assert always["ratio_low"] < always["ratio_high"]


def test_objectives_and_constraint(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    a, b = (at(rows, 0, 3, 8, 14, 20, 21) for rows in (measured("a"), measured("b", seed=2)))
    found = compared(tmp_path, a, b, objectives=("latency", "payload"), where="payload_bytes > 0")
    assert found.fronts["objectives"].eq("latency, payload").all()
    assert "tcp 21" not in "; ".join(found.fronts.iloc[0][["stay", "may_stay", "may_leave", "leave"]])
    energy = [with_energy(rows, server=False) for rows in (a, b)]
    joules = changed(tmp_path / "energy", *energy, objectives=("latency", "energy")).iloc[0]
    assert "energy" in joules["reference"]
    assert 0.5 < joules["ratio_low"] < 1 < joules["ratio_high"] < 2
    few_a, few_b = at(a, 3, 21), at(b, 3, 21)
    few_j = with_energy(few_a), with_energy(few_b, server=False)
    devices = changed(tmp_path / "devices", *few_j, objectives=("latency", "energy"))
    assert devices["hypervolume_ratio"].isna().all()
    nothing = changed(tmp_path / "none", few_a, few_b, where="latency_s < 1us")
    edge_only = changed(tmp_path / "zero", at(a, 21), at(b, 21), objectives=("latency", "payload"))
    assert [front["note"].unique().tolist() for front in (devices, nothing, edge_only)] == snapshot
    for wrong in ({"objectives": ("latency", "speed")}, {"where": "latency_s <"}):
        with pytest.raises(UserError):
            changed(tmp_path / "wrong", few_a, few_b, **wrong)
