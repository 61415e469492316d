"""How TCP is to behave on a testbed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TcpSettings:
    """For every connection, so for both backends alike. The defaults cost what is measured least.

    congestion: None is the testbed's own (cubic on the local one, each host's on real ones). initial_window: in
    segments. Connections are measured warm, and from Linux's ten a long link takes seconds to warm up; many more would
    fill the shaper's queue at once and look like a time-out. slow_start_after_idle: the window falls back to the first
    one after a pause, which charges the request that follows several round trips.
    """

    congestion: str | None = None
    initial_window: int = 100
    slow_start_after_idle: bool = False

    @property
    def fills(self) -> bool:
        """Whether bulk that follows a pause runs at the link's rate from its first byte on."""
        return not self.slow_start_after_idle
