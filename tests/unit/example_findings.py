"""Findings made by hand from the example run, for the tests of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from pareto.analysis.comparing.between_runs import Comparison, compare
from pareto.analysis.findings import Findings
from pareto.analysis.fronts.front import front
from pareto.analysis.runs.load import Run, load, stages
from tests.unit.example_run import trials, write

SWEEP = {"models": ["mobilenet_v2"], "netems": ["200ms-5mbit"], "trials": 7, "seed": 3}
EDGE = {"hostname": "pi", "cpu": "Cortex-A76", "kernel": "6.6.1", "governor": None, "torch": "2.13.0"}
EDGE |= {"cores": [0, 1]}
MODEL = {"weights": "seeded", "weights_digest": "3042ca80", "graph_digest": "7f4eedca"}
MANIFEST = {
    **{"pareto": "0.1.0", "created_at": "2026-01-01T00:00:00+00:00", "testbed": "lab.yaml"},
    **{"sweep": SWEEP, "models": {"mobilenet_v2": MODEL}},
    "sessions": [{"testbed": {"shaper": "netem"}, "driver": {"hostname": "desk"}, "hosts": {"edge": EDGE}}],
}

PROFILES = MANIFEST | {
    "profiles": {
        "200ms-5mbit": {"edge_to_server": {"delay_s": 0.2, "rate_bps": 5e6}, "server_to_edge": {}},
        "lte": {"edge_to_server": {"delay_s": 0.03, "rate_bps": 2e7}, "server_to_edge": {"delay_s": 0.03}},
    }
}
"""The manifest with what the profiles of the example run are."""


def findings(folder: Path, rows: list[dict[str, Any]] | None = None, **others: Any) -> Findings:
    """What an analysis of these trials would hand to the page; `others` replaces parts of it."""
    run = write(folder / "run", trials(rounds=7) if rows is None else rows)
    loaded, nothing = load([run]), pd.DataFrame()
    objectives = others.get("objectives", ("latency", "throughput"))
    parts = {
        **{"runs": [Run(run, MANIFEST)], "trials": loaded, "stages": stages([run]), "links": nothing},
        "front": front(loaded, objectives, others.get("where", "")),
        **dict.fromkeys(("hypervolumes", "attainment", "overhead", "paired", "drifts"), nothing),
        "objectives": objectives,
        "answers": ["mobilenetv2 at 200ms-5mbit: keep all on the edge: 33.4 ms"],
    }
    return Findings(**(parts | others))


def compared(
    folder: Path, *manifests: dict[str, Any], b: tuple[str, ...] = ("tcp", "rpc"), name: str = ""
) -> Comparison:
    """Two runs: B has these backends, and takes a tenth less at odd points. name: that of point 3."""
    runs = []
    for seed, (run, backends) in enumerate((("a", ("tcp", "rpc")), ("b", b)), 1):
        rows = trials(rounds=8, seed=seed, run=run, noise=0.02, backends=backends)
        for row in rows:
            row["latency_s"] *= 0.9 if run == "b" and row["point"] % 2 else 1
            row["point_name"] = name if row["point"] == 3 else row["point_name"]
        runs.append(write(folder / run, rows, **dict(*manifests[seed - 1 : seed])))
    return compare(*runs)


def probes(**columns: Any) -> pd.DataFrame:
    """A frame of `link.csv`'s probes; columns that are not given are empty."""
    texts = ("run", "at", "model", "netem", "link", "trial", "when", "verdict", "reason")
    read = ("rtt_s", "rate_bps", "rate_back_bps")
    figures = [f"{asked}{name}" for name in read for asked in ("asked_", "")]
    count = len(next(iter(columns.values())))
    empty = {name: [""] * count for name in texts} | {name: [float("nan")] * count for name in figures}
    return pd.DataFrame(empty | {"netem": ["200ms-5mbit"] * count, "link": ["edge-server"] * count} | columns)
