"""What figures draw is what was measured: each mark, bar and line where its figure says it belongs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.patches import Rectangle
from syrupy.assertion import SnapshotAssertion

from pareto.analysis import figures
from pareto.analysis.comparing.paired import ALL, paired
from pareto.analysis.costs import stage_times, steps
from pareto.analysis.figures.accuracy_figure import accuracy_drawing
from pareto.analysis.figures.answer_figure import answer_drawing, lines
from pareto.analysis.figures.attribution_figure import (
    MOST_BARS,
    MOST_SPLITS,
    attribution_drawing,
    attribution_figure,
)
from pareto.analysis.figures.bound_figure import MEASURES, bound_drawing, bound_figure
from pareto.analysis.figures.cuts_figure import cuts_figure
from pareto.analysis.figures.energy_figure import energy_figure
from pareto.analysis.figures.front_figure import front_figure
from pareto.analysis.figures.link_figure import (
    MOST_DOTS,
    MOST_ROWS,
    link_asked_data,
    link_asked_drawings,
    link_asked_figure,
)
from pareto.analysis.figures.paired_figure import INTERVAL, RANGE, SIGNIFICANT, UNSURE, paired_drawing
from pareto.analysis.figures.payload_figure import payload_data, payload_drawing
from pareto.analysis.figures.pipelining_figure import pipelining_drawing
from pareto.analysis.figures.rate_quality_figure import cells, rate_quality_drawing, rate_quality_figure
from pareto.analysis.figures.style import codec_looks
from pareto.analysis.figures.tail_figure import ALONE, LOADED, chosen_points, tail_data, tail_drawing
from pareto.analysis.figures.units_figure import roofline_figure, units_figure
from pareto.analysis.figures.utilization_figure import MOST_POINTS, utilization_drawing, utilization_figure
from pareto.analysis.findings import Options, find
from pareto.analysis.fronts.front import front
from pareto.analysis.points import order
from pareto.analysis.runs.load import load
from pareto.protocol.errors import UserError
from pareto.remote.link.probe import GOODPUT
from pareto.remote.link.profile import Direction, Profile
from tests.unit import drawn, example_chain
from tests.unit.analysis.figure_runs import Reported, keep_requests
from tests.unit.analysis.test_costs import LOSSY, SLOW, WIFI, manifest, probe, probes
from tests.unit.analysis.test_figures import example
from tests.unit.analysis.test_model_profile import profile
from tests.unit.example_codecs import trials as codecs
from tests.unit.example_run import PAYLOAD_KIB, trials, with_energy, write
from tests.unit.gating import gating

Reports = Callable[[str], Reported]
NO_STAGES = pd.DataFrame()
SOME = (0, 3, 5, 12, 21)
ALONE_NAME = ("mobilenetv2", "200ms-5mbit")


def of_backend(front: pd.DataFrame, backend: str) -> pd.DataFrame:
    return front[front["backend"] == backend].sort_values("point", key=order)


def fronted(folder: Path, rows: list[dict[str, Any]]) -> pd.DataFrame:
    return front(load(write(folder, rows)), resamples=20)


# Energy and accuracy: three panels of three figures.


def test_the_energy_is_that_above_idle_where_it_is_known(reported: Reports) -> None:
    rows = reported("backends").found.front
    above = rows.assign(active_energy_j=np.where(rows["backend"] == "", 0.5, 0.75))
    whole, active = (energy_figure(each) for each in (rows, above))
    labels = [[figure.axes[1].get_xlabel(), figure.axes[2].get_ylabel()] for figure in (whole, active)]
    assert ["idle" in label for of_figure in labels for label in of_figure] == [False, False, True, True]
    for figure, expected in ((whole, rows["energy_j"]), (active, above["active_energy_j"])):
        at = np.concatenate([marks.get_offsets() for marks in figure.axes[2].collections])
        np.testing.assert_allclose(sorted(at[:, 1]), sorted(expected))
        at = np.concatenate([marks.get_offsets() for marks in figure.axes[1].collections])
        np.testing.assert_allclose(sorted(at[:, 0]), sorted(expected))
        np.testing.assert_allclose(sorted(at[:, 1]), sorted(rows["throughput_ips"]))


def test_points_on_the_front_of_energy_are_numbered_and_filled_in_every_panel(reported: Reports) -> None:
    rows = reported("backends").found.front
    figure = drawn.rendered(energy_figure(rows))
    on_front = rows.loc[rows["on_energy_front"], "point"]
    for axes in (axes for axes in figure.axes if axes.axison):
        assert sorted(text.get_text() for text in axes.texts if text.get_text()) == sorted(on_front)
        assert sum(len(marks.get_offsets()) for marks in axes.collections if marks.zorder == 4) == len(
            on_front
        )
        assert sum(len(marks.get_offsets()) for marks in axes.collections) == len(rows)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        pytest.param(
            trials(rounds=1)[::9] + with_energy(trials(rounds=1, netem="other"))[::9],
            [("mobilenetv2", "other")],
            marks=pytest.mark.deep,
        ),
        pytest.param(
            [row | {"edge_energy_j": 0.5} for row in trials(rounds=1, backends=("rpc",))[::3]],
            [ALONE_NAME],
            marks=pytest.mark.deep,
        ),
        (
            with_energy(trials(rounds=1, codec="fp16"))[::9]
            + with_energy(trials(rounds=1), server=False)[::9],
            [],
        ),
    ],
    ids=["one of two networks", "equal energies", "codecs of different devices"],
)
def test_figures_of_energy_exist_only_where_it_is_comparable(
    tmp_path: Path, rows: list[dict[str, Any]], named: list[tuple[str, ...]]
) -> None:
    found = find([write(tmp_path, rows)], Options())
    made = [each for each in figures_of(found) if each.kind == "energy"]
    assert [each.name for each in made] == named
    assert bool(found.notes) == (not named), "a note says why there is none"


def figures_of(found: Any) -> list[Any]:
    from pareto.analysis.figures.kinds import drawings

    return list(drawings(found, each=True))


def test_each_point_of_each_codec_is_drawn_once_beside_its_accuracy(reported: Reports) -> None:
    found = reported("codecs")
    rows = found.found.front[lambda front: front["netem"] == "slow"]
    figure = found.drawings["accuracy-small-slow"].draw("page")
    panels = [axes for axes in figure.axes if axes.axison]
    for axes in panels:
        every = sum(len(marks.get_offsets()) for marks in axes.collections)
        assert every == (rows["backend"] != "").sum() + 1, "all on the edge once"
        filled = sum(len(marks.get_offsets()) for marks in axes.collections if marks.zorder == 4)
        assert filled == rows.drop_duplicates(["codec_at_work", "backend", "point"])["on_codec_front"].sum()
    percent = np.concatenate([marks.get_offsets()[:, 1] for marks in panels[2].collections])
    assert set(np.round(percent, 6)) == {100.0, 98.5, 90.0}
    assert panels[1].get_xlabel() == panels[2].get_ylabel() == "agreement (%)"
    partly = rows.assign(accuracy=rows["accuracy"].where(rows["codec"] != "uint4"))
    partly["accuracy_level"] = partly["accuracy_level"].where(rows["codec"] != "uint4")
    told = accuracy_drawing(partly, "Somewhere.", "latency, throughput, accuracy")
    assert told is not None
    assert any("uint4" in line and "not measured" in line for line in drawn.sentences(told.caption))
    assert accuracy_drawing(rows[rows["codec"] == "int8"], "", "latency") is None, (
        "one codec has no such figure"
    )


def test_no_lossy_codec_s_front_is_drawn_without_what_it_costs(reported: Reports) -> None:
    rows = reported("codecs").found.front[lambda front: front["netem"] == "slow"]
    entries = drawn.legend(front_figure(rows))
    assert "tcp int8 front (agreement 98.5 %)" in entries
    assert {"tcp zstd front", "tcp none front"} <= {*entries}, "the same output costs nothing"
    unknown = rows.assign(
        **{name: rows[name].where(rows["codec"] != "int8") for name in ("accuracy", "agreement")}
    )
    assert "tcp int8 front (accuracy not measured)" in drawn.legend(front_figure(unknown))


def test_accuracy_over_bytes_has_each_point_of_a_codec_once_whatever_the_network(reported: Reports) -> None:
    rows = reported("codecs").found.front
    data = cells(rows)
    assert len(data) == 5 * 4
    best = data[data["undominated"]]
    # By hand: 100 kB at point 3 is the least payload; halved, quartered, and an eighth of it by lossier codecs.
    by_hand = {("fp16", 50_000), ("int8", 25_000), ("uint4", 12_500)}
    assert set(zip(best["codec"], best["wire_bytes_per_image"], strict=True)) == by_hand
    assert not data["point"].eq("4").any(), "nothing crosses there"
    (axes,) = rate_quality_figure(rows).axes
    assert len(drawn.marks(axes)) == 20
    bars = np.concatenate([line for bars in axes.collections for line in bars.get_segments()])
    assert bars[:, 1].min() == pytest.approx(85.059, abs=1e-3)  # uint4: 180 of 200 images
    assert rate_quality_drawing(rows[rows["codec"] == "none"]) is None


def test_an_accuracy_far_below_stands_at_the_edge_with_its_figure(reported: Reports) -> None:
    rows = reported("codecs").found.front
    bad = rows["codec"].eq("uint4") & rows["backend"].ne("")
    low = {name: rows[name].mask(bad, 0.08) for name in ("agreement", "accuracy", "accuracy_level")}
    figure = drawn.rendered(
        rate_quality_figure(rows.assign(**low, accuracy_low=rows["accuracy_low"].mask(bad, 0.05)))
    )
    (axes,) = figure.axes
    assert axes.get_ylim()[0] > 90, "what is worth comparing fills the axes"
    assert drawn.marks(axes)[:, 1].min() == axes.get_ylim()[0]
    assert "3: 8 %" in drawn.texts(figure)
    assert max(axes.get_yticks()) <= 100 < axes.get_ylim()[1]


# Where the time of a request goes.


def heights(axes: Axes) -> np.ndarray:
    return np.array([[bar.get_height() for bar in part] for part in axes.containers])


@pytest.mark.parametrize("links", [1, 3])
def test_bars_hold_every_host_and_add_up_to_the_latency(links: int) -> None:
    rows, staged = example_chain.analysed(example_chain.splits(links, (3, 12)))
    (axes,) = attribution_figure(stage_times(rows, staged)).axes
    hosts = ["edge", *(f"middle{number}" for number in range(1, links)), "server"]
    parts = drawn.legend(axes.figure)
    assert parts[:2] == ["tcp", "rpc"]
    assert [part.split()[0] for part in parts if part.split()[0] in hosts] == hosts
    latencies = [rows.loc[rows["backend"] == backend, "latency_s"] for backend in ("tcp", "rpc")]
    np.testing.assert_allclose(heights(axes).sum(axis=0), 1e3 * pd.concat(latencies), rtol=1e-4)
    assert drawn.outside(drawn.rendered(axes.figure)) == []
    unknown = drawn.legend(attribution_figure(rows))
    assert sum(part.startswith("middle") for part in unknown) == (links > 1), (
        "one part, if their times are unknown"
    )


def test_backends_stand_side_by_side_and_the_lowest_latency_is_marked() -> None:
    for points in (range(22), SOME):
        rows, _ = example_chain.analysed(example_chain.splits(1, points))
        (axes,) = drawn.rendered(attribution_figure(rows)).axes
        named = rows.drop_duplicates("point").sort_values("point", key=order)["point"].tolist()
        centres = np.array([bar.get_x() + bar.get_width() / 2 for bar in axes.containers[0]])
        assert np.bincount(centres.round().astype(int)).tolist() == [2] * (len(named) - 1) + [1]
        best = rows.loc[rows["latency_s"].idxmin()]
        arrow, text = axes.texts
        assert round(arrow.xy[0]) == named.index(best["point"])
        assert text.get_text() == f"{1e3 * best['latency_s']:.3g}"
        marks = [line for line in axes.lines if set(np.asarray(line.get_ydata()).tolist()) == {0}]
        each = len(named) - 1
        assert [(line.get_marker(), len(line.get_xdata())) for line in marks] == [("o", each), ("s", each)]


def test_of_many_splits_or_bars_those_that_matter_are_drawn(reported: Reports) -> None:
    rows, _ = example_chain.analysed(example_chain.splits(2, range(0, 22, 3)))
    assert rows["point"].nunique() == 36 > MOST_SPLITS
    drawing = attribution_drawing(rows, "")
    wanted = {*rows.loc[rows["on_backend_front"], "point"], "0+0", "0+21", "21+21"}
    assert set(drawing.data["point"]) == wanted
    assert f"{len(wanted)} of 36" in drawing.caption
    low, high = drawing.draw("page").axes[0].get_xlim()
    assert high - low >= len(wanted)
    of_codecs = reported("codecs").found.front[lambda front: front["netem"] == "slow"]
    places = [
        of_codecs.assign(point=(of_codecs["point"].astype(int) + 4 * part).astype(str)) for part in range(6)
    ]
    every = pd.concat(places, ignore_index=True).drop_duplicates(["codec", "point"])
    assert every["point"].nunique() * every["codec"].nunique() > MOST_BARS
    some = attribution_drawing(every, "")
    assert some.data["point"].nunique() * every["codec"].nunique() <= MOST_BARS
    assert f"Shown: {some.data['point'].nunique()} of {every['point'].nunique()} points" in some.caption


def test_codecs_stand_side_by_side_where_they_have_cells_and_their_times_are_parts() -> None:
    data = codecs(codecs=("none", "int8", "uint4"), rounds=1, backends=("tcp", "rpc"))
    data = data[(data["codec"] != "uint4") | (data["point"] == "0")]
    coded = data["codec"].eq("int8") & data["payload_bytes"].gt(0)
    rows = front(
        data.assign(encode_s=np.where(coded, 0.004, np.nan), decode_s=np.where(coded, 0.002, np.nan))
    )
    drawing = attribution_drawing(rows, "")
    (axes,) = drawn.rendered(drawing.draw("page")).axes
    at = np.array([bar.get_x() + bar.get_width() / 2 for bar in axes.containers[0]])
    assert np.bincount(at.round().astype(int)).tolist() == [6, 4, 4, 4, 1], "all on the edge once"
    for point in range(5):
        assert at[at.round() == point].mean() == pytest.approx(point)
    entries = drawn.legend(axes.figure)
    assert entries[:6] == [
        f"{backend} {codec}" for backend in ("tcp", "rpc") for codec in ("none", "int8", "uint4")
    ]
    assert "no valid trial" not in entries, "a cell that there is not lacks no trial"
    assert {"encode", "decode"} <= {*entries}
    marks = [line.get_marker() for line in axes.lines if set(np.asarray(line.get_ydata()).tolist()) == {0}]
    assert len(set(marks)) == len(marks) == 6
    of_int8 = drawing.data[(drawing.data["codec"] == "int8") & (drawing.data["backend"] != "")]
    assert of_int8[["encode_s", "decode_s"]].drop_duplicates().to_numpy().tolist() == [[0.004, 0.002]]
    without = drawn.legend(attribution_figure(rows.assign(encode_s=np.nan, decode_s=np.nan)))
    assert {"encode", "decode"}.isdisjoint(without)


def test_a_bar_is_as_high_as_the_latency_and_reaches_its_bound() -> None:
    """Parts whose medians do not add up: with a quota of the processor each is often short, and seldom all at once."""
    rows = example().assign(edge_s=0.4 * example()["edge_s"], network_s=0.5 * example()["network_s"])
    rows["latency_bound_s"] = 0.99 * rows["latency_s"]
    axes = attribution_figure(rows).axes[0]
    np.testing.assert_allclose(sorted(heights(axes).sum(axis=0)), sorted(1e3 * rows["latency_s"]), rtol=1e-6)


def bars(axes: Axes) -> dict[str, list[Rectangle]]:
    """The bars of each line, outlined ones among them."""
    names = [label.get_text() for label in axes.get_yticklabels()]
    every = [bar for part in axes.containers for bar in part]
    return {
        name: [bar for bar in every if round(bar.get_y() + bar.get_height() / 2) == place]
        for place, name in enumerate(names)
    }


def test_how_busy_every_step_is() -> None:
    rows, staged = example_chain.analysed(example_chain.splits(2, SOME))
    figure = drawn.rendered(utilization_figure(rows, staged))
    for axes, backend in zip(figure.axes, ("tcp", "rpc"), strict=True):
        points = rows[(rows["backend"] == backend) & rows["on_backend_front"]].sort_values("latency_s")
        heads = [label.get_text().split("\n")[0] for label in axes.get_xticklabels()]
        assert heads == [f"point {point}" for point in points["point"]]
        found = bars(axes)
        assert list(found) == ["edge", "edge → middle1", "middle1", "middle1 → server", "server"]
        outlined = {
            (int(bar.get_x()), name) for name, own in found.items() for bar in own if not bar.get_fill()
        }
        named = {"edge": "edge", "middle1": "middle1", "edge-middle1 out": "edge → middle1"}
        assert outlined == {(place, named[step]) for place, step in enumerate(points["bound_by"])}
        first = steps(points.iloc[:1], staged).set_index("step").loc["server"]
        _, busy, *_ = found["server"]
        assert busy.get_width() / found["server"][0].get_width() == pytest.approx(first["share"])
        bubble = f"{100 * first['share']:.0f} %\n{1e3 * first['idle_s']:.3g} ms"
        assert bubble in [text.get_text() for text in axes.texts]
        boxes = [bar.get_window_extent() for own in found.values() for bar in own]
        assert not any(text.get_window_extent().overlaps(box) for text in axes.texts for box in boxes)


def test_steps_that_matter_and_what_was_not_measured() -> None:
    rows, staged = example_chain.analysed([(3, 12)], bound_by="edge-middle1 back")
    staged.loc[staged["host"] == "edge", "return_s"] = 0.1
    axes = utilization_figure(rows, staged).axes[0]
    assert any(not bar.get_fill() for bar in bars(axes)["edge ← middle1"]), (
        "a way back that matters has a line"
    )
    before = {text.get_text() for text in axes.texts}
    staged.loc[staged["host"] == "server", ["utilization", "bubble_s"]] = np.nan
    axes = utilization_figure(rows, staged).axes[0]
    assert len(bars(axes)["server"]) == 1, "not measured is not idle"
    assert {text.get_text() for text in axes.texts} - before == {"not\nmeasured"}


@pytest.mark.deep
def test_a_long_front_of_steps_is_thinned_out_and_of_codecs_that_over_all_is_shown() -> None:
    rows, staged = example_chain.analysed(example_chain.splits(2, SOME))
    many = rows.assign(on_backend_front=True, on_fronts_of="tcp; rpc")
    assert len(utilization_figure(many, staged).axes[0].get_xticklabels()) == MOST_POINTS["page"]
    drawing = utilization_drawing(many, staged, "")
    assert drawing is not None
    assert f"; {2 * (15 - MOST_POINTS['page'])} " in drawing.caption
    rows, staged = example_chain.analysed(example_chain.splits(1, SOME))
    crossing = rows["backend"] != ""
    coded = rows[crossing].assign(codec="int8", codec_at_work="int8", on_codec_front=rows["point"].eq("5"))
    alone = rows[~crossing].assign(codec="int8", on_codec_front=True)
    both = pd.concat([rows.assign(on_codec_front=~crossing), coded, alone], ignore_index=True)
    stages = pd.concat([staged, staged.assign(codec="int8")], ignore_index=True)
    drawing = utilization_drawing(both, stages, "")
    assert drawing is not None
    assert "the front over all codecs" in drawing.caption
    assert set(drawing.data.loc[drawing.data["backend"] != "", "codec"]) == {"int8"}
    assert [axes.get_ylabel() for axes in drawing.draw("page").axes] == ["tcp int8", "rpc int8"]
    alike = pd.concat([rows, rows.assign(codec="int8")], ignore_index=True)
    alike["on_codec_front"] = alike["on_backend_front"]
    assert len(utilization_figure(alike, stages).axes) == 2, "int8 comes to the same: each cell is drawn once"
    assert len(utilization_figure(both.assign(on_codec_front=both["backend"] == ""), stages).axes) == 1
    assert utilization_drawing(both, stages.assign(utilization=np.nan), "") is None


def test_the_map_of_two_cuts() -> None:
    rows, _ = example_chain.analysed(example_chain.splits(2, SOME))
    lost = (rows["point"] == "12+21") & (rows["backend"] == "tcp")
    rows.loc[lost, ["throughput_ips", "latency_s"]] = np.nan
    figure = drawn.rendered(cuts_figure(rows.assign(on_front=False)))
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


# Measured against the bound, and what many requests in flight gain.


def test_every_point_has_its_share_of_the_bound() -> None:
    for axes, measure in zip(bound_figure(example()).axes, MEASURES, strict=True):
        marks = [line for line in axes.lines if line.get_marker() in ("o", "s", "<")]
        x, y = (np.concatenate([line.get_data()[side] for line in marks]) for side in (0, 1))
        np.testing.assert_allclose(sorted(y), sorted(100 * example()[measure.efficiency]))
        assert np.bincount(x.round().astype(int)).tolist() == [2, 2, 2, 1]
        assert axes.get_ylim()[0] == 0
        assert {line.get_ydata()[0] for line in axes.lines if line.get_marker() == "None"} == {100, 90}


def test_without_bounds_there_is_nothing_to_draw() -> None:
    assert bound_drawing(example().assign(latency_bound_s=np.nan, throughput_bound_ips=np.nan), "") is None
    infinite = [np.inf, *example()["throughput_bound_ips"][1:]]
    (axes,) = bound_figure(example().assign(latency_bound_s=np.nan, throughput_bound_ips=infinite)).axes
    assert axes.get_ylabel() == "throughput\n(% of its bound)"
    assert np.isfinite(axes.get_ylim()).all()


def test_both_throughputs_the_bound_and_the_gain(reported: Reports) -> None:
    rows = reported("backends").found.front
    (axes,) = reported("backends").of("pipelining").draw("column").axes
    for backend, marker in (("tcp", "o"), ("rpc", "s"), ("", "<")):
        own = of_backend(rows, backend)
        for column, filled in (("throughput_ips", True), ("sequential_ips", False)):
            marks = drawn.marks(axes, filled=filled, marker=marker)
            assert marks[:, 0].round().tolist() == own["point"].astype(int).tolist(), column
            assert marks[:, 1] == pytest.approx(own[column]), column
            low, high = axes.get_ylim()
            assert ((low < marks[:, 1]) & (marks[:, 1] < high)).all(), column
    assert sorted(drawn.marks(axes, marker="_")[:, 1]) == pytest.approx(sorted(rows["throughput_bound_ips"]))


def test_gains_stand_above_where_there_is_room_and_what_was_not_measured_is_not_drawn(
    reported: Reports,
) -> None:
    rows = reported("backends").found.front
    few = pipelining_drawing(rows[rows["point"].isin(["0", "7", "21"])])
    assert few is not None
    gain = rows.loc[rows["backend"].eq("tcp") & rows["point"].eq("7"), "pipeline_gain"].item()
    assert f"{gain:.1f}×" in drawn.texts(few.draw("page"))  # noqa: RUF001
    lost = rows["backend"].eq("rpc") | rows["point"].eq("3")
    nothing = {name: rows[name].mask(lost) for name in ("sequential_ips", "pipeline_gain")}
    partly = pipelining_drawing(rows.assign(**nothing))
    assert partly is not None
    assert len(partly.data) == 21
    figure = partly.draw("page")
    assert 3 not in drawn.marks(figure.axes[0])[:, 0].round()
    assert "3" in drawn.texts(drawn.rendered(figure)), "its place is kept"
    assert pipelining_drawing(rows.assign(sequential_ips=np.nan, pipeline_gain=np.nan)) is None


@pytest.mark.deep
def test_gains_of_codecs_stand_side_by_side_and_do_not_run_together() -> None:
    asked: dict[str, Any] = {"sequential_ips": 1, "pipeline_gain": 1.2}
    rows = front(codecs(rounds=1, codecs=("none", "int8"), backends=("tcp", "rpc"), **asked))
    found = pipelining_drawing(rows)
    assert found is not None
    figure = drawn.rendered(found.draw("page"))
    assert drawn.legend(figure)[:4] == ["tcp none", "tcp int8", "rpc none", "rpc int8"]
    at = np.unique(drawn.marks(figure.axes[0], filled=True)[:, 0])
    assert np.bincount(at.round().astype(int)).tolist() == [4, 4, 4, 4, 1], "all on the edge once"
    boxes = [text.get_window_extent() for text in figure.axes[0].texts if "1.2" in text.get_text()]
    lefts, rights = (sorted(getattr(box, end) for box in boxes) for end in ("x0", "x1"))
    assert min(left - right for left, right in zip(lefts[1:], rights, strict=False)) > 2


# Payload and compute by point.


def test_dots_of_the_payload_the_edges_share_and_the_flops(reported: Reports) -> None:
    rows, found = reported("backends").found.front, reported("backends").of("payload")
    assert "two hosts. Made by pareto 9.8.7" in found.caption
    assert found.data["payload_bytes"].tolist() == [int(1024 * kib) for kib in PAYLOAD_KIB]
    assert found.data["input_bytes"].eq(588 * 1024).all()
    above, below = drawn.rendered(found.draw("page")).axes
    assert above.get_yscale() == "log"
    dots = drawn.marks(above, marker="o")
    assert dots[:21, 1] == pytest.approx(PAYLOAD_KIB[:-1], abs=0.001)
    assert dots[:21, 0] == pytest.approx(range(21))
    assert not above.patches, "a bar on a logarithmic axis would have no length"
    low, high = above.get_ylim()
    assert low < min(PAYLOAD_KIB[:-1]) and max(PAYLOAD_KIB) < high
    assert 588.0 in {float(line.get_ydata()[0]) for line in above.get_lines()}, "the input"
    shares = drawn.marks(below, marker="o")[:, 1]
    sides = [
        pd.concat([of_backend(rows, backend), of_backend(rows, "")]).set_index("point")
        for backend in ("tcp", "rpc")
    ]
    edge_s, server_s = (sum(side[name].fillna(0) for side in sides) for name in ("edge_s", "server_s"))
    assert shares == pytest.approx((edge_s / (edge_s + server_s)).to_numpy())
    assert (shares[0], shares[-1]) == (0, 1)
    assert below.get_ylim()[0] == 0, "a share is never below 0"
    assert drawn.marks(below, marker="D")[:, 1] == pytest.approx(np.arange(22) / 21)
    assert "FLOPs" in found.caption
    older = payload_drawing(rows, NO_STAGES, {"models": {"mobilenetv2": {"points": [{}, {"edge_flops": 1}]}}})
    assert older is not None
    assert older.data["flops_share"].isna().all()
    assert "FLOPs" not in older.caption  # fmt: skip


def test_what_is_not_known_of_a_payload(reported: Reports) -> None:
    rows = reported("backends").found.front
    few = rows[rows["point"].isin(["7", "8"])].assign(batch_size=4)
    manifest = {
        "models": {"mobilenetv2": {"points": [{"payload_bytes": 602112}, {"payload_bytes": 1605632}]}}
    }
    assert payload_data(few, NO_STAGES, manifest)["input_bytes"].eq(4 * 602112).all(), (
        "the manifest knows it, too"
    )
    unknown = payload_drawing(few, NO_STAGES, {})
    assert unknown is not None
    assert "input" not in drawn.legend(unknown.draw("column"))
    assert payload_drawing(rows.assign(payload_bytes=np.nan), NO_STAGES) is None
    no_server = payload_drawing(rows.assign(server_s=np.nan), NO_STAGES)
    assert no_server is not None
    assert no_server.data["share"].isna().tolist() == [True] * 21 + [False], "nothing crosses at the last"


def test_a_chain_has_each_link(reported: Reports) -> None:
    found, staged = reported("chain").of("payload"), reported("chain").found.stages
    data = found.data.set_index("point")
    for near, far in example_chain.splits(2, (0, 4, 9, 21)):
        row = data.loc[f"{near}+{far}"]
        assert row["payload1_bytes"] == int(1024 * PAYLOAD_KIB[near])
        assert row["payload2_bytes"] == (0 if near == 21 else int(1024 * PAYLOAD_KIB[far]))
        assert 0 <= row["share1"] <= row["share2"] <= 1
    assert data.loc["21+21", ["share1", "share2"]].tolist() == [1, 1]
    by_backend = staged[staged["point"] == "4+9"].groupby(["host", "backend"])["compute_s"].median()
    cell = by_backend.groupby("host").mean()
    assert data.loc["4+9", "share2"] == pytest.approx((cell["edge"] + cell["middle1"]) / cell.sum())


def test_what_codecs_send_is_marked(reported: Reports) -> None:
    rows = reported("codecs").found.front[lambda front: front["netem"] == "slow"]
    rows = rows[(rows["codec"] != "uint4") | (rows["point"] == "1")]
    found = payload_drawing(rows, NO_STAGES)
    assert found is not None
    assert found.data["wire_bytes_int8"].tolist()[:4] == [150_000, 200_000, 100_000, 25_000]
    assert found.data["wire_bytes_uint4"].dropna().tolist() == [100_000]
    assert "wire_bytes_none" not in found.data
    figure = found.draw("column")
    assert {"sent by int8", "sent by uint4"} <= set(drawn.legend(figure))
    sent = drawn.marks(figure.axes[0], marker=codec_looks(rows)["uint4"].marker)[:, 1]
    assert sent[~np.isnan(sent)].tolist() == [100_000 / 1024]


# Pairs.


def test_every_pair_in_order_with_its_interval_and_its_percent(reported: Reports) -> None:
    found, compared = reported("backends").of("paired"), reported("backends").found.paired
    points = compared[compared["point"] != ALL].set_index("point")
    assert found.data["point"].tolist() == [str(point) for point in range(21)]
    for column in ("latency_difference_s", "latency_low_s", "latency_high_s", "throughput_high_percent"):
        assert found.data[column].tolist() == points.loc[found.data["point"], column].tolist()
    figure = drawn.rendered(found.draw("column"))
    above, below = figure.axes
    upper, lower = drawn.marks(above, marker="o"), drawn.marks(below, marker="o")
    assert upper[:, 0].tolist() == lower[:, 0].tolist() == list(range(21))
    assert upper[:, 1] == pytest.approx(1e3 * found.data["latency_difference_s"])
    assert lower[:, 1] == pytest.approx(found.data["throughput_difference_percent"])
    assert above.get_ylim()[0] < 0 < above.get_ylim()[1], "zero is there to compare with"
    assert {"20", f"+{found.data['latency_difference_percent'].iloc[0]:.0f}"} <= {*drawn.texts(figure)}
    # Seven rounds cannot make a point of 21 significant: that it is not says nothing.
    assert set(found.data["latency_mark"]) == {INTERVAL}


def test_few_rounds_have_a_range_and_a_test_only_where_it_could_find_something(reported: Reports) -> None:
    measured = reported("backends").found.trials[lambda trials: trials["round"] < 3]
    found = paired_drawing(paired(measured), measured, "two hosts")
    assert found is not None
    assert set(found.data["latency_mark"]) == set(found.data["throughput_mark"]) == {RANGE}
    both = measured.pivot(index=["round", "point"], columns="backend", values=["latency_s", "throughput_ips"])
    of_point = (both["latency_s"]["rpc"] - both["latency_s"]["tcp"]).groupby("point")
    row = found.data.set_index("point").loc["7"]
    assert row["latency_low_s"] == pytest.approx(of_point.min()["7"])
    assert row["latency_high_s"] == pytest.approx(of_point.max()["7"])
    percent = 100 * (both["throughput_ips"]["rpc"] / both["throughput_ips"]["tcp"] - 1)
    assert row["throughput_low_percent"] == pytest.approx(percent.groupby("point").min()["7"])
    assert len(drawn.marks(found.draw("page").axes[0], filled=True, marker="o")) == 0
    data, compared = reported("few").of("paired").data, reported("few").found.paired
    told = compared[compared["point"] != ALL].set_index(["first", "other", "point"])["latency_significant"]
    marks = data.set_index(["first", "other", "point"])["latency_mark"]
    assert {*marks} == {SIGNIFICANT, UNSURE}
    assert marks.eq(SIGNIFICANT).to_dict() == told.reindex(marks.index).astype(bool).to_dict()


def test_three_backends_make_three_pairs_and_what_does_not_count_is_told(reported: Reports) -> None:
    found = reported("few").of("paired")
    figure = found.draw("column")
    assert drawn.legend(figure)[:3] == ["tcp:b − tcp:a", "rpc − tcp:a", "rpc − tcp:b"]  # noqa: RUF001
    places = [drawn.marks(figure.axes[0], filled=filled)[:, 0] for filled in (False, True)]
    assert len(np.unique(np.concatenate(places))) == 6, "none hides another"
    assert "1 of 90 trials" in found.caption
    assert any("1 of 90 trials" in text for text in drawn.texts(figure))
    assert found.data["latency_high_s"].max() < 5


def test_nothing_to_compare_and_no_throughput(reported: Reports) -> None:
    measured = reported("backends").found.trials[lambda trials: trials["point"].isin(["3", "7"])]
    apart = (measured["backend"] == "rpc") == (measured["round"] % 2 == 1)
    for rows in (measured[measured["backend"] == "tcp"], measured[apart], measured.assign(status="failed")):
        assert paired_drawing(paired(rows), rows) is None
    dry = measured.assign(throughput_ips=np.nan)
    found = paired_drawing(paired(dry), dry)
    assert found is not None
    assert found.data["throughput_low_percent"].isna().all()
    drawn.rendered(found.draw("page"))


def test_a_chain_is_numbered_where_names_have_no_room() -> None:
    rows, _ = example_chain.analysed(example_chain.splits(2))
    cells = rows[rows["backend"] != ""].assign(run="a", status="ok", round=1, testbed="")
    found = paired_drawing(paired(cells), cells)
    assert found is not None
    assert len(found.data) == 252
    figure = drawn.rendered(found.draw("column"))
    numbers = [text.get_text() for text in figure.axes[1].get_xticklabels()]
    assert numbers[0] == "0+0"
    assert 5 <= len(numbers) <= 9
    assert drawn.overlapping(figure) == []


def test_codecs_and_engines_against_their_base_in_percent(reported: Reports) -> None:
    made = reported("codecs").drawings["paired-codecs-small-slow"]
    looks = codec_looks(reported("codecs").found.trials)
    above = made.draw("page").axes[0]
    assert len(made.data) == 4 * 4
    for codec in ("fp16", "int8", "uint4", "zstd"):
        marks = drawn.marks(above, marker=looks[codec].marker)[:, 1]
        assert set(made.data.loc[made.data["other"] == codec, "latency_difference_percent"]) <= set(marks)
    assert "(%)" in above.get_ylabel()
    assert "against no codec" in above.get_title(loc="left")
    found = reported("engines")
    engines = found.of("paired-engines")
    assert len(engines.data) == 2 * 5
    assert engines.data["point_name"].ne("").all()
    figure = engines.draw("page")
    assert "Engines against eager" in figure.axes[0].get_title(loc="left")
    assert {"compile", "onnx"} <= set(drawn.legend(figure))
    pairs = found.found.paired_engines
    other = paired_drawing(pairs[pairs["other"] == "onnx"], found.found.trials.assign(setup=""), "", "engine")
    assert other is not None
    marks = [drawn.marks(each.draw("page").axes[0], marker="^") for each in (engines, other)]
    assert len(marks[0]) == len(marks[1]) == 5, "an engine looks the same, whichever else is compared"


# The latency's tail.


def test_lines_are_the_share_of_requests_that_take_longer(reported: Reports) -> None:
    made = reported("backends").of("tail")
    assert set(made.data["phase"]) == {ALONE, LOADED}
    assert set(made.data.loc[made.data["percentile"] != "", "percentile"]) == {"p50", "p90", "p95", "p99"}
    # Point 20 over tcp: of seven rounds; what came before all were on their way, at 0.1 ms, is none of the load's.
    own = made.data[(made.data["point"] == "20") & (made.data["backend"] == "tcp")]
    alone, loaded = (own[own["phase"] == of_phase] for of_phase in (ALONE, LOADED))
    assert alone["requests"].eq(700).all() and loaded["requests"].eq(700).all()
    np.testing.assert_allclose(10 * alone["latency_s"], loaded["latency_s"])
    at = np.log(alone["latency_s"].to_numpy())
    normal = [0.5 * math.erfc((each + 3) / 0.3 / math.sqrt(2)) for each in at]
    np.testing.assert_allclose(alone["share_slower"], normal, atol=0.05)
    assert (alone["latency_s"].diff().dropna() >= 0).all()
    assert [axes.get_yscale() for axes in made.draw("page").axes] == ["log", "log"]


def test_where_nothing_crosses_the_requests_under_every_backend_count(reported: Reports) -> None:
    """That point is of no backend, and may be the answer: it has a line of its own."""
    made = reported("backends").of("tail")
    own = made.data[(made.data["point"] == "21") & (made.data["phase"] == ALONE)]
    assert own["backend"].eq("").all()
    assert own["requests"].eq(2 * 700).all()
    assert any("nothing crosses" in text for text in drawn.legend(made.draw("page")))


def test_requests_that_are_few_missing_or_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [row for row in trials(rounds=2, backends=("tcp",)) if row["point"] == 7]
    run = write(tmp_path / "run", rows)
    measured = load(run)
    points = front(measured, resamples=20)
    assert tail_drawing(points, measured, [run], "") is None
    with pytest.raises(UserError):
        figures.tail(measured, run)
    for row in rows:
        keep_requests(run, row, np.linspace(0.1, 0.2, 45))
    data = tail_data(points, measured, [run])
    assert set(data["percentile"]) == {"", "p50", "p90"}, "a percentile that cannot be stated has no mark"
    for file in (run / "requests").iterdir():
        file.write_bytes(b"nothing")
    assert tail_drawing(points, measured, [run], "") is None, "it costs this figure alone"
    assert "not a file of requests" in caplog.text


def test_each_cell_has_one_line_and_no_codec_comes_first(reported: Reports) -> None:
    rows = reported("codecs").found.front[lambda front: front["netem"] == "slow"]
    chosen = chosen_points(rows)
    assert not chosen.duplicated(["backend", "point", "codec_at_work"]).any()
    assert chosen.loc[chosen["backend"] != "", "codec"].iloc[0] == "none"


# What an answer cost.


def test_each_run_has_a_line_from_its_first_trial_to_its_last(reported: Reports) -> None:
    rows, made = reported("search").found.progress, reported("search").of("answer")
    assert rows.groupby("run")["search"].first().to_dict() == {"example": False, "few": True}
    figure = made.draw("page")
    (axes,) = figure.axes
    assert drawn.legend(figure) == ["all cells", "search"]
    for run, marker in (("example", "o"), ("few", "s")):
        own = rows[rows["run"] == run]
        (end,) = drawn.marks(axes, filled=False, marker=marker)
        assert end == pytest.approx([own["took_s"].iloc[-1] / 60, 100 * own["hypervolume_share"].iloc[-1]])
        (known,) = drawn.marks(axes, filled=True, marker=marker)
        assert known[1] >= 99
        stairs = [line for line in axes.get_lines() if line.get_drawstyle() == "steps-post"]
        (shares,) = (line.get_ydata() for line in stairs if len(line.get_xdata()) == len(own))
        assert np.asarray(shares) == pytest.approx(100 * own["hypervolume_share"])
    few = rows[rows["run"] == "few"]
    more = pd.concat([rows, few.assign(run="again")])
    assert [line.label for line in lines(more)] == ["all cells", "search 1", "search 2"]
    six = answer_drawing(pd.concat([few.assign(run=f"run {number}") for number in range(6)]), "")
    assert six is not None
    stairs = [line for line in six.draw("column").axes[0].get_lines() if line.get_drawstyle() == "steps-post"]
    assert len({str(line._unscaled_dash_pattern) for line in stairs}) == 6
    assert answer_drawing(rows.head(2), "") is None is answer_drawing(rows.head(0), "")


# Probes of the link over what was asked: the band is the verdict's own.


@pytest.mark.parametrize("width", gating(["page", "column"], "column"))
def test_asked_line_band_and_dots(width: str, snapshot: SnapshotAssertion) -> None:
    rows = probes(probe(WIFI), probe(SLOW), probe(WIFI, rtt=1.5), probe(SLOW), probe(WIFI, rate=1.02))
    (found,) = link_asked_drawings(rows, {"run": {**manifest(WIFI, SLOW), "pareto": "9.8.7"}})
    assert (found.kind, found.name) == ("link-asked", ())
    figure = drawn.rendered(found.draw(width))
    slow_rtt, _, slow_back, rtt, out, back = figure.axes  # in the order of every table
    dots = drawn.marks(rtt, marker="o")
    assert dots[:, 0].tolist() == [1, 3, 5], "in the order of the run, beside the other profile's"
    assert dots[:, 1] == pytest.approx([2, 3, 2])
    for axes, rate in ((out, 15), (back, 30)):
        assert drawn.marks(axes, marker="o")[:, 1] == pytest.approx(np.array([1, 1, 1.02]) * rate * GOODPUT)
    (band,) = slow_rtt.patches
    edges = band.get_extents().transformed(slow_rtt.transData.inverted()).intervaly
    assert edges == pytest.approx([180, 220])
    assert [line.get_ydata()[0] for line in slow_rtt.get_lines() if line.get_marker() == "None"] == [200]
    assert not slow_back.axison and not slow_back.texts, "none was asked"
    assert drawn.outside(figure) == drawn.overlapping(figure) == []
    heads = [axes.get_title(loc="left") for axes in figure.axes]
    assert [drawn.legend(figure), heads, drawn.sentences(found.caption)] == snapshot


def test_a_probe_that_is_off_is_marked_where_it_is_and_does_not_flatten_the_others() -> None:
    rows = probes(probe(SLOW), probe(SLOW, rtt=1.15), probe(SLOW, rate=0.85), probe(SLOW))
    assert rows["verdict"].tolist() == ["ok", "off", "off", "ok"]
    figure = drawn.rendered(link_asked_figure(link_asked_data(rows, manifest(SLOW)), "column"))
    rtt, out = figure.axes
    assert drawn.marks(rtt, marker="X").tolist() == [[2, pytest.approx(230)]]
    assert drawn.marks(rtt, marker="o")[:, 0].tolist() == [1, 3, 4]
    assert drawn.marks(out, marker="X")[:, 0].tolist() == [3]
    assert any("2 of 4" in text for text in drawn.texts(figure))
    lost = probe(SLOW) | {"rtt_s": math.nan, "verdict": "off", "reason": "no echo came back"}
    rows = probes(probe(SLOW), probe(SLOW, rtt=30), probe(SLOW, rate=0.01), lost)
    rtt, out = drawn.rendered(link_asked_figure(link_asked_data(rows, manifest(SLOW)))).axes
    assert rtt.get_ylim()[1] < 300
    assert drawn.marks(rtt, marker="^").tolist() == [[2, rtt.get_ylim()[1]]]
    assert drawn.marks(out, marker="v").tolist() == [[3, out.get_ylim()[0]]]
    assert drawn.marks(rtt, marker="X").tolist() == [[4, rtt.get_ylim()[0]]], "no echo: nowhere, and off"


def test_many_probes_are_thinned_and_runs_and_many_profiles_have_drawings_of_their_own() -> None:
    count = 2 * MOST_DOTS + 10
    rows = pd.concat([probes(probe(SLOW))] * count + [probes(probe(SLOW, rtt=1.15))] * 3, ignore_index=True)
    rtt = link_asked_figure(link_asked_data(rows, manifest(SLOW))).axes[0]
    assert MOST_DOTS / 2 < len(drawn.marks(rtt, marker="o")) <= MOST_DOTS
    assert len(drawn.marks(rtt, marker="X")) == 3
    profiles = [Profile(f"p{number}", Direction(0.01 * number, 1e6)) for number in range(1, MOST_ROWS + 2)]
    rows = probes(*(probe(profile) for profile in profiles), probe(WIFI, run="other"))
    found = link_asked_drawings(rows, {"run": manifest(*profiles)})
    assert [drawing.name for drawing in found] == [("run", "1"), ("run", "2"), ("other",)]
    assert [len(drawing.data) for drawing in found] == [MOST_ROWS, 1, 1]
    assert found[1].data["probe"].tolist() == [MOST_ROWS + 1], "its number in the run"
    assert found[2].data["rtt_most_s"].isna().all(), "its manifest is not there"
    assert "tolerance" not in drawn.legend(found[2].draw("page"))
    assert link_asked_drawings(pd.DataFrame(), {}) == link_asked_drawings(rows.iloc[:0], {}) == []


def test_a_chain_names_its_links_and_a_trace_has_no_band(snapshot: SnapshotAssertion) -> None:
    rows = probes(
        probe(WIFI, link="edge-middle1"), probe(SLOW, link="middle1-server"),
        *(probe(LOSSY, position_s=float(at), rtt=1 + at / 10, loss=0.02, asked_loss=0.01) for at in range(4)),
    )  # fmt: skip
    (found,) = link_asked_drawings(rows, {"run": manifest(WIFI, SLOW, LOSSY)})
    figure = drawn.rendered(found.draw("page"))
    for link in ("edge-middle1", "middle1-server"):
        assert any(link in text for text in drawn.texts(figure))
    assert not figure.axes[0].patches, "lossy is the first of the profiles"
    assert drawn.sentences(found.caption) == snapshot


# A model's profile.

PEAKS = {"peak_flops": 5e12, "peak_bytes_s": 1e10}


def test_a_bar_for_each_unit_and_device_and_a_panel_for_each_batch_size() -> None:
    made = profile()
    figure = units_figure(made, width="column")
    figure.draw_without_rendering()
    for axes, batch_size in zip(figure.axes, (1, 8), strict=True):
        bars = [each for each in axes.containers if isinstance(each, BarContainer)]
        assert [each.get_label() for each in bars] == ["edge", "server"]
        for each, role in zip(bars, ("edge", "server"), strict=True):
            assert [bar.get_height() for bar in each] == pytest.approx(
                1e3 * made.of(role, batch_size).median_s
            )
    names = [text.get_text() for text in figure.axes[-1].get_xticklabels()]
    assert names == ["1\nstem", "2\nbody", "3\noutput"]
    assert figure.axes[0].get_yscale() == "linear"
    wide = dataclasses.replace(made.times[0], median_s=np.array([1e-6, 0.0, 1e-3]))
    assert units_figure(dataclasses.replace(made, times=(wide,))).axes[0].get_yscale() == "log"


def test_units_lie_under_the_roof_of_their_device() -> None:
    made = dataclasses.replace(profile(), hosts={"edge": PEAKS, "server": {**PEAKS, "peak_flops": 8e12}})
    figure = roofline_figure(made, width="page")
    figure.draw_without_rendering()
    for axes, role in zip(figure.axes, ("edge", "server"), strict=True):
        *units, roof = axes.lines
        assert [len(line.get_xdata()) for line in units] == [2, 2], "a unit without FLOPs has no place"
        x, y = (np.asarray(data)[0] for data in units[0].get_data())
        assert x == pytest.approx(made.flops[0] / made.moved_bytes(1)[0])
        assert y == pytest.approx(made.flops[0] / made.of(role, 1).median_s[0] / 1e9)
        assert max(np.asarray(roof.get_ydata())) == pytest.approx(made.hosts[role]["peak_flops"] / 1e9)
        ramp = np.asarray(roof.get_ydata())[0] / np.asarray(roof.get_xdata())[0]
        assert ramp == pytest.approx(PEAKS["peak_bytes_s"] / 1e9)
    (axes,) = roofline_figure(dataclasses.replace(made, hosts={"edge": PEAKS, "server": {}})).axes
    assert "edge" in axes.get_title(loc="left"), "only devices whose best is known have a roof"
