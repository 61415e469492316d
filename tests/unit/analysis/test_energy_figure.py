"""The figure of energy: where there is one, and what it shows."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from syrupy.assertion import SnapshotAssertion

from analysis.figures.energy_figure import energy_figure
from analysis.figures.kinds import drawings
from analysis.findings import Findings, Options, find
from analysis.fronts.front import front
from analysis.runs.load import load
from tests.unit import drawn
from tests.unit.example_run import trials, with_energy, write


def analysed(folder: Path, rows: list[dict[str, Any]]) -> pd.DataFrame:
    return front(load([write(folder, rows)]), resamples=50)


def energies(found: Findings) -> list[tuple[str, ...]]:
    return [drawing.name for drawing in drawings(found, each=True) if drawing.kind == "energy"]


@pytest.mark.parametrize("width", ["page", "column"])
def test_the_energy_is_that_above_idle_where_it_is_known(tmp_path: Path, width: str) -> None:
    rows = with_energy(trials(rounds=1))
    whole = energy_figure(analysed(tmp_path / "whole", rows), width=width)
    for row in rows:
        row |= {"edge_active_energy_j": 0.5, "server_active_energy_j": 0.25 if row["payload_bytes"] else ""}
    above = energy_figure(analysed(tmp_path / "above", rows), width=width)
    labels = [[figure.axes[1].get_xlabel(), figure.axes[2].get_ylabel()] for figure in (whole, above)]
    assert ["idle" in label for of_figure in labels for label in of_figure] == [False, False, True, True]
    drawn_j = np.concatenate([marks.get_offsets()[:, 1] for marks in above.axes[2].collections])
    assert set(np.round(drawn_j, 6)) == {0.5, 0.75}
    assert drawn.outside(drawn.rendered(above)) == []


@pytest.mark.parametrize("conditions", [1, 2])
def test_figures_exist_only_where_energy_does(tmp_path: Path, conditions: int) -> None:
    some = slice(0, 44, 5)
    rows = trials(rounds=1)[some]
    if conditions > 1:
        rows += with_energy(trials(rounds=1, netem="other"))[some]
    run = write(tmp_path, rows)
    found = find([run], Options())
    assert energies(found) == ([("mobilenetv2", "other")] if conditions > 1 else [])
    assert found.notes == []


@pytest.mark.parametrize(
    "rows",
    [
        with_energy(trials(rounds=1))[:1],
        [row | {"edge_energy_j": 0.5} for row in trials(rounds=1, backends=("rpc",))],
        with_energy(trials(rounds=1), edge=False)[-1:] + with_energy(trials(rounds=1), edge=False)[:3],
        with_energy(trials(rounds=1, codec="fp16"))[::6] + trials(rounds=1)[::6],
    ],
    ids=["one trial", "equal energies", "one of 0 J", "one of two codecs"],
)
def test_partial_energies(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    (drawing,) = (
        one for one in drawings(find([write(tmp_path, rows)], Options()), each=True) if one.kind == "energy"
    )
    figure = drawn.rendered(drawing.draw("page"))
    assert len([axes for axes in figure.axes if axes.axison]) == 3


def test_codecs_of_different_devices_get_a_note(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    fp16, none = with_energy(trials(rounds=1, codec="fp16")), with_energy(trials(rounds=1), server=False)
    rows = fp16[::5] + none[::5]
    made = find([write(tmp_path, rows)], Options())
    assert made.notes == snapshot
    assert energies(made) == []


def spread_out() -> list[dict[str, Any]]:
    """22 points of two backends, every one on the front of three."""
    rng = np.random.default_rng(1)
    rows = trials(seed=1)
    for row in rows:
        slower = 1.0 if row["backend"] == "tcp" else 1.03
        row["latency_s"] = (0.03 + 0.012 * row["point"]) * slower * rng.normal(1, 0.01)
        row["throughput_ips"] = (12 + 2.2 * row["point"] ** 1.3) / slower
        row["edge_energy_j"] = (2 - 0.09 * (row["point"] * 7 % 22)) * (2 - slower)
    return rows


def labels(axes: Axes) -> list[Text]:
    return [text for text in axes.texts if text.get_text()]


@pytest.mark.parametrize("rows", [with_energy(trials()), spread_out()], ids=["few", "many"])
def test_points_on_the_front_are_numbered_in_every_panel(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    points = analysed(tmp_path, rows)
    figure = energy_figure(points)
    FigureCanvasAgg(figure).draw()
    on_front = points.loc[points["on_energy_front"], "point"]
    panels = [axes for axes in figure.axes if axes.axison]
    assert len(panels) == 3
    for axes in panels:
        assert sorted(text.get_text() for text in labels(axes)) == sorted(on_front)
        boxes = [text.get_window_extent() for text in labels(axes)]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        assert all(axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max) for box in boxes)
        filled = [
            len(marks.get_offsets())
            for marks in axes.collections
            if len(marks.get_facecolor()) and marks.zorder == 4
        ]
        assert sum(filled) == len(on_front)
        assert sum(len(marks.get_offsets()) for marks in axes.collections) == len(points)
    assert figure.get_supxlabel() == "", "nothing was left out"
