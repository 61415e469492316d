"""The best point of each network, and what was foretold of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pareto.analysis.advice.predict import CLOSE, OTHER, SAME, best
from pareto.analysis.naming import USUAL
from pareto.analysis.prediction.network import Network

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
