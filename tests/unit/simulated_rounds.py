"""Trials of points whose true medians are known, for the tests of what is stated about them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pareto.analysis.naming import USUAL
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.statistics.samples import Floats

FIXED = {"model": "m", "batch_size": 1, **USUAL, "setup": ""}


def trials(latency_s: Floats, throughput_ips: Floats, backends: Sequence[str] = ("tcp",)) -> pd.DataFrame:
    """Each array: conditions x rounds x points; the points are shared out among the backends in turn."""
    condition, number, cell = (axis.ravel() for axis in np.indices(latency_s.shape))
    return pd.DataFrame(
        {
            **{"run": "simulated", **FIXED},
            "netem": [f"n{place:04}" for place in condition],
            "backend": np.array(backends)[cell % len(backends)],
            "point": (cell // len(backends)).astype(str),
            **{"point_name": "", "round": number, "status": "ok"},
            **{"latency_s": latency_s.ravel(), "throughput_ips": throughput_ips.ravel(), "bound_by": ""},
        }
    )


def tradeoffs(
    conditions: int, rounds: int, points: int, noise: float, common: float, seed: int
) -> list[Floats]:
    """True latencies and throughputs (conditions x points), and measured ones (conditions x rounds x points).

    The points lie about a line on which more latency buys more throughput. Noise is multiplicative, heavy tailed
    (Student's t with 3 degrees of freedom, in logarithms, so skewed) with median 1: by itself `noise`, and
    `common` times as much that all points of a round share.
    """
    rng = np.random.default_rng(seed)
    along = rng.uniform(0, 1, (conditions, points))
    true = [np.exp(along + rng.normal(0, 0.1, along.shape)) for _ in range(2)]
    measured = []
    for values in true:
        own = rng.standard_t(3, (conditions, rounds, points))
        shared = common * rng.standard_t(3, (conditions, rounds, 1))
        measured.append(values[:, None] * np.exp(noise * (own + shared)))
    return [*true, *measured]


def by_condition(rows: pd.DataFrame, column: str) -> Floats:
    """A column of a frame of cells, conditions x cells."""
    return rows[column].to_numpy(dtype=float).reshape(rows[CONDITION].drop_duplicates().shape[0], -1)
