"""The front as a picture: how sure each point is, what is labelled, what the caption says."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.figures import front_figures, layout
from pareto.analysis.figures.front_figures import MOST_CORNERS
from pareto.analysis.figures.layout import MOST_LABELS, Scheme, printed
from pareto.analysis.figures.look import FILLS, ends, states
from pareto.analysis.figures.style import COLOURS, faded
from pareto.analysis.fronts.front import front
from pareto.analysis.naming import USUAL
from pareto.analysis.runs.load import load
from pareto.analysis.runs.points import CONDITION
from tests.unit import drawn, example_run
from tests.unit.analysis.test_figures import example


def points(tmp_path: Path, **options: Any) -> pd.DataFrame:
    return front(load([example_run.write(tmp_path, example_run.trials(**options))]), resamples=200)


def crafted(**columns: Any) -> pd.DataFrame:
    """Four points of one backend: on the front, perhaps (both ways), and not."""
    latency_s, throughput_ips = np.array([0.01, 0.02, 0.021, 0.04]), np.array([10.0, 20.0, 19.0, 5.0])
    told: dict[str, Any] = {"model": "net", "netem": "wifi", "batch_size": 1, **USUAL, "setup": ""}
    told |= {"backend": "tcp", "point": ["0", "1", "2", "3"], "point_name": "unit"}
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


def told(
    rows: pd.DataFrame, uncertainty: str = "box", attainment: pd.DataFrame | None = None, width: str = "page",
    ) -> tuple[Figure, str]:  # fmt: skip
    """The figure and its caption."""
    scheme = Scheme.of(rows, uncertainty)
    figure, told_ = printed(lambda on: front_figures.front(on, rows, scheme, attainment), width)
    return figure, told_.caption()


def front_figure(rows: pd.DataFrame, *of: Any, **more: Any) -> Figure:
    return told(rows, *of, **more)[0]


def fronts_figure(rows: pd.DataFrame, width: str = "page") -> Figure:
    return told(rows, width=width)[0]


def spans(axes: Axes, line: str) -> list[tuple[float, ...]]:
    """The ends of the thin bars of this kind of line, latency or throughput."""
    dashed = {"-": False, ":": True}[line]
    found = [it for it in axes.collections if isinstance(it, LineCollection) and len(it.get_segments())]
    kinds = [it for it in found if (it.get_linestyle()[0][1] is not None) == dashed]
    return [
        tuple(part[:, 0] if part[0, 1] == part[1, 1] else part[:, 1])
        for it in kinds
        for part in it.get_segments()
    ]


def test_captions_say_what_must_be_known(snapshot: SnapshotAssertion) -> None:
    rows, few = crafted(), crafted(rounds=3, probability=np.nan, **NO_INTERVAL)
    met = crafted(on_backend_front=[False, True, False, False], feasible=[False, True, True, True])
    tied = crafted(ties=["tcp 1", "tcp 0; rpc 7", "tcp 0", ""])
    captions = {
        "no uncertainty": told(rows, "none")[1],
        "intervals": told(rows)[1],
        "a band": told(rows, "band", surfaces(rows))[1],
        "too few rounds": told(few)[1],
        "one round": told(few.assign(rounds=1))[1],
        "a condition": told(met)[1],
        "other objectives": told(crafted(objectives="latency+energy"))[1],
        "ties": told(tied)[1],
    }
    assert captions == snapshot


def test_what_is_sure_is_full_what_may_be_is_pale_and_the_rest_hollow() -> None:
    rows = crafted()
    assert list(states(rows)) == ["front", "unsure", "unsure", "dominated"]
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


def test_one_choice_of_unit_and_scale_for_all_conditions_of_a_run() -> None:
    near = Scheme.of(crafted())
    assert (near.unit, near.logarithmic) == ("ms", {"latency_s": False, "throughput_ips": False})
    slow = crafted(netem="slow", latency_s=[1.0, 2.0, 2.1, 9.0])
    both = Scheme.of(pd.concat([crafted(), slow]))
    assert (both.unit, both.logarithmic["latency_s"]) == ("ms", True), "what one needs all have"
    assert Scheme.of(slow).unit == "s"
    axes = front_figure(crafted()).axes[0]
    assert (axes.get_xscale(), axes.get_xlim()[0], axes.get_ylim()[0]) == ("linear", 0, 0)
    assert front_figure(crafted(latency_s=[0.01, 0.02, 0.021, 0.08])).axes[0].get_xscale() == "log"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((3, 9), (0, 9.9)),
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


def test_nothing_is_called_sure_or_unsure_with_too_few_rounds() -> None:
    rows = crafted(probability=np.nan)
    assert list(states(rows)) == ["front", "front", "dominated", "dominated"]
    sure, none = (drawn.legend(front_figure(each)) for each in (crafted(), rows))
    assert {*sure} - {*none} == {"perhaps on the front"}


def test_bars_are_intervals_by_default_of_what_is_or_may_be_on_the_front_and_within_the_axes() -> None:
    rows = crafted()
    axes = front_figure(rows).axes[0]
    few = rows.iloc[:3]
    expected = [*zip(950 * few["latency_s"], 1100 * few["latency_s"], strict=True)]
    expected += [*zip(0.95 * few["throughput_ips"], 1.1 * few["throughput_ips"], strict=True)]
    np.testing.assert_allclose(spans(axes, "-"), expected)
    assert spans(axes, ":") == []
    assert axes.get_xlim()[1] > 1100 * few["latency_s"].max()
    assert axes.get_ylim()[1] > 1.1 * few["throughput_ips"].max()
    assert "95 % interval" in drawn.legend(axes.figure)
    assert spans(front_figure(rows, "none").axes[0], "-") == []


def test_too_few_rounds_are_dotted_from_least_to_most() -> None:
    axes = front_figure(crafted(rounds=3, **NO_INTERVAL)).axes[0]
    assert spans(axes, "-") == []
    assert {(9.0, 12.0), (18.0, 24.0)} <= {tuple(np.round(span, 6)) for span in spans(axes, ":")}
    assert "range of the rounds" in drawn.legend(axes.figure)


def surfaces(rows: pd.DataFrame) -> pd.DataFrame:
    best = {"percent": 5, "latency_s": [0.009, 0.018], "throughput_ips": [11.0, 22.0]}
    worst = {"percent": 95, "latency_s": [0.012, 0.024], "throughput_ips": [9.0, 18.0]}
    corners = pd.concat([pd.DataFrame(one) for one in (best, worst)])
    return corners.assign(backend="tcp", **rows.iloc[0][CONDITION])


def bands(figure: Figure) -> list[Polygon]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Polygon)]


def test_the_band_lies_between_its_surfaces() -> None:
    rows = crafted()
    figure = front_figure(rows, "band", surfaces(rows))
    (band,) = bands(figure)
    inside = band.get_path().contains_points(
        [(10, 10), (21, 20), (30, 19), (10, 12), (30, 8), (8, 5), (13, 5)]
    )
    assert inside.tolist() == [True, True, True, False, False, False, False]


def test_a_band_of_thousands_of_corners_is_drawn_with_those_that_can_be_seen() -> None:
    rows = crafted()
    steps = np.linspace(0, 1, 5000)
    corners = [
        pd.DataFrame({"percent": percent, "latency_s": at + steps / 100, "throughput_ips": 10 + 10 * steps})
        for percent, at in ((5, 0.009), (95, 0.012))
    ]
    every = pd.concat(corners).assign(backend="tcp", **rows.iloc[0][CONDITION])
    (band,) = bands(front_figure(rows, "band", every))
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
    assert bands(front_figure(crafted(), "band", attainment)) == []


def test_at_most_ten_labels_front_members_first_and_none_covers_another(tmp_path: Path) -> None:
    rows = points(tmp_path, noise=0)
    place = rows["point"].astype(int)
    slower = rows["backend"].map({"tcp": 1.0, "rpc": 1.04, "": 1.0})
    rows = rows.assign(latency_s=slower * (1 + place), throughput_ips=(1 + place) / slower, probability=1.0)
    rows["on_backend_front"] = True
    rows["on_front"] = place < 7
    for width in ("column", "page"):
        figure = drawn.rendered(front_figure(rows, width=width))
        axes = figure.axes[0]
        labels = [text.get_text() for text in axes.texts]
        assert 5 < len(labels) <= MOST_LABELS
        assert {label.split()[0] for label in labels} <= {str(number) for number in range(7)}
        boxes = [text.get_window_extent() for text in axes.texts]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        marks = axes.transData.transform(rows[["latency_s", "throughput_ips"]].to_numpy())
        assert not any(box.contains(x, y) for box in boxes for x, y in marks)
    assert all(label.isdigit() for label in labels) is False, "names where there is room"


def test_a_label_that_is_apart_has_a_leader_and_one_without_room_is_left_out() -> None:
    figure = Figure(figsize=(4, 4))
    axes = figure.add_subplot(xlim=(0, 100), ylim=(0, 100))
    near = np.array([[50.0 + x, 50.0 + y] for x in range(-14, 1, 3) for y in range(0, 12, 3)])
    layout.place_labels(axes, [(50, 50, "7 features", "black")], near)
    assert len(axes.texts) == len(axes.patches) <= 1
    full = np.array([[x, y] for x in range(0, 101, 2) for y in range(0, 101, 2)], dtype=float)
    other = Figure(figsize=(4, 4)).add_subplot(xlim=(0, 100), ylim=(0, 100))
    layout.place_labels(other, [(50, 50, "7 features", "black")], full)
    assert not other.texts


def test_the_staircase_is_of_the_points_that_count() -> None:
    """Of those that meet the conditions set: a point that does not may be better than the front."""
    rows = crafted(on_backend_front=[False, True, False, False], feasible=[False, True, True, True])
    axes = front_figure(rows).axes[0]
    steps = [line for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata()) > 2]
    assert [min(line.get_xdata()) for line in steps] == pytest.approx([20])


def test_a_front_of_other_objectives_is_no_staircase_in_this_plane() -> None:
    rows = crafted(objectives="latency+energy")
    figure = front_figure(rows, "band", surfaces(rows))
    assert not [line for line in figure.axes[0].lines if len(line.get_xdata()) > 2]
    assert bands(figure) == []


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
    slowest: float, together: bool
) -> None:
    rows = profiles({"one": 1, "two": slowest})
    one, two = fronts_figure(rows).axes
    assert (one.get_xlim() == two.get_xlim()) is together
    caption = told(rows)[1]
    assert ("own axis of latency" in caption) is not together
    assert one.get_xlabel() == two.get_xlabel() == "latency (ms)"


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
    drawn.rendered(figure)
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    assert not any(one.overlaps(other) for number, one in enumerate(boxes) for other in boxes[:number])
    assert min(axes.bbox.width for axes in figure.axes) / figure.dpi > 1.1
    numbered = [
        axes
        for axes in figure.axes
        if any(label.get_text() for label in axes.get_xticklabels())
        and axes.xaxis.get_tick_params()["labelbottom"]
    ]
    assert len(numbered) == min({"column": 2, "page": 3}[width], count), "shared axes have their numbers once"


def test_batch_sizes_have_panels_of_their_own(snapshot: SnapshotAssertion) -> None:
    rows = pd.concat(
        [
            profiles({"wifi": 1}),
            profiles({"wifi": 2}, batch_size=8),
            profiles({"lte": 3}, in_flight_asked="4"),
        ]
    )
    assert [*front_figures._panels(rows)] == snapshot


def test_a_tick_at_the_bound_of_a_point_that_was_struck_off_is_explained() -> None:
    struck = crafted(least_latency_s=[np.nan, np.nan, np.nan, 0.03], most_throughput_ips=[np.nan] * 3 + [8.0])
    entries = [drawn.legend(front_figure(rows)) for rows in (crafted(), struck)]
    assert len(set(entries[1]) - set(entries[0])) == 1
