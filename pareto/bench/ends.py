"""The two programs that a place's ways run in, and what is asked of them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pareto.bench.asked import Way
from pareto.hosts.host import TestbedError
from pareto.hosts.remote import Remote
from pareto.hosts.session import Heartbeat, Session

PROGRAM = "pareto.worker.bench"
START_TIMEOUT_S = 120.0
TIMEOUT_S = 120.0
NEAR, FAR = "near", "far"


@dataclass(frozen=True)
class Spot:
    """Where two ends meet. far_core: the core that the far end is to move to; None: it is on its own already."""

    near: Remote
    far: Remote
    address: str
    near_interface: str
    far_interface: str
    far_core: int | None = None


class Ends:
    """Both ends of some ways, in one program each, connected. Raises hosts.way.FAULTS, TestbedError."""

    def __init__(self, spot: Spot, heartbeat: Heartbeat, ways: Sequence[Way]) -> None:
        self._interface = spot.near_interface
        with ExitStack() as undo:

            def start(remote: Remote, *options: str) -> Session:
                session = remote.start(PROGRAM, *options)
                undo.callback(session.close)
                heartbeat.add(session)
                undo.callback(heartbeat.remove, session)
                return session

            self._near = start(spot.near)
            moved = () if spot.far_core is None else ("--core", str(spot.far_core))
            self._far = start(spot.far, *moved)
            self.facts = self._both("facts", {}, {})
            """What each end says of the host that it is on."""
            self._connect(spot, ways)
            self._undo = undo.pop_all()

    def trips(self, way: Way, nbytes: int, count: int, *, kept: bool = False) -> dict[str, float]:
        """So many round trips; their `median_s` and `mean_s`. kept: also look at what came."""
        self._expect(way, nbytes, count, kept=kept)
        told = self._near.request(
            "trips", TIMEOUT_S, way=way.name, nbytes=nbytes, count=count, interface=self._interface
        )
        self._check(way, count, kept=kept)
        self._check_sent(way, told["sent_bytes"], nbytes * count)
        return dict(told)

    def stream(self, way: Way, nbytes: int, count: int, in_flight: int) -> dict[str, float]:
        """So many payloads one after another: `seconds`, each end's processor time, `sent_bytes` of the interface."""
        self._expect(way, nbytes, count)
        told = self._near.request(
            "stream",
            TIMEOUT_S,
            way=way.name,
            nbytes=nbytes,
            count=count,
            in_flight=in_flight,
            interface=self._interface,
        )
        self._check_sent(way, told["sent_bytes"], nbytes * count)
        taken = self._check(way, count)
        return {
            "seconds": told["seconds"],
            "near_cpu_s": told["cpu_s"],
            "far_cpu_s": taken["cpu_s"],
            "sent_bytes": told["sent_bytes"],
        }

    def busy(self, share: float) -> None:
        """Have a thread of each end hold the interpreter's lock for that share of the time."""
        self._both("busy", {"share": share}, {"share": share})

    def close(self) -> None:
        self._undo.close()

    def _connect(self, spot: Spot, ways: Iterable[Way]) -> None:
        names = [way.name for way in ways]
        to = {"address": spot.address, "token": secrets.token_hex(16)}
        ports = self._far.request("listen", START_TIMEOUT_S, ways=names, **to)
        self._near.request("connect", START_TIMEOUT_S, ports=ports, **to)
        for way in (way for way in ways if way.family == "rpc"):
            meeting = {
                "way": way.name,
                "hosts": [NEAR, FAR],
                "address": spot.address,
                "port": self._far.request("rendezvous", address=spot.address),
                "threads": way.threads,
            }
            self._both(
                "join_rpc",
                {**meeting, "name": NEAR, "interface": spot.near_interface},
                {**meeting, "name": FAR, "interface": spot.far_interface},
            )

    def _expect(self, way: Way, nbytes: int, count: int, *, kept: bool = False) -> None:
        self._far.request("expect", way=way.name, nbytes=nbytes, count=count, kept=kept)

    def _check(self, way: Way, count: int, *, kept: bool = False) -> dict[str, Any]:
        taken: dict[str, Any] = self._far.request("taken")
        if taken["count"] != count:
            raise TestbedError(f"{way.label}: {taken['count']} of {count} payloads came")
        if kept and not taken["same"]:
            raise TestbedError(f"{way.label}: what came is not what was sent")
        return taken

    def _check_sent(self, way: Way, sent: int, needed: int) -> None:
        if sent < needed:
            raise TestbedError(f"{way.label}: only {sent} of {needed} bytes crossed {self._interface}")

    def _both(self, op: str, near: dict[str, Any], far: dict[str, Any]) -> dict[str, Any]:
        """Ask both ends at the same time."""
        asked = {
            NEAR: (self._near, self._near.send(op, **near)),
            FAR: (self._far, self._far.send(op, **far)),
        }
        return {end: session.wait(number, START_TIMEOUT_S) for end, (session, number) in asked.items()}
