"""Probing a testbed's link through the program on the edge that has the probe, with the verdict."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from typing import Any

from pareto.hosts.session import Session
from pareto.hosts.shaping import Shaper
from pareto.hosts.testbed import EDGE, SERVER, LocalTestbed
from pareto.link import probe
from pareto.link.profile import Profile

TIMEOUT_S = 120.0
MOST_SETTLING = 5


def probed(
    shaper: Shaper,
    edge: Session,
    profile: Profile,
    tolerance: probe.Tolerance,
    question: dict[str, Any] | None = None,
) -> tuple[probe.Probed, probe.Span]:
    """Measure the link now: reading and verdict, and the part of its traces that passed meanwhile."""
    begun = _position_s(shaper, profile)
    reply = edge.request("probe", TIMEOUT_S, **(question or probe.question(profile)))
    reading = probe.Reading.of(reply)
    span = begun, _position_s(shaper, profile)
    return probe.Probed(reading, probe.judge(profile, reading, tolerance, span)), span


def settle(shaper: Shaper, edge: Session, profile: Profile) -> None:
    """Open the congestion windows of the probe's own connection by readings that are not used."""
    for _ in range(MOST_SETTLING):
        if not probed(shaper, edge, profile, probe.Tolerance())[0].fault:
            return


class Probers:
    """A probe on both hosts of a testbed, and nothing else. Raises SessionError, SessionLost, TimeoutError."""

    def __init__(self, testbed: LocalTestbed) -> None:
        self._shaper = testbed.shaper
        self._address = testbed.remotes[SERVER].host.data_address
        self._token = secrets.token_hex(16)
        self._sessions: dict[str, Session] = {}
        with ExitStack() as undo:
            for name, remote in testbed.remotes.items():
                session = remote.start("pareto.worker.prober")
                undo.callback(session.close)
                testbed.heartbeat.add(session)
                undo.callback(testbed.heartbeat.remove, session)
                self._sessions[name] = session
            listening = self._sessions[SERVER].request("listen", address=self._address, token=self._token)
            self._port = listening["probe"]
            self._undo = undo.pop_all()

    def link(self, profile: Profile) -> dict[str, Any]:
        """Put a profile on the link; what was read back."""
        in_force = self._shaper.apply(profile)
        edge = self._sessions[EDGE]
        edge.request("connect", TIMEOUT_S, address=self._address, probe=self._port, token=self._token)
        settle(self._shaper, edge, profile)
        return in_force

    def probed(
        self, profile: Profile, tolerance: probe.Tolerance, question: dict[str, Any]
    ) -> tuple[probe.Probed, probe.Span]:
        return probed(self._shaper, self._sessions[EDGE], profile, tolerance, question)

    def close(self) -> None:
        self._undo.close()


def _position_s(shaper: Shaper, profile: Profile) -> float:
    """Where the link's traces are; 0 if it has none."""
    return (shaper.state().position_s or 0.0) if profile.period_s is not None else 0.0
