"""A run folder that looks like MobileNetV2 on a slow link, for the other tests of analysis."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.runs.load import load
from pareto.analysis.schema import TRIALS

PAYLOAD_KIB = [588, 1568, 784, *[294] * 2, *[98] * 3, *[49] * 4, *[73.5] * 3, *[30.6] * 3, 61.25, 245, 5, 0]
RATE_BPS = 4.79e6
EDGE_ONLY_S, SERVER_ONLY_S, DELAY_S = 0.030, 0.012, 0.2


def trials(
    *, rounds: int = 3, backends: tuple[str, ...] = ("tcp", "rpc"), noise: float = 0.03, seed: int = 1, **fixed: Any
) -> list[dict[str, Any]]:  # fmt: skip
    """Rows of a `trials.csv`; `fixed` overrides columns in all of them."""
    rng = np.random.default_rng(seed)
    last = len(PAYLOAD_KIB) - 1
    rows = []
    for number in range(rounds):
        for backend in backends:
            for point, kib in enumerate(PAYLOAD_KIB):
                share = point / last
                edge, server = EDGE_ONLY_S * share, SERVER_ONLY_S * (1 - share)
                transfer = kib * 1024 * 8 / RATE_BPS
                wire = transfer + DELAY_S if kib else 0.0
                slower = 1.0 if backend == "tcp" or not kib else 1.04
                jitter = np.clip(rng.normal(1, noise, 3), 0.8, None)
                serialize = 2e-8 * kib * 1024 * (1 if backend == "tcp" else 20)
                network = wire * slower * (1.02 + abs(jitter[0] - 1))
                edge_s, server_s = edge * (1.05 + abs(jitter[1] - 1)), server * 1.1
                bound_ips = 1 / max(edge, server, transfer)
                rows.append(
                    dict.fromkeys(TRIALS.columns, "")
                    | {"run": "example", "model": "mobilenetv2", "netem": "200ms-5mbit", "batch_size": 1}
                    | {"backend": backend, "point": point, "point_name": name(point), "round": number}
                    | {"testbed": "local", "status": "ok"}
                    | {"started_at": "2026-01-01T00:00:00Z", "wall_s": 12.5}
                    | {"latency_s": edge_s + serialize + network + server_s, "edge_s": edge_s}
                    | {"serialize_s": serialize if kib else "", "network_s": network if kib else ""}
                    | {"server_s": server_s if kib else "", "latency_bound_s": edge + server + wire}
                    | {"throughput_ips": bound_ips * 0.94 / slower * jitter[2]}
                    | {"throughput_bound_ips": bound_ips, "payload_bytes": int(kib * 1024)}
                    | {"result_bytes": 4000 if kib else 0}
                    | fixed
                )
    return rows


def with_energy(
    rows: list[dict[str, Any]], *, edge: bool = True, server: bool = True
) -> list[dict[str, Any]]:
    """The same trials on devices with sensors: an edge of 2.6 W idle and 5.8 W busy, a server of 9 W and 39 W.

    As the harness writes it, the server has none at the point that asks nothing of it.
    """
    for row in rows:
        image_s = 1 / row["throughput_ips"]
        if edge:
            row["edge_energy_j"] = 2.6 * image_s + 3.2 * row["edge_s"]
        if server and row["payload_bytes"]:
            row["server_energy_j"] = 9 * image_s + 30 * row["server_s"]
    return rows


def name(point: int) -> str:
    return {0: "input", len(PAYLOAD_KIB) - 1: "classifier"}.get(point, f"features.{point - 1}")


def possible(row: dict[str, Any]) -> dict[str, Any]:
    """The row with a bound of each figure that it is not beyond, whatever a test has made of the figure."""
    bounds = {}
    for figure, bound, looser in (
        ("latency_s", "latency_bound_s", min), ("throughput_ips", "throughput_bound_ips", max)
    ):  # fmt: skip
        if "" not in (row.get(figure, ""), row.get(bound, "")) and row["status"] not in ("invalid", "failed"):
            bounds[bound] = looser(float(row[figure]), float(row[bound]))
    return row | bounds


def write(folder: Path, rows: list[dict[str, Any]], *, beyond: bool = False, **manifest: Any) -> Path:
    """A run folder with these rows. beyond: also figures that are better than their bounds."""
    rows = rows if beyond else [possible(row) for row in rows]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "trials.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, TRIALS.columns)
        writer.writeheader()
        writer.writerows(rows)
    text = json.dumps({"testbed": "local: 2 namespaces on one machine, relay"} | manifest)
    (folder / "manifest.json").write_text(text)
    return folder


@cache
def loaded(rounds: int, backends: tuple[str, ...], noise: float = 0.03) -> pd.DataFrame:
    """The trials as `load` gives them."""
    with TemporaryDirectory() as folder:
        return load(write(Path(folder), trials(rounds=rounds, backends=backends, noise=noise)))
