"""What a sweep on this machine would miss; and what killed runs left here."""

from __future__ import annotations

from contextlib import closing

from pareto.hosts.finding import Finding
from pareto.hosts.host import TestbedError
from pareto.hosts.local import cpu, journal
from pareto.hosts.local.rights import OWN
from pareto.hosts.local_testbed import open_keeper, require_local
from pareto.hosts.session import SessionError, SessionLost
from partitions import scratch

REPAIR_TIMEOUT_S = 60.0


def findings(*, repair: bool) -> list[Finding]:
    try:
        return _findings(repair=repair)
    except (SessionError, SessionLost, TimeoutError) as error:
        return [Finding("privileged half", str(error), "see the line above", fatal=True)]


def _findings(*, repair: bool) -> list[Finding]:
    repaired = [f"{path}: removed" for path in scratch.remove_left()] if repair else []
    left = [str(path) for path in scratch.left()]
    try:
        rights = require_local()
    except TestbedError as error:
        lacking = Finding("needs", str(error), "install or permit what is named", fatal=True)
        return [lacking, *_repaired(repaired), *_left(left)]
    found = [Finding("needs", f"an OpenSSH server is there, and the right to make networks: {rights.kind}")]
    shares = cpu.shares_refused() if rights.kind == OWN else ""
    if shares:
        found.append(Finding("edge-cpu", shares))
    if rights.kind == OWN:  # what root's runs have left is not to be seen from in there
        sudo = "sudo ./pareto.sh doctor --repair"
        found += [
            Finding("left behind", f"testbed {slot}, made by root", sudo) for slot in journal.leftovers()
        ]
    keeper = open_keeper(rights)
    with closing(keeper.session) as session:
        facts = session.request("examine", REPAIR_TIMEOUT_S)
        relay = "a relay process shapes the link instead"
        if rights.kind == OWN:
            relay += ", without real-time scheduling: how late it is stands in each run"
        link = "this kernel has sch_netem" if facts["netem"] else f"this kernel has no sch_netem: {relay}"
        found.append(Finding("link", link))
        if repair:
            repaired += session.request("repair", REPAIR_TIMEOUT_S)
            return [*found, *_repaired(repaired or ["nothing was left behind"])]
    return [*found, *(_left([*left, *facts["leftovers"]]) or [Finding("left behind", "nothing")])]


def _repaired(lines: list[str]) -> list[Finding]:
    return [Finding("repaired", line) for line in lines]


def _left(lines: list[str]) -> list[Finding]:
    return [Finding("left behind", line, "./pareto.sh doctor --repair") for line in lines]
