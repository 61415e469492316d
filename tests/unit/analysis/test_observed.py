"""Trials as arrays: round, profile, cell.

Very many rounds, several together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.advice.observed import NEEDED, Observed, medians, observe, together, workloads
from tests.unit import simulated_network as world


def test_every_trial_has_its_round_profile_and_cell_a_repeated_one_its_own_place():
    rows = pd.concat([world.trials(rounds=3, run=run, noise=0.1) for run in ("b", "a")])
    again = rows[(rows["round"] == 2) & (rows["point"] == "1")]
    rows = pd.concat([rows, again.assign(latency_s=again["latency_s"] * 2)]).sample(frac=1, random_state=1)
    found = observe(
        rows.astype({"netem": "category", "backend": "category"}), world.NO_STAGES, world.PROFILES
    )
    rounds = list(dict.fromkeys(zip(rows["run"], rows["round"], strict=True)))
    assert found.latency_s.shape[:2] == (len(rounds), len(found.places))
    cell_of = {(of["backend"], of["point"]): number for number, of in found.cells.iterrows()}
    left = found.latency_s.copy()
    pooled = set()
    for row in rows.to_dict("records"):
        cell = cell_of["" if row["payload_bytes"] == 0 else row["backend"], row["point"]]
        of_cell = left[rounds.index((row["run"], row["round"])), :, cell]
        value = row["latency_s"]
        if row["payload_bytes"] == 0:  # of both backends one, their mean
            of = (row["run"], row["round"], row["netem"])
            if of in pooled:
                continue
            pooled.add(of)
            same = rows[rows["payload_bytes"] == 0].groupby(["run", "round", "netem"])["latency_s"].mean()
            value = same[of]
        (place,) = np.flatnonzero(np.isclose(of_cell, value, rtol=1e-12))
        assert found.places[place] == row["netem"]
        of_cell[place] = np.nan
    assert np.isnan(left).all(), "nothing but the trials"


def test_advice_looks_at_few_of_the_columns():
    rows = world.trials().assign(retransmits=1.0)
    (of_workload,) = workloads(rows)
    assert list(of_workload) == NEEDED
    assert "retransmits" not in of_workload


def observed(**asked: Any) -> Observed:
    rows = world.trials(**asked)
    return observe(rows, world.stages(rows), asked.get("profiles") or world.PROFILES)


def test_very_many_rounds_are_drawn_several_together():
    rows = pd.concat(
        [world.trials(rounds=230), world.trials({"slow": world.PROFILES["slow"]}, rounds=3, run="b")]
    )
    rows.loc[(rows["round"] == 7) & (rows["point"] == "2"), "status"] = "failed"
    found = observe(rows, world.NO_STAGES, world.PROFILES)
    blocks = together(found)
    assert len(blocks.stratum) <= 103
    assert np.bincount(blocks.stratum).tolist()[1] == 3
    assert medians(blocks.latency_s) == pytest.approx(medians(found.latency_s), rel=0.005)
    first = np.array_split(np.arange(230), np.count_nonzero(blocks.stratum == 0))[0]
    assert blocks.latency_s[0, 0, 0] == pytest.approx(np.median(found.latency_s[first, 0, 0]))
    few = observed(rounds=5)
    assert together(few) is few
