"""A testbed of real hosts, as a testbed file describes it: reached by SSH, examined before anything is started."""

from __future__ import annotations

import functools
import getpass
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from pareto.hosts import checkup, login, privileged, shipping, ssh
from pareto.hosts.finding import Finding
from pareto.hosts.host import EDGE, ROLES, SERVER, Host, TestbedError
from pareto.hosts.inventory import Inventory, Member
from pareto.hosts.keys import Keyring
from pareto.hosts.remote import Remote
from pareto.hosts.session import Heartbeat, SessionError, SessionLost
from pareto.hosts.shaping import NetemShaper, NoShaper, Shaper
from pareto.hosts.testbed import Testbed
from pareto.hosts.way import Here, Unreachable, Way


@dataclass(frozen=True)
class Examined:
    """A member that was reached: what it told of itself, and what that means for a sweep."""

    member: Member
    facts: Mapping[str, Any]
    findings: tuple[Finding, ...]


def examine(way: Way, member: Member, peer: Member, file: Inventory, *, shaped: bool) -> Examined:
    """Look at a host. `shaped`: it will have to shape the link. Raises Unreachable."""
    facts = checkup.ask(way, member, peer.data_address)
    now_s = time.time()  # the host told its own a moment ago
    digest = privileged.digest()
    found = checkup.findings(
        member, facts, shaped=shaped, helper_digest=digest, now_s=now_s, testbed=str(file.path)
    )
    return Examined(member, facts, tuple(found))


@functools.cache
def keyring() -> Keyring:
    """The user's own keys; a passphrase is asked for once."""
    return Keyring.own(getpass.getpass if sys.stdin.isatty() else None)


def open_way(member: Member) -> Way:
    """Log in to a host of a testbed file. Raises Unreachable, TestbedError."""
    if member.is_here:
        return Here()
    who = login.resolve(member.name, member.ssh, port=member.port, user=member.user, key=member.key)
    way = ssh.Ssh(who, keyring())
    if said := way.run("true").out.strip():
        way.close()
        raise Unreachable(
            f"{who}: its login shell says {said.splitlines()[0][:40]!r} by itself: have its start-up file say nothing "
            "where there is no terminal"
        )
    return way


def open_lab(file: Inventory, *, shaped: bool, shape_at: str = "both") -> Testbed:
    """The testbed of a file. Raises TestbedError, with what the doctor would say, where no sweep would run.

    `shaped`: whether any profile asks for more than the link as it is. `shape_at`: see `open_local`.
    """
    members = file.roles
    shapers = (ROLES if shape_at == "both" else (shape_at,)) if shaped else ()
    with ExitStack() as undo:
        heartbeat = Heartbeat()
        undo.callback(heartbeat.stop)
        try:
            ways, remotes, told = {}, {}, {}
            for role, member in members.items():
                ways[role] = open_way(member)
                undo.callback(ways[role].close)
            for role, way in ways.items():
                peer = members[SERVER if role == EDGE else EDGE]
                told[role] = _fit(examine(way, members[role], peer, file, shaped=role in shapers), file)
                remotes[role] = Remote(_host(way, told[role]), way)
            shaper = _shaper(remotes, told, shapers, heartbeat)
        except Unreachable as error:
            raise TestbedError(str(error)) from error
        except (SessionError, SessionLost, TimeoutError) as error:
            raise TestbedError(f"the link cannot be shaped: {error}") from error
        undo.callback(shaper.close)
        return Testbed(
            remotes,
            shaper,
            heartbeat,
            _label(remotes),
            _facts(remotes, told, shapers, shape_at),
            is_local=False,
            undo=undo.pop_all(),
        )


def _fit(examined: Examined, file: Inventory) -> Examined:
    """Raises TestbedError where no sweep would run on it."""
    fatal = next((finding for finding in examined.findings if finding.fatal), None)
    if fatal is not None:
        mend = f"; mend it with: {fatal.mend}" if fatal.mend else ""
        raise TestbedError(
            f"{examined.member.name}: {fatal.what}: {fatal.words}{mend} "
            f"(more: ./pareto.sh doctor --testbed {file.path})"
        )
    return examined


def _host(way: Way, examined: Examined) -> Host:
    member = examined.member
    folder = shipping.absolute(way, member.folder)
    return Host(
        member.name,
        member.data_address,
        checkup.interface_of(examined.facts, member),
        folder,
        str(examined.facts["executable"]),
        member.device,
        member.threads,
    )


def _shaper(
    remotes: Mapping[str, Remote],
    told: Mapping[str, Examined],
    shapers: tuple[str, ...],
    heartbeat: Heartbeat,
) -> Shaper:
    if not shapers:
        return NoShaper()
    starts = {
        role: partial(remotes[role].start_privileged, as_root=told[role].facts["uid"] == 0)
        for role in shapers
    }
    hosts = {role: remote.host for role, remote in remotes.items()}
    # The interface is not ours alone; and the driver may reach one host through the other, or be one of them.
    return NetemShaper(hosts, starts, heartbeat, filtered=True)


def _facts(
    remotes: Mapping[str, Remote], told: Mapping[str, Examined], shapers: tuple[str, ...], shape_at: str
) -> dict[str, Any]:
    return {
        "kind": "hosts",
        "shaper": "netem" if shapers else "none",
        "shape_at": shape_at,
        "hosts": {
            role: {
                "name": remote.host.name,
                "ssh": told[role].member.ssh,
                "data_address": remote.host.data_address,
                "data_interface": remote.host.data_interface,
                "device": remote.host.device,
                "findings": [f"{f.what}: {f.words}" for f in told[role].findings if f.mend],
            }
            for role, remote in remotes.items()
        },
    }


def _label(remotes: Mapping[str, Remote]) -> str:
    return ", ".join(f"{role} {remote.host.name} ({remote.host.device})" for role, remote in remotes.items())
