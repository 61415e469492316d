"""Labels beside their points."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pareto.analysis.figures.front_figure import front_figure
from pareto.analysis.figures.labels import UP_LEFT, Label, place_labels
from pareto.analysis.fronts.front import front
from pareto.analysis.runs.load import load
from tests.unit.example_run import trials, write


def all_on_front(seed: int) -> list[dict[str, Any]]:
    """22 points of two backends, every one on its front."""
    rng = np.random.default_rng(seed)
    rows = trials(seed=seed, netem="unshaped")
    for row in rows:
        slower = 1.0 if row["backend"] == "tcp" else 1.07
        row["latency_s"] = (0.03 + 0.012 * row["point"]) * slower * rng.normal(1, 0.01)
        row["throughput_ips"] = (12 + 2.2 * row["point"]) / slower * rng.normal(1, 0.01)
    return rows


def clustered() -> list[dict[str, Any]]:
    """22 points of two backends in two tight clusters, every one on its front."""
    rows = all_on_front(3)
    for row in rows:
        latency_s = (3 if row["point"] > 10 else 1) + 0.002 * row["point"]
        row["latency_s"] = latency_s * (1 if row["backend"] == "tcp" else 1.02)
        row["throughput_ips"] = 1 + row["point"] ** 1.2 / 10
    return rows


@pytest.mark.parametrize(("rows", "count"), [(all_on_front(1), 43), (clustered(), 33)])
def test_no_label_covers_another_or_a_marker(tmp_path: Path, rows: list[dict[str, Any]], count: int) -> None:
    points = front(load([write(tmp_path, rows)]), resamples=100)
    figure = front_figure(points)
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == count
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max) for box in boxes)
    scale = 1e3 if "(ms)" in axes.get_xlabel() else 1
    markers = axes.transData.transform(points[["latency_s", "throughput_ips"]].to_numpy() * [scale, 1])
    assert not any(box.contains(x, y) for box in boxes for x, y in markers)


@pytest.mark.parametrize(("neighbours", "leaders"), [(8, 1), (0, 0)])
def test_a_label_that_could_be_another_points_has_a_leader(neighbours: int, leaders: int) -> None:
    figure = Figure(figsize=(4, 4))
    axes = figure.add_subplot(xlim=(0, 100), ylim=(0, 100))
    figure.draw_without_rendering()
    markers = np.array([[50.0 + 3 * place, 50.0] for place in range(-neighbours, neighbours + 1)])
    label = Label(50, 50, "7 features", "black", UP_LEFT)
    place_labels(axes, [label], markers=markers, marker_pt=4)
    assert [text.get_text() for text in axes.texts] == ["7 features"]
    assert len(axes.lines) == leaders
