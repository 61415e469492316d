from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pareto.host_messages import Lease, TakeLease
from pareto.hosts.leases import HostLeases


def test_all_drivers_take_hosts_in_one_order_so_that_no_two_wait_for_each_other() -> None:
    taken: list[str] = []

    def remote(name: str) -> Any:
        def ask(request: object, timeout_s: float = 0.0) -> Lease:
            taken.extend([name] * isinstance(request, TakeLease))
            return Lease(name, [])

        session = SimpleNamespace(ask=ask)
        return SimpleNamespace(host=SimpleNamespace(name=name), start=lambda module: session)

    heartbeat: Any = SimpleNamespace(add=lambda session: None)
    for chain in ({"edge": "pi", "server": "desk"}, {"edge": "desk", "server": "pi"}):
        remotes = {role: remote(name) for role, name in chain.items()}
        HostLeases(remotes, heartbeat, 0.0, print).take()
    assert taken == ["desk", "pi"] * 2
