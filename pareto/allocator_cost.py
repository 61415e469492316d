"""What it costs a host to leave freed memory to the C library, measured once a run: other programs do, by default."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from pareto.cell import Cell
from pareto.hosts.connection import FAULTS
from pareto.networks import Networks
from pareto.plan import ModelFacts, Models, cells
from pareto.runner import AnyWorkers
from pareto.sweep import Sweep
from pareto.workers import Workers
from partitions.allocator import DEFAULT, TUNED

RUNS = 3
"""Baselines of each host with each allocator, of which the shortest counts: what disturbs a host makes it slower."""


def is_due(sweep: Sweep) -> bool:
    """Whether it is measured: of what is tuned, unless a first look is wanted that does not ask for it."""
    return TUNED in sweep.allocators and (not sweep.quick or len(sweep.allocators) > 1)


def cost(workers: AnyWorkers, sweep: Sweep, models: Models, networks: Networks) -> dict[str, Any] | None:
    """By model, for the session's record: the point, and by role how many times as long as tuned a run of that host's
    part took by itself. None where that cannot be measured. The workers are left with either allocator.
    """
    if not isinstance(workers, Workers):
        return None
    chosen = {name: _evenly_cut(name, sweep, facts, networks) for name, facts in models.items()}
    took: dict[str, dict[str, dict[str, float]]] = {}
    try:
        # The one that they have comes first: each start takes seconds.
        for allocator in sorted((TUNED, DEFAULT), key=lambda each: each != workers.allocator):
            for name, cell in chosen.items():
                workers.ready(replace(cell, allocator=allocator), networks[cell.netem])
                runs = [workers.alone(cell) for _ in range(RUNS)]
                took.setdefault(name, {})[allocator] = {
                    role: min((run[role] or 0.0) for run in runs) for role in runs[0]
                }
    except FAULTS:  # the trials count without it
        return None
    return {name: {"point": chosen[name].point, "times": _times(**of)} for name, of in took.items()}


def _times(tuned: dict[str, float], default: dict[str, float]) -> dict[str, float]:
    """By role of the hosts that run anything."""
    return {role: round(default[role] / tuned_s, 3) for role, tuned_s in tuned.items() if tuned_s}


def _evenly_cut(name: str, sweep: Sweep, facts: ModelFacts, networks: Networks) -> Cell:
    """The cell of a model in which the host that runs the fewest units runs the most."""

    def fewest(cell: Cell) -> int:
        return min(end - start for start, end in pairwise((0, *cell.cuts, facts.last)))

    return max(cells(sweep, {name: facts}, networks), key=fewest)
