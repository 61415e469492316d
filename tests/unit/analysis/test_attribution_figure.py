"""Where the time of each split goes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from syrupy.assertion import SnapshotAssertion

from analysis.costs import stage_times
from analysis.figures.attribution_figure import (
    MOST_BARS,
    MOST_SPLITS,
    attribution_drawing,
    attribution_figure,
)
from analysis.fronts.front import front
from analysis.points import order
from tests.unit import drawn as drawn_texts
from tests.unit import example_chain
from tests.unit.drawn import sentences
from tests.unit.example_codecs import trials as codecs


def heights(axes: Axes) -> np.ndarray:
    return np.array([[bar.get_height() for bar in part] for part in axes.containers])


def drawn(figure: Figure) -> Figure:
    figure.draw_without_rendering()
    return figure


def legend(axes: Axes) -> list[str]:
    shown = axes.get_legend()
    assert shown is not None
    return [text.get_text() for text in shown.get_texts()]


@pytest.mark.parametrize("links", [1, 2, 3])
def test_bars_hold_every_host_and_add_up_to_the_latency(links: int, snapshot: SnapshotAssertion) -> None:
    rows, staged = example_chain.analysed(example_chain.splits(links, (3, 12)))
    figure = attribution_figure(stage_times(rows, staged))
    hosts = ["edge", *(f"middle{number}" for number in range(1, links)), "server"]
    parts = legend(figure.axes[0])[: 5 + len(hosts)]
    assert parts[:2] == ["tcp", "rpc"]
    assert [part.split()[0] for part in parts if part.split()[0] in hosts] == hosts
    assert parts == snapshot
    latencies = [rows.loc[rows["backend"] == backend, "latency_s"] for backend in ("tcp", "rpc")]
    np.testing.assert_allclose(heights(figure.axes[0]).sum(axis=0), 1e3 * pd.concat(latencies), rtol=1e-4)


def test_hosts_between_are_one_part_where_their_own_times_are_unknown() -> None:
    rows, _ = example_chain.analysed(example_chain.splits(2, (3, 12)))
    parts = legend(attribution_figure(rows).axes[0])
    assert len([part for part in parts if part.startswith("middle")]) == 1


def test_backends_stand_side_by_side_and_the_lowest_latency_is_marked() -> None:
    rows, _ = example_chain.analysed(example_chain.splits(1))
    (axes,) = drawn(attribution_figure(rows)).axes
    points = rows.drop_duplicates("point").sort_values("point", key=order)["point"].tolist()
    centres = np.array([bar.get_x() + bar.get_width() / 2 for bar in axes.containers[0]])
    assert np.bincount(centres.round().astype(int)).tolist() == [2] * (len(points) - 1) + [1]
    best = rows.loc[rows["latency_s"].idxmin()]
    arrow, text = axes.texts
    assert round(arrow.xy[0]) == points.index(best["point"])
    assert text.get_text() == f"{1e3 * best['latency_s']:.3g}"
    marks = [line for line in axes.lines if set(np.asarray(line.get_ydata()).tolist()) == {0}]
    assert [(line.get_marker(), len(line.get_xdata())) for line in marks] == [("o", 21), ("s", 21)]


def test_the_lowest_latency_of_few_points_stands_over_its_arrow() -> None:
    rows, _ = example_chain.analysed(example_chain.splits(1, (0, 3, 6, 9, 12, 15, 21)))
    (axes,) = drawn(
        attribution_figure(rows.assign(latency_s=rows["latency_s"].where(rows["point"] != "21", 1e-3)))
    ).axes
    arrow, text = axes.texts
    assert (text.xy[0], text.get_ha()) == (arrow.xy[0], "center")
    assert drawn_texts.outside(axes.figure) == []


def test_of_many_splits_those_that_matter_are_drawn(snapshot: SnapshotAssertion) -> None:
    rows, staged = example_chain.analysed(example_chain.splits(2, range(0, 22, 3)))
    assert rows["point"].nunique() == 36 > MOST_SPLITS
    figure = attribution_figure(stage_times(rows, staged))
    wanted = {*rows.loc[rows["on_backend_front"], "point"], "0+0", "0+21", "21+21"}
    low, high = figure.axes[0].get_xlim()
    assert set(attribution_drawing(rows, "").data["point"]) == wanted
    assert high - low >= len(wanted)
    caption = attribution_drawing(rows, "").caption
    assert f"{len(wanted)} of 36" in caption
    assert sentences(caption) == snapshot


def test_a_codec_s_times_are_parts_where_there_is_one() -> None:
    data = codecs(codecs=("none", "int8"), rounds=1)
    none = front(data.assign(encode_s=np.nan, decode_s=np.nan))
    assert {"encode", "decode"}.isdisjoint(legend(attribution_figure(none).axes[0]))
    coded = (data["codec"] == "int8") & (data["payload_bytes"] > 0)
    rows = front(
        data.assign(encode_s=np.where(coded, 0.004, np.nan), decode_s=np.where(coded, 0.002, np.nan))
    )
    drawing = attribution_drawing(rows, "")
    assert [entry for entry in legend(drawing.draw("page").axes[0]) if entry in ("encode", "decode")] == [
        "encode",
        "decode",
    ]
    of_int8 = drawing.data[(drawing.data["codec"] == "int8") & (drawing.data["backend"] != "")]
    assert of_int8[["encode_s", "decode_s"]].drop_duplicates().to_numpy().tolist() == [[0.004, 0.002]]


CODECS = ("none", "int8", "uint4")


def test_codecs_stand_side_by_side_where_they_have_cells() -> None:
    data = codecs(codecs=CODECS, rounds=2, backends=("tcp", "rpc"))
    rows = front(data[(data["codec"] != "uint4") | (data["point"] == "0")])
    figure = drawn(attribution_figure(rows))
    (axes,) = figure.axes
    at = np.array([bar.get_x() + bar.get_width() / 2 for bar in axes.containers[0]])
    assert np.bincount(at.round().astype(int)).tolist() == [6, 4, 4, 4, 1], "all on the edge once"
    for point in range(5):
        assert at[at.round() == point].mean() == pytest.approx(point)
    assert legend(axes)[:6] == [f"{backend} {codec}" for backend in ("tcp", "rpc") for codec in CODECS]
    assert "no valid trial" not in legend(axes), "a cell that there is not lacks no trial"
    marks = [line.get_marker() for line in axes.lines if set(np.asarray(line.get_ydata()).tolist()) == {0}]
    assert len(set(marks)) == len(marks) == 6


def test_a_bar_is_as_high_as_the_latency_and_reaches_its_bound() -> None:
    """Parts whose medians do not add up: with a quota of the processor each is often short, and seldom all at once."""
    data = codecs(codecs=("none",), rounds=3)
    crossing = data["payload_bytes"] > 0
    for number, column in enumerate(("edge_s", "network_s", "server_s")):
        low = crossing & (data["round"] != number + 1)
        data.loc[low, column] = 0.4 * data.loc[low, column]
    data["latency_bound_s"] = 0.99 * data["latency_s"]
    rows = front(data)
    axes = drawn(attribution_figure(rows)).axes[0]
    np.testing.assert_allclose(heights(axes).sum(axis=0), 1e3 * rows["latency_s"], rtol=1e-6)
    assert (1e3 * rows["latency_bound_s"] <= heights(axes).sum(axis=0)).all()


def test_of_many_points_with_many_codecs_those_that_matter_are_drawn() -> None:
    every = codecs(rounds=1)
    more = [every.assign(point=(every["point"].astype(int) + 4 * part).astype(str)) for part in range(6)]
    rows = front(pd.concat(more, ignore_index=True).drop_duplicates(["codec", "point"]))
    assert rows["point"].nunique() * rows["codec"].nunique() > MOST_BARS
    drawing = attribution_drawing(rows, "")
    shown = drawing.data["point"].nunique()
    assert shown * rows["codec"].nunique() <= MOST_BARS
    assert f"Shown: {shown} of {rows['point'].nunique()} points" in drawing.caption
