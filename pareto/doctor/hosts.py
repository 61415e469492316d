"""The hosts of a testbed file, and the link between them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from pareto.hosts import checkup, lab, privileged, shipping
from pareto.hosts.finding import Finding
from pareto.hosts.host import EDGE, SERVER, TestbedError
from pareto.hosts.inventory import Inventory, Member
from pareto.hosts.session import SessionError, SessionLost
from pareto.hosts.way import Unreachable, Way
from pareto.link.profile import Profile
from pareto.probing import Probers, in_words

REPAIR_TIMEOUT_S = 60.0
AS_IT_IS = "the link as it is"


def sections(file: Inventory, *, repair: bool) -> Iterator[tuple[str, list[Finding]]]:
    """A heading and its findings for each host, then for what is between them. Raises TestbedError."""
    members, fine, faults = file.roles, True, 0
    facts: dict[str, Mapping[str, Any]] = {}
    for role, member in members.items():
        peer = members[SERVER if role == EDGE else EDGE]
        found = [*_host(file, member, peer, facts, repair=repair)]
        faults += sum(one.fatal for one in found)
        fine = fine and not any(one.fatal for one in found if one.what not in checkup.SHAPING)
        yield f"{role} {member.name} ({'this machine' if member.is_here else member.ssh})", found
    between = checkup.differences(facts, str(file.path)) if len(facts) == len(members) else []
    if fine:
        between += _link(file)
        if faults:
            between.append(Finding(AS_IT_IS, "a sweep with --netem none would run"))
    elif not any(one.fatal for one in between):
        between.append(Finding("link", "not tried, for a host has a fault"))
    yield "between them", between


def _host(
    file: Inventory, member: Member, peer: Member, facts: dict[str, Mapping[str, Any]], *, repair: bool
) -> Iterator[Finding]:
    try:
        with closing(lab.open_way(member)) as way:
            yield Finding("login", "it answers")
            if repair:
                yield from _repair(way, member, checkup.ask(way, member, peer.data_address))
            examined = lab.examine(way, member, peer, file, shaped=True)
            facts[member.name] = examined.facts
            yield from examined.findings
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


def _link(file: Inventory) -> list[Finding]:
    """The link as it is, by a connection from the edge to the server over it."""
    edge, server = file.of(EDGE), file.of(SERVER)
    try:
        with closing(lab.open_lab(file, shaped=False)) as testbed, closing(Probers(testbed)) as probers:
            probers.link(Profile("as it is"))
            reading = probers.bare()
    except (TestbedError, Unreachable) as error:
        return [Finding("link", str(error), fatal=True)]
    except (SessionError, SessionLost, TimeoutError) as error:
        words = f"no connection from {edge.name} to {server.data_address} ({error}): on {server.name}, if that has a"
        mend = f"sudo ufw allow from {edge.data_address}"
        return [Finding("link", f"{words} firewall", mend, fatal=True)]
    return [Finding("link", in_words(reading))]
