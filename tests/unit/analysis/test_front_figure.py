"""The front as a picture: how sure each point is, what is labelled, what the caption says."""

from __future__ import annotations

from collections.abc import Callable
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
from matplotlib.text import Text
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.figures import front_figures, layout
from pareto.analysis.figures.drawing import Nothing
from pareto.analysis.figures.look import FILLS, ends, states
from pareto.analysis.figures.shown import drawings
from pareto.analysis.figures.style import COLOURS, Scheme, faded
from pareto.analysis.findings import find
from pareto.analysis.fronts.front import front
from pareto.analysis.naming import USUAL
from pareto.analysis.runs.load import load
from pareto.analysis.runs.points import CONDITION, NONE
from tests.unit import drawn
from tests.unit.analysis.figure_runs import Reported, made
from tests.unit.analysis.test_figures import example
from tests.unit.example_run import trials, with_energy, write


def crafted(**columns: Any) -> pd.DataFrame:
    """Four points of one backend: on the front, perhaps (both ways), and not."""
    told = {"model": "net", "netem": "wifi", "batch_size": 1, **USUAL, "setup": "", "backend": "tcp"}
    told |= {"point": ["0", "1", "2", "3"], "point_name": "unit", "rounds": 8, "excluded": 0, "left_out": 0}
    told |= {"trials": 8, "payload_bytes": [5.0, 5.0, 5.0, 0.0], "ties": "", "feasible": True}
    told |= {"loaded_latency_s": np.nan, "accuracy_of": "", "accuracy_images": np.nan}
    told |= {"latency_s": [0.01, 0.02, 0.021, 0.04], "throughput_ips": [10.0, 20.0, 19.0, 5.0]}
    for end, factor in (("low", 0.95), ("high", 1.1), ("least", 0.9), ("most", 1.2)):
        for name in ("latency_s", "throughput_ips"):
            told[name.replace("_", f"_{end}_")] = factor * np.array(told[name])
    told |= {"probability": [1.0, 0.7, 0.3, 0.0], "on_front": [True, True, False, False]}
    made = pd.DataFrame(told | {"on_backend_front": told["on_front"]} | columns)
    return made.assign(on_fronts_of=np.where(made["on_backend_front"], "tcp", ""))


ENDS = ("latency_low_s", "latency_high_s", "throughput_low_ips", "throughput_high_ips")
FEW = crafted(rounds=3, probability=np.nan, **dict.fromkeys(ENDS, np.nan))
MET = crafted(on_backend_front=[False, True, False, False], feasible=[False, True, True, True])
OTHER = crafted(objectives="latency+energy")
SURFACES = pd.DataFrame(
    {
        "percent": [5, 5, 95, 95], "backend": "tcp", **crafted().iloc[0][CONDITION],
        "latency_s": [0.009, 0.018, 0.012, 0.024], "throughput_ips": [11.0, 22.0, 9.0, 18.0],
    }
)  # fmt: skip
"""Corners that 5 % and 95 % of the resamples attain."""


def told(
    rows: pd.DataFrame, uncertainty: str = "box", attainment: pd.DataFrame | None = None, width: str = "page"
) -> tuple[Figure, str]:
    """The figure and its caption."""
    of = {"rows": rows, "scheme": Scheme.of(rows, uncertainty), "attainment": attainment}
    return made(front_figures.front, width, **of)[:2]


def spans(axes: Axes) -> list[tuple[str, float, float]]:
    """The thin bars, latency or throughput: solid or dotted, and their ends."""
    bars = [
        ("-" if lines.get_linestyle()[0][1] is None else ":", part)
        for lines in axes.collections
        if isinstance(lines, LineCollection)
        for part in lines.get_segments()
    ]
    return sorted((dash, *(part[:, 0] if part[0, 1] == part[1, 1] else part[:, 1])) for dash, part in bars)


def bands(figure: Figure) -> list[Polygon]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Polygon)]


def stairs(figure: Figure) -> list[list[float]]:
    """The latencies of the corners of each staircase."""
    lines = [line for line in figure.axes[0].lines if line.get_linestyle() == "-"]
    return [list(line.get_xdata()) for line in lines if len(line.get_xdata())]


def test_captions_say_what_must_be_known(snapshot: SnapshotAssertion) -> None:
    captions = {
        "no uncertainty": told(crafted(), "none")[1],
        "intervals": told(crafted())[1],
        "a band": told(crafted(), "band", SURFACES)[1],
        "too few rounds": told(FEW)[1],
        "one round": told(FEW.assign(rounds=1))[1],
        "a condition": told(MET)[1],
        "other objectives": told(OTHER)[1],
        "ties": told(crafted(ties=["tcp 1", "tcp 0; rpc 7", "tcp 0", ""]))[1],
    }
    assert captions == snapshot


def test_what_is_sure_is_full_what_may_be_is_pale_and_the_rest_hollow() -> None:
    assert list(states(crafted())) == ["front", "unsure", "unsure", "dominated"]
    figure = told(crafted())[0]
    marks = {
        line.get_markerfacecolor(): sorted(line.get_xdata())
        for line in figure.axes[0].lines
        if line.get_marker() == "o" and len(line.get_xdata())
    }
    assert marks == {
        faded(COLOURS[0], FILLS[state]): pytest.approx(at)
        for state, at in (("front", [10]), ("unsure", [20, 21]), ("dominated", [40]))
    }
    assert len({round(sum(fill), 1) for fill in marks}) == 3, "three steps of grey, too"
    few = crafted(probability=np.nan)
    assert list(states(few)) == ["front", "front", "dominated", "dominated"], "neither sure nor unsure"
    assert {*drawn.legend(figure)} - {*drawn.legend(told(few)[0])} == {"perhaps on the front"}


def test_one_choice_of_unit_and_scale_for_all_conditions_of_a_run() -> None:
    slow = crafted(netem="slow", latency_s=[1.0, 2.0, 2.1, 9.0])
    near, both = Scheme.of(crafted()), Scheme.of(pd.concat([crafted(), slow]))
    assert (near.unit, near.logarithmic) == ("ms", {"latency_s": False, "throughput_ips": False})
    assert (both.unit, both.logarithmic["latency_s"]) == ("ms", True), "what one needs all have"
    assert Scheme.of(slow).unit == "s"
    axes = told(crafted())[0].axes[0]
    assert (axes.get_xscale(), axes.get_xlim()[0], axes.get_ylim()[0]) == ("linear", 0, 0)
    assert told(crafted(latency_s=[0.01, 0.02, 0.021, 0.08]))[0].axes[0].get_xscale() == "log"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((3, 9), (0, 9.9)), ((3, 24), (3 / 8**0.1, 24 * 8**0.1)), ((0, 5), (0, 5.5)), ((-5, 5), (-6, 6)),
        ((0, 0), (0, 1)),
    ],
)  # fmt: skip
def test_an_axis_starts_at_0_or_is_logarithmic(
    values: tuple[float, float], expected: tuple[float, float]
) -> None:
    assert ends(*values, room=0.1) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rows", "dash", "low", "high", "words"),
    [(crafted(), "-", 0.95, 1.1, "95 % interval"), (FEW, ":", 0.9, 1.2, "range of the rounds")],
    ids=["intervals by default", "too few rounds: from least to most"],
)
def test_bars_are_of_what_is_or_may_be_on_the_front_and_within_the_axes(
    rows: pd.DataFrame, dash: str, low: float, high: float, words: str
) -> None:
    figure, bare = told(rows)[0], told(rows, "none")[0]
    (axes,), shown = figure.axes, rows[states(rows) != "dominated"]
    middles = sorted([*1e3 * shown["latency_s"], *shown["throughput_ips"]])
    assert spans(axes) == [(dash, pytest.approx(low * each), pytest.approx(high * each)) for each in middles]
    assert axes.get_xlim()[1] > 1e3 * high * shown["latency_s"].max()
    assert axes.get_ylim()[1] > high * shown["throughput_ips"].max()
    assert spans(bare.axes[0]) == []
    assert {*drawn.legend(figure)} - {*drawn.legend(bare)} == {words}


def test_the_band_lies_between_its_surfaces_and_there_is_none_without() -> None:
    (band,) = bands(told(crafted(), "band", SURFACES)[0])
    within, beyond = [(10, 10), (21, 20), (30, 19)], [(10, 12), (30, 8), (8, 5), (13, 5)]
    assert band.get_path().contains_points(within).all()
    assert not band.get_path().contains_points(beyond).any()
    energy = SURFACES.rename(columns={"throughput_ips": "energy_j"})
    for attainment in (None, SURFACES.iloc[:0], SURFACES.assign(netem="lte"), energy):
        assert bands(told(crafted(), "band", attainment)[0]) == []


def test_the_staircase_is_of_the_points_that_count_and_none_in_another_plane() -> None:
    """Of those that meet the conditions set: a point that does not may be better than the front."""
    assert [min(steps) for steps in stairs(told(MET)[0])] == pytest.approx([20])
    other = told(OTHER, "band", SURFACES)[0]
    assert stairs(other) == bands(other) == []


def test_at_most_ten_labels_front_members_first_and_none_covers_another(tmp_path: Path) -> None:
    rows = front(load([write(tmp_path, trials(noise=0))]))
    place = rows["point"].astype(int)
    slower = rows["backend"].map({"tcp": 1.0, "rpc": 1.04}).fillna(1.0)
    rows = rows.assign(latency_s=slower * (1 + place), throughput_ips=(1 + place) / slower, probability=1.0)
    rows = rows.assign(on_backend_front=True, on_front=place < 7)
    for width in ("column", "page"):
        axes = drawn.rendered(told(rows, width=width)[0]).axes[0]
        labels = [text.get_text() for text in axes.texts]
        assert 5 < len(labels) <= layout.MOST_LABELS
        assert {label.split()[0] for label in labels} <= {str(number) for number in range(7)}
        boxes = [Text.get_window_extent(text) for text in axes.texts]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        marks = axes.transData.transform(rows[["latency_s", "throughput_ips"]].to_numpy())
        assert not any(box.contains(x, y) for box in boxes for x, y in marks)
    assert all(label.isdigit() for label in labels) is False, "names where there is room"


@pytest.mark.parametrize(
    ("near", "far", "texts", "lines"), [(60, 100, 1, 0), (3, 4, 1, 1), (0, 100, 0, 0)], ids=str
)
def test_a_label_that_is_apart_has_a_leader_and_one_without_room_is_left_out(
    near: int, far: int, texts: int, lines: int
) -> None:
    grid = np.array([[x, y] for x in range(0, 101, 2) for y in range(0, 101, 2)], dtype=float)
    off = np.abs(grid - 50).max(axis=1)
    axes = Figure(figsize=(4, 4)).add_subplot(xlim=(0, 100), ylim=(0, 100))
    layout.place_labels(axes, [(50, 50, "7", "black")], grid[(off >= near) & (off <= far)])
    assert [len(axes.texts), sum(text.arrow_patch is not None for text in axes.texts)] == [texts, lines]


def profiles(slower: dict[str, float], **columns: Any) -> pd.DataFrame:
    """The front of a toy under several profiles."""
    latencies = ["latency_s", "latency_low_s", "latency_high_s", "latency_least_s", "latency_most_s"]
    rates = [column.replace("latency", "throughput").replace("_s", "_ips") for column in latencies]
    parts = [example().assign(netem=netem, **columns) for netem in slower]
    for one, factor in zip(parts, slower.values(), strict=True):
        one[latencies], one[rates] = one[latencies] * factor, one[rates] / factor
    return pd.concat(parts, ignore_index=True)


def test_a_panel_for_each_condition_from_quick_to_slow_all_with_the_same_looks(
    snapshot: SnapshotAssertion,
) -> None:
    rows = profiles({"a-slow": 9, "quick": 1, "middle": 3})
    figure = told(rows[(rows["netem"] != "middle") | (rows["backend"] == "rpc")])[0]
    looks = [
        {(it.get_color(), it.get_marker()) for it in axes.lines if it.get_marker() != "None" and len(it.get_xdata())}
        for axes in figure.axes
    ]  # fmt: skip
    assert len(looks[0]) == 3
    assert looks[0] == looks[2]
    assert looks[1] == {(colour, marker) for colour, marker in looks[0] if marker == "s"}, "rpc has its own"
    assert [text.split()[0] for text in drawn.legend(figure)[:2]] == ["tcp", "rpc"]
    others = profiles({"wifi": 2}, batch_size=8), profiles({"lte": 3}, in_flight_asked="4")
    sizes = told(pd.concat([profiles({"wifi": 1}), *others]))[0]
    assert [[axes.get_title(loc="left") for axes in each.axes] for each in (figure, sizes)] == snapshot


@pytest.mark.parametrize(("slowest", "together"), [(1.2, True), (1000, False)])
def test_axes_are_shared_where_that_is_readable_and_the_caption_says_if_not(
    slowest: float, together: bool
) -> None:
    figure, caption = told(profiles({"one": 1, "two": slowest}))
    one, two = figure.axes
    assert (one.get_xlim() == two.get_xlim()) is together
    assert ("own axis of latency" in caption) is not together
    assert one.get_xlabel() == two.get_xlabel() == "latency (ms)"


def test_a_profile_without_a_valid_trial_is_seen_to_be_missing(snapshot: SnapshotAssertion) -> None:
    rows = profiles({"one": 1, "two": 2, "dead": 1})
    dead = rows["netem"] == "dead"
    rows.loc[dead, ["latency_s", "throughput_ips"]] = np.nan
    rows.loc[dead, ["rounds", "excluded"]] = [0, 7]
    rows.loc[dead, "left_out"] = rows.loc[dead, "trials"]
    figure = told(rows)[0]
    assert figure.axes[-1].get_title(loc="left") == "dead"
    assert figure.get_supxlabel().startswith("56 of 168 ")
    assert [text.get_text() for text in figure.axes[-1].texts] == snapshot


@pytest.mark.parametrize(
    ("width", "count", "columns"), [pytest.param("column", 12, 2, marks=pytest.mark.deep), ("page", 4, 3)]
)
def test_up_to_twelve_profiles_fit(width: str, count: int, columns: int) -> None:
    every = {f"profile-{number}": 1 + 0.1 * number for number in range(count)}
    figure = drawn.rendered(told(profiles(every), width=width)[0])
    assert len(figure.axes) == count
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert min(axes.bbox.width for axes in figure.axes) / figure.dpi > 1.1
    numbered = [axes for axes in figure.axes if axes.xaxis.get_tick_params()["labelbottom"]]
    assert len(numbered) == columns, "shared axes have their numbers once"


def test_a_tick_at_the_bound_of_a_point_that_was_struck_off_is_explained() -> None:
    struck = crafted(least_latency_s=[np.nan, np.nan, np.nan, 0.03], most_throughput_ips=[np.nan] * 3 + [8.0])
    entries = [drawn.legend(told(rows)[0]) for rows in (crafted(), struck)]
    assert len(set(entries[1]) - set(entries[0])) == 1


# Energy and accuracy: two panels.


@pytest.mark.parametrize("column", ["energy_j", "active_energy_j"])
def test_energies_are_those_above_idle_where_they_are_known_and_the_front_is_filled_and_numbered(
    reported: Callable[[str], Reported], column: str
) -> None:
    rows = reported("backends").found.front
    if column == "active_energy_j":
        rows = rows.assign(active_energy_j=np.where(rows["backend"] == NONE, 0.5, 0.75))
    on_front = rows.loc[rows["on_energy_front"], "point"]
    figure, _, data = made(front_figures.third, rows=rows, kind="energy")
    assert ("idle" in figure.axes[0].get_ylabel()) == (column != "energy_j")
    for axes, name in zip(figure.axes, ("latency_s", "throughput_ips"), strict=True):
        for side, of in enumerate((name, column)):
            assert sorted(drawn.marks(axes)[:, side]) == pytest.approx(sorted(rows[of]))
        filled = [line for line in axes.lines if line.get_zorder() == 4]
        assert sum(len(line.get_xdata()) for line in filled) == len(on_front)
        assert {text.get_text() for text in axes.texts} <= {*on_front}
    assert len(data) == len(rows)


ELSEWHERE = trials(rounds=1)[::9] + with_energy(trials(rounds=1, netem="other"))[::9]
DEVICES = with_energy(trials(rounds=1, codec="fp16"))[::9] + with_energy(trials(rounds=1), server=False)[::9]


@pytest.mark.parametrize(
    ("rows", "named"),
    [pytest.param(ELSEWHERE, [("mobilenetv2", "other")], marks=pytest.mark.deep), (DEVICES, [])],
    ids=["one of two networks", "codecs of different devices"],
)
def test_figures_of_energy_exist_only_where_it_is_comparable(
    tmp_path: Path, rows: list[dict[str, Any]], named: list[tuple[str, ...]]
) -> None:
    found = find([write(tmp_path, rows)])
    assert [each.name for each in drawings(found, each=True) if each.kind == "energy"] == named
    assert bool(found.notes) == (not named), "a note says why there is none"


def test_each_point_of_each_codec_is_drawn_once_beside_its_accuracy(slow: pd.DataFrame) -> None:
    figure, _, _ = made(front_figures.third, rows=slow, kind="accuracy")
    for axes in figure.axes:
        assert len(drawn.marks(axes)) == (slow["backend"] != NONE).sum() + 1, "all on the edge once"
        assert {*drawn.marks(axes)[:, 1].round(6)} == {100.0, 98.5, 90.0}
        assert max(axes.get_yticks()) <= 100
    assert figure.axes[0].get_ylabel() == "agreement (%)"
    partly = slow.assign(accuracy=slow["accuracy"].where(slow["codec"] != "uint4"))
    assert "not measured: uint4" in made(front_figures.third, rows=partly, kind="accuracy")[1]
    with pytest.raises(Nothing):
        made(front_figures.third, rows=slow[slow["codec"] == "int8"], kind="accuracy")


def test_no_lossy_codec_s_front_is_drawn_without_what_it_costs(slow: pd.DataFrame) -> None:
    unknown = {name: slow[name].where(slow["codec"] != "int8") for name in ("accuracy", "agreement")}
    for rows, cost in ((slow, "agreement 98.5 %"), (slow.assign(**unknown), "accuracy not measured")):
        entries = drawn.legend(made(front_figures.front, rows=rows)[0])
        assert f"tcp int8 front ({cost})" in entries
        assert {"tcp zstd front", "tcp none front"} <= {*entries}, "the same output costs nothing"
