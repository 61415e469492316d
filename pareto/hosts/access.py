"""A testbed by the name that the user gives it: whether it can be had."""

from __future__ import annotations

from pathlib import Path

from pareto.hosts import inventory


def require_testbed(name: str, edge_cpu: float = 1.0, alone: str = "", memory: int = 0) -> None:
    """Find out before anything else whether the testbed can be had. Raises UserError. edge_cpu, memory: what a local
    edge is to get, as a share of a core and in bytes. alone: the role of the only host that is wanted."""
    if name == inventory.THIS_MACHINE:
        from pareto.hosts.local.testbed import require_local

        require_local(edge_cpu, memory)
    else:
        file = inventory.load(Path(name))
        file.one(alone) if alone else file.roles  # raises where one is missing
