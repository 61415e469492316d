"""What a sweep on this machine would miss, with the command that mends it; and what killed runs left here."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from rich.console import Console

from pareto.hosts.session import SessionError, SessionLost
from pareto.hosts.testbed import TestbedError, open_keeper, require_local

REPAIR_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Finding:
    """`mend` is the command or the step that helps; empty where nothing needs mending."""

    what: str
    words: str
    mend: str = ""
    fatal: bool = False


def examine(out: Console, *, repair: bool) -> bool:
    """Print each finding; whether a sweep on the local testbed would run."""
    try:
        found = _examine(repair=repair)
    except (SessionError, SessionLost, TimeoutError) as error:
        found = [Finding("privileged half", str(error), "see the line above", fatal=True)]
    for one in found:
        mark = "fault" if one.fatal else "mend" if one.mend else "ok"
        out.print(f"{mark:<6} {one.what}: {one.words}", markup=False, soft_wrap=True)
        if one.mend:
            out.print(f"       {one.mend}", markup=False, soft_wrap=True)
    return not any(one.fatal for one in found)


def _examine(*, repair: bool) -> list[Finding]:
    try:
        require_local()
    except TestbedError as error:
        return [Finding("needs", str(error), "install or permit what is named", fatal=True)]
    found = [Finding("needs", "an OpenSSH server, and root or sudo")]
    with closing(open_keeper()) as keeper:
        facts = keeper.request("examine", REPAIR_TIMEOUT_S)
        if facts["netem"]:
            found.append(Finding("link", "this kernel has sch_netem"))
        else:
            found.append(
                Finding("link", "this kernel has no sch_netem: a relay process shapes the link instead")
            )
        if repair:
            lines = keeper.request("repair", REPAIR_TIMEOUT_S)
            return [*found, *(Finding("repaired", line) for line in lines or ["nothing was left behind"])]
    left = facts["leftovers"]
    return [
        *found,
        *(Finding("left behind", line, "./pareto.sh doctor --repair") for line in left),
        *([] if left else [Finding("left behind", "nothing")]),
    ]
