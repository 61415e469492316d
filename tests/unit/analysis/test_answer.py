"""How much of the front was known after how much measuring."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.fronts.answer import MOST_STEPS, answers, summaries
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


EDGE = row(-1, 1, 1.0, 4.0)
CASES: dict[str, tuple[list[Row], dict[str, list[float]]]] = {
    # The reference is (1.1 s, 0): point 1 is worth 0.1 x 1, point 2 0.1 x 0.5, point 3 all of 0.6 x 4.
    "what a point is worth, lucky at first, is what it ends with": (
        [row(1, 1, 1.0, 1.0), row(2, 1, 0.1, 9.0), row(3, 1, 0.5, 4.0), row(2, 2, 1.0, 0.5), row(2, 3, 1.0, 0.5)],
        {
            "hypervolume_share": [0.1 / 2.4, 0.05 / 2.4, 0.05 / 2.4, 1, 1], "took_s": [2, 4, 6, 8, 10],
            "cells": [1, 2, 3, 3, 3], "on_front": [1, 1, 1, 2, 1],
        },
    ),
    "what is not valid takes time and tells nothing": (
        [row(1, 1, 1.0, 1.0), row(3, 1, 0.5, 4.0, status="invalid"), row(3, 2, 0.5, 4.0)],
        {"cells": [1, 1, 2], "took_s": [2, 4, 6]},
    ),
    "trials of a round in which nothing crosses are one": (
        [EDGE | {"backend": "tcp"}, EDGE | {"latency_s": 3.0}, row(1, 1, 2.5, 4.0)],
        {"on_front": [1, 1, 1], "hypervolume_share": [1, 1, 1]},
    ),
    "nothing is valid": ([row(1, 1, 1.0, 1.0, status="failed")], {"took_s": []}),
    "an older version timed no trial": ([row(1, 1, 1.0, 1.0, wall_s="")], {"took_s": []}),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "expected"), CASES.values(), ids=CASES)
def test_what_was_known_after_each_trial(
    tmp_path: Path, rows: list[Row], expected: dict[str, list[float]]
) -> None:
    made = progress(tmp_path, rows)
    assert made[[*expected]].to_dict("list") == {name: pytest.approx(each) for name, each in expected.items()}


@pytest.mark.parametrize(("search", "on_front"), [(True, [1, 1, 1]), (False, [1, 1, 2])])
def test_the_front_of_a_search_is_of_rounds_that_both_have(
    tmp_path: Path, search: bool, on_front: list[int]
) -> None:
    """Point 1 is as quick as point 3 in the round that both have, and was measured in a slow one besides."""
    rows = [row(1, 1, 1.0, 4.0), row(1, 2, 0.5, 4.1), row(3, 2, 0.5, 4.0)]
    assert progress(tmp_path, rows, sweep={"search": search})["on_front"].tolist() == on_front


def test_a_run_ends_with_its_whole_front_in_each_condition(tmp_path: Path) -> None:
    run = write(tmp_path, [each | {"netem": netem} for netem in ("a", "b") for each in trials()])
    made = answers(load(run), {})
    assert len(made) == 2 * len(trials()) and not made["search"].any()
    last = made.groupby("netem").last()
    assert last["hypervolume_share"].tolist() == pytest.approx([1, 1])
    assert last["took_s"].tolist() == pytest.approx([12.5 * len(trials())] * 2)
    assert last["cells"].tolist() == [43, 43], "points where nothing crosses are one cell"


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
