"""`--testbed simulated`: a sweep without a machine. Compute times are stated, links are arithmetic, the clock jumps.

`world` says what is simulated, `requests` makes a trial's requests of it, `workers` stands where a real testbed's
workers do. Plan, runner, verdict, store and report are those of every sweep.
"""

from __future__ import annotations

from pareto.simulated.workers import Model, Simulation, Workers
from pareto.simulated.world import World, load

__all__ = ["Model", "Simulation", "Workers", "World", "load"]
