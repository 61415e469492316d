"""The front as a picture: how sure each point is, what is labelled, what the caption says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.figures.drawing import caption, conditions
from pareto.analysis.figures.front_figure import (
    COLUMN_LABELS,
    COLUMNS,
    TIES_NAMED,
    front_figure,
    fronts_drawing,
    fronts_figure,
    key,
    panels,
    shared,
)
from pareto.analysis.figures.marks import FILLS, states
from pareto.analysis.figures.plane import MOST_CORNERS, contending
from pareto.analysis.figures.style import COLOURS, faded
from pareto.analysis.fronts.front import front
from pareto.analysis.points import CONDITION
from pareto.analysis.runs.load import load
from tests.unit import drawn, example_run
from tests.unit.analysis.test_figures import example


def points(tmp_path: Path, **options: Any) -> pd.DataFrame:
    return front(load([example_run.write(tmp_path, example_run.trials(**options))]), resamples=200)


def crafted(**columns: Any) -> pd.DataFrame:
    """Four points of one backend: on the front, perhaps (both ways), and not."""
    latency_s, throughput_ips = np.array([0.01, 0.02, 0.021, 0.04]), np.array([10.0, 20.0, 19.0, 5.0])
    told: dict[str, Any] = {"model": "net", "netem": "wifi", "batch_size": 1, "codec": "none", "setup": ""}
    told |= {"in_flight_asked": "auto", "backend": "tcp", "point": ["0", "1", "2", "3"], "point_name": "unit"}
    told |= {"rounds": 8, "excluded": 0, "payload_bytes": [5.0, 5.0, 5.0, 0.0], "ties": ""}
    told |= {"latency_s": latency_s, "throughput_ips": throughput_ips}
    for name, unit, values in (("latency", "s", latency_s), ("throughput", "ips", throughput_ips)):
        for end, factor in (("low", 0.95), ("high", 1.1), ("least", 0.9), ("most", 1.2)):
            told[f"{name}_{end}_{unit}"] = factor * values
    told |= {"on_backend_front": [True, True, False, False], "on_front": [True, True, False, False]}
    told |= {"feasible": True, "on_fronts_of": "tcp", "loaded_latency_s": np.nan, "left_out": 0, "trials": 8}
    return pd.DataFrame(told | {"probability": [1.0, 0.7, 0.3, 0.0]} | columns)


NO_INTERVAL = dict.fromkeys(
    ("latency_low_s", "latency_high_s", "throughput_low_ips", "throughput_high_ips"), np.nan
)


def boxes(axes: Axes) -> list[tuple[float, ...]]:
    """Outlines of the boxes: left, right, bottom, top."""
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle) and not patch.get_fill()]
    return [
        (box.get_x(), box.get_x() + box.get_width(), box.get_y(), box.get_y() + box.get_height())
        for box in found
    ]


def test_the_key_tells_what_is_drawn(snapshot: SnapshotAssertion) -> None:
    rows, few = crafted(), crafted(rounds=3, probability=np.nan, **NO_INTERVAL)
    met = crafted(on_backend_front=[False, True, False, False], feasible=[False, True, True, True])
    other = crafted(objectives="latency+energy")
    keys = {
        "no uncertainty": key(rows, surfaces(rows)),
        "intervals": key(rows, surfaces(rows), "box"),
        "a band": key(rows, surfaces(rows), "band"),
        "too few rounds": key(few, None, "box"),
        "one round": key(few.assign(rounds=1), None, "box"),
        "a condition": key(met),
        "other objectives": key(other, surfaces(other), "band"),
        "under load": key(crafted(loaded_latency_s=0.05)),
    }
    assert {name: drawn.sentences(caption(*of)) for name, of in keys.items()} == snapshot


def test_what_is_sure_is_full_what_may_be_is_pale_and_the_rest_hollow() -> None:
    rows = crafted()
    assert list(states(rows)) == ["front", "unsure", "unsure", "dominated"]
    assert list(contending(rows)) == [True, True, True, False]
    axes = front_figure(rows).axes[0]
    marks = {
        line.get_markerfacecolor(): sorted(np.atleast_1d(line.get_xdata()))
        for line in axes.lines
        if line.get_marker() == "o"
    }
    assert marks == {
        faded(COLOURS[0], FILLS[state]): pytest.approx(at)
        for state, at in (("front", [10]), ("unsure", [20, 21]), ("dominated", [40]))
    }
    assert len({round(sum(fill), 1) for fill in marks}) == 3, "three steps of grey, too"


def test_by_default_a_front_is_staircases_and_marks_alone() -> None:
    rows = crafted()
    axes = front_figure(rows, attainment=surfaces(rows)).axes[0]
    assert not axes.patches
    assert len([line for line in axes.lines if line.get_marker() == "None"]) == 1


@pytest.mark.parametrize("uncertainty", ["none", "band"])
def test_axes_start_at_nothing_or_are_logarithmic(uncertainty: str) -> None:
    near = front_figure(crafted(), attainment=surfaces(crafted()), uncertainty=uncertainty).axes[0]
    assert (near.get_xscale(), near.get_xlim()[0], near.get_ylim()[0]) == ("linear", 0, 0)
    wide = crafted(latency_s=[0.01, 0.02, 0.021, 0.08])
    far = front_figure(wide, attainment=surfaces(wide), uncertainty=uncertainty).axes[0]
    assert far.get_xscale() == "log" and 0 < far.get_xlim()[0] < 10


def test_nothing_is_called_sure_or_unsure_with_too_few_rounds(snapshot: SnapshotAssertion) -> None:
    rows = crafted(probability=np.nan)
    assert list(states(rows)) == ["front", "front", "dominated", "dominated"]
    of_both = [drawn.legend(front_figure(each)) for each in (crafted(), rows)]
    assert len(of_both[1]) < len(of_both[0])
    assert of_both == snapshot


def test_boxes_are_the_intervals_of_both_medians() -> None:
    rows = crafted()
    expected = [
        (950 * row.latency_s, 1100 * row.latency_s, 0.95 * row.throughput_ips, 1.1 * row.throughput_ips)
        for row in rows.iloc[:3].itertuples()
    ]
    axes = front_figure(rows, uncertainty="box").axes[0]
    np.testing.assert_allclose(boxes(axes), expected)
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    assert all(
        left <= box[0] and box[1] <= right and bottom <= box[2] and box[3] <= top for box in boxes(axes)
    )


def test_too_few_rounds_are_drawn_as_their_range() -> None:
    rows = crafted(rounds=3, **NO_INTERVAL)
    axes = front_figure(rows, uncertainty="box").axes[0]
    assert boxes(axes) == []
    spans = {tuple(np.round(line.get_xdata(), 6)) for line in axes.lines if line.get_linewidth() == 0.6}
    assert {(9.0, 12.0), (18.0, 24.0)} <= spans


def surfaces(rows: pd.DataFrame) -> pd.DataFrame:
    best = {"percent": 5, "latency_s": [0.009, 0.018], "throughput_ips": [11.0, 22.0]}
    worst = {"percent": 95, "latency_s": [0.012, 0.024], "throughput_ips": [9.0, 18.0]}
    corners = pd.concat([pd.DataFrame(one) for one in (best, worst)])
    return corners.assign(backend="tcp", **rows.iloc[0][CONDITION])


def bands(figure: Figure) -> list[Polygon]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Polygon)]


def test_the_band_lies_between_its_surfaces() -> None:
    rows = crafted()
    figure = front_figure(rows, attainment=surfaces(rows), uncertainty="band")
    (band,) = bands(figure)
    inside = band.get_path().contains_points(
        [(10, 10), (21, 20), (30, 19), (10, 12), (30, 8), (8, 5), (13, 5)]
    )
    assert inside.tolist() == [True, True, True, False, False, False, False]
    assert not [
        patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle) and patch.get_fill()
    ]


def test_a_band_of_thousands_of_corners_is_drawn_with_those_that_can_be_seen() -> None:
    rows = crafted()
    steps = np.linspace(0, 1, 5000)
    corners = [
        pd.DataFrame({"percent": percent, "latency_s": at + steps / 100, "throughput_ips": 10 + 10 * steps})
        for percent, at in ((5, 0.009), (95, 0.012))
    ]
    every = pd.concat(corners).assign(backend="tcp", **rows.iloc[0][CONDITION])
    (band,) = bands(front_figure(rows, attainment=every, uncertainty="band"))
    assert len(band.get_xy()) < 5 * MOST_CORNERS
    ends = {tuple(vertex) for vertex in band.get_xy().round(6)}
    assert {(9.0, 10.0), (19.0, 20.0), (12.0, 10.0), (22.0, 20.0)} <= ends, "the first and the last corners"


@pytest.mark.parametrize(
    "attainment",
    [
        None,
        surfaces(crafted()).iloc[:0],
        surfaces(crafted()).assign(netem="lte"),
        surfaces(crafted()).rename(columns={"throughput_ips": "energy_j"}),
    ],
    ids=["none", "empty", "another profile", "other objectives"],
)
def test_no_band_without_its_surfaces(attainment: pd.DataFrame | None) -> None:
    assert bands(front_figure(crafted(), attainment=attainment, uncertainty="band")) == []


def test_a_column_has_fewer_labels_and_numbers_only(tmp_path: Path) -> None:
    rows = points(tmp_path, noise=0)
    # Every point is on its front.
    place = rows["point"].astype(int)
    slower = rows["backend"].map({"tcp": 1.0, "rpc": 1.04, "": 1.0})
    rows = rows.assign(latency_s=slower * (1 + place), throughput_ips=(1 + place) / slower, probability=1.0)
    rows[["on_backend_front", "on_front"]] = True
    labels = {
        width: [text.get_text() for text in front_figure(rows, width=width).axes[0].texts]
        for width in ("column", "page")
    }
    assert len(labels["page"]) == 43
    assert 1 < len(labels["column"]) <= COLUMN_LABELS
    assert all(text.isdigit() for text in labels["column"])
    assert {"0", "21"} <= set(labels["column"]), "the ends are there"


def test_the_staircase_is_of_the_points_that_count() -> None:
    """Of those that meet the conditions set: a point that does not may be better than the front."""
    rows = crafted(on_backend_front=[False, True, False, False], feasible=[False, True, True, True])
    axes = front_figure(rows).axes[0]
    steps = [line for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata()) > 2]
    assert [min(line.get_xdata()) for line in steps] == pytest.approx([20])


def test_a_front_of_other_objectives_is_no_staircase_in_this_plane() -> None:
    rows = crafted(objectives="latency+energy")
    figure = front_figure(rows, attainment=surfaces(rows), uncertainty="band")
    assert not [line for line in figure.axes[0].lines if len(line.get_xdata()) > 2]
    assert bands(figure) == []


def test_ties_are_named_once(snapshot: SnapshotAssertion) -> None:
    tied = crafted(ties=["tcp 1", "tcp 0; rpc 7", "tcp 0", ""])
    both = pd.concat([tied, tied.assign(netem="lte")])
    many = crafted(ties=["; ".join(f"rpc {number}" for number in range(TIES_NAMED + 2)), "", "", ""])
    usual, *more = (drawn.sentences(caption(*key(rows))) for rows in (crafted(), tied, both, many))
    assert [sentences[len(usual) :] for sentences in more] == snapshot
    assert more[0][: len(usual)] == usual


def profiles(slower: dict[str, float], **columns: Any) -> pd.DataFrame:
    """The front of a toy under several profiles."""
    toy = example()
    latencies = ["latency_s", "latency_low_s", "latency_high_s", "latency_least_s", "latency_most_s"]
    rates = [column.replace("latency", "throughput").replace("_s", "_ips") for column in latencies]
    found = []
    for netem, factor in slower.items():
        one = toy.assign(netem=netem, **columns)
        one[latencies], one[rates] = one[latencies] * factor, one[rates] / factor
        found.append(one)
    return pd.concat(found, ignore_index=True)


def test_a_panel_for_each_profile_from_quick_to_slow_all_with_the_same_looks() -> None:
    rows = profiles({"a-slow": 9, "quick": 1, "middle": 3})
    rows = rows[(rows["netem"] != "middle") | (rows["backend"] == "rpc")]
    figure = fronts_figure(rows)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["quick", "middle", "a-slow"]
    looks = [
        {(line.get_color(), line.get_marker()) for line in axes.lines if line.get_marker() != "None"}
        for axes in figure.axes
    ]
    assert len(looks[0]) == 3
    assert looks[0] == looks[2]
    assert looks[1] == {(colour, marker) for colour, marker in looks[0] if marker == "s"}, (
        "rpc alone keeps its own"
    )
    told = [text.get_text() for text in figure.legends[0].texts]
    assert [text.split()[0] for text in told[:2]] == ["tcp", "rpc"]


@pytest.mark.parametrize(("slowest", "together"), [(1.2, True), (1000, False)])
def test_axes_are_shared_where_that_is_readable_and_the_caption_says_if_not(
    slowest: float, together: bool, snapshot: SnapshotAssertion
) -> None:
    rows = profiles({"one": 1, "two": slowest})
    assert shared(rows, "latency", "s") is together
    one, two = fronts_figure(rows).axes
    assert (one.get_xlim() == two.get_xlim()) is together
    assert drawn.sentences(fronts_drawing(rows, conditions(rows)).caption) == snapshot
    assert one.get_xlabel() == two.get_xlabel() == "latency (ms)"


def test_one_point_a_profile_needs_no_axis_of_its_own() -> None:
    rows = profiles({"one": 1, "two": 3})
    assert shared(rows.groupby("netem").head(1), "latency", "s")


def test_a_profile_without_a_valid_trial_is_seen_to_be_missing(snapshot: SnapshotAssertion) -> None:
    rows = profiles({"one": 1, "two": 2, "dead": 1})
    dead = rows["netem"] == "dead"
    rows.loc[dead, ["latency_s", "throughput_ips"]] = np.nan
    rows.loc[dead, ["rounds", "excluded"]] = [0, 7]
    rows.loc[dead, "left_out"] = rows.loc[dead, "trials"]
    figure = fronts_figure(rows)
    last = figure.axes[-1]
    assert last.get_title(loc="left") == "dead"
    assert figure.get_supxlabel().startswith("56 of 168 ")
    assert [text.get_text() for text in last.texts] == snapshot


@pytest.mark.parametrize(
    ("width", "count"), [pytest.param("column", 12, marks=pytest.mark.deep), ("page", 4)]
)
def test_up_to_twelve_profiles_fit(width: str, count: int) -> None:
    figure = fronts_figure(
        profiles({f"profile-{number}": 1 + 0.1 * number for number in range(count)}), width=width
    )
    assert len(figure.axes) == count
    figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    assert not any(one.overlaps(other) for number, one in enumerate(boxes) for other in boxes[:number])
    assert min(axes.bbox.width for axes in figure.axes) / figure.dpi > 1.1
    numbered = [
        axes
        for axes in figure.axes
        if any(label.get_text() for label in axes.get_xticklabels())
        and axes.xaxis.get_tick_params()["labelbottom"]
    ]
    assert len(numbered) == min(COLUMNS[width], count), "shared axes have their numbers once"


def test_batch_sizes_have_panels_of_their_own(snapshot: SnapshotAssertion) -> None:
    rows = pd.concat(
        [
            profiles({"wifi": 1}),
            profiles({"wifi": 2}, batch_size=8),
            profiles({"lte": 3}, in_flight_asked="4"),
        ]
    )
    assert [title for title, _ in panels(rows)] == snapshot


def test_a_tick_at_the_bound_of_a_point_that_was_struck_off_is_explained() -> None:
    struck = crafted(least_latency_s=[np.nan, np.nan, np.nan, 0.03], most_throughput_ips=[np.nan] * 3 + [8.0])
    entries = [drawn.legend(front_figure(rows)) for rows in (crafted(), struck)]
    assert len(set(entries[1]) - set(entries[0])) == 1
