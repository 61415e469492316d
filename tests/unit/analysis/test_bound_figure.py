"""Measured against bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from syrupy.assertion import SnapshotAssertion

from analysis.figures import example
from analysis.figures.bound_figure import MEASURES, NAMED, beyond, bound_drawing, bound_figure
from analysis.naming import cell_name
from tests.unit.drawn import legend, outside, overlapping, rendered, sentences

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
    rings = [line for line in axes.lines if line.get_markeredgecolor() == "black"]
    return sum(len(line.get_xdata()) for line in rings)


def test_every_point_has_its_share_of_the_bound() -> None:
    found = rows()
    latency, throughput = bound_figure(found).axes
    for axes, measure in ((latency, LATENCY), (throughput, THROUGHPUT)):
        drawn = [line for line in axes.lines if line.get_marker() in ("o", "s", "<")]
        y = np.concatenate([line.get_ydata() for line in drawn])
        x = np.concatenate([line.get_xdata() for line in drawn])
        np.testing.assert_allclose(sorted(y), sorted(100 * found[measure.efficiency]))
        assert np.bincount(x.round().astype(int)).tolist() == [2, 2, 2, 1]
        assert marked(axes) == 0
        assert axes.get_ylim()[0] == 0
        assert {line.get_ydata()[0] for line in axes.lines if line.get_marker() == "None"} == {100, 90}


def test_a_point_beyond_its_bound_is_marked_and_told(snapshot: SnapshotAssertion) -> None:
    found = better(1)
    figure = bound_figure(found)
    assert [marked(axes) for axes in figure.axes] == [1, 0]
    plain = legend(bound_figure(rows()))
    assert legend(figure)[len(plain) :] == snapshot
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


def test_without_bounds_there_is_nothing_to_draw() -> None:
    assert bound_drawing(rows(latency_bound_s=np.nan, throughput_bound_ips=np.nan), "") is None
    only = rows(latency_bound_s=np.nan, throughput_bound_ips=[np.inf, *rows()["throughput_bound_ips"][1:]])
    (axes,) = bound_figure(only).axes
    assert axes.get_ylabel() == "throughput\n(% of its bound)"
    assert np.isfinite(axes.get_ylim()).all()


@pytest.mark.parametrize("width", ["column", "page"])
def test_both_widths(width: str) -> None:
    figure = rendered(bound_figure(better(2), width=width))
    assert outside(figure) == overlapping(figure) == []
