"""The figure of accuracy over bytes: a line a codec, each point once, bars by the number of images."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.figures.rate_quality_figure import cells, rate_quality_drawing, rate_quality_figure
from analysis.fronts.front import front
from tests.unit import drawn
from tests.unit.example_codecs import trials


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    several = [trials(rounds=1, netem="slow", backends=("tcp", "rpc")), trials(50e6, rounds=1, netem="quick")]
    return front(pd.concat(several, ignore_index=True))


def test_each_point_of_a_codec_is_there_once_whatever_the_network(rows: pd.DataFrame) -> None:
    data = cells(rows)
    assert len(data) == 5 * 4
    best = data[data["undominated"]]
    # By hand: 100 kB at point 3 is the least payload; halved, quartered, and an eighth of it by lossier codecs.
    assert set(zip(best["codec"], best["wire_bytes_per_image"], strict=True)) == {
        ("fp16", 50_000), ("int8", 25_000), ("uint4", 12_500),
    }  # fmt: skip
    assert not data["point"].eq("4").any(), "nothing crosses there"


@pytest.mark.parametrize("width", ["page", "column"])
def test_a_line_a_codec_with_bars(rows: pd.DataFrame, width: str) -> None:
    figure = drawn.rendered(rate_quality_figure(rows, width=width))
    (axes,) = figure.axes
    assert drawn.legend(figure) == ["no codec", "zstd", "fp16", "int8", "uint4"]
    assert len(drawn.marks(axes)) == 20
    bars = np.concatenate([line for bars in axes.collections for line in bars.get_segments()])
    assert bars[:, 1].min() == pytest.approx(85.059, abs=1e-3)  # uint4: 180 of 200 images
    assert "kB" in axes.get_xlabel()
    assert not drawn.outside(figure)


def test_the_drawing(rows: pd.DataFrame, snapshot: SnapshotAssertion) -> None:
    drawing = rate_quality_drawing(rows, "simulated")
    assert drawing is not None
    assert "agreement of 200 images" in drawing.caption
    assert (drawn.sentences(drawing.caption), list(drawing.data)) == snapshot
    assert rate_quality_drawing(front(trials(codecs=("none",), rounds=1))) is None


def test_what_is_far_below_stands_at_the_edge_with_its_figure() -> None:
    data = trials(rounds=1, codecs=("none", "int8", "uint4"))
    rows = front(data.assign(agreement=data["agreement"].where(data["codec"] != "uint4", 0.08)))
    figure = drawn.rendered(rate_quality_figure(rows))
    (axes,) = figure.axes
    assert axes.get_yscale() == "linear"
    low, high = axes.get_ylim()
    assert low > 90, "what is worth comparing fills the axes"
    assert drawn.marks(axes)[:, 1].min() == low
    assert "3: 8 %" in drawn.texts(figure)
    assert max(axes.get_yticks()) <= 100 < high
    drawing = rate_quality_drawing(rows)
    assert drawing is not None
    assert "half of the best" in drawing.caption
    assert drawing.data["accuracy"].min() == pytest.approx(0.08)
