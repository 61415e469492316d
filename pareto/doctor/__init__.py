"""What a sweep on a testbed would miss, with the command that mends it; and what killed runs left there.

Readable at 80 columns and in a log; the commands stay in one piece, to be copied.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from pareto.doctor import hosts, local
from pareto.hosts import inventory
from pareto.hosts.finding import Finding
from pareto.hosts.inventory import THIS_MACHINE

_MARK = 7
"""Columns that `fault  ` takes."""


def examine(out: Console, testbed: str, *, repair: bool) -> bool:
    """Print each finding; whether a sweep on that testbed would run. Raises TestbedError for a file that is none."""
    if testbed == THIS_MACHINE:
        found = local.findings(repair=repair)
        _print(out, found)
        return not _faults(found)
    file = inventory.load(Path(testbed))
    faults, found = 0, list[Finding]()
    for heading, each in hosts.sections(file, repair=repair):
        _line(out, heading)
        found = list(each)
        _print(out, found)
        _line(out, "")
        faults += _faults(found)
    _line(out, "Commands are for the host they stand under, ./pareto.sh is for this machine.")
    if faults:
        which = "sweep of an emulated link" if any(one.what == hosts.AS_IT_IS for one in found) else "sweep"
        _line(out, f"No {which} would run here: {faults} fault{'s' if faults > 1 else ''}.")
    else:
        _line(out, f"A sweep would run: ./pareto.sh --model mobilenetv2 --netem lte --testbed {testbed}")
    return not faults


def _print(out: Console, found: Iterable[Finding]) -> None:
    for one in found:
        mark = "fault" if one.fatal else "mend" if one.mend else "ok"
        lines = textwrap.wrap(
            f"{one.what}: {one.words}",
            max(out.width, 40),
            initial_indent=f"{mark:<{_MARK}}",
            subsequent_indent=" " * (_MARK + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines:
            _line(out, line)
        if one.mend:
            _line(out, " " * _MARK + one.mend)


def _line(out: Console, text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)


def _faults(found: Iterable[Finding]) -> int:
    return sum(one.fatal for one in found)
