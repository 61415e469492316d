"""How a connection is warmed before anything is timed: by bulk, until that takes only what the link needs.

No request pays for a growing window then. On a long link the window is at first larger than the queue: bulk loses
packets until the window is smaller. There a bulk that fills the queue repairs that while it goes on, where of a short
one the end is lost, and waited for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pareto.hosts.session import Session
from pareto.protocol import messages

TIMEOUT_S = 120.0
MOST_BULKS = 5
FILLS, AGENT_FILLS = 3.3, 5.0
"""The usual time of warming where bulks fill the queue, as a multiple of what one needs: at 200ms-5mbit, where that is
1.40 s, tcp's take 1.87, 1.40 and 1.40 s, and rpc's, with its agents, 2.02, 2.92 and 2.10."""
WARM = 1.1
"""A connection is warm when bulk takes at most this multiple of what the link needs, or of what it took before."""
MIN_BYTES, MAX_BYTES = 1 << 18, 8 << 20
OPENING = 2.0
"""Bulk as a multiple of bandwidth x delay: it takes the window past that from its initial segments."""
FILLING, MAX_FILL_BYTES, LONG_RTT_S = 6.0, 1 << 20, 0.1
"""The same on a long link, so that the bulk fills the usual queue as well; where that takes no more bytes."""


def warm(near: Session, backend: str, rate_bps: float, rtt_s: float, *, settles: bool) -> None:
    """Send bulk over a backend's connections from a link's near end until they are warm.

    rate_bps, rtt_s: the payload rate away from the edge and the round trip, of the link with its profile. settles:
    whether TCP fills such a link; where it does not, the window never settles, and one bulk opens it. A bulk that fills
    the queue is sent until it gets no quicker. Raises SessionError, SessionLost, TimeoutError.
    """
    nbytes, fills = bulk_bytes(rate_bps, rtt_s)
    needed_s = rtt_s + 8 * nbytes / rate_bps
    took_s: list[float] = []
    for _ in range(MOST_BULKS):
        took_s.append(near.ask(messages.WarmUp(backend, nbytes), TIMEOUT_S))
        if not settles or (gets_no_quicker(took_s) if fills else took_s[-1] <= WARM * needed_s):
            break


def bulk_bytes(rate_bps: float, rtt_s: float) -> tuple[int, bool]:
    """The bulk that warms a connection over a link with this rate and round trip; whether it fills the link's queue."""
    if not math.isfinite(rate_bps):
        return MAX_BYTES, False
    under_way = rate_bps / 8 * rtt_s
    filling = FILLING * under_way
    if rtt_s >= LONG_RTT_S and MIN_BYTES < filling <= MAX_FILL_BYTES:
        return int(filling), True
    return int(min(max(OPENING * under_way, MIN_BYTES), MAX_BYTES)), False


def foreseen_s(rate_bps: float, rtt_s: float, *, agent: bool = False) -> float:
    """How long it takes to warm a backend's connections over such a link. agent: whether it has agents."""
    nbytes, fills = bulk_bytes(rate_bps, rtt_s)
    usual = AGENT_FILLS if agent else FILLS
    return (usual if fills else 1) * (rtt_s + 8 * nbytes / rate_bps)


def gets_no_quicker(took_s: Sequence[float]) -> bool:
    """Whether the same bulk will take no less the next time. took_s: each time.

    Two in a row as quick as the quickest tell it; so do two that are no quicker than one before them, for many
    connections at once, such as rpc's, never settle on a long link.
    """
    latest, earlier = took_s[-2:], took_s[:-2]
    is_settled = len(latest) == 2 and max(latest) <= WARM * min(took_s)
    return is_settled or (bool(earlier) and min(latest) * WARM >= min(earlier))
