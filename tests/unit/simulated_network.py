"""Runs of a model whose true times are known, at any networks: stages, payloads and overheads with noise on them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.advice.advise import Advice, advise
from pareto.analysis.advice.answers import Answer, answers
from pareto.analysis.advice.observed import Observed, observe
from pareto.analysis.advice.workload import Workload, workloads
from pareto.analysis.naming import USUAL
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import Joined, Run
from pareto.protocol.constants import GOODPUT

Rows = pd.DataFrame | None
Profiles = Mapping[str, Network]
EDGE_S = np.array([0.0, 0.010, 0.025, 0.040, 0.060])
SERVER_S = np.array([0.012, 0.009, 0.006, 0.003, 0.0])
PAYLOAD_BYTES = np.array([600e3, 150e3, 100e3, 30e3, 0.0])
RESULT_BYTES = 4000.0
A_S = {"tcp": 0.001, "rpc": 0.003}
B_S_PER_BYTE = 2e-9
PROFILES = {
    "slow": Network(0.05, 5e6), "middle": Network(0.01, 50e6), "fast": Network(0.001, 500e6, 0.001, 500e6),
}  # fmt: skip


def latency_s(network: Network, backend: str, edge_s: Any = EDGE_S, server_s: Any = SERVER_S) -> Any:
    """The truth, by point."""
    out_s, back_s = 8 * PAYLOAD_BYTES / network.rate_bps, 8 * RESULT_BYTES / network.rate_back_bps
    overhead_s = A_S[backend] + B_S_PER_BYTE * (PAYLOAD_BYTES + RESULT_BYTES)
    carried_s = network.delay_s + network.delay_back_s + (out_s + back_s) / GOODPUT + overhead_s
    return edge_s + server_s + np.where(PAYLOAD_BYTES > 0, carried_s, 0.0)


def throughput_ips(network: Network, edge_s: Any = EDGE_S, server_s: Any = SERVER_S) -> Any:
    """The truth, by point, of either backend."""
    return 1 / np.maximum(np.maximum(edge_s, server_s), 8 * PAYLOAD_BYTES / network.rate_bps / GOODPUT)


def manifest(profiles: Profiles = PROFILES) -> dict[str, Any]:
    """As a run's, as far as it describes links."""

    def way(delay_s: float, rate_bps: float) -> dict[str, float]:
        rate = {"rate_bps": rate_bps} if rate_bps < math.inf else {}
        return ({"delay_s": delay_s} if delay_s else {}) | rate

    def profile(name: str, of: Network) -> dict[str, Any]:
        out, back = way(of.delay_s, of.rate_bps), way(of.delay_back_s, of.rate_back_bps)
        return {"name": name, "edge_to_server": out, "server_to_edge": back, "bucket": None, "offset_s": 0.0}

    return {"profiles": {name: profile(name, each) for name, each in profiles.items()}}


def trials(
    profiles: Profiles = PROFILES,
    *,
    rounds: int = 6,
    backends: tuple[str, ...] = ("tcp", "rpc"),
    noise: float = 0.02,
    seed: int = 0,
    edge_s: Any = EDGE_S,
    server_s: Any = SERVER_S,
    **fixed: Any,
) -> pd.DataFrame:
    """Of every point, each noisy time with the true one as its median; what slows a round slows all its stages."""
    rng = np.random.default_rng(seed)
    shape = (rounds, len(profiles), len(backends), len(edge_s))

    def noisy(size: tuple[int, ...] = shape, share: float = noise) -> Any:
        return np.exp(share * rng.standard_normal(size))

    slow = noisy((rounds, 1, 1, 1))
    links = profiles.values()
    true_s = np.array([[latency_s(each, name, edge_s, server_s) for name in backends] for each in links])
    network_s = np.where(PAYLOAD_BYTES > 0, (true_s - edge_s - server_s) * noisy(share=noise / 5), 0.0)
    on_edge_s, on_server_s = edge_s * slow * noisy(), server_s * slow * noisy()
    ips = np.array([throughput_ips(each, edge_s, server_s) for each in links])[:, None]
    axes = [range(1, rounds + 1), profiles, backends, [str(point) for point in range(len(edge_s))]]
    index = pd.MultiIndex.from_product(axes, names=["round", "netem", "backend", "point"])
    frame = index.to_frame(index=False)
    crosses = np.broadcast_to(PAYLOAD_BYTES > 0, shape).ravel()
    columns = {
        **{"latency_s": on_edge_s + on_server_s + network_s, "edge_s": on_edge_s, "network_s": network_s},
        **{"server_s": on_server_s, "throughput_ips": ips * noisy()},
        "payload_bytes": np.broadcast_to(PAYLOAD_BYTES, shape),
        "result_bytes": np.where(crosses.reshape(shape), RESULT_BYTES, 0.0),
    }
    for name, values in columns.items():
        frame[name] = values.ravel()
    frame.loc[~crosses, ["network_s", "server_s"]] = np.nan
    key = {"run": "simulated", "model": "net", "batch_size": 1, **USUAL}
    other = {"setup": "", "point_name": "", "status": "ok", "in_flight": 64.0, "serialize_s": 0.0}
    return frame.assign(**key, **other, top1=np.nan).assign(**fixed)


def observed(**asked: Any) -> Observed:
    """What was observed in trials, as `trials` makes them."""
    return seen(trials(**asked), asked.get("profiles") or PROFILES)


def seen(rows: pd.DataFrame, profiles: Profiles = PROFILES) -> Observed:
    """What was observed in these trials."""
    return observe(rows, stages(rows), profiles)


def joined(rows: pd.DataFrame, profiles: Profiles = PROFILES, struck: Rows = None) -> Joined:
    """A run of these trials."""
    run = Run(Path("simulated"), manifest(profiles))
    return Joined([run], rows, stages(rows), [], pd.DataFrame() if struck is None else struck)


def workload(rows: pd.DataFrame, profiles: Profiles = PROFILES, **asked: Any) -> Workload:
    """The only workload of these trials."""
    (found,) = workloads(joined(rows, profiles), **asked)
    return found


def advised(network: Network, rows: Rows = None, profiles: Profiles = PROFILES, **asked: Any) -> Advice:
    return advise(joined(trials(profiles) if rows is None else rows, profiles), network, **asked)


def told(rows: Rows = None, profiles: Profiles = PROFILES, struck: Rows = None, **asked: Any) -> list[Answer]:
    rows = trials(profiles, noise=0.001) if rows is None else rows
    return answers(joined(rows, profiles, struck), **asked)


def part(of: Observed, first: int, rounds: int) -> Observed:
    """So many of its rounds, from one on."""
    rows = of.trials[of.trials["round"].between(first, first + rounds - 1)]
    stratum = of.stratum[first : first + rounds]
    return replace(of, trials=rows.assign(round=rows["round"] - first), stratum=stratum)


def stages(of: pd.DataFrame) -> pd.DataFrame:
    """What a `stages.csv` would say: each stage's best time is that of the latency phase."""
    key = [*("run", "model", "netem", "batch_size"), *USUAL, *("setup", "backend", "point", "round")]
    both = [of[key].assign(host=host, best_s=of[f"{host}_s"]) for host in ("edge", "server")]
    return pd.concat(both, ignore_index=True).dropna(subset=["best_s"])


NO_STAGES = stages(trials(rounds=1)).iloc[:0]
"""Of a run older than the file."""
