"""Whether differences may be chance, and by how much one sample lies above another: tests of ranks for many cells.

The rounds of many cells are one array: a row a cell, a column a round, NaN where a cell has no more rounds. The tests
ask of ranks only, so nothing is assumed of the distribution.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import pandas as pd
from scipy.special import binom

from pareto.analysis.statistics.samples import LEAST_VALUES, Bools, Floats, Ints, intervals

MEASURES = {"latency": "latency_s", "throughput": "throughput_ips"}
ALPHA = 0.05
MOST_EXACT = 50
"""With up to this many rounds p-values are exact; with more, the normal distribution gives the same."""
MOST_ROUNDS = 100
"""As many quantiles stand for more rounds than that: the interval's ends move by some hundredths of its width."""
_AT_ONCE = 2_000_000
"""Differences that are in memory at once."""
_Z = NormalDist().inv_cdf(1 - ALPHA / 2)


def holm(p_values: Sequence[float] | Floats) -> Floats:
    """The p-values corrected for their number: of 44 points without any difference two have p < 0.05.

    Step-down (Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics
    6, 1979): the probability of calling *any* of them significant is under 5 %, however they depend on each other, as
    they do: a slow round slows all points. NaN is no test: it stays, and does not count.
    """
    given = np.asarray(p_values, dtype=float)
    corrected = np.full(len(given), np.nan)
    order = np.argsort(given)[: np.count_nonzero(~np.isnan(given))]  # NaN last
    left = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(given[order] * left))
    return corrected


def padded(values: Floats | pd.Series, cells: Ints | pd.Series, count: int) -> Floats:
    """`values` sorted into `count` rows, each by its number in `cells`, in their order; rows are filled up with NaN."""
    row = np.asarray(cells)
    place = pd.Series(row).groupby(row).cumcount().to_numpy()
    table = np.full((count, int(place.max(initial=-1)) + 1), np.nan)
    table[row, place] = values
    return table


def rounds(table: Floats) -> Ints:
    """The number of values of each row."""
    return np.asarray(np.count_nonzero(~np.isnan(table), axis=1), dtype=np.int64)


def alike(*tables: Floats) -> Iterator[tuple[Ints, tuple[Floats, ...]]]:
    """Rows that have as many values as each other, in every table: their numbers, and the values without NaN.

    Rows without any value in one of the tables are left out. So what is vectorised over rows needs no masks.
    """
    packed = [np.sort(table, axis=1) for table in tables]  # NaN last
    sizes = np.column_stack([rounds(table) for table in tables])
    for size in np.unique(sizes, axis=0):
        if (size > 0).all():
            members = np.flatnonzero((sizes == size).all(axis=1))
            yield members, tuple(table[members, :n] for table, n in zip(packed, size, strict=True))


def medians(table: Floats) -> Floats:
    """The median of each row; NaN without values."""
    return np.asarray(pd.DataFrame(table).median(axis=1), dtype=float)


def median_intervals(table: Floats) -> tuple[Floats, Floats]:
    """The median's 95 % interval of each row (`analysis.statistics.samples`); NaN with fewer than 6 values."""
    ends = np.full((2, len(table)), np.nan)
    for members, (values,) in alike(table):
        if values.shape[1] >= LEAST_VALUES:
            ends[:, members] = intervals(values)
    return ends[0], ends[1]


def relative(first: pd.Series, other: pd.Series) -> pd.Series:
    """Differences of pairs over their sums, ranked as the logarithm of the ratio is: a slow round weighs no more."""
    return (other - first) / (other + first)


def signed_rank(differences: Floats) -> Floats:
    """p-values of pairs: a row a cell, a column a pair, NaN where it is none.

    Two-sided (Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1, 1945). If nothing tells the
    two sides apart, each pair might as well have been the other way round: its difference (`relative`) is symmetric
    about zero, which the test needs. A pair without a difference is left out; where all are such, p is 1.
    """
    from scipy.stats import wilcoxon  # takes a second to import

    p_values = np.where(rounds(differences) > 0, 1.0, np.nan)
    for members, (values,) in alike(np.where(differences == 0, np.nan, differences)):
        method = "exact" if values.shape[1] <= MOST_EXACT else "asymptotic"
        p_values[members] = wilcoxon(values, axis=1, method=method).pvalue
    return p_values


def rank_sum(first: Floats, other: Floats) -> Floats:
    """p-values of two samples that share no rounds, a row a cell; NaN where one has no rounds.

    Two-sided (Mann & Whitney, "On a test of whether one of two random variables is stochastically larger than the
    other", Annals of Mathematical Statistics 18, 1947); with ties by the normal distribution.
    """
    from scipy.stats import mannwhitneyu  # takes a second to import

    p_values = np.full(len(first), np.nan)
    for members, (one, two) in alike(first, other):
        both = np.sort(np.hstack([one, two]), axis=1)
        tied = (np.diff(both, axis=1) == 0).any(axis=1)
        exact = ~tied & (max(one.shape[1], two.shape[1]) <= MOST_EXACT)
        of_members = np.ones(len(members))  # where all values are the same there is nothing to rank
        for rows, method in ((exact, "exact"), (~exact & (both[:, 0] < both[:, -1]), "asymptotic")):
            if rows.any():
                of_members[rows] = mannwhitneyu(one[rows], two[rows], axis=1, method=method).pvalue
        p_values[members] = of_members
    return p_values


def pairs_needed(tests: int) -> int:
    """The fewest pairs that can make a point significant among so many tests; the least p of n pairs is 2 / 2^n."""
    return max(1, math.ceil(1 + math.log2(max(tests, 1) / ALPHA)))


def can_tell(first_rounds: Ints, other_rounds: Ints, tests: int) -> Bools:
    """Whether so many rounds can make a point significant; the least p-value of n and m rounds is 2 / C(n + m, n)."""
    orders = binom(first_rounds + other_rounds, first_rounds)
    return np.asarray(2 * tests <= ALPHA * orders)


def rounds_needed(tests: int) -> int:
    """The fewest rounds that can make a point significant, if both runs have as many."""
    return next(n for n in itertools.count(1) if can_tell(np.array(n), np.array(n), tests))


def shifts(first: Floats, other: Floats) -> tuple[Floats, Floats, Floats]:
    """The median of all differences other - first of each row, and the ends of its 95 % interval (Hodges & Lehmann,
    "Estimates of location based on rank tests", Annals of Mathematical Statistics 34, 1963).

    The interval is without 0 just where `rank_sum` finds p < 0.05. NaN with too few rounds: under 4 in each.
    """
    middle, low, high = (np.full(len(first), np.nan) for _ in range(3))
    for members, (one, two) in alike(first, other):
        beyond = _beyond(one.shape[1], two.shape[1])
        one, two = _thinned(one), _thinned(two)
        count = one.shape[1] * two.shape[1]
        rank = max(1, round(beyond * count)) if beyond else 0
        for part in np.array_split(np.arange(len(members)), math.ceil(len(members) * count / _AT_ONCE)):
            differences = (two[part][:, :, None] - one[part][:, None, :]).reshape(len(part), count)
            middles = (count - 1) // 2, count // 2
            differences.partition([*{*middles, max(rank - 1, 0), min(count - rank, count - 1)}], axis=1)
            middle[members[part]] = (differences[:, middles[0]] + differences[:, middles[1]]) / 2
            if rank:
                low[members[part]] = differences[:, rank - 1]
                high[members[part]] = differences[:, count - rank]
    return middle, low, high


def _thinned(values: Floats) -> Floats:
    """Each row's values, or `MOST_ROUNDS` evenly spaced quantiles of them."""
    shares = (np.arange(MOST_ROUNDS) + 0.5) / MOST_ROUNDS
    many = values.shape[1] > MOST_ROUNDS
    return np.asarray(np.quantile(values, shares, axis=1, method="hazen").T) if many else values


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
    """The number of orders of n and m values by the pairs (the index) whose second value is below the first."""
    least = n * (n + 1) // 2  # the sum of the ranks of the n, if they are the lowest
    ways = np.zeros((n + 1, least + n * m + 1))
    ways[0, 0] = 1
    for rank in range(1, n + m + 1):
        ways[1:, rank:] += ways[:-1, :-rank].copy()
    return np.asarray(ways[n, least:])
