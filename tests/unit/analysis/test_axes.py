"""Numbers at logarithmic axes; a logarithmic scale with places for nothing and no limit."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from pareto.analysis.figures.axes import Scale, fit_axis, label_points
from pareto.analysis.figures.marks import ends
from pareto.analysis.figures.style import styled


def test_a_scale_has_strips_for_what_has_no_place_on_it() -> None:
    scale = Scale(1.0, 100.0, strip_low=True, strip_high=True)
    assert scale.at(np.array([1.0, 10.0, 100.0])) == pytest.approx([0.09, 0.5, 0.91])
    assert scale.at(np.array([0.0, math.inf])) == pytest.approx([0.045, 0.955])
    values = scale.values(100)
    assert (values[0], values[-1]) == (0, math.inf)
    assert scale.at(values[10:90]) == pytest.approx((np.arange(10, 90) + 0.5) / 100)
    around = Scale.around(pd.Series([5.0]), (1.0, 2.0))
    assert around.high / around.low == pytest.approx(100)
    assert math.sqrt(around.high * around.low) == pytest.approx(5)
    assert Scale.around(pd.Series(dtype=float), (1.0, 1000.0)) == Scale(1.0, 1000.0)


@pytest.mark.parametrize("decades", [1.5, 3, 6, 12])
@pytest.mark.parametrize("width_in", [1.2, 3, 6])
def test_numbers_at_a_logarithmic_axis_never_touch(decades: float, width_in: float) -> None:
    with styled("column"):
        figure = Figure(figsize=(width_in, width_in))
        axes = figure.add_subplot()
        values = pd.Series(0.003 * np.logspace(0, decades, 20))
        for name in ("x", "y"):
            fit_axis(axes, name, values)  # type: ignore[arg-type]
    figure.draw_without_rendering()
    for axis, side in ((axes.xaxis, 0), (axes.yaxis, 1)):
        boxes = [
            text.get_window_extent().get_points()[:, side]
            for text in axis.get_ticklabels()
            if text.get_text()
        ]
        shown = sorted(map(tuple, boxes))
        assert len(shown) >= 2
        assert all(one[1] <= other[0] for one, other in pairwise(shown))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((3, 9), (0, 9.9)),
        ((3, 23.9), (0, 26.29)),
        ((3, 24), (3 / 8**0.1, 24 * 8**0.1)),
        ((0, 5), (0, 5.5)),
        ((-5, 5), (-6, 6)),
        ((0, 0), (0, 1)),
    ],
)
def test_an_axis_starts_at_0_or_is_logarithmic(
    values: tuple[float, float], expected: tuple[float, float]
) -> None:
    assert ends(*values, room=0.1) == pytest.approx(expected)


def test_shares_that_lie_close_together_are_not_pressed_to_the_top() -> None:
    axes = Figure().add_subplot()
    fit_axis(axes, "y", pd.Series([97.0, 98.0]), shares=True)
    assert axes.get_ylim() == pytest.approx((96.88, 98.12))


@pytest.mark.parametrize(
    ("count", "first", "last"), [(5, "0\nunit", "4\nunit"), (30, "0", "29"), (300, "0", "280")]
)
def test_points_are_named_where_names_fit_and_numbered_where_they_do_not(
    count: int, first: str, last: str
) -> None:
    with styled("page"):
        figure = Figure(figsize=(7, 2))
        axes = figure.add_subplot()
        label_points(axes, pd.Series(["unit"] * count, index=map(str, range(count))))
    texts = [label for label in axes.get_xticklabels() if label.get_text()]
    assert (texts[0].get_text(), texts[-1].get_text()) == (first, last)
    assert {text.get_rotation() for text in texts} == {0}
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in texts]
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
