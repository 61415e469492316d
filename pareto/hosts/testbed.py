"""A testbed as the driver sees it: a chain of hosts within reach, and the links between neighbours to shape."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pareto.hosts.connection import Unreachable
from pareto.hosts.host import End
from pareto.hosts.remote import Remote
from pareto.hosts.session import Heartbeat
from pareto.hosts.shaping import Shaper

RETURN_TIMEOUT_S = 60.0
"""How long a host that is lost is waited for: a small device needs most of a minute to boot."""
RETRY_S = 1.0


@dataclass(frozen=True)
class Link:
    """What joins two neighbours; `near` is on the edge's side."""

    near: End
    far: End
    shaper: Shaper

    @property
    def name(self) -> str:
        return f"{self.near.role}-{self.far.role}"


@dataclass
class Testbed:
    """`remotes` by role, in the order of the chain; `links[i]` joins the hosts i and i + 1.

    is_local: hosts and links are made on this machine. Then a link is nothing but what its profile says, and the
    machine's sensors cannot tell the hosts apart.
    """

    remotes: dict[str, Remote]
    links: tuple[Link, ...]
    heartbeat: Heartbeat
    label: str
    facts: dict[str, Any]
    is_local: bool
    undo: ExitStack
    watch_strangers: Callable[[], Callable[[], float]] | None = None
    """Where the hosts are this machine: begins to watch the programs that are none of the run's; what it returns says
    how many percent of the hosts' cores they have taken since."""

    __test__ = False  # not a test, whatever pytest makes of the name

    def lost(self) -> str:
        """Why it is gone for good; empty while it may come back by itself."""
        return ""

    def revive(self) -> None:
        """Log in again where a host was lost, waiting for it. Raises Unreachable."""
        deadline = time.monotonic() + RETURN_TIMEOUT_S
        for remote in self.remotes.values():
            while True:
                try:
                    remote.renew()
                    break
                except Unreachable:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(RETRY_S)
        for link in self.links:
            link.shaper.revive()

    def close(self) -> None:
        """Put everything back and log out."""
        self.undo.close()
