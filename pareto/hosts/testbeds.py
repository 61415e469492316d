"""Which testbed `--testbed` names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pareto.hosts import inventory
from pareto.hosts.host import TcpSettings
from pareto.hosts.inventory import THIS_MACHINE
from pareto.hosts.testbed import Testbed
from pareto.link.profile import Profile


def require(name: str, edge_cpu: float = 1.0) -> None:
    """Find out before anything else whether the testbed can be had. Raises TestbedError.

    edge_cpu: the share of a core that a local edge is to get.
    """
    if name == THIS_MACHINE:
        from pareto.hosts.local_testbed import require_local

        require_local(edge_cpu)
    else:
        inventory.load(Path(name)).roles  # noqa: B018  (raises where one is missing)


def size(name: str) -> int:
    """How many hosts a testbed file has. Raises TestbedError."""
    return len(inventory.load(Path(name)).roles)


def open_testbed(
    name: str,
    profiles: Iterable[Profile],
    *,
    hosts: int = 2,
    shape_at: str,
    edge_cpu: float = 1.0,
    threads: int = 1,
    tcp: TcpSettings | None = None,
) -> Testbed:
    """`local`, or the hosts of a testbed file, to put any of these profiles on any link. Raises TestbedError.

    `hosts`, `edge_cpu`, `threads` and `tcp` are the local one's: on real hosts the workers set what they may.
    """
    if name == THIS_MACHINE:
        from pareto.hosts.local_testbed import open_local

        return open_local(hosts=hosts, edge_cpu=edge_cpu, threads=threads, shape_at=shape_at, tcp=tcp)
    from pareto.hosts.ssh_testbed import open_ssh_testbed

    shaped = any(profile.shaped for profile in profiles)
    return open_ssh_testbed(inventory.load(Path(name)), shaped=shaped, shape_at=shape_at)
