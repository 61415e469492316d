"""A run folder that looks like MobileNetV2 on a chain of hosts, from a small simulation of the chain."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.costs import stage_medians
from pareto.analysis.fronts.energy import with_middle
from pareto.analysis.fronts.front import front
from pareto.analysis.runs.load import load, stages
from pareto.analysis.schema import STAGES, TRIALS
from tests.unit.example_run import PAYLOAD_KIB, name
from tests.unit.example_run import write as write_trials

LAST = len(PAYLOAD_KIB) - 1
# Of the whole model on the edge; early units cost more than late ones.
EDGE_S = 0.4
SHARE = np.linspace(1.4, 0.6, LAST) / LAST
RESULT_BYTES = 4000
SPEEDS = (1.0, 1.5, 2.0, 12.0)
"""Of the hosts, as multiples of the edge's; the last one's is the server's."""
RATES_BPS, DELAYS_S = (20e6, 60e6, 60e6), (0.005, 0.01, 0.01)
SLOWER = {"tcp": 1.0, "rpc": 1.05}
Row = dict[str, Any]


def splits(links: int, points: Iterable[int] = range(LAST + 1)) -> list[tuple[int, ...]]:
    """Every split at these points."""
    return list(combinations_with_replacement(points, links))


def steady(services_s: Sequence[float], delays_s: Sequence[float], requests: int = 40) -> np.ndarray:
    """When each request leaves each step (requests x steps, s): steps one after another, one request at a time each,
    with a fixed delay after it, and half of all requests in flight."""
    left = np.zeros((requests, len(services_s)))
    for request in range(requests):
        arrived = left[request - requests // 2, -1] if request >= requests // 2 else 0.0
        for step, (service_s, delay_s) in enumerate(zip(services_s, delays_s, strict=True)):
            free = left[request - 1, step] - delay_s if request else 0.0
            arrived = left[request, step] = max(arrived, free) + service_s + delay_s
    return left


def trial(cuts: tuple[int, ...], backend: str, jitter: np.ndarray) -> tuple[Row, list[Row]]:
    """What one trial measures, as columns of trials.csv and of stages.csv."""
    ends = (0, *cuts, LAST)
    reached = next(position for position, cut in enumerate(ends[1:]) if cut == LAST) + 1
    roles = ("edge", *(f"middle{number}" for number in range(1, len(cuts))), "server")[:reached]
    speeds = (*SPEEDS[: len(cuts)], SPEEDS[-1])
    work_s = [EDGE_S * SHARE[begin:end].sum() for begin, end in pairwise(ends)]
    compute_s = [work_s[host] / speeds[host] * jitter[host] for host in range(reached)]
    payloads = [int(1024 * PAYLOAD_KIB[cut]) for cut in cuts[: reached - 1]]
    out_s = [8 * payload / rate for payload, rate in zip(payloads, RATES_BPS, strict=False)]
    back_s = [8 * RESULT_BYTES / rate for rate in RATES_BPS[: reached - 1]]

    steps = []
    for host, role in enumerate(roles):
        steps.append((role, compute_s[host], 0.0))
        if host < reached - 1:
            link = f"{role}-{(*roles, 'server')[host + 1]} out"
            steps.append((link, out_s[host] * SLOWER[backend], DELAYS_S[host]))
    for host in reversed(range(reached - 1)):
        link = f"{roles[host]}-{roles[host + 1]} back"
        steps.append((link, back_s[host] * SLOWER[backend], DELAYS_S[host]))
    names, services_s, delays_s = zip(*steps, strict=True)

    left = steady(services_s, delays_s)
    window_s, served = left[-1, -1] - left[len(left) // 2, -1], len(left) - 1 - len(left) // 2
    serialize_s = sum(2e-9 * payload for payload in payloads) * SLOWER[backend]
    latency_s = left[0, -1] + serialize_s
    bound_s = max(*services_s, 1e-9) / SLOWER[backend]
    row = {
        "latency_s": latency_s,
        "edge_s": compute_s[0],
        "serialize_s": serialize_s if payloads else "",
        "network_s": latency_s - serialize_s - sum(compute_s) if payloads else "",
        "middle_s": sum(compute_s[1 : len(cuts)]) if reached > 1 and len(cuts) > 1 else "",
        "server_s": compute_s[-1] if reached == len(cuts) + 1 else "",
        "latency_bound_s": sum(compute_s) + sum(out_s) + sum(back_s) + 2 * sum(DELAYS_S[: reached - 1]),
        "throughput_ips": served / window_s,
        "throughput_bound_ips": 1 / bound_s,
        "bound_by": names[int(np.argmax(services_s))],
        "payload_bytes": payloads[0] if payloads else 0,
        "result_bytes": RESULT_BYTES if payloads else 0,
    }
    staged = [
        {
            **{"position": host, "host": role, "first_unit": ends[host], "last_unit": ends[host + 1]},
            **{"compute_s": compute_s[host], "best_s": compute_s[host]},
            "utilization": compute_s[host] * served / window_s,
            "bubble_s": max(0.0, window_s / served - compute_s[host]),
            "payload_bytes": payloads[host] if host < reached - 1 else "",
            "transfer_s": out_s[host] if host < reached - 1 else "",
            "return_s": back_s[host] if host < reached - 1 else "",
        }
        for host, role in enumerate(roles)
    ]
    return row, staged


def trials(
    which: Sequence[tuple[int, ...]], *, rounds: int = 1, backends: Sequence[str] = ("tcp", "rpc"), seed: int = 1
) -> tuple[list[Row], list[Row]]:  # fmt: skip
    """Rows of trials.csv and of stages.csv for these splits."""
    rng = np.random.default_rng(seed)
    rows, staged = [], []
    for number in range(1, rounds + 1):
        for backend in backends:
            for cuts in which:
                point = "+".join(map(str, cuts))
                cell = {"run": "example", "model": "mobilenetv2", "point": point, "backend": backend}
                cell |= {"netem": "wifi", "batch_size": 1, "codec": "none", "round": number}
                measured, stages = trial(cuts, backend, rng.normal(1, 0.02, len(cuts) + 1).clip(0.9))
                named = cell | {"point_name": "+".join(map(name, cuts)), "status": "ok"}
                rows.append(dict.fromkeys(TRIALS.columns, "") | named | measured)
                staged += [dict.fromkeys(STAGES.columns, "") | cell | stage for stage in stages]
    return rows, staged


def write(folder: Path, rows: list[Row], stages: list[Row], **manifest: Any) -> Path:
    """A run folder with these rows."""
    write_trials(folder, rows, **({"testbed": "local: namespaces on one machine, relay"} | manifest))
    with (folder / "stages.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, STAGES.columns)
        writer.writeheader()
        writer.writerows(stages)
    return folder


def analysed(
    which: Iterable[tuple[int, ...]], rounds: int = 1, **fixed: Any
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The front's rows and the stage_medians of the stages; `fixed` overrides columns of `trials.csv`."""
    rows, staged = _analysed(tuple(which), rounds, tuple(fixed.items()))
    return rows.copy(), staged.copy()


@cache
def _analysed(
    which: tuple[tuple[int, ...], ...], rounds: int, fixed: tuple[tuple[str, Any], ...]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    rows, staged = trials(which, rounds=rounds)
    with TemporaryDirectory() as folder:
        run = write(Path(folder), [row | dict(fixed) for row in rows], staged)
        read, of_hosts = load([run]), stages(run)
    return front(with_middle(read, of_hosts)), stage_medians(of_hosts, read)
