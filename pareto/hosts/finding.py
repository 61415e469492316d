"""What an examination of a host finds, and what it is judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pareto import COMMAND
from pareto.hosts.inventory import HostEntry, Side


@dataclass(frozen=True)
class Finding:
    """`fix` is the command or the step that helps; empty where nothing is wrong.

    fatal: no sweep runs until it is fixed.
    """

    what: str
    words: str
    fix: str = ""
    fatal: bool = False


@dataclass(frozen=True)
class Case:
    """A host under examination: its entry in the file `testbed`, its side of each link, and the facts that it reported.

    A fact that cannot be had is None.
    """

    entry: HostEntry
    sides: tuple[Side, ...]
    facts: Mapping[str, Any]
    testbed: str

    def __getitem__(self, fact: str) -> Any:
        return self.facts.get(fact)

    @property
    def set_up(self) -> str:
        """The command that installs everything that is missing."""
        return f"{COMMAND} hosts setup --testbed {self.testbed}"

    @property
    def system(self) -> str:
        """The distribution's id, in small letters."""
        return str(self["system"] or "")

    def install(self, package: str) -> str:
        """The command that installs a package of the distribution's."""
        if self.system in RED_HATS:
            return f"sudo dnf install -y {package}"
        return f"sudo apt-get install -y {package}" + (" python3-venv" if package == "python3" else "")


RED_HATS = ("fedora", "rhel", "centos", "rocky", "almalinux")
