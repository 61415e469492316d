"""A choice for each host of a chain: one name for all, or one for each, as in `edge=onnx+server=compile`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

JOINS, IS = "+", "="
_ROLE = re.compile(r"edge|server|middle[1-9][0-9]?")
Kind = TypeVar("Kind", bound="ByRole")


@dataclass(frozen=True)
class ByRole:
    """A choice for each host. text: its canonical form, with hosts in their order, without those of the usual."""

    text: str
    what: ClassVar[str] = ""
    usual: ClassVar[str] = ""
    """The choice for a host that is not named."""
    names: ClassVar[Mapping[str, object]] = {}
    """The choices that there are, with what each is; as text, in words."""
    example: ClassVar[str] = ""

    @classmethod
    def parse(cls: type[Kind], text: str) -> Kind:
        """The choices that a text names. Raises ValueError, which says what there is."""
        named: dict[str, str] = {}
        for part in text.split(JOINS) if IS in text else [text]:
            which, _, name = part.rpartition(IS)
            if name not in cls.names or ((which or IS in text) and not _ROLE.fullmatch(which)):
                there_is = ", ".join(f"{each} ({words})" for each, words in cls.names.items())
                raise ValueError(
                    f"{part!r} is no {cls.what}: there are {there_is}; and for each host, as in {cls.example}"
                )
            if which in named:
                raise ValueError(f"{text!r} names the {cls.what} of {which} twice")
            named[which] = name
        if IS not in text:
            return cls(text)
        others = {which: name for which, name in named.items() if name != cls.usual}
        # In the order of the chain.
        roles = sorted(others, key=lambda which: (which != "edge", which == "server", len(which), which))
        return cls(JOINS.join(f"{which}{IS}{others[which]}" for which in roles) or cls.usual)

    @classmethod
    def listed(cls, parts: Sequence[str]) -> tuple[str, ...]:
        """The canonical texts of what was written with commas, each once.

        `edge=onnx,server=compile` is one, of two hosts: parts that name hosts belong together, until one is named
        again. Raises ValueError.
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
        return tuple(dict.fromkeys(cls.parse(text).text for text in texts))

    @property
    def by_role(self) -> dict[str, str]:
        """The choice for each host that is named; empty where all have the same."""
        return dict(part.split(IS) for part in self.text.split(JOINS)) if IS in self.text else {}

    @property
    def of_all(self) -> list[str]:
        """The names of all choices; where hosts are named, of theirs alone."""
        return [part.rpartition(IS)[2] for part in self.text.split(JOINS)]

    def of(self, role: str) -> str:
        """The choice for a host."""
        return self.by_role.get(role, self.usual) if IS in self.text else self.text

    def at(self, position: int, hosts: int) -> str:
        """The choice for the host at a position of a chain; the edge is 0."""
        return self.of(role(position, hosts))


def role(position: int, hosts: int) -> str:
    """`edge`, `middle1`, ..., `server`: the host at a position of a chain."""
    return "edge" if position == 0 else "server" if position == hosts - 1 else f"middle{position}"
