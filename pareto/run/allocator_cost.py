"""The cost to a host of leaving freed memory to the C library, as other programs do, measured once a run."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from pareto.hosts.connection import FAULTS
from pareto.partitions.allocator import DEFAULT, TUNED
from pareto.sweep.cell import Cell
from pareto.sweep.networks import Networks
from pareto.sweep.plan import Models, cells
from pareto.sweep.sweep import Sweep
from pareto.trial.any_workers import AnyWorkers
from pareto.trial.workers import Workers

RUNS = 3
"""Baselines of each host with each allocator, of which the shortest counts: what disturbs a host makes it slower."""


def cost(workers: AnyWorkers, sweep: Sweep, models: Models, networks: Networks) -> list[dict[str, Any]]:
    """The session's records, one for each model and batch size: the point where it is cut most evenly, and by role how
    many times as long as tuned a run of that host's part took by itself. Empty where that is not measured: nothing is
    tuned, or a first look is wanted that does not ask for it, or hosts are lost. Leaves the workers with either.
    """
    is_due = TUNED in sweep.allocators and (not sweep.quick or len(sweep.allocators) > 1)
    if not is_due or not isinstance(workers, Workers):
        return []
    chosen: dict[tuple[str, int], Cell] = {}
    for cell in sorted(cells(sweep, models, networks), key=lambda cell: _fewest(cell, models)):
        chosen[cell.model, cell.batch_size] = cell
    took: dict[Cell, dict[str, dict[str, float]]] = {cell: {} for cell in chosen.values()}
    try:
        # The one that they have comes first: each start takes seconds.
        for allocator in sorted((TUNED, DEFAULT), key=lambda one: one != workers.allocator):
            for cell, by in took.items():
                workers.loaded(replace(cell, allocator=allocator))
                runs = [workers.alone(cell) for _ in range(RUNS)]
                by[allocator] = {role: min(run[role] or 0.0 for run in runs) for role in runs[0]}
    except FAULTS:  # the trials count without it
        return []
    return [
        {
            **{"model": cell.model, "batch_size": cell.batch_size, "point": cell.point},
            "times": {role: round(by[DEFAULT][role] / s, 3) for role, s in by[TUNED].items() if s},
        }
        for cell, by in took.items()
    ]


def _fewest(cell: Cell, models: Models) -> int:
    """The units of the host that runs the fewest."""
    return min(end - start for start, end in pairwise((0, *cell.cuts, models[cell.model].last)))
