"""Sweeps of a small model on a simulated testbed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pareto.simulated.world import World
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.sweep import Sweep

MODEL = f"{Path(__file__).with_name('net.py')}:small"
POINTS = 8
HOSTS = {"edge": {"gflops": 0.02, "per_unit": 0.001}, "server": {"gflops": 0.2, "per_unit": 0.0}}
"""So slow that a trial has few requests: the whole model takes 71 ms on the edge."""
STILL = {"kind": "normal", "request": 0.0, "trial": 0.0, "round": 0.0}
"""No noise."""


def sweep(**options: Any) -> Sweep:
    """A sweep of it without a machine."""
    usual = {"model": MODEL, "netem": "10ms-50mbit", "backend": "tcp", "testbed": "simulated", "trials": 1}
    return make_sweep({**usual, "input": "float32", "only": True, **options})


def world(**fields: Any) -> World:
    """A simulated testbed of slow hosts."""
    return World.model_validate({"hosts": HOSTS, **fields})
