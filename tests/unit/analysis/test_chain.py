"""What is shown of a chain of hosts: its stages' times, how busy they are, and which of them is the bottleneck."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from rich.console import Console

from analysis import notes
from analysis.costs.stages import medians, stage_times, steps
from analysis.drawings import drawings
from analysis.figures.attribution_figure import MOST_SPLITS, attribution_drawing, attribution_figure
from analysis.figures.cuts_figure import cuts_drawing, cuts_figure
from analysis.figures.style import evenly
from analysis.figures.utilization_figure import MOST_POINTS, utilization_drawing, utilization_figure
from analysis.fronts.energy import with_middle
from analysis.fronts.front import front
from analysis.naming import point_label
from analysis.reporting import Asked, find, report
from analysis.runs.stages import stages
from analysis.runs.trials import load
from analysis.tables.front import front_table
from tests.unit import example_chain
from tests.unit.example_run import trials, with_energy, write

SOME = (0, 3, 5, 12, 21)


def analysed(
    folder: Path, splits: list[tuple[int, ...]], rounds: int = 1, **fixed: Any
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The front's rows and the stages' medians."""
    rows, staged = example_chain.trials(splits, rounds=rounds)
    run = example_chain.write(folder, [row | fixed for row in rows], staged)
    read = load([run])
    return front(with_middle(read, stages(run)), resamples=50), medians(stages(run), read)


def test_every_figure_of_a_chain_twice_the_same(tmp_path: Path) -> None:
    rows, staged = example_chain.trials(example_chain.splits(2, (3, 21)), backends=["tcp"])
    for stage in staged:
        stage["energy_j"] = 5 * (stage["compute_s"] + stage["bubble_s"])
    for row in with_energy(rows, server=False):
        row["server_energy_j"] = 1 if row["server_s"] else ""
    run = example_chain.write(tmp_path, rows, staged)
    first = report(run)
    names = {path.name for path in first.files}
    for kind in ("front", "attribution", "utilization", "cuts", "energy", "bound", "payload"):
        assert {f"{kind}-mobilenetv2-wifi.{ext}" for ext in ("pdf", "png", "csv", "txt")} <= names
    assert len(first.notes) == 1
    before = [path.read_bytes() for path in first.files]
    assert [path.read_bytes() for path in report(run).files] == before


def test_two_hosts_have_no_map_of_two_cuts(tmp_path: Path) -> None:
    rows, staged = example_chain.trials([(3,), (5,)], backends=["tcp"])
    found = find([example_chain.write(tmp_path, rows, staged)], Asked())
    kinds = {drawing.kind for drawing in drawings(found, each=True)}
    assert {"front", "attribution", "utilization"} <= kinds
    assert "cuts" not in kinds


def test_medians_are_of_valid_trials_alone(tmp_path: Path) -> None:
    rows, staged = example_chain.trials([(3, 5)], rounds=3, backends=["tcp"])
    for number, stage in enumerate(staged):
        stage["utilization"] = 0.1 * (number // 3 + 1)
    rows[2]["status"] = "invalid"
    run = example_chain.write(tmp_path, rows, staged)
    found = medians(stages(run), load([run]))
    assert found["host"].tolist() == ["edge", "middle1", "server"]
    assert found["utilization"].tolist() == pytest.approx([0.15] * 3)


def test_steps_of_a_chain(tmp_path: Path) -> None:
    """The bottleneck is busy all the time, and the next host's bubble is the rest of it."""
    rows, staged = analysed(tmp_path, [(3, 12), (3, 21), (5, 5)])
    found = steps(rows[rows["backend"] == "tcp"], staged).sort_values(["point", "place"])
    by_point = {point: group.set_index("step") for point, group in found.groupby("point")}
    assert list(by_point["3+12"].index) == [
        "edge",
        *(f"edge-middle1 {way}" for way in ("out", "back")),
        "middle1",
        *(f"middle1-server {way}" for way in ("out", "back")),
        "server",
    ]
    assert list(by_point["3+21"].index)[-1] == "middle1", "no more hosts take part"
    for _, row in rows[rows["backend"] == "tcp"].iterrows():
        of_point = by_point[row["point"]]
        assert of_point["share"].idxmax() == row["bottleneck"]
        assert of_point.loc[row["bottleneck"], "share"] == pytest.approx(1, abs=0.03)
        hosts = of_point[of_point["idle_s"].notna()]
        np.testing.assert_allclose(hosts["idle_s"], (1 - hosts["share"]) / row["throughput_ips"], atol=1e-6)


def test_links_share_counts_requests_not_images(tmp_path: Path) -> None:
    rows, staged = analysed(tmp_path, [(3, 12)])
    batch = {"batch_size": 8}
    link = (
        steps(rows.assign(**batch), staged.assign(**batch)).set_index("step").loc["edge-middle1 out", "share"]
    )
    single = steps(rows, staged).set_index("step").loc["edge-middle1 out", "share"]
    np.testing.assert_allclose(link, single / 8)


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
def test_bars_hold_every_host_and_add_up_to_the_latency(tmp_path: Path, links: int) -> None:
    rows, staged = analysed(tmp_path, example_chain.splits(links, (3, 12)))
    figure = attribution_figure(stage_times(rows, staged))
    between = [f"middle{number} compute" for number in range(1, links)]
    assert legend(figure.axes[0])[: 4 + len(between)] == [
        "edge compute", "serialize", "network", *between, "server compute",
    ]  # fmt: skip
    of_tcp = rows[rows["backend"] == "tcp"]
    np.testing.assert_allclose(heights(figure.axes[0]).sum(axis=0), 1e3 * of_tcp["latency_s"], rtol=1e-4)


def test_hosts_between_are_one_part_where_their_own_times_are_unknown(tmp_path: Path) -> None:
    rows, _ = analysed(tmp_path, example_chain.splits(2, (3, 12)))
    assert "middle compute" in legend(attribution_figure(rows).axes[0])


def test_the_lowest_latency_is_marked_in_every_panel(tmp_path: Path) -> None:
    rows, _ = analysed(tmp_path, example_chain.splits(1))
    figure = drawn(attribution_figure(rows))
    for axes, backend in zip(figure.axes, ("tcp", "rpc"), strict=True):
        of_backend = rows[rows["backend"] == backend].reset_index()
        best = of_backend["latency_s"].idxmin()
        arrow, text = axes.texts
        assert arrow.xy[0] == text.xy[0] == best
        assert text.get_text() == f"{1e3 * of_backend['latency_s'][best]:.3g}"
    names = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    assert names == (of_backend["point"] + " " + of_backend["point_name"]).tolist()


def test_of_many_splits_those_that_matter_are_drawn(tmp_path: Path) -> None:
    rows, staged = analysed(tmp_path, example_chain.splits(2, range(0, 22, 3)))
    assert rows["point"].nunique() == 36 > MOST_SPLITS
    figure = attribution_figure(stage_times(rows, staged))
    shown = [label.get_text().split()[0] for label in figure.axes[-1].get_xticklabels()]
    wanted = {*rows.loc[rows["on_backend_front"], "point"], "0+0", "0+21", "21+21"}
    assert set(shown) == wanted
    assert f"{len(wanted)} of 36 splits" in attribution_drawing(rows, (), "").caption


def lines(axes: Axes) -> dict[str, list[Rectangle]]:
    """The bars of each line, outlined ones among them."""
    names = [label.get_text() for label in axes.get_yticklabels()]
    bars = [bar for part in axes.containers for bar in part]
    return {
        name: [bar for bar in bars if round(bar.get_y() + bar.get_height() / 2) == place]
        for place, name in enumerate(names)
    }


def test_how_busy_every_step_is(tmp_path: Path) -> None:
    rows, staged = analysed(tmp_path, example_chain.splits(2, SOME))
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
        assert outlined == {(place, named[step]) for place, step in enumerate(points["bottleneck"])}
        first = steps(points.iloc[:1], staged).set_index("step")
        _, busy, *_ = found["server"]
        assert busy.get_width() / found["server"][0].get_width() == pytest.approx(
            first.loc["server", "share"]
        )
        bubble = f"{first.loc['server', 'share']:.0%} · {1e3 * first.loc['server', 'idle_s']:.3g} ms"
        assert bubble in [text.get_text() for text in axes.texts]


def test_a_way_back_that_matters_has_a_line(tmp_path: Path) -> None:
    rows, staged = analysed(tmp_path, [(3, 12)], bottleneck="edge-middle1 back")
    staged.loc[staged["host"] == "edge", "return_s"] = 0.1
    axes = utilization_figure(rows, staged).axes[0]
    assert "edge ← middle1" in lines(axes)
    assert any(not bar.get_fill() for bar in lines(axes)["edge ← middle1"])


def test_a_long_front_is_thinned_out(tmp_path: Path) -> None:
    rows, staged = analysed(tmp_path, example_chain.splits(2, SOME))
    rows["on_backend_front"] = True
    figure = utilization_figure(rows, staged)
    assert len(figure.axes[0].get_xticklabels()) == MOST_POINTS["page"]
    caption = utilization_drawing(rows, staged, (), "").caption
    assert f"; {2 * (15 - MOST_POINTS['page'])} between them left out" in caption


def test_what_was_not_measured_is_not_idle(tmp_path: Path) -> None:
    rows, staged = analysed(tmp_path, [(3, 12)])
    staged.loc[staged["host"] == "server", ["utilization", "bubble_s"]] = np.nan
    axes = utilization_figure(rows, staged).axes[0]
    assert len(lines(axes)["server"]) == 1
    assert "not measured" in [text.get_text() for text in axes.texts]


def test_the_map_of_two_cuts(tmp_path: Path) -> None:
    rows, _ = analysed(tmp_path, example_chain.splits(2, SOME))
    rows.loc[(rows["point"] == "12+21") & (rows["backend"] == "tcp"), ["throughput_ips", "latency_s"]] = (
        np.nan
    )
    figure = drawn(cuts_figure(rows.assign(on_front=False)))
    axes = figure.axes[0]
    tcp = rows[rows["backend"] == "tcp"].set_index("point")
    grid = axes.images[0].get_array()
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
                assert texts[y, x] == letters[tcp.loc[f"{first}+{second}", "bottleneck"]]
    for axes, backend in zip(figure.axes, ("tcp", "rpc"), strict=False):
        frames = {(round(frame.get_y() + 0.5), round(frame.get_x() + 0.5)) for frame in axes.patches}
        on_front = rows.loc[(rows["backend"] == backend) & rows["on_backend_front"], "point"]
        assert frames == {tuple(SOME.index(int(cut)) for cut in point.split("+")) for point in on_front}
    assert "E edge, M middle1, 1 edge-middle1 out" in cuts_drawing(rows, (), "").caption


def test_the_notes_name_the_bottleneck_at_the_best_points(tmp_path: Path) -> None:
    rows, _ = analysed(tmp_path, [(3, 5), (5, 5), (21, 21)])
    best, nearest = rows.loc[rows["throughput_ips"].idxmax()], rows.loc[rows["latency_s"].idxmin()]
    assert (best["point"], nearest["point"]) == ("3+5", "5+5")
    assert list(notes.bottlenecks(rows, "mobilenetv2 wifi")) == [
        "mobilenetv2 wifi: most images/s at point 3+5 over tcp, where edge-middle1 out is the bottleneck; "
        "lowest latency at point 5+5 over tcp, where edge is"
    ]
    one = rows[rows["point"] == "5+5"]
    assert next(notes.bottlenecks(one, "x")).endswith("edge is the bottleneck; so is the lowest latency")
    assert list(notes.bottlenecks(rows.assign(bottleneck=""), "x")) == []
    constrained = rows.assign(feasible=rows["point"] == "5+5")
    assert next(notes.bottlenecks(constrained, "x")).startswith("x: most images/s at point 5+5 over tcp")
    assert list(notes.bottlenecks(rows.assign(feasible=False), "x")) == []
    assert next(notes.bottlenecks(rows.drop(columns="feasible"), "x")).startswith(
        "x: most images/s at point 3+5"
    )


def test_where_nothing_crosses_no_backend_is_named(tmp_path: Path) -> None:
    rows, _ = analysed(tmp_path, [(3, 5), (21, 21)])
    (alone,) = notes.bottlenecks(rows[rows["point"] == "21+21"], "x")
    assert alone == (
        "x: most images/s at point 21+21 (all on the edge), where edge is the bottleneck; so is the lowest latency"
    )


def test_a_note_where_splitting_changes_top1(tmp_path: Path) -> None:
    rows = trials(rounds=1, top1=0.75, top1_images=16)
    assert find([write(tmp_path / "same", rows[:1])], Asked()).notes == []
    rows[1] |= {"top1": 0.5, "top1_images": 8}
    assert list(notes.differing_top1(load([write(tmp_path / "fewer", rows)]))) == [], "they saw other images"
    rows[4] |= {"top1": 0.625}
    rows[5] |= {"top1": 0.125, "status": "invalid"}
    assert list(notes.differing_top1(load([write(tmp_path / "other", rows)]))) == [
        "mobilenetv2: top-1 of the same 16 images is 62.5% at point 4 over tcp and 75.0% at point 0 over tcp: "
        "a split alone must not change it"
    ]


def printed(rows: pd.DataFrame) -> str:
    console = Console(width=80, color_system=None, record=True, file=io.StringIO())
    console.print(front_table(rows))
    return console.export_text()


def test_the_table_names_the_bottleneck(tmp_path: Path) -> None:
    rows, _ = analysed(tmp_path, [(3, 5), (5, 5), (21, 21)], rounds=3, top1=0.75, top1_images=16)
    rows["energy_of"], rows["energy_j"] = "edge + middle + server", 12.3456
    text = printed(rows)
    assert max(map(len, text.splitlines())) <= 80
    shown = next(line.split() for line in text.splitlines() if "3+5" in line)
    assert shown[-7:] == ["100", "link", "1", "out", "12.35", "75.0", "1.00"]
    told = " ".join(text.split())
    assert "link 1: edge-middle1, link 2: middle1-server" in told
    assert "top-1 of 16 images" in told


def test_two_hosts_have_one_link(tmp_path: Path) -> None:
    rows, _ = analysed(tmp_path, [(3,), (5,)], rounds=3)
    text = printed(rows)
    assert "link out" in text
    assert "link 1" not in text
    assert "features.4" in text
    assert "top-1" not in text


@pytest.mark.parametrize(
    ("point", "name", "label"),
    [
        ("7", "features.6", "7 features.6"),
        ("7", "", "7"),
        ("7", "7", "7"),
        ("7", "backbone.features.6.conv", "7 backb…res.6.conv"),
        ("3+7", "features.2+backbone.features.6.conv", "3+7 features.2+back….6.conv"),
        ("3+7+9", "a+b+c", "3+7+9"),
    ],
)
def test_labels_of_points(point: str, name: str, label: str) -> None:
    assert point_label(point, name) == label


def test_evenly() -> None:
    assert evenly([1, 2, 3], 3) == [1, 2, 3]
    assert evenly(range(9), 3) == [0, 4, 8]
    assert evenly(range(9), 1) == [0]
    assert evenly(range(9), 0) == []
