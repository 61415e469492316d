"""A testbed by the name that the user gives it: whether it can be had, and opening it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pareto.hosts import inventory
from pareto.hosts.host import Say, to_stderr
from pareto.hosts.testbed import Testbed
from pareto.remote.link.profile import Profile


def require_testbed(name: str, edge_cpu: float = 1.0, alone: str = "", memory: int = 0) -> None:
    """Find out before anything else whether the testbed can be had. Raises UserError.

    edge_cpu, memory: the share of a core, and the bytes, that a local edge is to get. alone: the role of the only host
    that is wanted.
    """
    if name == inventory.THIS_MACHINE:
        from pareto.hosts.local.testbed import require_local

        require_local(edge_cpu, memory)
    else:
        file = inventory.load(Path(name))
        file.one(alone) if alone else file.roles  # raises where one is missing


def open_testbed(
    name: str,
    profiles: Iterable[Profile],
    *,
    shape_at: str,
    alone: str = "",
    wait_s: float = 0.0,
    say: Say = to_stderr,
    **local: Any,
) -> Testbed:
    """`local`, or the hosts of a testbed file, to put any of these profiles on any link. Raises TestbedError.

    alone: the role of the only host that is wanted, then the edge of a chain without a link. wait_s: how long to wait
    for hosts on which others measure. local: what else `open_local` takes; on real hosts the workers set what they may.
    """
    if name == inventory.THIS_MACHINE:
        from pareto.hosts.local.testbed import open_local

        return open_local(shape_at=shape_at, alone=alone, wait_s=wait_s, say=say, **local)
    from pareto.hosts.ssh.testbed import open_ssh_testbed

    shaped = not alone and any(profile.shaped for profile in profiles)
    file = inventory.load(Path(name))
    return open_ssh_testbed(file, shaped=shaped, shape_at=shape_at, alone=alone, wait_s=wait_s, say=say)
