"""Quantiles, stated only from as many samples as they need."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import bdtr

from analysis.statistics.median import Floats

BEYOND = 2
"""Samples that must lie beyond a quantile: what rests on the one most extreme value is that value, not a quantile."""


def needed(quantile: float, confidence: float = 0.99) -> int:
    """The fewest samples of which two or more lie beyond the quantile with this confidence, on its rarer side.

    How many of n samples do is binomial with p = 1 - quantile (or quantile, if it is under 1/2), whatever the
    distribution. 11 for the median, 64 for 0.9, 130 for 0.95, 662 for 0.99. Raises ValueError for a quantile or a
    confidence that is not between 0 and 1.
    """
    if not (0 < quantile < 1 and 0 < confidence < 1):
        raise ValueError(f"quantile {quantile} and confidence {confidence} must lie between 0 and 1")
    # 1 - 0.95 is a little more than 0.05, and a quantile and its mirror image need the same.
    rarer = round(min(quantile, 1 - quantile), 12)

    def suffice(n: int) -> bool:
        return bool(bdtr(BEYOND - 1, n, rarer) <= 1 - confidence)

    most = BEYOND
    while not suffice(most):
        most *= 2
    least = most // 2
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if suffice(middle) else (middle, most)
    return most


def quantile(values: Sequence[float] | Floats, q: float, confidence: float = 0.99) -> float:
    """The q-quantile of the values, interpolated linearly; NaN if they are fewer than `needed`. A NaN is no value."""
    known = np.asarray(values, dtype=float)
    known = known[~np.isnan(known)]
    return float(np.quantile(known, q)) if len(known) >= needed(q, confidence) else math.nan
