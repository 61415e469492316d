"""What each host of a chain has of something: one name for all, as in `onnx`, or a name for each, as in
`edge=onnx+server=compile`, where hosts that are not named have the usual one."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

JOINS, IS = "+", "="
_ROLE = re.compile(r"edge|server|middle[1-9][0-9]?")


@dataclass(frozen=True)
class ByRole:
    """What each host has. text: its canonical form."""

    text: str
    usual: ClassVar[str] = ""
    """What a host has that is not named."""

    @property
    def by_role(self) -> dict[str, str]:
        """What the hosts have that are named; empty where all have the same."""
        if IS not in self.text:
            return {}
        parted = (part.partition(IS) for part in self.text.split(JOINS))
        return {which: name for which, _, name in parted}

    def of(self, role: str) -> str:
        """What a host has."""
        return self.by_role.get(role, self.usual) if IS in self.text else self.text

    def at(self, position: int, hosts: int) -> str:
        """What the host at a position of a chain has; the edge is 0."""
        return self.of(role(position, hosts))


def role(position: int, hosts: int) -> str:
    """`edge`, `middle1`, ..., `server`: the host at a position of a chain."""
    if position == 0:
        return "edge"
    return "server" if position == hosts - 1 else f"middle{position}"


def canonical(text: str, names: Collection[str], usual: str, what: str) -> str:
    """The text in which hosts come in their order, and none is named that has the usual one.

    what: such a thing is called so. Raises KeyError for a part that has none of the names, ValueError for a host that
    is named twice.
    """
    if IS not in text:
        if text not in names:
            raise KeyError(text)
        return text
    named: dict[str, str] = {}
    for part in text.split(JOINS):
        which, _, name = part.partition(IS)
        if not _ROLE.fullmatch(which) or name not in names:
            raise KeyError(part)
        if which in named:
            raise ValueError(f"{text!r} names the {what} of {which} twice")
        named[which] = name
    others = {which: name for which, name in named.items() if name != usual}
    return JOINS.join(f"{which}{IS}{others[which]}" for which in sorted(others, key=_place)) or usual


def together(parts: Sequence[str]) -> list[str]:
    """The texts that were written with commas.

    `edge=onnx,server=compile` is one, of two hosts: parts that name hosts belong together, until one is named again.
    """
    texts: list[str] = []
    named: set[str] = set()
    for part in parts:
        roles = {each.partition(IS)[0] for each in part.split(JOINS)} if IS in part else set()
        if roles and named and not named & roles:
            texts[-1] += JOINS + part
            named |= roles
        else:
            texts.append(part)
            named = roles
    return texts


def _place(which: str) -> tuple[int, int]:
    number = which.removeprefix("middle")
    return (0, 0) if which == "edge" else (1, int(number)) if number.isdecimal() else (2, 0)
