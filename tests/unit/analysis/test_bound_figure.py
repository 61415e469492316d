"""Measured against bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from syrupy.assertion import SnapshotAssertion

from analysis.figures import example
from analysis.figures.bound_figure import MEASURES, NAMED, WORST, beyond, bound_drawing, bound_figure
from analysis.naming import cell_name
from tests.unit.drawn import sentences

LATENCY, THROUGHPUT = MEASURES


def rows(**columns: Any) -> pd.DataFrame:
    return example().assign(**columns)


def better(points: int) -> pd.DataFrame:
    """So many points take less time than they can."""
    found = rows()
    found.loc[: points - 1, "latency_efficiency"] = 1.02
    found.loc[: points - 1, "latency_s"] = found["latency_bound_s"] / 1.02
    return found


def marked(axes: Axes) -> int:
    """How many points are ringed."""
    return sum(len(line.get_xdata()) for line in axes.lines if line.get_markeredgecolor() == "black")


def test_every_point_is_over_its_bound_and_the_scales_are_the_same() -> None:
    found = rows()
    latency, throughput = bound_figure(found).axes
    for axes, measure, unit in ((latency, LATENCY, 1e3), (throughput, THROUGHPUT, 1)):
        drawn = [
            line
            for line in axes.lines
            if line.get_marker() in ("o", "s", "<") and line.get_markeredgecolor() != "black"
        ]
        x = np.concatenate([line.get_xdata() for line in drawn])
        y = np.concatenate([line.get_ydata() for line in drawn])
        np.testing.assert_allclose(sorted(x), sorted(unit * found[measure.bound]))
        np.testing.assert_allclose(sorted(y), sorted(unit * found[measure.column]))
        assert axes.get_xlim() == axes.get_ylim()
        assert marked(axes) == 0


@pytest.mark.parametrize(("measure", "panel", "share"), [(LATENCY, 0, 1 / 0.9), (THROUGHPUT, 1, 0.9)])
def test_the_dashed_line_is_nine_tenths_of_what_is_possible(measure: Any, panel: int, share: float) -> None:
    axes = bound_figure(rows()).axes[panel]
    solid, dashed = (
        next(line for line in axes.lines if line.get_linestyle() == kind) for kind in ("-", "--")
    )
    np.testing.assert_allclose(solid.get_ydata(), solid.get_xdata())
    np.testing.assert_allclose(dashed.get_ydata() / dashed.get_xdata(), share)


def test_a_point_beyond_its_bound_is_marked_numbered_and_told(snapshot: SnapshotAssertion) -> None:
    found = better(1)
    figure = bound_figure(found)
    assert [marked(axes) for axes in figure.axes] == [1, 0]
    assert found.loc[0, "point"] in [text.get_text() for text in figure.axes[0].texts]
    plain = bound_figure(rows()).legends[0].texts
    assert [text.get_text() for text in figure.legends[0].texts[len(plain) :]] == snapshot
    made = bound_drawing(found, "")
    assert made is not None
    first = cell_name(found.loc[0])
    assert f"({first}; " in made.caption
    assert sentences(made.caption) == snapshot
    assert made.data["latency_efficiency"].max() == pytest.approx(1.02)


def test_many_beyond_their_bound_are_not_all_named() -> None:
    many = pd.concat([better(8), better(8).assign(codec="fp16")], ignore_index=True)
    made = bound_drawing(many, "")
    assert made is not None
    assert f" {14 - NAMED} more" in made.caption


def test_what_is_rounded_is_not_beyond() -> None:
    found = rows(latency_efficiency=1 + 1e-9)
    assert not beyond(found, LATENCY).any()
    made = bound_drawing(found, "")
    assert made is not None
    exact = bound_drawing(rows(latency_efficiency=1.0), "")
    assert exact is not None
    assert made.caption == exact.caption


def test_the_farthest_are_numbered() -> None:
    found = rows(latency_efficiency=0.8)
    found.loc[[1, 4, 6], "latency_efficiency"] = [0.3, 0.2, 0.1]
    texts = [text.get_text() for text in bound_figure(found).axes[0].texts]
    assert sorted(texts) == sorted(found.loc[[1, 4, 6], "point"])
    assert len(texts) == WORST


def test_without_bounds_there_is_nothing_to_draw() -> None:
    assert bound_drawing(rows(latency_bound_s=np.nan, throughput_bound_ips=np.nan), "") is None
    only = rows(latency_bound_s=np.nan, throughput_bound_ips=[np.inf, *rows()["throughput_bound_ips"][1:]])
    (axes,) = bound_figure(only).axes
    assert axes.get_ylabel() == "throughput (images/s)"
    assert np.isfinite(axes.get_xlim()).all()


@pytest.mark.parametrize("width", ["column", "page"])
def test_both_widths(width: str) -> None:
    one, other = bound_figure(better(2), width=width).axes
    beside = abs(one.get_position().y0 - other.get_position().y0) < 1e-6
    assert beside == (width == "page")
