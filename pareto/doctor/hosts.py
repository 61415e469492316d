"""The hosts of a testbed file, and the links between them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import combinations
from typing import Any

from pareto.hosts import checkup, lab, privileged, shipping
from pareto.hosts.finding import Finding
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import Inventory, Member
from pareto.hosts.session import SessionError, SessionLost
from pareto.hosts.testbed import Link, Testbed
from pareto.hosts.way import FAULTS, Unreachable, Way
from pareto.link.profile import Profile
from pareto.probing import Probers, in_words

REPAIR_TIMEOUT_S = 60.0
AS_IT_IS = "the link as it is"


def sections(file: Inventory, *, repair: bool) -> Iterator[tuple[str, list[Finding]]]:
    """A heading and its findings for each host, then for what is between them. Raises TestbedError."""
    members, fine, faults = file.roles, True, 0
    facts: dict[str, Mapping[str, Any]] = {}
    for role, member in members.items():
        found = [*_host(file, role, facts, repair=repair)]
        faults += sum(one.fatal for one in found)
        fine = fine and not any(one.fatal for one in found if one.what not in checkup.SHAPING)
        yield f"{role} {member.name} ({'this machine' if member.is_here else member.ssh})", found
    between = checkup.differences(facts, str(file.path)) if len(facts) == len(members) else []
    if fine:
        between += _links(file)
        if faults:
            between.append(Finding(AS_IT_IS, "a sweep with --netem none would run"))
    elif not any(one.fatal for one in between):
        between.append(Finding("link", "not tried, for a host has a fault"))
    yield "between them", between


def _host(
    file: Inventory, role: str, facts: dict[str, Mapping[str, Any]], *, repair: bool
) -> Iterator[Finding]:
    member, sides = file.roles[role], file.sides[role]
    try:
        with closing(lab.open_way(member)) as way:
            yield Finding("login", "it answers")
            if repair:
                yield from _repair(way, member, checkup.ask(way, member, sides))
            shapes = any(role in roles for roles in lab.shaping(file))
            examined = lab.examine(way, member, sides, file, shaped=shapes)
            facts[member.name] = examined.facts
            if not shapes:
                yield Finding("netem", "not needed here: the host before it shapes the link")
            yield from (one for one in examined.findings if shapes or one.what not in checkup.SHAPING)
    except (Unreachable, TestbedError) as error:
        yield Finding("login", str(error), _login(member), fatal=True)


def _login(member: Member) -> str:
    """The command with which the user sees for himself, and answers what is asked the first time."""
    options = ["-p", str(member.port)] if member.port else []
    options += ["-l", member.user] if member.user else []
    options += ["-i", str(member.key)] if member.key else []
    return shlex.join(["ssh", *options, member.ssh, "true"]) if not member.is_here else ""


def _repair(way: Way, member: Member, told: dict[str, Any]) -> Iterator[Finding]:
    if told.get("uid") == 0:
        code = shipping.ship_code(way, shipping.absolute(way, member.folder))
        program = f"cd {shlex.quote(code)} && {shlex.quote(told['executable'])} -B -m pareto.link"
    else:
        program = privileged.COMMAND
    outcome = way.run(f"{program} --repair", timeout_s=REPAIR_TIMEOUT_S)
    if outcome.status != 0:
        # Why it cannot be started, and what to do about it, is among the findings.
        yield Finding("repair", f"could not be done: {outcome.words}", "see rights, packages below")
    for line in outcome.out.splitlines() if outcome.status == 0 else ():
        yield Finding("repaired", line)


def _links(file: Inventory) -> list[Finding]:
    """The links as they are, by a connection over each; and whether hosts that are no neighbours meet."""
    try:
        with closing(lab.open_lab(file, shaped=False)) as testbed, closing(Probers(testbed)) as probers:
            found = [_link(testbed, link, probers) for link in testbed.links]
            if not any(one.fatal for one in found):
                found += _far_apart(testbed, probers)
            return found
    except (TestbedError, *FAULTS) as error:
        return [Finding("link", str(error), fatal=True)]


def _link(testbed: Testbed, link: Link, probers: Probers) -> Finding:
    what = "link" if len(testbed.links) == 1 else f"link {link.name}"
    near, far = (testbed.remotes[end.role].host.name for end in (link.near, link.far))
    try:
        probers.shape(link, Profile("as it is"))
        return Finding(what, in_words(probers.bare(link)))
    except (SessionError, SessionLost, TimeoutError) as error:
        words = f"no connection from {near} to {link.far.address} ({error}): on {far}, if that has a firewall"
        return Finding(what, words, f"sudo ufw allow from {link.near.address}", fatal=True)


def _far_apart(testbed: Testbed, probers: Probers) -> Iterator[Finding]:
    """RPC's agents all talk to each other when they start, over the hosts in the middle or past them."""
    hosts = [remote.host for remote in testbed.remotes.values()]
    for (first, role), (last, later) in combinations(enumerate(testbed.remotes), 2):
        if last == first + 1:
            continue
        near, far = hosts[first], hosts[last]
        try:
            probers.reach_s(role, later)
        except (SessionError, SessionLost, TimeoutError):
            words = f"no connection from {near.name} to {far.data_address}, {far.name}'s: --backend tcp alone would run"
            steps = [
                f"on {near.name}: sudo ip route add {far.data_address} via {testbed.links[first].far.address}",
                *(
                    f"on {host.name}: sudo sysctl -w net.ipv4.ip_forward=1"
                    for host in hosts[first + 1 : last]
                ),
                f"on {far.name}: sudo ip route add {near.data_address} via {testbed.links[last - 1].near.address}",
            ]
            yield Finding("rpc", words, "; ".join(steps))
