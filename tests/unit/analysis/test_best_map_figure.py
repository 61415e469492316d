"""The best point as the network changes: what was measured best, what is foretold, and where they differ."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.advice.predict import CLOSE, SAME, best, on_grid
from pareto.analysis.figures.drawing import Nothing
from pareto.analysis.figures.layout import printed
from pareto.analysis.figures.map_figure import UNDECIDED, best_map, draw_map, workloads
from pareto.analysis.findings import Findings
from pareto.analysis.fronts.front import front
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import Run
from tests.unit import drawn
from tests.unit import simulated_network as simulated
from tests.unit.analysis.test_best import HALF, NETWORKS, Foretelling, rows
from tests.unit.gating import gating


def drawn_map(
    front: pd.DataFrame, predictor: Any = None, width: str = "page", known: Any = NETWORKS, **more: Any
) -> tuple[Any, str, pd.DataFrame]:
    figure, told = printed(lambda on: draw_map(on, front, known, predictor, **more), width)
    return figure, told.caption(), told.data


def maps(found: Findings) -> list[tuple[str, pd.DataFrame]]:
    """Captions and data."""
    every = [printed(lambda on, rows=rows: best_map(on, found, rows))[1] for _, rows in workloads(found)]
    return [(told.caption(), told.data) for told in every]


def test_a_chain_has_no_map_and_one_network_only_with_a_prediction() -> None:
    assert best(rows().assign(point="3+7"), NETWORKS).empty
    one = rows()[lambda front: front["netem"] == "near"]
    for front_, known in ((rows().assign(point="3+7"), NETWORKS), (one, NETWORKS), (rows(), {})):
        with pytest.raises(Nothing):
            drawn_map(front_, known=known)
    assert len(drawn_map(one, Foretelling())[2])


def test_every_network_is_computed() -> None:
    delays_s, rates_bps = np.array([0.0, 0.1, 0.2]), np.array([1e6, HALF, 2 * HALF, math.inf])
    which, *_ = on_grid(Foretelling(), delays_s, rates_bps, "latency")  # type: ignore[arg-type]
    assert which.tolist() == [[1, 1, 0, 0]] * 3


@pytest.mark.parametrize("width", gating(["page", "column"], "page"))
def test_marks_stand_at_their_network_over_what_is_foretold(width: str, snapshot: SnapshotAssertion) -> None:
    figure, caption, data = drawn_map(rows(), Foretelling(), width, testbed="two hosts")
    assert "wobbly" in caption
    drawn.rendered(figure)
    axes, lowest = figure.axes[0], figure.axes[-1]
    rates = dict(zip((it.get_text() for it in lowest.get_xticklabels()), lowest.get_xticks(), strict=True))
    assert {"no limit", "10"} <= rates.keys()
    assert "0" in [text.get_text() for text in axes.get_yticklabels()]
    places = {mark.get_text(): mark.get_position() for mark in axes.texts if mark.get_fontweight() == "bold"}
    assert places["9"][0] < rates["10"] < places["0"][0], "5 Mbit/s is left of 10"
    assert {"near", "far", "bare", "9, all on the edge", "0 tcp"} <= set(drawn.texts(figure))
    assert any("0 tcp, 233 %" in text for text in drawn.texts(figure)), "throughput, near"
    assert drawn.outside(figure) == []
    written = data[data["what"] == "predicted"]
    assert written["predicted_point"].eq("0").tolist() == (written["rate_bps"] > HALF).tolist()
    assert set(written["objective"]) == {"latency", "throughput"}
    assert [drawn.legend(figure), caption] == snapshot


def test_areas_fade_where_the_two_best_are_too_close_to_call() -> None:
    predictor: Any = Foretelling()  # below a rate the second best is 50 % behind, above it 100 %
    fading, plain = (drawn_map(rows(), predictor, **of) for of in ({"errors": {"latency": 0.6}}, {}))
    hatches = [
        {hatch for area in figure.axes[0].collections for hatch in getattr(area, "hatches", []) if hatch}
        for figure, _, _ in (fading, plain)
    ]
    assert hatches == [{UNDECIDED}, set()]
    assert {*drawn.legend(fading[0])} - {*drawn.legend(plain[0])} == {"too close to call"}
    assert "60 % (latency)" in fading[1]


def test_measured_alone_and_without_any_limit() -> None:
    bare = rows()[lambda front: front["netem"].isin(["bare", "still"])]
    known = NETWORKS | {"still": Network(0.05, math.inf)}
    figure, _, data = drawn_map(pd.concat([bare, bare.assign(netem="still")]), known=known)
    assert not any("area" in text for text in drawn.legend(figure))
    assert set(data["what"]) == {"measured"}


def findings(trials: pd.DataFrame, **others: Any) -> Findings:
    filled = trials.reindex(columns=[*trials.columns, *_MISSING]).assign(bound_by="")
    empty = ("links", "hypervolumes", "attainment", "overhead", "paired", "drifts")
    parts: dict[str, Any] = {name: pd.DataFrame() for name in empty} | {"trials": trials}
    parts |= {"runs": [Run(Path("simulated"), simulated.manifest())], "stages": simulated.stages(trials)}
    made = {"front": front(filled, resamples=20), "objectives": ("latency", "throughput")}
    return Findings(**parts, **made, **others)


_MISSING = [
    *("latency_bound_s", "throughput_bound_ips", "sequential_ips", "pipeline_gain", "middle_s", "bound_by"),
    *(
        "top1_images",
        "edge_energy_j",
        "server_energy_j",
        "latency_p95_s",
        "edge_rss_bytes",
        "edge_peak_rss_bytes",
    ),
]


@pytest.fixture(scope="module")
def simulation() -> Findings:
    """Of networks whose best points are known."""
    return findings(simulated.trials(noise=0.005))


def test_a_simulated_network_is_foretold(simulation: Findings) -> None:
    assert [name for name, _ in workloads(simulation)] == [("net",)]
    ((_, data),) = maps(simulation)
    measured = data[(data["what"] == "measured") & (data["objective"] == "latency")]
    assert len(measured) == 3
    for row in measured.to_dict("records"):
        truth = simulated.latency_s(simulated.PROFILES[row["netem"]], "tcp")
        assert int(row["point"]) == int(np.argmin(truth))
    assert measured["prediction"].isin([SAME, CLOSE]).all()
    predicted = data[(data["what"] == "predicted") & (data["objective"] == "latency")]
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
    ((caption, _),) = maps(replace(simulation, runs=runs))
    assert "Testbed: two hosts." in caption


def test_a_condition_leaves_the_background_out(simulation: Findings) -> None:
    ((_, data),) = maps(replace(simulation, where="latency_s < 1"))
    assert set(data["what"]) == {"measured"}


def test_runs_that_mean_different_links_by_one_name_have_no_map(simulation: Findings) -> None:
    other = simulated.manifest({"slow": Network(0.07, 6e6)})
    runs = [*simulation.runs, Run(Path("simulated"), other)]
    with pytest.raises(Nothing):
        maps(replace(simulation, runs=runs))
