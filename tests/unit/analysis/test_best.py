"""The best point of each network and what was foretold of it, also as the network changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.advice.predict import CLOSE, OTHER, SAME, best, on_grid
from pareto.analysis.figures.drawing import Nothing
from pareto.analysis.figures.map_figure import UNDECIDED, best_map, draw_map, workloads
from pareto.analysis.findings import Findings
from pareto.analysis.fronts.front import front
from pareto.analysis.naming import USUAL
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import Run
from tests.unit import drawn
from tests.unit import simulated_network as simulated
from tests.unit.analysis.figure_runs import drawn_by
from tests.unit.gating import gating

NETWORKS = {"near": Network(0.01, 100e6, 0.002), "far": Network(0.2, 5e6), "bare": Network(0.0, math.inf)}
HALF = 20e6


def cell(netem: str, point: int, latency_s: float, ips: float = 1.0) -> dict[str, Any]:
    """A row of the front."""
    row = {
        "backend": "none" if point == 9 else "tcp", "model": "net", "netem": netem, "batch_size": 1, **USUAL,
        "setup": "", "point": str(point), "point_name": "", "rounds": 6, "excluded": 0, "left_out": 0, "trials": 6,
        "feasible": True, "payload_bytes": 0.0 if point == 9 else 1e5,
    }  # fmt: skip
    for end, share in {"": 1.0, "_low": 0.95, "_high": 1.05}.items():
        row |= {f"latency{end}_s": share * latency_s, f"throughput{end}_ips": share * ips}
    return row


@dataclass(frozen=True)
class Foretelling:
    """Point 0 over tcp above a rate, else all on the edge."""

    limit_bps: float = HALF
    cells = pd.DataFrame({"point": ["0", "9"], "backend": ["tcp", "none"]})

    def cost(self, objective: str, **conditions: Any) -> Any:
        fast = np.asarray(conditions["rate_bps"]) > self.limit_bps
        return np.stack([np.where(fast, 1.0, 3.0), np.full(fast.shape, 2.0)], axis=-1)


def rows() -> pd.DataFrame:
    of = {
        "near": ((0, 0.03, 9), (4, 0.05, 30), (9, 0.08, 5)),
        "far": ((0, 1.0), (4, 0.5), (9, 0.07)),
        "bare": ((0, 0.02), (4, 0.04), (9, 0.08)),
        "wobbly": ((0, 0.001),),
    }
    return pd.DataFrame([cell(netem, *each) for netem, cells in of.items() for each in cells])


def at(found: pd.DataFrame, netem: str, objective: str = "latency") -> dict[Any, Any]:
    (row,) = found[(found["netem"] == netem) & (found["objective"] == objective)].to_dict("records")
    return row


def test_the_best_of_each_network_among_what_satisfies_a_condition() -> None:
    front = rows()
    found = best(front, NETWORKS)
    assert list(found["netem"]) == [*["near"] * 2, *["far"] * 2, *["bare"] * 2], "wobbly is no known network"
    near, far = at(found, "near"), at(found, "far")
    assert (near["point"], near["backend"], near["measured"], near["low"]) == ("0", "tcp", 0.03, 0.95 * 0.03)
    assert (near["delay_s"], near["rate_bps"]) == (pytest.approx(0.012), 100e6), "both ways"
    assert at(found, "near", "throughput")["point"] == "4"
    assert (far["point"], far["backend"], far["measured"]) == ("9", "none", 0.07), "all backends are one"
    assert found["prediction"].eq("").all()
    assert at(best(front.assign(feasible=front["point"] != "0"), NETWORKS), "near")["point"] == "4"
    assert best(front.assign(feasible=False), NETWORKS).empty


WORSE = 100 * (1.0 / 0.07 - 1)


@pytest.mark.parametrize(
    ("limit_bps", "netem", "of_point_0", "objective", "prediction", "behind"),
    [
        *((HALF, netem, {}, "latency", SAME, 0.0) for netem in NETWORKS),
        (1.0, "far", {}, "latency", OTHER, WORSE),
        (1.0, "far", {"latency_low_s": 0.07}, "latency", CLOSE, WORSE),
        (1.0, "far", {"latency_low_s": math.nan}, "latency", CLOSE, WORSE),
        (HALF, "near", {}, "throughput", OTHER, 100 * (30 / 9 - 1)),
        (HALF, "near", {"latency_s": math.nan}, "latency", OTHER, math.nan),
    ],
)
def test_a_prediction_is_the_same_close_or_another(
    limit_bps, netem, of_point_0, objective, prediction, behind
):
    front, told = rows(), Foretelling(limit_bps)
    front.loc[(front["netem"] == netem) & (front["point"] == "0"), [*of_point_0]] = [*of_point_0.values()]
    found = at(best(front, NETWORKS, told), netem, objective)  # type: ignore[arg-type]
    assert found["prediction"] == prediction
    assert found["behind_percent"] == pytest.approx(behind, nan_ok=True)
    assert found["predicted_point"] == ("9" if (limit_bps, netem) == (HALF, "far") else "0")


# As the network changes: what was measured best, what is foretold, and where they differ

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
def test_marks_stand_at_their_network_over_what_is_foretold(width: str, snapshot: object) -> None:
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
