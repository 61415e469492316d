"""Many large runs, made up: for measuring how quickly they are read.

    python -m tests.measure.many_runs FOLDER 20 500000

Each run has 25 conditions x 2 backends x 20 points x 50 rounds = 50 000 trials, in the columns and digits that the
harness writes; and as many rows of requests as asked for, 500 a trial, for its first trials.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from pareto.analysis.schema import TRIALS

NETEMS = [f"{delay}ms-{rate}mbit" for delay in (1, 10, 50, 100, 200) for rate in (1, 5, 20, 100, 1000)]
BACKENDS, POINTS, ROUNDS = ("tcp", "rpc"), 20, 50
LATENCY_REQUESTS, THROUGHPUT_REQUESTS = 150, 350
MEASURED = ("_s", "_ips", "_bps", "_bytes", "_percent", "_requests", "retransmits", "_packets")
EMPTY = ["edge_temperature_c", "edge_frequency_hz", "edge_throttled", "edge_energy_j", "middle_s", "top1"]
EMPTY += [f"{host}_gpu_{what}" for host in ("edge", "server") for what in ("percent", "memory_bytes", "s")]


def write(folder: Path, runs: int, requests: int, rounds: int = ROUNDS) -> list[Path]:
    """Run folders, each with `requests` rows of requests."""
    return [
        _run(folder / f"mobilenet_v2-25-profiles-20261121-{100000 + number}", number, requests, rounds)
        for number in range(runs)
    ]


def _run(folder: Path, seed: int, requests: int, rounds: int) -> Path:
    rng = np.random.default_rng(seed)
    (folder / "requests").mkdir(parents=True)
    names, values = (
        ["round", "netem", "backend", "point"],
        [range(1, rounds + 1), NETEMS, BACKENDS, range(POINTS)],
    )
    axes = pd.MultiIndex.from_product(values, names=names)
    rows = axes.to_frame(index=False)
    count, point = len(rows), rows["point"]
    noise = rng.lognormal(0, 0.05, (count, 3))
    for column in [column for column in TRIALS.columns if column not in rows]:
        rows[column] = rng.lognormal(0, 1, count) if column.endswith(MEASURED) else ""
    rows["run"], rows["model"] = folder.name, "mobilenet_v2"
    rows["codec"], rows["in_flight_asked"] = "none", "auto"
    rows["batch_size"], rows["point_name"] = 1, "features." + point.astype(str)
    rows["status"] = rng.choice(["ok", "invalid", "failed"], count, p=[0.97, 0.02, 0.01])
    rows["reason"] = np.where(rows["status"] == "ok", "", 'the link was off: "RTT 0.3 s",\nasked 0.2 s')
    rows["latency_s"] = (0.05 + 0.01 * (point - 7) ** 2) * noise[:, 0]
    rows["throughput_ips"] = (10 + point) * noise[:, 1]
    rows["latency_bound_s"] = 0.8 * rows["latency_s"]
    rows["throughput_bound_ips"] = 1.2 * rows["throughput_ips"]
    rows["payload_bytes"] = np.where(point == POINTS - 1, 0, 1000 * (POINTS - point))
    rows["result_bytes"] = 4000
    rows["bound_by"], rows["congestion"] = "edge-server out", "cubic"
    rows["started_at"] = "2026-11-21T17:54:41.362+00:00"
    rows[EMPTY] = ""
    rows = rows[list(TRIALS.columns)]
    rows.to_csv(folder / "trials.csv", index=False, float_format="%.6g", lineterminator="\n")
    (folder / "manifest.json").write_text(json.dumps(manifest(seed)))
    for row in rows.head(requests // (LATENCY_REQUESTS + THROUGHPUT_REQUESTS)).itertuples():
        name = f"mobilenet_v2-k{row.point:02d}-{row.backend}-{row.netem}-b1-r{row.round:02d}.parquet"
        parquet.write_table(_requests(rng), folder / "requests" / name)
    return folder


def manifest(seed: int) -> dict[str, object]:
    sweep = {"models": ["mobilenet_v2"], "seed": seed, "edge_cpu": 0.25, "threads": None, "quick": False}
    return {"pareto": "0.1.0", "sweep": sweep, "testbed": "local: two namespaces on one machine, relay"}


def _requests(rng: np.random.Generator) -> pa.Table:
    count = LATENCY_REQUESTS + THROUGHPUT_REQUESTS
    latency_s = rng.lognormal(-3, 0.1, count)
    alone_s, together_s = np.split(latency_s, [LATENCY_REQUESTS])
    started_s = np.concatenate([np.cumsum(alone_s), np.cumsum(together_s) / 4])
    part_s = latency_s / 3
    return pa.table(
        {
            "phase": ["latency"] * LATENCY_REQUESTS + ["throughput"] * THROUGHPUT_REQUESTS,
            "started_s": started_s,
            "finished_s": started_s + latency_s,
            **dict.fromkeys(("edge_s", "serialize_s", "server_s"), part_s),
            "middle_s": pa.array([[]] * count, pa.list_(pa.float64())),
        }
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
