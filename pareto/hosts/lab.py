"""A testbed of real hosts, as a testbed file describes it: reached by SSH, examined before anything is started."""

from __future__ import annotations

import functools
import getpass
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from pareto.hosts import checkup, login, privileged, shipping, ssh
from pareto.hosts.finding import Finding
from pareto.hosts.host import EDGE, End, Host, TestbedError
from pareto.hosts.inventory import Inventory, Member, Side
from pareto.hosts.keys import Keyring
from pareto.hosts.remote import Remote
from pareto.hosts.session import Heartbeat, SessionError, SessionLost
from pareto.hosts.shaping import NetemShaper, NoShaper, Shaper, who_shapes
from pareto.hosts.testbed import Link, Testbed
from pareto.hosts.way import Here, Unreachable, Way


@dataclass(frozen=True)
class Examined:
    """A member that was reached: what it told of itself, and what that means for a sweep."""

    member: Member
    sides: tuple[Side, ...]
    facts: Mapping[str, Any]
    findings: tuple[Finding, ...]


def examine(way: Way, member: Member, sides: tuple[Side, ...], file: Inventory, *, shaped: bool) -> Examined:
    """Look at a host. `shaped`: it will have to shape a link. Raises Unreachable."""
    facts = checkup.ask(way, member, sides)
    now_s = time.time()  # the host told its own a moment ago
    digest = privileged.digest()
    found = checkup.findings(
        member, sides, facts, shaped=shaped, helper_digest=digest, now_s=now_s, testbed=str(file.path)
    )
    return Examined(member, sides, facts, tuple(found))


def shaping(file: Inventory, shape_at: str = "both") -> list[tuple[str, ...]]:
    """Of each link, the roles of those that shape it: in a chain of more than two hosts that on the edge's side.

    So no host shapes two links, which it may have on one interface. Raises TestbedError as `Inventory.roles` does.
    """
    roles = list(file.roles)
    return [who_shapes(*pair, shape_at if len(roles) == 2 else EDGE) for pair in pairwise(roles)]


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
    members, sides = file.roles, file.sides
    shapers = shaping(file, shape_at) if shaped else [()] * (len(members) - 1)
    with ExitStack() as undo:
        heartbeat = Heartbeat()
        undo.callback(heartbeat.stop)
        try:
            ways, remotes, told = {}, {}, {}
            for role, member in members.items():
                ways[role] = open_way(member)
                undo.callback(ways[role].close)
            for role, way in ways.items():
                shapes = any(role in roles for roles in shapers)
                told[role] = _fit(examine(way, members[role], sides[role], file, shaped=shapes), file)
                remotes[role] = Remote(_host(way, told[role]), way)
            links = _links(remotes, told, shapers, heartbeat, undo)
        except Unreachable as error:
            raise TestbedError(str(error)) from error
        except (SessionError, SessionLost, TimeoutError) as error:
            raise TestbedError(f"the link cannot be shaped: {error}") from error
        return Testbed(
            remotes,
            links,
            heartbeat,
            _label(remotes),
            _facts(remotes, told, links, shaped=shaped),
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
        checkup.interface_of(examined.facts, examined.sides[0]),
        folder,
        str(examined.facts["executable"]),
        member.device,
        member.threads,
    )


def _links(
    remotes: Mapping[str, Remote],
    told: Mapping[str, Examined],
    shapers: Sequence[tuple[str, ...]],
    heartbeat: Heartbeat,
    undo: ExitStack,
) -> tuple[Link, ...]:
    starts = {
        role: partial(remote.start_privileged, as_root=told[role].facts["uid"] == 0)
        for role, remote in remotes.items()
    }
    links = []
    for (near_role, far_role), roles in zip(pairwise(remotes), shapers, strict=True):
        near, far = _end(near_role, told[near_role], -1), _end(far_role, told[far_role], 0)
        shaper: Shaper = NoShaper()
        if roles:
            by_role = {role: starts[role] for role in roles}
            # The interface is not ours alone; and the driver may reach one host through the other, or be one of them.
            shaper = NetemShaper(near, far, by_role, heartbeat, filtered=True)
            undo.callback(shaper.close)
        links.append(Link(near, far, shaper))
    return tuple(links)


def _end(role: str, examined: Examined, side: int) -> End:
    own = examined.sides[side]
    return End(role, own.address, checkup.interface_of(examined.facts, own))


def _facts(
    remotes: Mapping[str, Remote],
    told: Mapping[str, Examined],
    links: Sequence[Link],
    *,
    shaped: bool,
) -> dict[str, Any]:
    return {
        "kind": "hosts",
        "shaper": "netem" if shaped else "none",
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
        "links": [{"near": asdict(link.near), "far": asdict(link.far)} for link in links],
    }


def _label(remotes: Mapping[str, Remote]) -> str:
    return ", ".join(f"{role} {remote.host.name} ({remote.host.device})" for role, remote in remotes.items())
