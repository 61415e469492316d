"""The figures of a model profile."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from matplotlib.container import BarContainer

from analysis.figures.units_figure import roofline_figure, units_figure
from tests.unit.analysis.test_model_profile import profile

PEAKS = {"peak_flops": 5e12, "peak_bytes_s": 1e10}


@pytest.mark.parametrize("width", ["page", "column"])
def test_a_bar_for_each_unit_and_device_and_a_panel_for_each_batch_size(width: str) -> None:
    made = profile()
    figure = units_figure(made, width=width)
    figure.draw_without_rendering()
    for axes, batch_size in zip(figure.axes, (1, 8), strict=True):
        bars = [each for each in axes.containers if isinstance(each, BarContainer)]
        assert [each.get_label() for each in bars] == ["edge", "server"]
        for each, role in zip(bars, ("edge", "server"), strict=True):
            heights = [bar.get_height() for bar in each]
            assert heights == pytest.approx(1e3 * made.of(role, batch_size).median_s)
    assert [text.get_text() for text in figure.axes[-1].get_xticklabels()] == [
        "1\nstem",
        "2\nbody",
        "3\noutput",
    ]


def test_times_of_many_sizes_are_logarithmic() -> None:
    made = profile()
    wide = dataclasses.replace(made.times[0], median_s=np.array([1e-6, 0.0, 1e-3]))
    figure = units_figure(dataclasses.replace(made, times=(wide,)))
    assert figure.axes[0].get_yscale() == "log"
    assert units_figure(made).axes[0].get_yscale() == "linear"


@pytest.mark.parametrize("width", ["page", "column"])
def test_units_lie_under_the_roof_of_their_device(width: str) -> None:
    made = dataclasses.replace(profile(), hosts={"edge": PEAKS, "server": {**PEAKS, "peak_flops": 8e12}})
    figure = roofline_figure(made, width=width)
    figure.draw_without_rendering()
    for axes, role in zip(figure.axes, ("edge", "server"), strict=True):
        *units, roof = axes.lines
        assert [len(line.get_xdata()) for line in units] == [2, 2], "a unit without FLOPs has no place"
        x, y = (np.asarray(data)[0] for data in units[0].get_data())
        first = made.flops[0]
        assert x == pytest.approx(first / made.moved_bytes(1)[0])
        assert y == pytest.approx(first / made.of(role, 1).median_s[0] / 1e9)
        assert max(np.asarray(roof.get_ydata())) == pytest.approx(made.hosts[role]["peak_flops"] / 1e9)
        ramp = np.asarray(roof.get_ydata())[0] / np.asarray(roof.get_xdata())[0]
        assert ramp == pytest.approx(PEAKS["peak_bytes_s"] / 1e9)


def test_only_devices_whose_best_is_known_have_a_roof() -> None:
    made = dataclasses.replace(profile(), hosts={"edge": PEAKS, "server": {}})
    (axes,) = roofline_figure(made).axes
    assert "edge" in axes.get_title(loc="left")
