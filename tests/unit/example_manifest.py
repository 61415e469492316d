"""A manifest of a run over two networks, and others that differ from it."""

from __future__ import annotations

import json
from typing import Any

HOST = {
    "cpu": "Cortex-A76", "torch": "2.13.0", "device": "cpu", "threads": 1, "hostname": "pi", "kernel": "6.1",
    "governor": "performance", "pid": 20,
}  # fmt: skip
MODEL = {
    "weights": "seeded", "weights_digest": "a" * 64, "graph_digest": "b" * 64, "granularity": "block",
    "input": "float32",
    "dataset": {"name": "synthetic", "inputs": {"1": {"images": 4, "digest": "c" * 64}}},
    "points": [{"name": "input", "payload_bytes": 9}, {"name": "output", "payload_bytes": 0}],
}  # fmt: skip
PROFILE = {
    "name": "wifi", "edge_to_server": {"delay_s": 0.1, "rate_bps": 5e6, "trace": None}, "server_to_edge": {},
}  # fmt: skip
SWEEP = {
    "models": ["net", "other"], "netems": ["wifi", "lan"], "trials": 6, "seed": 0, "edge_cpu": 1.0, "threads": None,
    "congestion": None, "initial_window": None, "slow_start_after_idle": False, "shape_at": "both", "quick": False,
    "input": "float32", "granularity": "block",
}  # fmt: skip
SESSION = {
    "testbed": {"shaper": "relay", "congestion_control": "cubic", "initial_window_segments": 100},
    "hosts": {"edge": HOST, "server": HOST}, "driver": {"kernel": "6.1"},
}  # fmt: skip
MANIFEST: dict[str, Any] = {
    "pareto": "0.1.0", "created_at": "2026-11-21T17:54:27+00:00", "sweep": SWEEP,
    "models": {"net": MODEL, "other": MODEL}, "profiles": {"wifi": PROFILE, "lan": PROFILE},
    "networks": {"wifi": ["wifi"], "lan": ["lan"]}, "testbed": "local: two namespaces on one machine, relay",
    "sessions": [SESSION],
}  # fmt: skip


def changed(**at: Any) -> dict[str, Any]:
    """The manifest with other values: `sweep__edge_cpu=0.25`."""
    made: dict[str, Any] = json.loads(json.dumps(MANIFEST))
    for path, value in at.items():
        inner: Any = made
        *keys, last = path.split("__")
        for key in keys:
            inner = inner[int(key)] if isinstance(inner, list) else inner[key]
        inner[last] = value
    return made
