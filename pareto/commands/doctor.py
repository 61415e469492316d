"""Findings on a testbed: what a sweep would miss, with the command that fixes it; and what killed runs left there.

Readable at 80 columns and in a log; the commands stay in one piece, to be copied.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any

from rich.console import Console

from pareto import COMMAND
from pareto.hosts import inventory, parcels
from pareto.hosts.connection import FAULTS, Connection, Unreachable
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import THIS_MACHINE, HostEntry, Inventory
from pareto.hosts.local import cpu, journal
from pareto.hosts.local.rights import OWN
from pareto.hosts.local.testbed import require_local, start_builder
from pareto.hosts.session import SessionError, SessionLost
from pareto.hosts.setup import checkup, finding, privileged
from pareto.hosts.setup.finding import Finding
from pareto.hosts.ssh import testbed as ssh_testbed
from pareto.hosts.testbed import Link, Testbed
from pareto.partitions import scratch
from pareto.remote.link.profile import Profile
from pareto.trial.probes import Probers, in_words

REPAIR_TIMEOUT_S = 60.0
AS_IT_IS = "the link as it is"


def examine(out: Console, testbed: str, *, repair: bool) -> bool:
    """Print each finding; returns whether a sweep on that testbed would run. Raises TestbedError for a bad file."""
    if testbed == THIS_MACHINE:
        return not _print(out, of_this_machine(repair=repair))
    file = inventory.load(Path(testbed))
    faults, findings = 0, list[Finding]()
    for heading, findings in sections(file, repair=repair):
        _say(out, heading)
        faults += _print(out, findings)
        _say(out, "")
    _say(out, f"Commands are for the host they stand under, {COMMAND} is for this machine.")
    if faults:
        which = "sweep of an emulated link" if any(one.what == AS_IT_IS for one in findings) else "sweep"
        _say(out, f"No {which} would run here: {faults} fault{'s' if faults > 1 else ''}.")
    else:
        _say(out, f"A sweep would run: {COMMAND} --model mobilenetv2 --netem lte --testbed {testbed}")
    return not faults


def _print(out: Console, findings: Sequence[Finding]) -> int:
    """The number of faults among the findings, each of which is printed."""
    wrap = textwrap.TextWrapper(
        max(out.width, 40), subsequent_indent=" " * 9, break_long_words=False, break_on_hyphens=False
    )
    for one in findings:
        mark = "fault" if one.fatal else "fix" if one.fix else "ok"
        wrap.initial_indent = f"{mark:<7}"
        _say(out, wrap.fill(f"{one.what}: {one.words}"))
        if one.fix:
            _say(out, f"{'':<7}{one.fix}")
    return sum(one.fatal for one in findings)


def _say(out: Console, text: str) -> None:
    out.print(text, soft_wrap=True)


# This machine


def of_this_machine(*, repair: bool) -> list[Finding]:
    """Findings on this machine: what a sweep would miss; and what killed runs left here."""
    repaired = [f"{path}: removed" for path in scratch.left(remove=True)] if repair else []
    left = [str(path) for path in scratch.left()]
    findings = []
    try:
        rights = require_local()
        has = f"an OpenSSH server is there, and the right to make networks: {rights.kind}"
        findings.append(Finding("needs", has))
        relay = "a relay process shapes the link instead"
        if rights.kind == OWN:
            relay += ", without real-time scheduling: how late it is stands in each run"
            if shares := cpu.refused():
                findings.append(Finding("edge-cpu", shares))
            # From inside the user namespace nobody sees what root's runs have left.
            sudo = f"sudo {COMMAND} doctor --repair"
            slots = journal.leftovers()
            findings += [Finding("left behind", f"testbed {slot}, made by root", sudo) for slot in slots]
        with closing(start_builder(rights)[0]) as session:
            facts = session.request("examine", REPAIR_TIMEOUT_S)
            if repair:
                repaired += session.request("repair", REPAIR_TIMEOUT_S)
                repaired = repaired or ["nothing was left behind"]
            else:
                left += facts["leftovers"]
        link = "this kernel has sch_netem" if facts["netem"] else f"this kernel has no sch_netem: {relay}"
        findings.append(Finding("link", link))
        findings += [] if left or repair else [Finding("left behind", "nothing")]
    except TestbedError as error:
        findings.append(Finding("needs", str(error), "install or permit what is named", fatal=True))
    except (SessionError, SessionLost, TimeoutError) as error:
        findings.append(Finding("privileged half", str(error), "see the line above", fatal=True))
    findings += [Finding("repaired", line) for line in repaired]
    return findings + [Finding("left behind", line, f"{COMMAND} doctor --repair") for line in left]


# The hosts of a testbed file, and the links between them


def sections(file: Inventory, *, repair: bool) -> Iterator[tuple[str, list[Finding]]]:
    """A heading and its findings for each host, then for what is between them. Raises TestbedError."""
    facts: dict[str, Mapping[str, Any]] = {}
    fatal: set[str] = set()
    for role, entry in file.roles.items():
        findings = [*_of_host(file, role, facts, repair=repair)]
        fatal |= {one.what for one in findings if one.fatal}
        yield f"{role} {entry.name} ({'this machine' if entry.is_this_machine else entry.ssh})", findings
    between = [*finding.differences(facts, str(file.path))] if len(facts) == len(file.roles) else []
    if not fatal <= {*checkup.SHAPING}:
        between.append(Finding("link", "not tried, for a host has a fault"))
    else:
        between += _of_links(file)
        between += [Finding(AS_IT_IS, "a sweep with --netem none would run")] if fatal else []
    yield "between them", between


def _of_host(
    file: Inventory, role: str, facts: dict[str, Mapping[str, Any]], *, repair: bool
) -> Iterator[Finding]:
    """The findings of one host, whose facts are added to `facts`."""
    entry = file.roles[role]
    try:
        with closing(ssh_testbed.connect(entry)) as connection:
            yield Finding("login", "it answers")
            if repair:
                yield from _repair(connection, entry, checkup.ask(connection, entry, file.sides[role]))
            shapes = any(role in roles for roles in ssh_testbed.shaping(file))
            case, findings = checkup.examine(connection, file, role, shaped=shapes)
            facts[entry.name] = case.facts
            if not shapes:
                yield Finding("netem", "not needed here: the host before it shapes the link")
            yield from findings
    except (Unreachable, TestbedError) as error:
        # The command shows the user what happens, and answers what is asked the first time.
        given = {"-p": entry.port, "-l": entry.user, "-i": entry.key}
        options = [word for flag, value in given.items() if value for word in (flag, str(value))]
        login = shlex.join(["ssh", *options, entry.ssh, "true"]) if not entry.is_this_machine else ""
        yield Finding("login", str(error), login, fatal=True)


def _repair(connection: Connection, entry: HostEntry, facts: dict[str, Any]) -> Iterator[Finding]:
    program = privileged.COMMAND
    if facts.get("uid") == 0:
        code = parcels.ship_code(connection, parcels.absolute(connection, entry.folder))
        program = f"cd {shlex.quote(code)} && {shlex.quote(facts['executable'])} -B -m pareto.remote.link"
    outcome = connection.run(f"{program} --repair", timeout_s=REPAIR_TIMEOUT_S)
    if outcome.status != 0:
        # Why it cannot be started, and what to do about it, is among the findings.
        yield Finding("repair", f"could not be done: {outcome.words}", "see rights, packages below")
        return
    for line in outcome.out.splitlines():
        yield Finding("repaired", line)


def _of_links(file: Inventory) -> list[Finding]:
    """The links as they are, by a connection over each; and whether hosts that are no neighbours meet."""
    try:
        with (
            closing(ssh_testbed.open_ssh_testbed(file, shaped=False)) as bed,
            closing(Probers(bed)) as probers,
        ):
            findings = [_of_link(bed, link, probers) for link in bed.links]
            far = () if any(one.fatal for one in findings) else _of_distant_hosts(bed, probers)
            return [*findings, *far]
    except (TestbedError, *FAULTS) as error:
        return [Finding("link", str(error), fatal=True)]


def _of_link(testbed: Testbed, link: Link, probers: Probers) -> Finding:
    what = "link" if len(testbed.links) == 1 else f"link {link.name}"
    near, far = (testbed.remotes[end.role].host.name for end in (link.near, link.far))
    try:
        probers.shape(link, Profile("as it is"))
        return Finding(what, in_words(probers.bare(link)))
    except (SessionError, SessionLost, TimeoutError) as error:
        words = f"no connection from {near} to {link.far.address} ({error}): on {far}, if that has a firewall"
        return Finding(what, words, f"sudo ufw allow from {link.near.address}", fatal=True)


def _of_distant_hosts(testbed: Testbed, probers: Probers) -> Iterator[Finding]:
    """RPC's agents all talk to each other when they start, over the hosts in the middle or past them."""
    hosts = [remote.host for remote in testbed.remotes.values()]
    for (first, role), (last, later) in combinations(enumerate(testbed.remotes), 2):
        near, *between, far = hosts[first : last + 1]
        try:
            if between:
                probers.reach_s(role, later)
        except (SessionError, SessionLost, TimeoutError):
            words = f"no connection from {near.name} to {far.data_address}, {far.name}'s: --backend tcp alone would run"
            there, back = testbed.links[first].far.address, testbed.links[last - 1].near.address
            steps = (
                f"on {near.name}: sudo ip route add {far.data_address} via {there}",
                *(f"on {one.name}: sudo sysctl -w net.ipv4.ip_forward=1" for one in between),
                f"on {far.name}: sudo ip route add {near.data_address} via {back}",
            )
            yield Finding("rpc", words, "; ".join(steps))
