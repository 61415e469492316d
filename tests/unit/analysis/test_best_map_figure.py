"""The best point as the network changes: what was measured best, what is foretold, and where they differ."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.advice.best import CLOSE, SAME, best
from pareto.analysis.advice.predict import best_on_grid
from pareto.analysis.figures.areas import FINENESS, UNDECIDED, colours_of, draw_areas, undecided
from pareto.analysis.figures.axes import Scale
from pareto.analysis.figures.best_map_figure import best_map_drawing, best_map_drawings, best_map_figure
from pareto.analysis.figures.drawing import Drawing
from pareto.analysis.findings import Findings
from pareto.analysis.fronts.front import front
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import Run
from tests.unit import drawn
from tests.unit import simulated_network as simulated
from tests.unit.analysis.test_best import HALF, NETWORKS, Foretelling, rows
from tests.unit.gating import gating


def test_a_chain_has_no_map() -> None:
    assert best(rows().assign(point="3+7"), NETWORKS).empty
    assert best_map_drawing(rows().assign(point="3+7"), NETWORKS) is None


def test_one_network_is_a_map_only_with_a_prediction() -> None:
    one = rows()[lambda front: front["netem"] == "near"]
    assert best_map_drawing(one, NETWORKS) is None
    assert best_map_drawing(one, NETWORKS, Foretelling()) is not None  # type: ignore[arg-type]
    assert best_map_drawing(rows(), {}) is None


def test_every_network_is_computed() -> None:
    delays_s, rates_bps = np.array([0.0, 0.1, 0.2]), np.array([1e6, HALF, 2 * HALF, math.inf])
    which = best_on_grid(Foretelling(), delays_s, rates_bps, "latency")  # type: ignore[arg-type]
    assert which.tolist() == [[1, 1, 0, 0]] * 3


def foretold() -> Drawing:
    found = best_map_drawing(rows(), NETWORKS, Foretelling(), "two hosts")  # type: ignore[arg-type]
    assert found is not None
    return found


def test_the_caption_names_what_is_not_on_the_map(snapshot: SnapshotAssertion) -> None:
    found = foretold()
    assert "wobbly" in found.caption
    assert "two hosts" in found.caption
    assert [drawn.legend(found.draw("page")), drawn.sentences(found.caption)] == snapshot


@pytest.mark.parametrize("width", gating(["page", "column"], "page"))
def test_marks_stand_at_their_network_over_what_is_foretold(width: str) -> None:
    found = foretold()
    assert found.kind == "best-map"
    figure = drawn.rendered(found.draw(width))
    axes, lowest = figure.axes[0], figure.axes[-1]
    assert "no limit" in [text.get_text() for text in lowest.get_xticklabels()]
    assert "0" in [text.get_text() for text in axes.get_yticklabels()]
    rates = dict(zip((it.get_text() for it in lowest.get_xticklabels()), lowest.get_xticks(), strict=True))
    places = {mark.get_text(): mark.get_position() for mark in axes.texts if mark.get_fontweight() == "bold"}
    assert places["9"][0] < rates["10"] < places["0"][0], "5 Mbit/s is left of 10"
    assert {"near", "far", "bare", "9, all on the edge", "0 tcp"} <= set(drawn.texts(figure))
    assert any("0 tcp, 233 %" in text for text in drawn.texts(figure)), "throughput, near"
    assert drawn.outside(figure) == []
    written = found.data[found.data["what"] == "predicted"]
    assert written["predicted_point"].eq("0").tolist() == (written["rate_bps"] > HALF).tolist()
    assert set(written["objective"]) == {"latency", "throughput"}


def test_areas_lie_where_the_prediction_changes() -> None:
    found = best(rows(), NETWORKS, Foretelling())  # type: ignore[arg-type]
    figure = best_map_figure(found, Foretelling(), rows())  # type: ignore[arg-type]
    figure.draw_without_rendering()
    axes = figure.axes[0]
    ticks = dict(zip((it.get_text() for it in axes.get_xticklabels()), axes.get_xticks(), strict=True))
    one, other = ticks["10"], ticks["100"]
    border = one + (other - one) * math.log10(HALF / 10e6)
    (area,) = axes.collections[0].get_paths()
    left, _, right, _ = area.get_extents().extents
    assert (left, right) == (pytest.approx(border, abs=0.01), 1), "of point 0; no limit is the fastest"


def drawn_hatches(axes: Axes) -> set[str]:
    """Return the hatches of the areas of a panel."""
    return {hatch for area in axes.collections for hatch in getattr(area, "hatches", []) if hatch}


def test_a_name_stands_upright_in_a_narrow_area() -> None:
    inside = np.zeros(FINENESS, dtype=bool)
    inside[:, 100:130] = True
    panel = Figure().add_subplot()
    cells = {("14", "tcp"): inside, ("0", "tcp"): ~inside}
    assert draw_areas(panel, cells, colours_of(list(cells)), np.empty((0, 2)), (205.0, 150.0)) == set()
    assert {text.get_text(): text.get_rotation() for text in panel.texts} == {"14 tcp": 90, "0 tcp": 0}


def test_areas_fade_where_the_two_best_are_too_close_to_call(snapshot: SnapshotAssertion) -> None:
    delays, rates = Scale(0.001, 0.1), Scale(HALF / 10, HALF * 10)
    predictor: Any = Foretelling()  # below a rate the second best is 50 % behind, above it 100 %
    faded = undecided(predictor, delays, rates, "latency", 0.6)
    assert faded[:, : FINENESS[1] // 2 - 1].all() and not faded[:, FINENESS[1] // 2 + 1 :].any()
    assert not undecided(predictor, delays, rates, "latency", 0.4).any()
    one_point: Any = replace(predictor, limit_bps=0.0)
    one_point.__dict__["cells"] = predictor.cells.assign(point="0")
    assert not undecided(one_point, delays, rates, "latency", 0.6).any(), "two backends of one point"
    plain = foretold()
    found = best_map_drawing(rows(), NETWORKS, predictor, "two hosts", errors={"latency": 0.6})
    assert found is not None
    figures = [each.draw("page") for each in (found, plain)]
    assert [drawn_hatches(figure.axes[0]) for figure in figures] == [{UNDECIDED}, set()]
    told, before = (
        [drawn.legend(figure), drawn.sentences(each.caption)]
        for figure, each in zip(figures, (found, plain), strict=True)
    )
    assert [
        [text for text in now if text not in then] for now, then in zip(told, before, strict=True)
    ] == snapshot


def test_measured_alone_and_without_any_limit(snapshot: SnapshotAssertion) -> None:
    bare = rows()[lambda front: front["netem"].isin(["bare", "still"])]
    other = bare.assign(netem="still")
    known = NETWORKS | {"still": Network(0.05, math.inf)}
    found = best_map_drawing(pd.concat([bare, other]), known)
    assert found is not None
    figure = drawn.rendered(found.draw("page"))
    assert [drawn.legend(figure), drawn.sentences(found.caption)] == snapshot
    assert set(found.data["what"]) == {"measured"}


def findings(trials: pd.DataFrame, **more: Any) -> Findings:
    nothing = pd.DataFrame()
    filled = trials.reindex(columns=[*trials.columns, *_MISSING]).assign(bound_by="")
    parts: dict[str, Any] = {
        "runs": [Run(Path("simulated"), simulated.manifest())], "trials": trials, "stages": simulated.stages(trials),
        "links": nothing, "front": front(filled, resamples=20), "hypervolumes": nothing,
        "attainment": nothing, "overhead": nothing, "paired": nothing, "drifts": nothing,
        "objectives": ("latency", "throughput"),
    }  # fmt: skip
    return Findings(**(parts | more))


_MISSING = (
    *("latency_bound_s", "throughput_bound_ips", "sequential_ips", "pipeline_gain", "middle_s", "bound_by"),
    *(
        "top1_images",
        "edge_energy_j",
        "server_energy_j",
        "latency_p95_s",
        "edge_rss_bytes",
        "edge_peak_rss_bytes",
    ),
)


@pytest.fixture(scope="module")
def simulation() -> Findings:
    """Of networks whose best points are known."""
    return findings(simulated.trials(noise=0.005))


def test_a_simulated_network_is_foretold(simulation: Findings) -> None:
    (found,) = best_map_drawings(simulation)
    assert found.name == ("net",)
    measured = found.data[(found.data["what"] == "measured") & (found.data["objective"] == "latency")]
    assert len(measured) == 3
    for row in measured.to_dict("records"):
        truth = simulated.latency_s(simulated.PROFILES[row["netem"]], "tcp")
        assert int(row["point"]) == int(np.argmin(truth))
    assert measured["prediction"].isin([SAME, CLOSE]).all()
    predicted = found.data[(found.data["what"] == "predicted") & (found.data["objective"] == "latency")]
    right = [
        int(row.predicted_point) == np.argmin(simulated.latency_s(Network(row.delay_s, row.rate_bps), "tcp"))
        for row in predicted.itertuples()
    ]
    assert np.mean(right) > 0.95


def test_a_renamed_run_keeps_its_testbed_in_the_caption(simulation: Findings) -> None:
    (run,) = simulation.runs
    names = list(simulation.trials["run"].unique())
    told = {**run.manifest, "testbed": "two hosts"}
    runs = [Run(Path("renamed"), told, names), Run(Path("another"), {"testbed": "three hosts"}, ["another"])]
    (found,) = best_map_drawings(replace(simulation, runs=runs))
    assert "Testbed: two hosts." in found.caption


def test_a_condition_leaves_the_background_out(simulation: Findings) -> None:
    (found,) = best_map_drawings(replace(simulation, where="latency_s < 1"))
    assert set(found.data["what"]) == {"measured"}


def test_runs_that_mean_different_links_by_one_name_have_no_map(simulation: Findings) -> None:
    other = simulated.manifest({"slow": Network(0.07, 6e6)})
    runs = [*simulation.runs, Run(Path("simulated"), other)]
    assert list(best_map_drawings(replace(simulation, runs=runs))) == []


def test_the_same_trials_give_the_same_map(simulation: Findings) -> None:
    (one,), (other,) = (best_map_drawings(simulation) for _ in range(2))
    assert one.caption == other.caption
    pd.testing.assert_frame_equal(one.data, other.data)
