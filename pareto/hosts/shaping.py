"""Putting a profile on a testbed's link, whichever way the testbed shapes: one interface for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol

from pareto.hosts.remote import Remote
from pareto.hosts.session import Session
from pareto.link.profile import Profile


class Shaper(Protocol):
    def apply(self, profile: Profile) -> dict[str, Any]:
        """Shape the link; what was read back, by direction or interface. Raises SessionError, SessionLost."""

    def close(self) -> None: ...


class RelayShaper:
    """The local testbed's process in the middle, reached through the testbed's keeper."""

    def __init__(self, keeper: Session) -> None:
        self._keeper = keeper

    def apply(self, profile: Profile) -> dict[str, Any]:
        return dict(
            self._keeper.request(
                "shape",
                edge_to_server=asdict(profile.edge_to_server),
                server_to_edge=asdict(profile.server_to_edge),
            )
        )

    def close(self) -> None: ...


class NetemShaper:
    """A netem qdisc on each sender's egress, set by the privileged helper on that host."""

    def __init__(self, helpers: Mapping[str, tuple[Remote, Session]]) -> None:
        self._helpers = helpers

    def apply(self, profile: Profile) -> dict[str, Any]:
        egress = {"edge": profile.edge_to_server, "server": profile.server_to_edge}
        return {
            name: session.request("apply", interface=remote.host.data_interface, egress=asdict(egress[name]))
            for name, (remote, session) in self._helpers.items()
        }

    def close(self) -> None:
        for remote, session in self._helpers.values():
            session.close()
            remote.close()
