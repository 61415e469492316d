"""Trials of a small model over several codecs, as a sweep with `--codec` has them: the last point is measured once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.naming import USUAL
from pareto.analysis.prediction.network import Network
from pareto.analysis.schema import KINDS, TRIALS, Kind

PAYLOAD_BYTES = (600_000, 800_000, 400_000, 100_000, 0)
EDGE_S = (0.0, 0.010, 0.030, 0.080, 0.200)
SERVER_S = (0.020, 0.018, 0.014, 0.006, 0.0)
DELAY_S = 0.005
IMAGES = 200
CODECS: Mapping[str, tuple[float, float, float, float]] = {
    "none": (1.0, 0.0, 1.0, 0.0), "zstd": (0.6, 2e-8, 1.0, 0.0), "fp16": (0.5, 1e-9, 1.0, 4e-4),
    "int8": (0.25, 2e-9, 0.985, 0.02), "uint4": (0.125, 2e-9, 0.9, 0.2),
}  # fmt: skip
"""By codec: bytes on the wire, as a share of the payload; seconds to encode one; agreement; error of the output."""


def trials(
    rate_bps: float = 10e6,
    *,
    codecs: tuple[str, ...] = tuple(CODECS),
    rounds: int = 6,
    noise: float = 0.01,
    netem: str = "slow",
    backends: tuple[str, ...] = ("tcp",),
    seed: int = 3,
    **fixed: Any,
) -> pd.DataFrame:
    """Trials in the columns of `analysis.runs.load.load`; `fixed` overrides columns in all of them."""
    rng = np.random.default_rng(seed)
    rows = []
    last = len(PAYLOAD_BYTES) - 1
    for number in range(rounds):
        for backend in backends:
            cells = [(codec, point) for codec in codecs for point in range(last)]
            for codec, point in [*cells, ("none", last)]:
                row = _row(codec, point, rate_bps, rng.normal(1, noise, 2))
                rows.append(row | {"round": number + 1, "netem": netem, "backend": backend})
    frame = pd.DataFrame([row | fixed for row in rows]).reindex(columns=[*TRIALS.columns, "setup"])
    for name in frame:
        if KINDS.get(str(name)) in (Kind.NAME, Kind.FREE, None):
            frame[name] = frame[name].astype(object).fillna("").astype("str")
        elif KINDS[str(name)] is not Kind.WHOLE:
            frame[name] = frame[name].astype(float)
    return frame


PROFILES = {"slow": Network(DELAY_S, 10e6, DELAY_S), "quick": Network(DELAY_S, 50e6, DELAY_S)}


def measured(noise: float = 0.0, **fixed: Any) -> pd.DataFrame:
    """Trials at both profiles."""
    both = [trials(PROFILES[name].rate_bps, netem=name, noise=noise, **fixed) for name in PROFILES]
    return pd.concat(both, ignore_index=True)


def of_bytes(rows: pd.DataFrame) -> pd.DataFrame:
    """The trials of a sweep whose input is bytes: at point 0 a quantiser changes nothing, so its cell is another's."""
    lossy = [codec for codec in rows["codec"].unique() if codec not in ("none", "zstd")]
    others = rows["codec"].unique().tolist()
    first, last = (rows["point"] == str(point) for point in (0, len(PAYLOAD_BYTES) - 1))
    stands_for = rows["codec"].where(~last, "; ".join(others))
    stands_for = stands_for.where(~(first & (rows["codec"] == "none")), "; ".join(["none", *lossy]))
    kept = rows.assign(stands_for=stands_for)[~(first & rows["codec"].isin(lossy))]
    return kept.reset_index(drop=True)


def _row(codec: str, point: int, rate_bps: float, noise: Any) -> dict[str, Any]:
    share, seconds, agreement, error = CODECS[codec]
    payload = PAYLOAD_BYTES[point]
    wire = payload * share
    network_s = 2 * DELAY_S + 8 * wire / rate_bps * 1514 / 1448 if payload else np.nan
    work_s = EDGE_S[point] + SERVER_S[point] + payload * seconds
    slowest_s = max(EDGE_S[point], SERVER_S[point], 0.0 if np.isnan(network_s) else network_s - 2 * DELAY_S)
    latency_s, throughput_ips = (work_s + (network_s if payload else 0.0)) * noise[0], noise[1] / slowest_s
    return {
        "run": "codecs", "model": "small", "point": str(point), "point_name": f"unit{point}", **USUAL, "codec": codec,
        "batch_size": 1, "in_flight": 4.0, "status": "ok", "setup": "",
        "latency_s": latency_s, "latency_bound_s": min(work_s, latency_s),
        "throughput_ips": throughput_ips, "throughput_bound_ips": max(1 / slowest_s, throughput_ips),
        "edge_s": EDGE_S[point], "server_s": SERVER_S[point] if payload else np.nan,
        "serialize_s": payload * seconds if payload else np.nan, "network_s": network_s,
        "payload_bytes": payload, "result_bytes": 40.0 if payload else 0.0,
        "wire_bytes": wire if payload else np.nan, "bound_by": "edge-server out" if payload else "edge",
        "agreement": agreement if payload and codec != "none" else np.nan,
        "agreement_images": IMAGES if payload and codec != "none" else np.nan,
        "output_error": error if payload and codec != "none" else np.nan,
        "wall_s": 5.0,
    }  # fmt: skip
