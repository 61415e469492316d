"""Whether a difference at a point may be chance: a test for each point, corrected for how many there are.

Both tests ask of ranks only, so nothing is assumed of the distribution. Their question is whether anything at all tells
the two sides apart: if nothing does, one is called the greater as often as the other.

Many points are tested at once, and of 44 points without any difference two have p < 0.05. Holm's correction keeps the
probability of calling *any* of them significant under 5 %, however the points depend on each other, as they do: a slow
round slows all of them. Benjamini & Hochberg's would call more points significant, by promising less: that of those
called so at most 5 % are wrong, on average. What is published of a single point needs the stronger promise.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import binom
from scipy.stats import mannwhitneyu, wilcoxon

from analysis.comparing.samples import Ints, alike, rounds
from analysis.statistics.correction import holm
from analysis.statistics.median import Floats

ALPHA = 0.05
MOST_EXACT = 50
"""Rounds up to which p-values are counted out; of more, the normal distribution tells them as well."""
Bools = npt.NDArray[np.bool_]


def relative(first: pd.Series, other: pd.Series) -> pd.Series:
    """Differences of pairs over their sums: a slow round's pair weighs no more than a fast one's, and swapping the two
    changes nothing but the sign. Ranked as the logarithm of the ratio is.
    """
    return (other - first) / (other + first)


def signed_rank(differences: Floats) -> Floats:
    """p-values of pairs (Wilcoxon's signed-rank test, two-sided): a row a cell, a column a pair, NaN where it is none.

    If nothing tells the two sides apart, each pair might as well have been the other way round, so its difference
    (`relative`) is symmetric about zero. That is what the test needs, and what pairs within a round have. (The sign
    test needs less, but finds less: of 20 pairs whose mean difference is 0.7 of its spread, it has p < 0.001 one time
    in nine, this test one in four.) A pair without a difference speaks for neither side and is left out; where
    all are such, p is 1. NaN without pairs. Exact up to 50 pairs.

    Source: Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1, 1945.
    """
    p_values = np.where(rounds(differences) > 0, 1.0, np.nan)
    for members, (values,) in alike(np.where(differences == 0, np.nan, differences)):
        method = "exact" if values.shape[1] <= MOST_EXACT else "asymptotic"
        p_values[members] = wilcoxon(values, axis=1, method=method).pvalue
    return p_values


def rank_sum(first: Floats, other: Floats) -> Floats:
    """p-values of two samples that share no rounds (Mann & Whitney's test, two-sided): a row a cell, in any order.

    Exact up to 50 rounds without ties, else by the normal distribution, ties counted. NaN where one has no rounds.

    Source: Mann & Whitney, "On a test of whether one of two random variables is stochastically larger than the other",
    Annals of Mathematical Statistics 18, 1947.
    """
    p_values = np.full(len(first), np.nan)
    for members, (one, two) in alike(first, other):
        both = np.sort(np.hstack([one, two]), axis=1)
        tied = (np.diff(both, axis=1) == 0).any(axis=1)
        exact = ~tied & (max(one.shape[1], two.shape[1]) <= MOST_EXACT)
        found = np.ones(len(members))  # where all values are the same there is nothing to rank
        for rows, method in ((exact, "exact"), (~exact & (both[:, 0] < both[:, -1]), "asymptotic")):
            if rows.any():
                found[rows] = mannwhitneyu(one[rows], two[rows], axis=1, method=method).pvalue
        p_values[members] = found
    return p_values


def corrected(*p_values: Floats) -> list[Floats]:
    """The p-values of several measures, all one family: corrected over every test of every measure. NaN stays."""
    together = holm(np.concatenate(p_values))
    return np.split(together, np.cumsum([len(of_measure) for of_measure in p_values])[:-1])


def significant(p_corrected: Floats) -> Bools:
    """Which are; a NaN is not."""
    return np.asarray(p_corrected <= ALPHA)


def pairs_needed(tests: int) -> int:
    """The fewest pairs of a point that can make it significant among so many tests, if all say the same.

    The least p-value of n pairs is 2 / 2^n.
    """
    return max(1, math.ceil(1 + math.log2(max(tests, 1) / ALPHA)))


def can_tell(first_rounds: Ints, other_rounds: Ints, tests: int) -> Bools:
    """Whether so many rounds can make a point significant, if all of one run are above all of the other's.

    The least p-value of n and m rounds is 2 / C(n + m, n).
    """
    orders = binom(first_rounds + other_rounds, first_rounds)
    return np.asarray(2 * tests <= ALPHA * orders)


def rounds_needed(tests: int) -> int:
    """The fewest rounds that can, if both runs have as many."""
    n = 1
    while not can_tell(np.array(n), np.array(n), tests):
        n += 1
    return n
