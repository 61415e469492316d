"""Who puts a profile on a link of a testbed: nobody, the relay in the middle, or netem on the hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pareto import COMMAND
from pareto.hosts.host import End, TestbedError
from pareto.hosts.session import Programs, Session, SessionError, SessionLost
from pareto.protocol.jsonlines import SILENCE_LIMIT_S
from pareto.protocol.messages import R, Request
from pareto.remote.link.profile import Direction, Profile, seed_of
from pareto.remote.link.requests import Apply, Restart, Seed, Stats, Supported

Starts = Mapping[str, Callable[[], Session]]
"""Starts of the privileged helper, on those hosts that have one, by role."""
DRAIN_S = 5.0
ANSWER_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class LinkState:
    """dropped: packets since it was shaped, netem's wanted losses too; None: not counted. position_s: in traces."""

    dropped: int | None
    position_s: float | None


class Shaper:
    """Puts profiles on a link; this one leaves it as it is. Its methods raise `connection.FAULTS`."""

    def apply(self, profile: Profile) -> dict[str, Any]:
        """Shape the link, its traces from the profile's offset on; returns what is read back, by host or direction."""
        if profile.shaped:
            raise TestbedError(f"this testbed was opened without anything to shape {profile.name} with")
        return {}

    def restart(self, position_s: float) -> None:
        """Play the traces from another position on."""

    def seed(self, seed: int) -> bool:
        """Begin the link's chance anew; returns whether it now follows the seed."""
        return False

    def state(self) -> LinkState:
        return LinkState(None, None)

    def facts(self) -> dict[str, Any]:
        """Who shapes the link, and what that cost, for the manifest."""
        return {}

    def revive(self) -> None:
        """Start again what was lost with a host; the profile has to be applied anew."""

    def close(self) -> None:
        """End the programs that shape the link."""


class RelayShaper(Shaper):
    """The local testbed's process in the middle of a link, reached by its builder. link: counted from the edge."""

    def __init__(self, builder: Session, link: int) -> None:
        self._builder = builder
        self._link = link

    def apply(self, profile: Profile) -> dict[str, Any]:
        return dict(self._ask("shape", **profile.with_queues().to_dict()))

    def restart(self, position_s: float) -> None:
        # What an outage holds back keeps its place in the queue, and would hold back what comes after it.
        deadline = time.monotonic() + DRAIN_S
        while (left_s := self._ask("stats")["draining_s"]) > 0 and time.monotonic() < deadline:
            time.sleep(min(left_s, DRAIN_S))
        self._ask("restart", position_s=position_s)

    def seed(self, seed: int) -> bool:
        return bool(self._ask("seed", seed=seed)["seeded"])

    def state(self) -> LinkState:
        stats = self._ask("stats")
        return LinkState(stats["dropped"], stats["position_s"])

    def facts(self) -> dict[str, Any]:
        kept = ("cpu_s", "cpu_share", "late_p99_s", "scheduling", "real_time", "dropped", "lost")
        return {"relay": {key: value for key, value in self._ask("stats").items() if key in kept}}

    def _ask(self, op: str, **fields: Any) -> Any:
        return self._builder.request(op, ANSWER_TIMEOUT_S, link=self._link, **fields)


def who_shapes(near: str, far: str, shape_at: str) -> tuple[str, ...]:
    """Those of a link's hosts that shape it with netem: `both`, what each sends; else `near`, both directions."""
    return (near, far) if shape_at == "both" else (near,)


class NetemShaper(Shaper):
    """A netem qdisc on each sender's egress, set by the privileged helper on that host.

    A host without a helper sends unshaped; what it sends is then shaped where it arrives, on the other host (ifb).
    """

    def __init__(self, near: End, far: End, starts: Starts, *, filtered: bool) -> None:
        """filtered: only what the two say to each other is shaped, and of that not SSH; else what they pass on, too."""
        self._ends = {near.role: near, far.role: far}
        self._starts = starts
        self._filtered = filtered
        self._programs = Programs()
        self._patience_s = 0.0
        self._seeded: bool | None = None
        try:
            self._start(*starts)
        except BaseException:
            self.close()
            raise

    def apply(self, profile: Profile) -> dict[str, Any]:
        sent = dict(zip(self._ends, profile.with_queues().directions, strict=True))

        def request(role: str, interface: str) -> Apply:
            peer = self._peer(role)
            return Apply(
                interface,
                self._ends[role].address,
                egress=sent[role],
                ingress=Direction() if peer in self._programs else sent[peer],
                bucket=profile.bucket,
                peer=self._ends[peer].address if self._filtered else None,
                filtered=self._filtered,
                offset_s=profile.offset_s,
                patience_s=self._patience_s,
            )

        applied = self._each(request, ANSWER_TIMEOUT_S + self._patience_s)
        self._patience_s = 0.0
        return applied

    def restart(self, position_s: float) -> None:
        self._each(lambda _, interface: Restart(interface, position_s))

    def seed(self, seed: int) -> bool:
        """By the kernel since Linux 6.6; an older one takes no seed, and says so by none that is read back."""
        near, far = self._ends
        seeds = {near: seed_of(seed, "edge_to_server"), far: seed_of(seed, "server_to_edge")}
        reports = self._each(lambda role, interface: Seed(interface, seeds[role], seeds[self._peer(role)]))
        self._seeded = all(reports.values())
        return self._seeded

    def state(self) -> LinkState:
        counts = self._each(lambda _, interface: Stats(interface)).values()
        positions = [each.position_s for each in counts if each.position_s is not None]
        return LinkState(sum(each.dropped for each in counts), max(positions, default=None))

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"at": list(self._starts)}
        return {"netem": facts if self._seeded is None else facts | {"seeded": self._seeded}}

    def revive(self) -> None:
        for role, session in list(self._programs.items()):
            try:
                session.ask(Supported(), ANSWER_TIMEOUT_S)
            except (SessionError, SessionLost, TimeoutError):
                self._programs.pop(role).close()
                self._start(role)
                # The old one may hold the interface until it finds out that nobody talks to it any more.
                self._patience_s = 1.5 * SILENCE_LIMIT_S

    def close(self) -> None:
        self._programs.close()

    def _peer(self, role: str) -> str:
        (peer,) = (other for other in self._ends if other != role)
        return peer

    def _start(self, *roles: str) -> None:
        """Side by side, for a small device takes seconds. Raises TestbedError where a host cannot shape."""
        for role in roles:
            self._programs[role] = self._starts[role]()
        supported = self._programs.ask_all({role: Supported() for role in roles}, 3 * ANSWER_TIMEOUT_S)
        for role in roles:
            if not supported[role]:
                raise TestbedError(
                    f"{self._programs[role].name}: its kernel has no sch_netem; {COMMAND} doctor tells how to get it"
                )

    def _each(self, request: Callable[[str, str], Request[R]], timeout_s: float = 30.0) -> dict[str, R]:
        """Send all helpers a request at the same time, made of role and interface; returns their reports by role."""
        requests = {role: request(role, self._ends[role].interface) for role in self._programs}
        return self._programs.ask_all(requests, timeout_s)
