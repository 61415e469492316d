"""Statistics of samples without assuming a distribution: the median's interval, quantiles, and outliers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pareto.sweep.load import NEEDED

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

OUTSIDE = 0.025
"""The share that may lie beyond each end of a 95 % interval."""
LEAST_VALUES = 6
"""Even the smallest and largest of 5 values hold the median with 94 % alone: 1 - 2 / 2^5. Nor is it known of fewer what
is usual: chance makes outliers of 3 % of 6 normal values, 2 % of 10 and 0.2 % of 60."""
THRESHOLD = 3.5
_OF_MAD, _OF_MEAN = 0.6745, 0.7979
"""The median and the mean absolute deviation of a normal distribution, in standard deviations."""


def interval(values: Sequence[float] | Floats) -> tuple[float, float] | None:
    """The 95 % interval of the median of what independent values without NaN were drawn from; None with fewer than 6.

    Order statistics, interpolated (Hettmansperger & Sheather, "Confidence intervals based on interpolated order
    statistics", Statistics & Probability Letters 4, 1986). How many of n values lie below the median is binomial with
    p = 1/2, whatever the distribution; so the k-th smallest and the k-th largest hold it with a known probability: of
    the last pair with more than 95 % and the first with less, an interval is made that has 95 %.
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
    # In whole numbers, of all ways that n values can lie: those with so many below the median, or fewer.
    every, rank, ways, fewer, with_rank = 1 << n, 0, 1, 0, 1
    while with_rank / every < OUTSIDE:
        rank += 1
        ways = ways * (n - rank + 1) // rank
        fewer, with_rank = with_rank, with_rank + ways
    outer, inner = (1 - 2 * below / every for below in (fewer, with_rank))
    share = (outer - 1 + 2 * OUTSIDE) / (outer - inner)
    return rank, float((n - rank) * share / (rank + (n - 2 * rank) * share))


def quantile(values: Sequence[float] | Floats, q: float) -> float:
    """The q-quantile of the values, interpolated linearly; NaN if they are fewer than `NEEDED`: what rests on the
    one most extreme value is that value, not a quantile. A NaN is no value.
    """
    known = np.asarray(values, dtype=float)
    known = known[~np.isnan(known)]
    return float(np.quantile(known, q)) if len(known) >= NEEDED[q] else math.nan


def quantile_interval(values: Floats, q: float) -> tuple[float, float]:
    """The 95 % interval of the q-quantile of what independent values without NaN were drawn from, by order statistics;
    NaN if they are fewer than `NEEDED`."""
    if len(values) < NEEDED[q]:
        return math.nan, math.nan
    from scipy.stats import binom

    ends = binom.ppf([OUTSIDE, 1 - OUTSIDE], len(values), q).astype(int)
    low, high = np.sort(values)[np.clip(ends - [1, 0], 0, len(values) - 1)]
    return float(low), float(high)


def flagged(values: Sequence[float] | Floats) -> Bools:
    """Mask of the outliers, which are reported and never dropped; none of fewer than `LEAST_VALUES`. NaN is no value.

    The modified z-score, over 3.5, is the distance from the median over the median absolute deviation, so that outliers
    do not hide each other (Iglewicz & Hoaglin, "How to Detect and Handle Outliers", 1993); over the mean absolute
    deviation where more than half of the values are the same.
    """
    measured = np.asarray(values, dtype=float)
    known = measured[~np.isnan(measured)]
    if len(known) < LEAST_VALUES:
        return np.zeros(len(measured), dtype=bool)
    away = np.abs(measured - np.median(known))
    spread = np.nanmedian(away) / _OF_MAD or np.nanmean(away) / _OF_MEAN
    return np.asarray(away > THRESHOLD * spread, dtype=bool)


def share_interval(share: Floats, images: Floats) -> tuple[Floats, Floats]:
    """The 95 % intervals of shares of so many images: their lower and upper ends; NaN where either is not known.

    Wilson's score interval ("Probable inference, the law of succession, and statistical inference", Journal of the
    American Statistical Association 22, 1927). It holds near 0 and 1, too: 200 of 200 images leave 98.1 to 100 %.
    """
    from scipy.special import ndtri

    counted = np.where(images > 0, images, np.nan)
    z = float(ndtri(1 - OUTSIDE))
    middle = share + z * z / (2 * counted)
    half = z * np.sqrt(share * (1 - share) / counted + (z / (2 * counted)) ** 2)
    low, high = ((middle + sign * half) / (1 + z * z / counted) for sign in (-1, 1))
    return np.maximum(0.0, low), np.minimum(1.0, high)


def shares_differ(more: float, less: float, images: float, apart: float) -> bool:
    """Whether two shares of the same images differ by more than chance explains: an exact test of their discordant
    images at 5 % (McNemar, "Note on the sampling error of the difference between correlated proportions", Psychometrika
    12, 1947). apart: the most that may be discordant, that is, count for one of the two only.
    """
    if not more > less:
        return False
    from scipy.stats import binom

    lead = round((more - less) * images)
    discordant = max(lead, round(apart * images))
    for_more = (discordant + lead + 1) // 2
    return bool(2 * binom.sf(for_more - 1, discordant, 0.5) < 2 * OUTSIDE)
