"""The certainty of a share of images, and whether two shares of the same images can be told apart."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from pareto.analysis.statistics.samples import OUTSIDE, Floats


def interval(share: Floats, images: Floats) -> tuple[Floats, Floats]:
    """The 95 % intervals of shares of so many images: their lower and upper ends; NaN where either is not known.

    Wilson's score interval ("Probable inference, the law of succession, and statistical inference", Journal of the
    American Statistical Association 22, 1927). It holds near 0 and 1, too: 200 of 200 images leave 98.1 to 100 %.
    """
    counted = np.where(images > 0, images, np.nan)
    z = float(ndtri(1 - OUTSIDE))
    middle = share + z * z / (2 * counted)
    half = z * np.sqrt(share * (1 - share) / counted + (z / (2 * counted)) ** 2)
    low, high = ((middle + sign * half) / (1 + z * z / counted) for sign in (-1, 1))
    return np.maximum(0.0, low), np.minimum(1.0, high)


def differ(more: float, less: float, images: float, apart: float) -> bool:
    """Whether two shares of the same images differ by more than chance explains: an exact test of their discordant
    images at 5 % (McNemar, "Note on the sampling error of the difference between correlated proportions", Psychometrika
    12, 1947). apart: the most that may be discordant, that is, count for one of the two only.
    """
    if not more > less:
        return False
    from scipy.stats import binom  # takes a second to import

    lead = round((more - less) * images)
    discordant = max(lead, round(apart * images))
    for_more = (discordant + lead + 1) // 2
    return bool(2 * binom.sf(for_more - 1, discordant, 0.5) < 2 * OUTSIDE)
