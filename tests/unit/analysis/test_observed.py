"""Trials as a frame: each has its round and cell; very many rounds, several together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.advice.observed import NEEDED, observe
from tests.unit import simulated_network as world


def test_every_trial_has_its_round_and_cell_and_those_where_nothing_crosses_are_one() -> None:
    rows = pd.concat([world.trials(rounds=3, run=run, noise=0.1) for run in ("b", "a")])
    again = rows[(rows["round"] == 2) & (rows["point"] == "1")]
    rows = pd.concat([rows, again.assign(latency_s=again["latency_s"] * 2)]).sample(frac=1, random_state=1)
    categories = rows.astype({"netem": "category", "backend": "category"})
    found = observe(categories, world.NO_STAGES, world.PROFILES)
    rounds = pd.DataFrame(rows[["run", "round"]].drop_duplicates().to_numpy(), columns=["run", "round"])
    made = found.trials.join(found.cells[["backend", "point"]], on="cell")
    made[["run", "round"]] = rounds.loc[made["round"]].to_numpy()
    keys = ["run", "round", "netem", "backend", "point"]
    rows["backend"] = rows["backend"].where(rows["payload_bytes"] > 0, "none")
    expected, of_all = (each.groupby(keys)["latency_s"].agg(["mean", "size"]) for each in (rows, made))
    assert of_all.index.equals(expected.index)
    np.testing.assert_allclose(of_all["mean"], expected["mean"])
    repeated = expected.index.get_level_values("backend") != "none"
    assert (of_all["size"] == expected["size"])[repeated].all()
    assert sorted(made.loc[made["point"].eq("1"), "repeat"].unique()) == [0, 1]


def test_advice_looks_at_few_of_the_columns() -> None:
    assert list(world.workload(world.trials().assign(retransmits=1.0)).rows) == NEEDED


def test_very_many_rounds_are_taken_several_together() -> None:
    few_of_b = world.trials({"slow": world.PROFILES["slow"]}, rounds=3, run="b")
    rows = pd.concat([world.trials(rounds=230), few_of_b])
    rows.loc[(rows["round"] == 7) & (rows["point"] == "2"), "status"] = "failed"
    found = observe(rows, world.NO_STAGES, world.PROFILES)
    blocks = found.together()
    assert len(blocks.stratum) <= 103
    assert np.bincount(blocks.stratum).tolist()[1] == 3
    assert blocks.medians("latency_s") == pytest.approx(found.medians("latency_s"), rel=0.005)
    size = len(np.array_split(np.arange(230), np.count_nonzero(blocks.stratum == 0))[0])
    whole, part = (each.at("slow").trials.query("cell == 0") for each in (found, blocks))
    first = whole.loc[whole["round"] < size, "latency_s"].median()
    assert part.loc[part["round"].eq(0), "latency_s"].tolist() == [pytest.approx(first)]
    few = world.observed(rounds=5)
    assert few.together() is few
