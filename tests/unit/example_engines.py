"""Trials of a small model over several engines, as a sweep with `--engine` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.runs.points import of_role
from tests.unit import example_codecs

SPEED: Mapping[str, float] = {"eager": 1.0, "onnx": 0.5, "compile": 0.8}
"""By engine: how long a stage takes, as a share of what eager takes."""


def trials(
    engines: tuple[str, ...] = ("eager", "onnx", "compile"), *, rounds: int = 12, rate_bps: float = 100e6,
    noise: float = 0.005, seed: int = 5, drift: float = 0.5, **fixed: Any,
) -> pd.DataFrame:  # fmt: skip
    """Trials in the columns of `analysis.runs.load.load`, whose rounds drift by up to `drift`; `fixed` overrides."""
    rng = np.random.default_rng(seed)
    slower = 1 + drift * rng.uniform(0, 1, rounds + 1)
    data = example_codecs.trials(rate_bps, codecs=("none",), rounds=rounds, noise=0)
    parts = []
    for engine in engines:
        own = data.copy()
        for side in ("edge", "server"):
            own[f"{side}_s"] *= SPEED[of_role(engine, side)] * rng.normal(1, noise, len(own))
        stages = own[["edge_s", "server_s"]].fillna(0)
        own["latency_s"] = stages.sum(axis=1) + own["network_s"].fillna(0)
        own["throughput_ips"] = 1 / np.maximum(stages.max(axis=1), own["network_s"].fillna(0) - 0.01)
        parts.append(own.assign(engine=engine))
    every = pd.concat(parts, ignore_index=True)
    for figure in ("latency_s", "edge_s", "server_s", "network_s"):
        every[figure] *= slower[every["round"]]
    every["latency_s"] *= rng.normal(1, noise, len(every))
    every["throughput_ips"] /= slower[every["round"]] * rng.normal(1, noise, len(every))
    every["latency_bound_s"] = np.fmin(every["latency_bound_s"], every["latency_s"])
    every["throughput_bound_ips"] = np.fmax(every["throughput_bound_ips"], every["throughput_ips"])
    return every.assign(run="engines", **fixed)
