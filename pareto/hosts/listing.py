"""`hosts list`: the hosts of a testbed file, and whether they can be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pareto.hosts import setup
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import Member
from pareto.hosts.packages import REQUIREMENTS
from pareto.hosts.way import Unreachable, Way

ANSWER_S = 10.0
"""How long is waited for all of them together."""
_HEADINGS = ("name", "role", "ssh", "data address", "device", "state")


def show(
    members: Sequence[Member],
    open_way: Callable[[Member], Way],
    *,
    say: Callable[[str], None],
    requirements: Path = REQUIREMENTS,
    within_s: float = ANSWER_S,
) -> bool:
    """Say a table with a line for each host; whether all are reachable."""
    states = setup.side_by_side(
        [partial(_state, member, open_way, requirements) for member in members], within_s
    )
    rows = [_HEADINGS]
    for member, state in zip(members, states, strict=True):
        address = _address(member.data_address, member.data_interface)
        if member.next_address:
            address += f", {_address(member.next_address, member.next_interface)}"
        words = state[1] if state is not None else f"no answer in {within_s:g} s"
        rows.append((member.name, member.role, member.ssh, address, member.device, words))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    return all(state is not None and state[0] for state in states)


def _address(address: str, interface: str) -> str:
    return f"{address} ({interface})" if interface else address


def _state(member: Member, open_way: Callable[[Member], Way], requirements: Path) -> tuple[bool, str]:
    """Whether the host is reachable, and what to say of it."""
    try:
        way = open_way(member)
        try:
            ready = setup.is_set_up(setup.look(member, way, lambda words: None), requirements)
        finally:
            way.close()
    except (Unreachable, TestbedError) as error:
        return False, str(error)
    return True, "reachable, set up" if ready else "reachable, not set up"
