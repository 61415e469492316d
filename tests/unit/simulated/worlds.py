"""Sweeps of a small model on a simulated testbed, and the rows of their trials."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pareto.analysis.schema import Table
from pareto.driver.runner import Runner, Tally, Watcher
from pareto.hosts.inventory import SIMULATED
from pareto.models.prepare import canonical, recipe
from pareto.partitions import model as partitioned
from pareto.partitions.registry import canonical as canonical_name
from pareto.simulated.workers import SimulatedWorkers, Simulation
from pareto.simulated.world import World
from pareto.sweep import plan, splits
from pareto.sweep.cell import Cell
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import links_of, profiles
from pareto.sweep.sweep import Sweep
from pareto.trial.store import Parts, Row, Store

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


def rows(sweep: Sweep, world: World) -> list[Row]:
    """Every trial of a sweep, as rows of trials.csv. Raises UserError, TestbedError, Aborted as a sweep does."""
    sweep, simulation, links = canonical(sweep), Simulation(world), links_of(sweep)
    facts = {}
    # The short names, as a run has them: a user's model must not draw its noise by the folder that it lies in.
    for name in map(canonical_name, sweep.models):
        simulation.prepare(name, sweep)
        points = partitioned.describe(recipe(name, sweep))[0]
        chosen = splits.to_measure(name, points, sweep, links)
        facts[name] = replace(simulation.models[name].facts, splits=chosen)
    networks = {name: profiles(name, links) for name in sweep.netems}
    bed, store = simulation.testbed(links + 1), _Memory()
    try:
        workers = SimulatedWorkers(simulation, bed.links, edge_cpu=sweep.edge_cpu)
        of_run = sweep, Watcher(), Tally(), simulation.clock, sweep.testbed_name
        runner = Runner(workers, store, networks, *of_run)
        runner.run(plan.make((sweep, facts, networks)))
    finally:
        bed.close()
    return store.trials


class _Memory(Store):
    """A store that keeps the rows of trials in memory, and nothing else."""

    def __init__(self) -> None:
        super().__init__(Path(SIMULATED))
        self.trials: list[Row] = []

    def append_trial(self, row: Row) -> None:
        self.trials.append(row)

    def take_back(self, cell: Cell, number: int) -> bool:
        return False

    def append_stages(self, rows: Iterable[Row]) -> None: ...

    def append_link(self, row: Row) -> None: ...

    def write_parts(self, table: Table, cell: Cell, number: int, parts: Parts) -> None: ...
