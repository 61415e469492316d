"""Small multiples of fronts over profiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.figures import example
from analysis.figures.drawing import conditions
from analysis.figures.front_figure import COLUMNS, fronts_drawing, fronts_figure, panels, shared
from tests.unit.drawn import sentences


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
    assert sentences(fronts_drawing(rows, ("net",), conditions(rows)).caption) == snapshot
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


@pytest.mark.parametrize("width", COLUMNS)
@pytest.mark.parametrize("count", [1, 4, 12])
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
