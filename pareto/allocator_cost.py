"""What it costs a host to leave freed memory to the C library, as other programs do, measured once a run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

from pareto.cell import Cell
from pareto.hosts.connection import FAULTS
from pareto.networks import Networks
from pareto.plan import Models, cells
from pareto.runner import AnyWorkers
from pareto.sweep import Sweep
from pareto.workers import Workers
from partitions.allocator import DEFAULT, TUNED

RUNS = 3
"""Baselines of each host with each allocator, of which the shortest counts: what disturbs a host makes it slower."""


def cost(workers: AnyWorkers, sweep: Sweep, models: Models, networks: Networks) -> dict[str, Any] | None:
    """By model, for the session's record: the point, where it is cut most evenly, and by role how many times as long as
    tuned a run of that host's part took by itself. None where that is not measured: nothing is tuned, or a first look
    is wanted that does not ask for it, or hosts are lost. The workers are left with either allocator.
    """
    is_due = TUNED in sweep.allocators and (not sweep.quick or len(sweep.allocators) > 1)
    if not is_due or not isinstance(workers, Workers):
        return None

    def fewest(cell: Cell) -> int:
        """The units of the host that runs the fewest."""
        return min(end - start for start, end in pairwise((0, *cell.cuts, models[cell.model].last)))

    each = {name: max(cells(sweep, {name: facts}, networks), key=fewest) for name, facts in models.items()}
    took: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    try:
        # The one that they have comes first: each start takes seconds.
        for allocator in sorted((TUNED, DEFAULT), key=lambda one: one != workers.allocator):
            for name, cell in each.items():
                workers.loaded(replace(cell, allocator=allocator))
                for run in (workers.alone(cell) for _ in range(RUNS)):
                    for role, seconds in run.items():
                        if seconds is not None:
                            least = took[name, allocator].get(role, seconds)
                            took[name, allocator][role] = min(least, seconds)
    except FAULTS:  # the trials count without it
        return None
    return {
        name: {
            "point": cell.point,
            "times": {role: round(took[name, DEFAULT][role] / s, 3) for role, s in took[name, TUNED].items()},
        }
        for name, cell in each.items()
    }
