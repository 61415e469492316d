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
from pareto.analysis.figures.map_figure import UNDECIDED, best_map, draw_map, workloads
from pareto.analysis.findings import Findings
from pareto.analysis.fronts.front import front
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import Run
from tests.unit import drawn
from tests.unit import simulated_network as simulated
from tests.unit.analysis.figure_runs import drawn_by
from tests.unit.analysis.test_best import HALF, NETWORKS, Foretelling, rows
from tests.unit.gating import gating

PREDICTOR: Any = Foretelling()


def drawn_map(front: pd.DataFrame, predictor: Any = None, **more: Any) -> tuple[Any, str, pd.DataFrame]:
    return drawn_by(draw_map, rows=front, predictor=predictor, **{"known": NETWORKS, **more})


def the_map(found: Findings) -> tuple[str, pd.DataFrame]:
    """Caption and data of the one map."""
    ((name, of_workload),) = workloads(found)
    assert name == ("net",)
    return drawn_by(best_map, findings=found, workload=of_workload)[1:]


def test_a_chain_has_no_map_and_one_network_only_with_a_prediction() -> None:
    assert best(rows().assign(point="3+7"), NETWORKS).empty
    one = rows()[lambda front: front["netem"] == "near"]
    for front_, known in ((rows().assign(point="3+7"), NETWORKS), (one, NETWORKS), (rows(), {})):
        with pytest.raises(Nothing):
            drawn_map(front_, known=known)
    assert len(drawn_map(one, PREDICTOR)[2])


def test_every_network_is_computed() -> None:
    delays_s, rates_bps = np.array([0.0, 0.1, 0.2]), np.array([1e6, HALF, 2 * HALF, math.inf])
    which, *_ = on_grid(PREDICTOR, delays_s, rates_bps, "latency")
    assert which.tolist() == [[1, 1, 0, 0]] * 3


@pytest.mark.parametrize("width", gating(["page", "column"], "page"))
def test_marks_stand_at_their_network_over_what_is_foretold(width: str, snapshot: SnapshotAssertion) -> None:
    figure, caption, data = drawn_map(rows(), PREDICTOR, width=width, testbed="two hosts")
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
    # Below a rate the second best is 50 % behind, above it 100 %.
    fading, plain = (drawn_map(rows(), PREDICTOR, **of) for of in ({"errors": {"latency": 0.6}}, {}))
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


_MISSING = [
    *("latency_bound_s", "throughput_bound_ips", "sequential_ips", "pipeline_gain", "middle_s", "bound_by"),
    *("top1_images", "edge_energy_j", "server_energy_j", "latency_p95_s", "edge_rss_bytes", "edge_peak_rss_bytes"),
]  # fmt: skip


def findings(trials: pd.DataFrame, **others: Any) -> Findings:
    filled = trials.reindex(columns=[*trials.columns, *_MISSING]).assign(bound_by="")
    empty = ("links", "hypervolumes", "attainment", "overhead", "paired", "drifts")
    parts: dict[str, Any] = {name: pd.DataFrame() for name in empty} | {"trials": trials}
    parts |= {"runs": [Run(Path("simulated"), simulated.manifest())], "stages": simulated.stages(trials)}
    made = {"front": front(filled), "objectives": ("latency", "throughput")}
    return Findings(**parts, **made, **others)


@pytest.fixture(scope="module")
def simulation() -> Findings:
    """Of networks whose best points are known."""
    return findings(simulated.trials(noise=0.005))


def test_a_simulated_network_is_foretold(simulation: Findings) -> None:
    _, data = the_map(simulation)
    data = data[data["objective"] == "latency"]
    measured, predicted = (data[data["what"] == what] for what in ("measured", "predicted"))
    for row in measured.itertuples():
        assert int(row.point) == np.argmin(simulated.latency_s(simulated.PROFILES[row.netem], "tcp"))
    assert (len(measured), measured["prediction"].isin([SAME, CLOSE]).all()) == (3, True)
    right = [
        int(row.predicted_point) == np.argmin(simulated.latency_s(Network(row.delay_s, row.rate_bps), "tcp"))
        for row in predicted.itertuples()
    ]
    assert np.mean(right) > 0.95


def test_what_else_a_map_depends_on(simulation: Findings) -> None:
    (run,) = simulation.runs
    _, data = the_map(replace(simulation, where="latency_s < 1"))
    assert set(data["what"]) == {"measured"}, "a condition cannot be asked of a prediction"
    renamed = Run(
        Path("renamed"), {**run.manifest, "testbed": "two hosts"}, [*simulation.trials["run"].unique()]
    )
    other = Run(Path("another"), {"testbed": "three hosts"}, ["another"])
    assert "Testbed: two hosts." in the_map(replace(simulation, runs=[renamed, other]))[0], "its own"
    differs = Run(Path("simulated"), simulated.manifest({"slow": Network(0.07, 6e6)}))
    with pytest.raises(Nothing):  # different links by one name
        the_map(replace(simulation, runs=[run, differs]))
