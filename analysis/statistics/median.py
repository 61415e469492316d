"""How sure a median is, without assuming anything about the distribution."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

OUTSIDE = 0.025
"""What may lie beyond each end of a 95 % interval."""
LEAST_VALUES = 6
"""Even the smallest and largest of 5 values hold the median with 94 % alone: 1 - 2 / 2^5."""

Floats = npt.NDArray[np.float64]


def interval(values: Sequence[float] | Floats) -> tuple[float, float] | None:
    """The 95 % interval of the median of what the values were drawn from; None with fewer than 6 values.

    Order statistics, interpolated (Hettmansperger & Sheather, "Confidence intervals based on interpolated order
    statistics", Statistics & Probability Letters 4, 1986). How many of n values lie below the median is binomial with
    p = 1/2, whatever the distribution; so the k-th smallest and the k-th largest hold it with a known probability: of
    the last pair with more than 95 % and the first with less, an interval is made that has 95 %.

    By simulation it holds the median in 94 to 96 of 100 cases, with 6 to 60 values, normal, skewed, heavy tailed or of
    two kinds. Not where the median falls into a wide hole between two equal halves (down to 90 with 7 values); ties
    make it 97 and more. A bootstrap does worse with few values: BCa has 91 to 94 with 6 to 20 of them.

    `values` are independent and without NaN, in any order and unit.
    """
    if len(values) < LEAST_VALUES:
        return None
    low, high = intervals(np.asarray(values, dtype=float)[None, :])
    return float(low[0]), float(high[0])


def intervals(samples: Floats) -> tuple[Floats, Floats]:
    """The same for each row of `samples` (m x n, n of 6 or more): lower and upper ends, m each."""
    ordered = np.sort(samples, axis=1)
    rank, inward = _between(samples.shape[1])
    low = (1 - inward) * ordered[:, rank - 1] + inward * ordered[:, rank]
    high = (1 - inward) * ordered[:, -rank] + inward * ordered[:, -rank - 1]
    return low, high


@lru_cache
def _between(n: int) -> tuple[int, float]:
    """The k of the last pair that holds the median with 95 % or more, and how far inward of it the interval ends."""
    rank = int(binom.ppf(OUTSIDE, n, 0.5))
    outer, inner = (1 - 2 * binom.cdf(k - 1, n, 0.5) for k in (rank, rank + 1))
    share = (outer - 1 + 2 * OUTSIDE) / (outer - inner)
    return rank, float((n - rank) * share / (rank + (n - 2 * rank) * share))
