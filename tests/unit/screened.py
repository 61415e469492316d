"""A console of 80 columns without colour, what it shows, and a plan to show on it."""

from __future__ import annotations

import io

from rich.console import Console

from pareto.sweep import plan, profile_files
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.foreseen import ModelFacts
from pareto.sweep.plan import Plan

FACTS = {
    "mobilenet_v2": ModelFacts(
        tuple((f"features.{i}", 100_000) for i in range(12)), 0.03, splits=tuple((i,) for i in range(12))
    )
}
SWEEP = make_sweep({"model": "mobilenet_v2", "netem": "200ms-5mbit", "edge_cpu": 0.25, "trials": 3})
NETWORKS = {name: (profile_files.load(name),) for name in SWEEP.netems}


def page() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False, markup=False)


def text_of(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def text(out: Console) -> str:
    written = text_of(out)
    assert "\x1b" not in written
    assert max(len(line) for line in written.splitlines()) <= 80
    return written


def made() -> Plan:
    return plan.make((SWEEP, FACTS, NETWORKS))
