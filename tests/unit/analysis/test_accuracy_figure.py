"""The figure of latency, throughput and accuracy over codecs: where there is one, and what it shows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.figures.accuracy_figure import accuracy_drawing, accuracy_figure
from analysis.figures.front_figure import front_figure
from analysis.fronts.front import front
from tests.unit import drawn
from tests.unit.example_codecs import trials

OBJECTIVES = "latency, throughput, accuracy"


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return front(trials())


@pytest.mark.parametrize("width", ["page", "column"])
def test_each_point_is_drawn_once_in_three_panels(rows: pd.DataFrame, width: str) -> None:
    figure = drawn.rendered(accuracy_figure(rows, width=width))
    panels = [axes for axes in figure.axes if axes.axison]
    assert len(panels) == 3
    crossing, alone = rows[rows["backend"] != ""], 1
    for axes in panels:
        assert sum(len(marks.get_offsets()) for marks in axes.collections) == len(crossing) + alone
        filled = sum(len(marks.get_offsets()) for marks in axes.collections if marks.zorder == 4)
        assert filled == rows["on_codec_front"].sum()
    percent = np.concatenate([marks.get_offsets()[:, 1] for marks in panels[2].collections])
    assert set(np.round(percent, 6)) == {100.0, 98.5, 90.0}
    assert panels[1].get_xlabel() == panels[2].get_ylabel() == "agreement (%)"
    assert not drawn.outside(figure)


def test_the_legend_says_what_each_codec_costs(rows: pd.DataFrame) -> None:
    entries = drawn.legend(accuracy_figure(rows))
    assert "tcp int8: 98.5 %" in entries
    assert "tcp none: 100 %" in entries
    labels = front(trials(top1=0.9, top1_images=400))
    assert accuracy_figure(labels).axes[2].get_ylabel() == "top-1 (%)"


def test_the_caption_says_which_accuracy_it_is(rows: pd.DataFrame, snapshot: SnapshotAssertion) -> None:
    partly = rows.copy()
    partly.loc[partly["codec"] == "uint4", ["accuracy", "accuracy_level"]] = np.nan
    made = [accuracy_drawing(each, "Somewhere.", OBJECTIVES) for each in (rows, partly)]
    captions = [drawn.sentences(drawing.caption) for drawing in made if drawing]
    assert "agreement of 200 images" in captions[0][1]
    assert any("uint4" in sentence and "not measured" in sentence for sentence in captions[1])
    assert captions == snapshot


def test_one_codec_has_no_such_figure() -> None:
    assert accuracy_drawing(front(trials(codecs=("none",), rounds=1)), "", OBJECTIVES) is None
    assert accuracy_drawing(front(trials(codecs=("int8",), rounds=1)), "", OBJECTIVES) is None


def test_no_lossy_codec_s_front_is_drawn_without_what_it_costs(rows: pd.DataFrame) -> None:
    entries = drawn.legend(front_figure(rows))
    assert "tcp int8 front (agreement 98.5 %)" in entries
    assert "tcp zstd front" in entries, "the same output costs nothing"
    assert "tcp none front" in entries
    unknown = trials(rounds=1)
    unknown.loc[unknown["codec"] == "int8", ["agreement", "output_error"]] = np.nan
    assert "tcp int8 front (accuracy not measured)" in drawn.legend(front_figure(front(unknown)))


def test_a_point_where_nothing_crosses_is_labelled_once_beside_several_codecs(rows: pd.DataFrame) -> None:
    figure = drawn.rendered(front_figure(rows))
    assert [text for text in drawn.texts(figure) if text in ("4", "4 unit4")] in (["4"], ["4 unit4"])
