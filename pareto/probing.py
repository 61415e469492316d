"""Probing a testbed's link through the program on the edge that has the probe, with the verdict."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from typing import Any

from pareto.hosts.host import EDGE, SERVER
from pareto.hosts.session import Session
from pareto.hosts.shaping import Shaper
from pareto.hosts.testbed import Testbed
from pareto.link import probe
from pareto.link.profile import Profile
from pareto.link.units import show_delay, show_rate

TIMEOUT_S = 120.0
BARE_S = 0.5
BARE_PINGS = 20
FIRST_BULK_BYTES, MOST_BULK_BYTES = 1 << 18, 32 << 20
MOST_SETTLING = 5


def probed(
    shaper: Shaper,
    edge: Session,
    profile: Profile,
    tolerance: probe.Tolerance,
    question: dict[str, Any] | None = None,
    *,
    is_local: bool,
) -> tuple[probe.Probed, probe.Span]:
    """Measure the link now: reading and verdict, and the part of its traces that passed meanwhile.

    A profile that asks for nothing promises nothing of a real link, and cannot be off there.
    """
    begun = _position_s(shaper, profile)
    reply = edge.request("probe", TIMEOUT_S, **(question or probe.question(profile)))
    reading = probe.Reading.of(reply)
    span = begun, _position_s(shaper, profile)
    judged = is_local or profile.shaped
    return probe.Probed(reading, probe.judge(profile, reading, tolerance, span) if judged else ""), span


def settle(shaper: Shaper, edge: Session, profile: Profile, *, is_local: bool) -> None:
    """Open the congestion windows of the probe's own connection by readings that are not used."""
    for _ in range(MOST_SETTLING):
        if not probed(shaper, edge, profile, probe.Tolerance(), is_local=is_local)[0].fault:
            return


def bare(edge: Session) -> probe.Reading:
    """The link as it is: round trip, and TCP's payload rate each way, by bulk that takes about `BARE_S`."""
    nbytes = dict.fromkeys(("bulk_out", "bulk_back"), FIRST_BULK_BYTES)
    first = probe.Reading.of(edge.request("probe", TIMEOUT_S, **nbytes))
    for bulk, rate in zip(nbytes, (first.rate_bps, first.rate_back_bps), strict=True):
        enough = BARE_S * rate / 8 if rate else FIRST_BULK_BYTES
        nbytes[bulk] = int(min(max(enough, FIRST_BULK_BYTES), MOST_BULK_BYTES))
    return probe.Reading.of(edge.request("probe", TIMEOUT_S, pings=BARE_PINGS, **nbytes))


def in_words(link: probe.Reading) -> str:
    """A bare link in words."""
    figures = [
        f"round trip {show_delay(link.rtt_s)}" if link.rtt_s is not None else "",
        f"{show_rate(link.rate_bps)} out" if link.rate_bps else "",
        f"{show_rate(link.rate_back_bps)} back" if link.rate_back_bps else "",
    ]
    return ", ".join(filter(None, figures))


def prospects(profile: Profile, link: probe.Reading, tolerance: probe.Tolerance) -> list[str]:
    """What of a profile the link beneath cannot be made to do; its trials would be invalid."""
    if not profile.shaped:
        return []
    found = []
    allowed_s = max(tolerance.rtt_fraction * profile.rtt_s, tolerance.rtt_floor_s)
    if link.rtt_s is not None and link.rtt_s > allowed_s:
        found.append(
            f"{profile.name}: the link's own round trip of {show_delay(link.rtt_s)} comes on top of the "
            f"{show_delay(profile.rtt_s)} asked, of which only {show_delay(allowed_s)} are tolerated"
        )
    ways = zip(profile.directions, ("out", "back"), (link.rate_bps, link.rate_back_bps), strict=True)
    for way, name, rate in ways:
        asked = way.typical.rate_bps
        if asked and rate and rate < asked * probe.GOODPUT * (1 - tolerance.rate_fraction):
            found.append(
                f"{profile.name}: the link itself carries only {show_rate(rate)} {name}, "
                f"{show_rate(asked * probe.GOODPUT)} of payload are asked"
            )
    return found


class Probers:
    """A probe on both hosts of a testbed, and nothing else. Raises SessionError, SessionLost, TimeoutError."""

    def __init__(self, testbed: Testbed) -> None:
        self._shaper = testbed.shaper
        self._is_local = testbed.is_local
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
        settle(self._shaper, edge, profile, is_local=self._is_local)
        return in_force

    def probed(
        self, profile: Profile, tolerance: probe.Tolerance, question: dict[str, Any]
    ) -> tuple[probe.Probed, probe.Span]:
        edge = self._sessions[EDGE]
        return probed(self._shaper, edge, profile, tolerance, question, is_local=self._is_local)

    def bare(self) -> probe.Reading:
        """The link as it is now."""
        return bare(self._sessions[EDGE])

    def close(self) -> None:
        self._undo.close()


def _position_s(shaper: Shaper, profile: Profile) -> float:
    """Where the link's traces are; 0 if it has none."""
    return (shaper.state().position_s or 0.0) if profile.period_s is not None else 0.0
