"""The map of two cuts."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from syrupy.assertion import SnapshotAssertion

from analysis.figures.cuts_figure import cuts_drawing, cuts_figure
from tests.unit import example_chain
from tests.unit.drawn import sentences

SOME = (0, 3, 5, 12, 21)


def drawn(figure: Figure) -> Figure:
    figure.draw_without_rendering()
    return figure


def test_the_map_of_two_cuts(snapshot: SnapshotAssertion) -> None:
    rows, _ = example_chain.analysed(example_chain.splits(2, SOME))
    rows.loc[(rows["point"] == "12+21") & (rows["backend"] == "tcp"), ["throughput_ips", "latency_s"]] = (
        np.nan
    )
    figure = drawn(cuts_figure(rows.assign(on_front=False)))
    axes = figure.axes[0]
    tcp = rows[rows["backend"] != "rpc"].set_index("point")
    grid = axes.collections[0].get_array()
    texts = {(y, x): line.get_label() for line in axes.lines for x, y in line.get_xydata().astype(int)}
    letters = {"edge": "E", "middle1": "M", "edge-middle1 out": "1"}
    for y, first in enumerate(SOME):
        for x, second in enumerate(SOME):
            if second < first:
                assert np.ma.is_masked(grid[y, x])
                assert (y, x) not in texts
            elif (first, second) == (12, 21):
                assert texts[y, x] == "\N{MULTIPLICATION SIGN}"
            else:
                assert grid[y, x] == tcp.loc[f"{first}+{second}", "throughput_ips"]
                assert texts[y, x] == letters[tcp.loc[f"{first}+{second}", "bound_by"]]
    for axes, backend in zip(figure.axes, ("tcp", "rpc"), strict=False):
        frames = {(round(frame.get_y() + 0.5), round(frame.get_x() + 0.5)) for frame in axes.patches}
        on_front = rows.loc[rows["on_fronts_of"].str.contains(backend), "point"]
        assert frames == {tuple(SOME.index(int(cut)) for cut in point.split("+")) for point in on_front}
    assert sentences(cuts_drawing(rows, "").caption) == snapshot
