"""Titles and legends stay within the figure, and take nothing from the axes."""

from __future__ import annotations

import pytest
from matplotlib.lines import Line2D

from pareto.analysis.figures.heads import figure_head, grow, head, wrapped
from pareto.analysis.figures.look import WIDTHS_IN
from pareto.analysis.figures.style import blank

LONG = "efficientnet_v2_large_with_a_head_of_my_own at congested-cafe-wifi+very-slow-lte-uplink"


def test_a_long_title_is_folded_between_parts_of_names() -> None:
    lines = wrapped(LONG, 150, size_pt=7.5).split("\n")
    assert max(map(len, lines)) <= 150 / (0.64 * 7.5)
    assert "".join(lines).replace(" ", "") == LONG.replace(" ", "")
    assert all(line.endswith(("_", "-", "+", "at", "own", "uplink")) for line in lines), lines


def test_a_name_that_fits_a_line_is_not_broken() -> None:
    assert wrapped("rpc against tcp: mobilenet_v2 at 10ms-100mbit", 190, size_pt=7.5).split("\n") == [
        "rpc against tcp: mobilenet_v2 at",
        "10ms-100mbit",
    ]


@pytest.mark.parametrize("width", WIDTHS_IN)
@pytest.mark.parametrize("panels", [1, 2])
def test_title_and_legend_stay_within_the_figure(width: str, panels: int) -> None:
    entries = [Line2D([], [], label=f"backend:{'x' * (5 * number)}") for number in range(6)]
    with blank(width, 1.5) as figure:
        axes = figure.subplots(1, panels, squeeze=False)[0]
        axes[0].set_ylabel("throughput\n(images/s)")
        grow(figure, figure_head(figure, LONG, entries) if panels > 1 else head(axes[0], LONG, entries))
    figure.draw_without_rendering()
    legend = figure.legends[0] if panels > 1 else axes[0].get_legend()
    assert len(legend.get_texts()) == 6
    boxes = [legend.get_window_extent(), *([axes[0].title.get_window_extent()] if panels == 1 else [])]
    boxes += [] if panels > 1 else [axes[0]._left_title.get_window_extent()]
    for box in boxes:
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 + 1
        assert all(box.y0 >= each.bbox.y1 - 1 for each in axes)
    # The head takes nothing from the axes.
    assert axes[0].bbox.height / figure.dpi > 0.8
    assert axes[0].bbox.width * panels / figure.dpi > 0.6 * WIDTHS_IN[width]
    assert len(figure.legends) <= 1, "those that did not fit are gone"


@pytest.mark.parametrize("letters", [60, 98, 102])
def test_a_wide_legend_does_not_narrow_the_axes(letters: int) -> None:
    with blank("page", 2) as figure:
        axes = figure.add_subplot()
        head(axes, "A title", [Line2D([], [], label="x" * letters)])
    figure.draw_without_rendering()
    assert axes.bbox.x1 > 0.98 * figure.bbox.x1
