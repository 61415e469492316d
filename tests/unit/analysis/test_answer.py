"""How much of the front was known after how much measuring."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.fronts.answer import MOST_STEPS, answers, summaries
from pareto.analysis.fronts.indicators import hypervolumes
from pareto.analysis.runs.load import load
from pareto.analysis.runs.points import CONDITION
from tests.unit.example_run import trials, write

Row = dict[str, Any]


def row(point: int, number: int, latency_s: float, throughput_ips: float, **more: Any) -> Row:
    usual = trials(rounds=1)[point]
    return {
        **usual,
        **{"round": number, "latency_s": latency_s, "throughput_ips": throughput_ips, "wall_s": 2.0},
        **more,
    }


def progress(folder: Path, rows: list[Row], **manifest: Any) -> pd.DataFrame:
    return answers(load(write(folder, rows)), {"example": manifest})


def test_the_share_is_that_of_the_hypervolume_at_the_final_medians(tmp_path: Path) -> None:
    """Point 2 is lucky at first: what it is worth is what it ends with."""
    rows = [
        row(1, 1, 1.0, 1.0),
        row(2, 1, 0.1, 9.0),
        row(3, 1, 0.5, 4.0),
        row(2, 2, 1.0, 0.5),
        row(2, 3, 1.0, 0.5),
    ]
    made = progress(tmp_path, rows)
    # The reference is (1.1 s, 0): point 1 is worth 0.1 x 1, point 2 0.1 x 0.5, point 3 all of 0.6 x 4.
    assert made["hypervolume_share"].tolist() == pytest.approx([0.1 / 2.4, 0.05 / 2.4, 0.05 / 2.4, 1, 1])
    assert made["took_s"].tolist() == [2, 4, 6, 8, 10]
    assert made["cells"].tolist() == [1, 2, 3, 3, 3]
    assert made["on_front"].tolist() == [1, 1, 1, 2, 1]


def test_a_run_ends_with_its_whole_front(tmp_path: Path) -> None:
    run = write(tmp_path, trials())
    made = answers(load(run), {})
    assert made["hypervolume_share"].iloc[-1] == pytest.approx(1)
    assert len(made) == len(trials())
    assert made["took_s"].iloc[-1] == pytest.approx(12.5 * len(trials()))
    assert hypervolumes(load(run))["hypervolume"].iloc[-1] > 0
    assert not made["search"].any()


def test_what_is_not_valid_takes_time_and_tells_nothing(tmp_path: Path) -> None:
    rows = [row(1, 1, 1.0, 1.0), row(3, 1, 0.5, 4.0, status="invalid"), row(3, 2, 0.5, 4.0)]
    made = progress(tmp_path, rows)
    assert made["cells"].tolist() == [1, 1, 2]
    assert made["took_s"].tolist() == [2, 4, 6]
    assert progress(tmp_path / "none", [row(1, 1, 1.0, 1.0, status="failed")]).empty
    assert progress(tmp_path / "old", [row(1, 1, 1.0, 1.0, wall_s="")]).empty


def test_the_front_of_a_search_is_of_rounds_that_both_have(tmp_path: Path) -> None:
    """Point 1 is as quick as point 3 in the round that both have, and was measured in a slow one besides."""
    rows = [row(1, 1, 1.0, 4.0), row(1, 2, 0.5, 4.1), row(3, 2, 0.5, 4.0)]
    made = progress(tmp_path / "search", rows, sweep={"search": True})
    assert made["on_front"].tolist() == [1, 1, 1]
    assert progress(tmp_path / "all", rows)["on_front"].tolist() == [1, 1, 2]


def test_trials_of_a_round_in_which_nothing_crosses_are_one(tmp_path: Path) -> None:
    edge = trials(rounds=1)[-1]
    assert edge["payload_bytes"] in (0, "0")
    rows = [
        {**row(-1, 1, latency_s, 4.0), "backend": backend}
        for backend, latency_s in (("tcp", 1.0), ("rpc", 3.0))
    ]
    rows += [row(1, 1, 2.5, 4.0)]
    assert progress(tmp_path, rows)["on_front"].tolist() == [1, 1, 1]
    assert progress(tmp_path, rows)["hypervolume_share"].iloc[-1] == pytest.approx(1)


def test_a_search_and_all_cells_are_measured_by_the_same_front(tmp_path: Path) -> None:
    """The search lacks the best point; before its first trial it made a model profile, in two sessions."""
    every = [row(1, 1, 1.0, 1.0, run="all"), row(3, 1, 0.5, 4.0, run="all")]
    few = [row(1, 1, 1.0, 1.0, run="few")]
    runs = [write(tmp_path / "all", every), write(tmp_path / "few", few)]
    manifest = {"sweep": {"search": True}, "sessions": [{"profiling_s": 20.0}, {}, {"profiling_s": 3.0}]}
    last = summaries(answers(load(runs), {"few": manifest})).set_index("run")
    assert last["search"].to_dict() == {"all": False, "few": True}
    assert last["hypervolume_share"].to_dict() == pytest.approx({"all": 1, "few": 0.1 / 2.4})
    assert last["took_s"].to_dict() == {"all": 4, "few": 25}
    assert last["known_s"]["all"] == 4
    assert math.isnan(last["known_s"]["few"])


def test_conditions_are_apart_and_points_where_nothing_crosses_are_one_cell(tmp_path: Path) -> None:
    two = [each | {"netem": netem} for netem in ("a", "b") for each in trials(rounds=1)]
    made = progress(tmp_path, two)
    assert made.groupby("netem")["cells"].max().to_dict() == {"a": 43, "b": 43}


def test_it_is_known_from_when_it_stays_known() -> None:
    run = dict.fromkeys([*CONDITION, "run"], "")
    shares, took_s = [0.2, 1.0, 0.9, 0.995, 1.0], np.arange(5.0)
    of = pd.DataFrame({"hypervolume_share": shares, "took_s": took_s}).assign(**run)
    assert summaries(of)["known_s"].tolist() == [3]
    assert summaries(of.tail(2))["known_s"].tolist() == [3]
    assert summaries(of.head(3))["known_s"].isna().all()


def test_of_many_trials_the_last_is_among_those_that_are_looked_at(tmp_path: Path) -> None:
    rows = [row(point, number, 1.0 + point, 1.0) for number in range(40) for point in range(10)]
    made = progress(tmp_path, rows)
    assert (made["trials"].iloc[0], made["trials"].iloc[-1]) == (1, 400)
    assert MOST_STEPS / 2 < len(made) <= MOST_STEPS
    assert made["trials"].is_monotonic_increasing
    assert made["trials"].is_unique
