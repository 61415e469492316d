"""Probes a link of a testbed through the program on its near host that has the probe, and judges the reading."""

from __future__ import annotations

import math
import secrets
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from pareto.hosts.session import Programs, Session
from pareto.hosts.shapers import Shaper
from pareto.hosts.testbed import Link, Testbed
from pareto.remote.link import probe, units
from pareto.remote.link.probe import ConnectProbe, OpenProbe, Question, Reach
from pareto.remote.link.profile import Direction, Profile
from pareto.remote.link.trace import MAX_DELAY_S, MAX_RATE_BPS, MIN_RATE_BPS

TIMEOUT_S = 120.0
BARE_S = 0.5
BARE_PINGS = 20
FIRST_BULK_BYTES, MOST_BULK_BYTES = 1 << 18, 32 << 20
MOST_SETTLING = 5
CROSSINGS, CROSSINGS_S = 8, 15.0
"""How often the same bytes cross the idle link, of which the first half opens the congestion windows; fewer times where
that takes longer."""


def probed(
    shaper: Shaper,
    near: Session,
    profile: Profile,
    tolerance: probe.Tolerance,
    question: Question | None = None,
    *,
    is_local: bool,
) -> tuple[probe.Probed, probe.Span]:
    """A reading of the link now with its verdict, and the part of its traces that passed meanwhile. A profile that asks
    for nothing promises nothing of a real link, and cannot be off there."""
    begun = _position_s(shaper, profile)
    reading = near.ask(question or probe.question(profile), TIMEOUT_S)
    span = begun, _position_s(shaper, profile)
    judged = is_local or profile.shaped
    return probe.Probed(reading, probe.judge(profile, reading, tolerance, span) if judged else ""), span


def settle(
    shaper: Shaper, near: Session, profile: Profile, question: Question | None = None, *, is_local: bool
) -> None:
    """Open the congestion windows of the probe's connection by readings that are not used."""
    for _ in range(MOST_SETTLING):
        if not probed(shaper, near, profile, probe.Tolerance(), question, is_local=is_local)[0].fault:
            return


def bare(near: Session) -> probe.Reading:
    """The link as it is: round trip, and TCP's payload rate each way, by bulk that takes about `BARE_S`."""
    first = near.ask(Question(FIRST_BULK_BYTES, FIRST_BULK_BYTES), TIMEOUT_S)
    bulks = [BARE_S * (rate or 0.0) / 8 for rate in (first.rate_bps, first.rate_back_bps)]
    out, back = (int(min(max(each, FIRST_BULK_BYTES), MOST_BULK_BYTES)) for each in bulks)
    return near.ask(Question(out, back, pings=BARE_PINGS), TIMEOUT_S)


def crossing_s(near: Session, sent: int, back: int) -> float:
    """Seconds in which so many bytes and their answer cross the link now by TCP, while nothing else does."""
    ask = Question(pings=0, message=max(1, sent), answer=max(1, back))
    took_s: list[float] = []
    while len(took_s) < CROSSINGS and (len(took_s) < 2 or sum(took_s) < CROSSINGS_S):
        took_s.append(near.ask(ask, TIMEOUT_S).message_s or 0.0)
    return statistics.median(took_s[len(took_s) // 2 :])


def own_profile(name: str, link: probe.Reading) -> Profile:
    """The profile of a real link as it was measured: where nothing is emulated, trials are judged by it."""
    delay_s = min((link.rtt_s or 0.0) / 2, MAX_DELAY_S)
    out, back = (
        Direction(delay_s, min(max(rate / probe.GOODPUT, MIN_RATE_BPS), MAX_RATE_BPS) if rate else None)
        for rate in (link.rate_bps, link.rate_back_bps)
    )
    return Profile(name, out, back)


def promised(profile: Profile, beneath: probe.Reading | None) -> Profile:
    """The profile that a link is held to: its own, or where nothing is emulated, that measured beneath."""
    return own_profile(profile.name, beneath) if beneath is not None and not profile.shaped else profile


def carries(profile: Profile, beneath: probe.Reading | None) -> tuple[float, float]:
    """The payload rate away from the edge in bit/s and the round trip, of a profile on the link beneath it."""
    asked_bps = profile.typical.edge_to_server.rate_bps
    rate_bps = asked_bps * probe.GOODPUT if asked_bps else math.inf
    if beneath is None:
        return rate_bps, profile.rtt_s
    return min(rate_bps, beneath.rate_bps or math.inf), profile.rtt_s + (beneath.rtt_s or 0.0)


def in_words(link: probe.Reading) -> str:
    """The figures measured of a link that nobody shapes, in words."""
    figures = [
        f"round trip {units.duration(link.rtt_s)}" if link.rtt_s is not None else "",
        f"{units.rate(link.rate_bps, 3)} out" if link.rate_bps else "",
        f"{units.rate(link.rate_back_bps, 3)} back" if link.rate_back_bps else "",
    ]
    return ", ".join(filter(None, figures))


def prospects(profile: Profile, link: probe.Reading, tolerance: probe.Tolerance) -> Iterator[str]:
    """A line on each thing that a profile asks and the link beneath cannot do: its trials would be invalid."""
    if not profile.shaped:
        return
    allowed_s = tolerance.rtt_s(profile.rtt_s)
    if link.rtt_s is not None and link.rtt_s > allowed_s:
        yield (
            f"{profile.name}: the link's own round trip of {units.duration(link.rtt_s)} comes on top of the "
            f"{units.duration(profile.rtt_s)} asked, of which only {units.duration(allowed_s)} are tolerated: "
            "take it off the profile's delay, or give a larger --rtt-floor"
        )
    ways = zip(profile.directions, ("out", "back"), (link.rate_bps, link.rate_back_bps), strict=True)
    for direction, name, rate in ways:
        payload_bps = (direction.typical.rate_bps or 0.0) * probe.GOODPUT
        if rate and rate < payload_bps * (1 - tolerance.rate_fraction):
            carries = f"the link itself carries only {units.rate(rate, 3)} {name}"
            yield f"{profile.name}: {carries}, {units.rate(payload_bps, 3)} of payload are asked"


class Probers:
    """On each host of a testbed a program that has only the probe. Raises SessionError, SessionLost, TimeoutError."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._token = secrets.token_hex(16)
        self._sessions = Programs()
        with ExitStack() as undo:
            undo.callback(self.close)
            for role, remote in testbed.remotes.items():
                self._sessions[role] = remote.start("pareto.remote.worker.probe")
            self._ports = {
                role: self._sessions[role].ask(OpenProbe(remote.host.data_address, self._token))
                for role, remote in list(testbed.remotes.items())[1:]
            }
            undo.pop_all()

    def shape(self, link: Link, profile: Profile) -> dict[str, Any]:
        in_force = link.shaper.apply(profile)
        near, far = link.near.role, link.far.role
        self._sessions[near].ask(ConnectProbe(*self._place(far), self._token), TIMEOUT_S)
        settle(link.shaper, self._near(link), profile, is_local=self._testbed.is_local)
        return in_force

    def reach_s(self, role: str, later: str) -> float:
        """Seconds that a host takes to connect to one after it in the chain, neighbour or not."""
        return self._sessions[role].ask(Reach(*self._place(later)), TIMEOUT_S)

    def probed(
        self, link: Link, profile: Profile, tolerance: probe.Tolerance, question: Question
    ) -> tuple[probe.Probed, probe.Span]:
        is_local = self._testbed.is_local
        return probed(link.shaper, self._near(link), profile, tolerance, question, is_local=is_local)

    def bare(self, link: Link) -> probe.Reading:
        return bare(self._near(link))

    def close(self) -> None:
        self._sessions.close()

    def _place(self, role: str) -> tuple[str, int]:
        return self._testbed.remotes[role].host.data_address, self._ports[role]

    def _near(self, link: Link) -> Session:
        return self._sessions[link.near.role]


def _position_s(shaper: Shaper, profile: Profile) -> float:
    """The position of the link's traces; 0 if it has none."""
    return (shaper.state().position_s or 0.0) if profile.period_s is not None else 0.0
