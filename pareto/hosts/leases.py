"""Leases of what a driver measures on: hosts, by `pareto.remote.worker.lease` there, or cores of this machine.

They are held meanwhile, so that no other measures there too, unnoticed.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from pareto.basics.escaping import short
from pareto.hosts.connection import ANSWER_S, FAULTS
from pareto.hosts.host import Say, TestbedError
from pareto.hosts.session import Programs, SessionError, SessionLost
from pareto.hosts.testbed import Remote
from pareto.protocol.host_messages import GetCarrierLosses, GetLease, Holder, TakeLease
from pareto.protocol.jsonlines import Refused
from pareto.remote.link.units import minutes
from pareto.remote.worker.lease import HOST, Queue

POLL_S = 1.0
_MOST_WORDS = 80
_WAIT = "--wait 30min"


class HostLeases:
    """The leases of a testbed's hosts. wait_s: how long to wait for others' in all; say: takes on whom it waits."""

    def __init__(self, remotes: Mapping[str, Remote], wait_s: float, say: Say) -> None:
        self._remotes = remotes
        self._wait_s = wait_s
        self._say = say
        self._key = secrets.token_hex(8)
        self._held = Programs()

    def take(self) -> None:
        """Hold every host, those included that were lost. Raises TestbedError where another driver has one, FAULTS."""
        deadline = time.monotonic() + self._wait_s
        hosts = {role: self._host(role) for role in self._remotes}
        # One after the other, and all drivers in the same order: no two wait for each other.
        for role in sorted(hosts, key=lambda role: hosts[role]):
            name = self._remotes[role].host.name
            if words := waited(name, partial(self._ahead, role), self._key, deadline, self._say):
                raise TestbedError(f"{words}; wait {'longer' if self._wait_s else 'for it'} with {_WAIT}")

    def watch_links(self) -> Callable[[], str]:
        """See `Testbed.watch_links`. Whether a host that is slow to answer is lost, its connection says."""
        before = self._carrier_losses()

        def cut_off() -> str:
            for role, count in self._carrier_losses().items():
                if count is None or count != before.get(role, count):
                    host = self._remotes[role].host
                    return f"{host.name}: {host.data_interface} lost its carrier"
            return ""

        return cut_off

    def _carrier_losses(self) -> dict[str, int | None]:
        """By role, of the hosts that answer in time."""
        losses: dict[str, int | None] = {}
        for role, session in self._held.items():
            request = GetCarrierLosses(self._remotes[role].host.data_interface)
            with suppress(TimeoutError):
                losses[role] = session.ask(request, ANSWER_S)
        return losses

    def close(self) -> None:
        """Give all of them back."""
        self._held.close()

    def _host(self, role: str) -> str:
        """The host's own name, from the program there, which is started anew where it has ended."""
        if role in self._held:
            try:
                return self._held[role].ask(GetLease(), ANSWER_S).host
            except FAULTS:
                self._held.pop(role).close()
        self._held[role] = session = self._remotes[role].start("pareto.remote.worker.lease")
        return session.ask(GetLease()).host

    def _ahead(self, role: str, ticket: TakeLease) -> Sequence[Holder]:
        return self._held[role].ask(ticket).ahead


def used(remote: Remote) -> str:
    """Who measures on a host that is set up; empty where nobody does. Raises Unreachable."""
    session = remote.start("pareto.remote.worker.lease")
    try:
        ahead = session.ask(GetLease(), ANSWER_S).ahead
    except (SessionError, SessionLost, TimeoutError):
        return "whether anybody measures there is not known"
    finally:
        session.close()
    return in_words(ahead) if ahead else ""


def hold_cores(cores: Sequence[int], wait_s: float, say: Say) -> Callable[[], None]:
    """Hold cores of this machine; what is returned gives them back. Raises TestbedError.

    Who gives no time to wait for another local testbed measures beside it, and is told so.
    """
    with ExitStack() as undo:
        deadline, key = time.monotonic() + wait_s, secrets.token_hex(8)
        busy: dict[str, list[int]] = {}
        unknown: dict[int, Refused] = {}
        for core in sorted(cores):
            try:
                queue = Queue(f"{HOST}-core-{core}")
                undo.callback(queue.close)
                if words := waited("", queue.ahead, key, deadline, say):
                    busy.setdefault(words, []).append(core)
            except Refused as fault:
                unknown[core] = fault
        if unknown:
            why = next(iter(unknown.values()))
            say(
                f"attention: whether others measure on {_numbered(unknown)} of this machine is not known: {why}"
            )
        for words, numbers in busy.items():
            which = f"{_numbered(numbers)} of this machine: {words}"
            if wait_s:
                raise TestbedError(f"{which}; wait longer with {_WAIT}")
            say(
                f"attention: {which}: each run disturbs the other, so that its trials may not count; "
                f"{_WAIT} waits for it"
            )
        return undo.pop_all().close


def _numbered(cores: Collection[int]) -> str:
    return f"core{'s' if len(cores) > 1 else ''} {', '.join(map(str, cores))}"


def waited(
    what: str, ahead: Callable[[TakeLease], Sequence[Holder]], key: str, deadline: float, say: Say
) -> str:
    """Wait for a thing until its turn, or that time; in words who has it still, empty where it is held. ahead: takes a
    ticket once; who comes before it."""
    said, command = "", " ".join(sys.argv[1:])
    run = command if len(command) <= _MOST_WORDS else f"{command[: _MOST_WORDS - 1]}…"
    while before := ahead(TakeLease(key, f"{_user()}@{socket.gethostname()}", run)):
        words = f"{what}: {in_words(before)}" if what else in_words(before)
        if time.monotonic() >= deadline:
            return words
        if said != (said := "; ".join(each.who + each.run for each in before)):
            say(f"waiting for {words}")
        time.sleep(POLL_S)
    return ""


def in_words(ahead: Sequence[Holder]) -> str:
    """Who measures on a host, and how many wait for it."""
    first, *others = ahead
    waiting = f"; {len(others)} more wait{'s' if len(others) == 1 else ''}" if others else ""
    who, origin, run = short(first.who), short(first.origin), short(first.run)
    return f"{who} measures there, from {origin}, for {minutes(first.since_s)} ({run}){waiting}"


def _user() -> str:
    """Who runs this: by number where it has no account, as containers are often started."""
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return str(os.getuid())
