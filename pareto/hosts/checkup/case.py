"""A host under examination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pareto.hosts.inventory import Member, Side


@dataclass(frozen=True)
class Case:
    """The host, where its links meet it, what it told, and the file that names it. None: a fact that cannot be had."""

    member: Member
    sides: tuple[Side, ...]
    facts: Mapping[str, Any]
    testbed: str

    def __getitem__(self, fact: str) -> Any:
        return self.facts.get(fact)

    @property
    def set_up(self) -> str:
        """What puts everything there that is missing."""
        return f"./pareto.sh hosts setup --testbed {self.testbed}"

    @property
    def system(self) -> str:
        """The distribution's id, in small letters."""
        return str(self["system"] or "")
