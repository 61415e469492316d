"""A host under examination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pareto.hosts.inventory import Member


@dataclass(frozen=True)
class Case:
    """The host, what it told, and the file that names it. A fact that could not be had is None."""

    member: Member
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
