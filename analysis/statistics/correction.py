"""Several tests at once: each says too easily that something is there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.statistics.median import Floats


def holm(p_values: Sequence[float] | Floats) -> Floats:
    """The p-values corrected for their number: all of them right at once, at the level that one is compared with.

    Step-down (Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics
    6, 1979); it asks nothing of how the tests depend on each other. NaN is no test: it stays, and does not count.
    """
    given = np.asarray(p_values, dtype=float)
    corrected = np.full(len(given), np.nan)
    order = np.argsort(given)[: np.count_nonzero(~np.isnan(given))]  # NaN last
    left = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(given[order] * left))
    return corrected
