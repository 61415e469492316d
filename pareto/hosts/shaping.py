"""Putting a profile on a testbed's link, whichever way the testbed shapes: one interface for both."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from pareto.hosts.remote import Remote
from pareto.hosts.session import Session
from pareto.link.profile import Profile

DRAIN_S = 5.0


@dataclass(frozen=True)
class LinkState:
    """The link now: packets dropped since it was shaped, and where its traces are, in seconds.

    Dropped by full queues; netem counts those that it was asked to lose with them.
    """

    dropped: int
    position_s: float | None


class Shaper(Protocol):
    """Its methods raise SessionError, SessionLost or TimeoutError."""

    def apply(self, profile: Profile) -> dict[str, Any]:
        """Shape the link, its traces from the profile's offset on; what was read back, by direction or interface."""

    def restart(self, position_s: float) -> None:
        """Play the traces from another position on."""

    def state(self) -> LinkState: ...

    def facts(self) -> dict[str, Any]:
        """What the shaping itself cost, for the manifest."""

    def close(self) -> None: ...


class RelayShaper:
    """The local testbed's process in the middle, reached through the testbed's keeper."""

    def __init__(self, keeper: Session) -> None:
        self._keeper = keeper

    def apply(self, profile: Profile) -> dict[str, Any]:
        return dict(self._keeper.request("shape", **profile.to_dict()))

    def restart(self, position_s: float) -> None:
        # What an outage holds back keeps its place in the queue, and would hold back what comes after it.
        deadline = time.monotonic() + DRAIN_S
        while (left_s := self._keeper.request("stats")["draining_s"]) > 0 and time.monotonic() < deadline:
            time.sleep(min(left_s, DRAIN_S))
        self._keeper.request("restart", position_s=position_s)

    def state(self) -> LinkState:
        stats = self._keeper.request("stats")
        return LinkState(stats["dropped"], stats["position_s"])

    def facts(self) -> dict[str, Any]:
        kept = ("cpu_s", "cpu_share", "late_p99_s", "scheduling", "dropped", "lost")
        return {"relay": {key: value for key, value in self._keeper.request("stats").items() if key in kept}}

    def close(self) -> None: ...


class NetemShaper:
    """A netem qdisc on each sender's egress, set by the privileged helper on that host.

    A host without a helper sends unshaped; what it sends is then shaped where it arrives, on the other host (ifb).
    """

    def __init__(self, remotes: Mapping[str, Remote], helpers: Mapping[str, tuple[Remote, Session]]) -> None:
        self._remotes = remotes
        self._helpers = helpers

    def apply(self, profile: Profile) -> dict[str, Any]:
        ways = dict(zip(self._remotes, profile.directions, strict=True))  # edge first
        shared = {"bucket": asdict(profile.bucket) if profile.bucket else None, "offset_s": profile.offset_s}
        asked = {}
        for name, (_, session) in self._helpers.items():
            (peer,) = (other for other in self._remotes if other != name)
            asked[name] = session.send(
                "apply",
                interface=self._remotes[name].host.data_interface,
                peer=self._remotes[peer].host.data_address,
                egress=ways[name].to_dict(),
                ingress=None if peer in self._helpers else ways[peer].to_dict(),
                **shared,
            )
        return {name: self._helpers[name][1].wait(number) for name, number in asked.items()}

    def restart(self, position_s: float) -> None:
        self._each("restart", position_s=position_s)

    def state(self) -> LinkState:
        stats = self._each("stats")
        positions = [told["position_s"] for told in stats if told["position_s"] is not None]
        return LinkState(sum(told["dropped"] for told in stats), max(positions, default=None))

    def facts(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        for remote, session in self._helpers.values():
            session.close()
            remote.close()

    def _each(self, op: str, **fields: Any) -> list[dict[str, Any]]:
        """Ask all helpers at the same time."""
        asked = []
        for name, (_, session) in self._helpers.items():
            interface = self._remotes[name].host.data_interface
            asked.append((session, session.send(op, interface=interface, **fields)))
        return [session.wait(number) for session, number in asked]
