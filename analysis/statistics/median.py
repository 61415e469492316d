"""How sure a median is, without assuming anything about the distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

OUTSIDE = 0.025
"""The most that may lie beyond each end of a 95 % interval."""


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The order statistics that hold the median with at least 95 % probability; None with fewer than 6 values.

    The number of values below the true median is binomial with p = 1/2, whatever the distribution (sign test; Conover,
    "Practical Nonparametric Statistics", section 3.2).
    """
    ordered = sorted(values)
    rank, beyond = -1, 0.0
    while (beyond := beyond + math.comb(len(ordered), rank + 1) / 2 ** len(ordered)) <= OUTSIDE:
        rank += 1
    return (ordered[rank], ordered[-1 - rank]) if rank >= 0 else None
