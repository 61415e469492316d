"""How busy each host and link of a chain is, drawn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from syrupy.assertion import SnapshotAssertion

from analysis.costs import steps
from analysis.figures.utilization_figure import MOST_POINTS, utilization_drawing, utilization_figure
from tests.unit import example_chain
from tests.unit.drawn import sentences

SOME = (0, 3, 5, 12, 21)


def drawn(figure: Figure) -> Figure:
    figure.draw_without_rendering()
    return figure


def lines(axes: Axes) -> dict[str, list[Rectangle]]:
    """The bars of each line, outlined ones among them."""
    names = [label.get_text() for label in axes.get_yticklabels()]
    bars = [bar for part in axes.containers for bar in part]
    return {
        name: [bar for bar in bars if round(bar.get_y() + bar.get_height() / 2) == place]
        for place, name in enumerate(names)
    }


def test_how_busy_every_step_is() -> None:
    rows, staged = example_chain.analysed(example_chain.splits(2, SOME))
    figure = drawn(utilization_figure(rows, staged))
    for axes, backend in zip(figure.axes, ("tcp", "rpc"), strict=True):
        points = rows[(rows["backend"] == backend) & rows["on_backend_front"]].sort_values("latency_s")
        heads = [label.get_text().split("\n")[0] for label in axes.get_xticklabels()]
        assert heads == [f"point {point}" for point in points["point"]]
        found = lines(axes)
        assert list(found) == ["edge", "edge → middle1", "middle1", "middle1 → server", "server"]
        outlined = {
            (int(bar.get_x()), name) for name, bars in found.items() for bar in bars if not bar.get_fill()
        }
        named = {"edge": "edge", "middle1": "middle1", "edge-middle1 out": "edge → middle1"}
        assert outlined == {(place, named[step]) for place, step in enumerate(points["bound_by"])}
        first = steps(points.iloc[:1], staged).set_index("step")
        _, busy, *_ = found["server"]
        assert busy.get_width() / found["server"][0].get_width() == pytest.approx(
            first.loc["server", "share"]
        )
        bubble = f"{100 * first.loc['server', 'share']:.0f} %\n{1e3 * first.loc['server', 'idle_s']:.3g} ms"
        assert bubble in [text.get_text() for text in axes.texts]
        boxes = [bar.get_window_extent() for bars in found.values() for bar in bars]
        assert not any(text.get_window_extent().overlaps(box) for text in axes.texts for box in boxes)


def test_a_way_back_that_matters_has_a_line() -> None:
    rows, staged = example_chain.analysed([(3, 12)], bound_by="edge-middle1 back")
    staged.loc[staged["host"] == "edge", "return_s"] = 0.1
    axes = utilization_figure(rows, staged).axes[0]
    assert "edge ← middle1" in lines(axes)
    assert any(not bar.get_fill() for bar in lines(axes)["edge ← middle1"])


def test_a_long_front_is_thinned_out(snapshot: SnapshotAssertion) -> None:
    rows, staged = example_chain.analysed(example_chain.splits(2, SOME))
    rows["on_backend_front"], rows["on_fronts_of"] = True, "tcp; rpc"
    figure = utilization_figure(rows, staged)
    assert len(figure.axes[0].get_xticklabels()) == MOST_POINTS["page"]
    drawing = utilization_drawing(rows, staged, "")
    assert drawing is not None
    caption = drawing.caption
    assert f"; {2 * (15 - MOST_POINTS['page'])} " in caption
    assert sentences(caption) == snapshot


def test_what_was_not_measured_is_not_idle(snapshot: SnapshotAssertion) -> None:
    rows, staged = example_chain.analysed([(3, 12)])
    staged.loc[staged["host"] == "server", ["utilization", "bubble_s"]] = np.nan
    axes = utilization_figure(rows, staged).axes[0]
    assert len(lines(axes)["server"]) == 1
    without = {text.get_text() for text in axes.texts}
    rows, staged = example_chain.analysed([(3, 12)])
    (told,) = without - {text.get_text() for text in utilization_figure(rows, staged).axes[0].texts}
    assert told == snapshot


def test_of_several_codecs_the_front_over_all_is_shown() -> None:
    rows, staged = example_chain.analysed(example_chain.splits(1, SOME))
    crossing = rows["backend"] != ""
    coded = rows[crossing].assign(codec="int8", codec_at_work="int8", on_codec_front=rows["point"].eq("5"))
    both = pd.concat([rows.assign(on_codec_front=~crossing), coded], ignore_index=True)
    both = pd.concat([both, rows[~crossing].assign(codec="int8", on_codec_front=True)], ignore_index=True)
    stages = pd.concat([staged, staged.assign(codec="int8")], ignore_index=True)
    drawing = utilization_drawing(both, stages, "")
    assert drawing is not None
    assert "the front over all codecs" in drawing.caption
    assert set(drawing.data.loc[drawing.data["backend"] != "", "codec"]) == {"int8"}
    assert [axes.get_ylabel() for axes in drawing.draw("page").axes] == ["tcp int8", "rpc int8"]
    alike = rows.assign(on_codec_front=rows["on_backend_front"])
    alike = pd.concat([alike, alike.assign(codec="int8")], ignore_index=True)
    assert len(utilization_figure(alike, stages).axes) == 2, "int8 comes to the same: each cell is drawn once"
    nothing = both.assign(on_codec_front=both["backend"] == "")
    assert len(utilization_figure(nothing, stages).axes) == 1
    assert utilization_drawing(both, stages.assign(utilization=np.nan), "") is None
