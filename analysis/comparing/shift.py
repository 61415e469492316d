"""By how much one sample lies above another, and how sure that is, without assuming anything of their distribution."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from analysis.comparing.samples import alike
from analysis.comparing.significance import ALPHA, MOST_EXACT
from analysis.statistics.median import Floats

MOST_ROUNDS = 100
"""Of more, as many evenly spaced ones stand for all: the ends move by some hundredths of the interval's width."""
_AT_ONCE = 2_000_000
"""Differences that are held at once."""
_Z = NormalDist().inv_cdf(1 - ALPHA / 2)


def shifts(first: Floats, other: Floats) -> tuple[Floats, Floats, Floats]:
    """Of each row: the median of all differences other - first, and the ends of its 95 % interval.

    A row is a cell, a column a round of one run, in any order and NaN where there are no more: no round of one run
    belongs to any of the other. The interval holds what shift of one sample Mann & Whitney's test cannot tell from
    none: it is without 0 just where that test finds p < 0.05. NaN where the rounds are too few: under 4 in each.

    Source: Hodges & Lehmann, "Estimates of location based on rank tests", Annals of Mathematical Statistics 34, 1963.
    """
    middle, low, high = (np.full(len(first), np.nan) for _ in range(3))
    for members, (one, two) in alike(first, other):
        beyond = _beyond(one.shape[1], two.shape[1])
        one, two = _thinned(one), _thinned(two)
        count = one.shape[1] * two.shape[1]
        rank = max(1, round(beyond * count)) if beyond else 0
        for part in np.array_split(np.arange(len(members)), math.ceil(len(members) * count / _AT_ONCE)):
            differences = (two[part][:, :, None] - one[part][:, None, :]).reshape(len(part), count)
            places = sorted({max(rank - 1, 0), (count - 1) // 2, count // 2, min(count - rank, count - 1)})
            differences.partition(places, axis=1)
            middle[members[part]] = (differences[:, (count - 1) // 2] + differences[:, count // 2]) / 2
            if rank:
                low[members[part]] = differences[:, rank - 1]
                high[members[part]] = differences[:, count - rank]
    return middle, low, high


def _thinned(values: Floats) -> Floats:
    """Each row's values, sorted, or so many of them evenly spaced."""
    n = values.shape[1]
    if n <= MOST_ROUNDS:
        return values
    shares = (np.arange(MOST_ROUNDS) + 0.5) / MOST_ROUNDS
    thinned: Floats = np.quantile(values, shares, axis=1, method="hazen").T
    return thinned


@lru_cache
def _beyond(n: int, m: int) -> float:
    """The share of all differences that lie below the interval, its lower end counted; 0 if there is none."""
    pairs = n * m
    if max(n, m) > MOST_EXACT:
        spread = math.sqrt(pairs * (n + m + 1) / 12)
        return max(0, math.floor(pairs / 2 + 0.5 - _Z * spread)) / pairs
    cumulated = np.cumsum(_ways(n, m)) / math.comb(n + m, n)
    return int(np.count_nonzero(cumulated <= ALPHA / 2)) / pairs


def _ways(n: int, m: int) -> Floats:
    """In how many orders of n and m values so many pairs (the index) have the second's value below the first's."""
    least = n * (n + 1) // 2  # the sum of the ranks of the n, if they are the lowest
    ways = np.zeros((n + 1, least + n * m + 1))
    ways[0, 0] = 1
    for rank in range(1, n + m + 1):
        ways[1:, rank:] += ways[:-1, :-rank].copy()
    counted: Floats = ways[n, least:]
    return counted
