"""The cost of an answer, drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.figures.answer_figure import answer_drawing, lines
from analysis.figures.kinds import drawings
from analysis.findings import find
from analysis.fronts.answer import answers
from analysis.runs.load import load
from tests.unit import drawn
from tests.unit.example_run import trials, write


@pytest.fixture
def rows(tmp_path: Path) -> pd.DataFrame:
    """Of a run of all cells, and of a search that has a few of them."""
    every = trials(rounds=2)
    few = [row | {"run": "few"} for row in every if row["point"] in (15, 20, 21)]
    runs = [write(tmp_path / "all", every), write(tmp_path / "few", few)]
    searched = {"sweep": {"search": True}, "sessions": [{"profiling_s": 30.0}]}
    return answers(load(runs), {"few": searched})


@pytest.mark.parametrize("width", ["page", "column"])
def test_each_run_has_a_line_from_its_first_trial_to_its_last(rows: pd.DataFrame, width: str) -> None:
    made = answer_drawing(rows, "Two hosts")
    assert made is not None
    figure = drawn.rendered(made.draw(width))
    (axes,) = figure.axes
    assert drawn.legend(figure) == ["all cells", "search"]
    for run, marker in (("example", "o"), ("few", "s")):
        own = rows[rows["run"] == run]
        (end,) = drawn.marks(axes, filled=False, marker=marker)
        assert end == pytest.approx([own["took_s"].iloc[-1] / 60, 100 * own["hypervolume_share"].iloc[-1]])
        (known,) = drawn.marks(axes, filled=True, marker=marker)
        assert known[1] >= 99
        (steps,) = (
            line
            for line in axes.get_lines()
            if line.get_drawstyle() == "steps-post" and len(line.get_xdata()) == len(own)
        )
        assert np.asarray(steps.get_ydata()) == pytest.approx(100 * own["hypervolume_share"])
    assert drawn.outside(figure) == []
    assert drawn.overlapping(figure) == []


def test_the_caption_says_what_each_run_took(rows: pd.DataFrame, snapshot: SnapshotAssertion) -> None:
    made = answer_drawing(rows, "Two hosts")
    assert made is not None
    assert drawn.sentences(made.caption) == snapshot


def test_runs_that_are_alike_are_numbered(rows: pd.DataFrame) -> None:
    more = pd.concat([rows, rows[rows["run"] == "few"].assign(run="again")])
    assert [line.label for line in lines(more)] == ["all cells", "search 1", "search 2"]


def test_so_many_runs_have_so_many_kinds_of_lines(rows: pd.DataFrame) -> None:
    few = rows[rows["run"] == "few"]
    made = answer_drawing(pd.concat([few.assign(run=f"run {number}") for number in range(6)]), "")
    assert made is not None
    (axes,) = made.draw("column").axes
    steps = [line for line in axes.get_lines() if line.get_drawstyle() == "steps-post"]
    assert len({str(line._unscaled_dash_pattern) for line in steps}) == 6


def test_hardly_any_trials_are_no_figure(rows: pd.DataFrame) -> None:
    assert answer_drawing(rows.head(2), "") is None
    assert answer_drawing(rows.head(0), "") is None


def test_a_report_has_it_under_whatever_names_its_folders_are(tmp_path: Path) -> None:
    every = trials(rounds=1)
    few = write(tmp_path / "renamed", [row | {"run": "few"} for row in every[-9:]], sweep={"search": True})
    found = find([write(tmp_path / "all", every), few])
    assert found.progress.groupby("run")["search"].first().to_dict() == {"example": False, "few": True}
    assert "answer" in {drawing.kind for drawing in drawings(found, each=True)}
