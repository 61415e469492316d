"""The best point of each network, and what was foretold of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.advice.best import CLOSE, OTHER, SAME, best
from pareto.analysis.naming import USUAL
from pareto.analysis.prediction.network import Network

NETWORKS = {"near": Network(0.01, 100e6, 0.002), "far": Network(0.2, 5e6), "bare": Network(0.0, math.inf)}
HALF = 20e6


def cell(netem: str, point: int, latency_s: float, ips: float = 1.0, **more: Any) -> dict[str, Any]:
    """A row of the front."""
    return {
        "backend": "none" if point == 9 else "tcp",
        "model": "net", "netem": netem, "batch_size": 1, **USUAL, "setup": "",
        "point": str(point), "point_name": "", "rounds": 6, "excluded": 0, "left_out": 0, "trials": 6,
        "feasible": True, "payload_bytes": 0.0 if point == 9 else 1e5,
        "latency_s": latency_s, "throughput_ips": ips,
        "latency_low_s": 0.95 * latency_s, "latency_high_s": 1.05 * latency_s,
        "throughput_low_ips": 0.95 * ips, "throughput_high_ips": 1.05 * ips,
    } | more  # fmt: skip


@dataclass(frozen=True)
class Foretelling:
    """Point 0 over tcp above a rate, else all on the edge."""

    limit_bps: float = HALF
    cells = pd.DataFrame({"point": ["0", "9"], "backend": ["tcp", "none"]})

    def cost(self, objective: str, **conditions: Any) -> Any:
        fast = np.asarray(conditions["rate_bps"]) > self.limit_bps
        return np.stack([np.where(fast, 1.0, 3.0), np.full(fast.shape, 2.0)], axis=-1)


def rows() -> pd.DataFrame:
    return pd.DataFrame(
        [
            *(cell("near", *of) for of in ((0, 0.03, 9), (4, 0.05, 30), (9, 0.08, 5))),
            *(cell("far", *of) for of in ((0, 1.0), (4, 0.5), (9, 0.07))),
            *(cell("bare", *of) for of in ((0, 0.02), (4, 0.04), (9, 0.08))),
            cell("wobbly", 0, 0.001),
        ]
    )  # fmt: skip


def at(found: pd.DataFrame, netem: str, objective: str = "latency") -> dict[Any, Any]:
    (row,) = found[(found["netem"] == netem) & (found["objective"] == objective)].to_dict("records")
    return row


def test_the_best_of_each_network() -> None:
    found = best(rows(), NETWORKS)
    assert list(dict.fromkeys(found["netem"])) == ["near", "far", "bare"], "wobbly is no known network"
    near = at(found, "near")
    assert (near["point"], near["backend"], near["measured"], near["low"]) == ("0", "tcp", 0.03, 0.95 * 0.03)
    assert (near["delay_s"], near["rate_bps"]) == (pytest.approx(0.012), 100e6), "both ways"
    assert at(found, "near", "throughput")["point"] == "4"
    far = at(found, "far")
    assert (far["point"], far["backend"], far["measured"]) == ("9", "none", 0.07), (
        "where nothing crosses all are one"
    )
    assert found["prediction"].eq("").all()


def test_points_that_do_not_satisfy_a_condition_are_not_the_best() -> None:
    front = rows()
    front["feasible"] = front["point"] != "0"
    assert at(best(front, NETWORKS), "near")["point"] == "4"
    front["feasible"] = False
    assert best(front, NETWORKS).empty


def test_a_prediction_is_the_same_close_or_another() -> None:
    told = best(rows(), NETWORKS, Foretelling())
    assert [at(told, netem)["prediction"] for netem in NETWORKS] == [SAME] * 3
    assert at(told, "near")["behind_percent"] == 0
    wrong = at(best(rows(), NETWORKS, Foretelling(1.0)), "far")
    named = [wrong[name] for name in ("predicted_point", "predicted_backend", "prediction", "measured_there")]
    assert named == ["0", "tcp", OTHER, 1.0]
    assert wrong["behind_percent"] == pytest.approx(100 * (1.0 / 0.07 - 1))
    front = rows()
    front.loc[(front["netem"] == "far") & (front["point"] == "0"), "latency_low_s"] = 0.07
    assert at(best(front, NETWORKS, Foretelling(1.0)), "far")["prediction"] == CLOSE, (
        "their intervals overlap"
    )
    front[["latency_low_s", "latency_high_s"]] = math.nan
    assert at(best(front, NETWORKS, Foretelling(1.0)), "far")["prediction"] == CLOSE, "nobody knows"
    images = at(best(rows(), NETWORKS, Foretelling()), "near", "throughput")
    assert (images["prediction"], images["behind_percent"]) == (OTHER, pytest.approx(100 * (30 / 9 - 1)))
    without = rows()[lambda front: front["point"] != "0"]
    never = at(best(without, NETWORKS, Foretelling()), "near")
    assert never["prediction"] == OTHER
    assert math.isnan(never["behind_percent"])
