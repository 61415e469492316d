"""Draws of what the true figures of many competitors may be, after few rounds, to make probabilities of.

On a logarithmic scale a trial is the cell's true figure + what the whole round shares + noise. Three things make few
rounds honest where a bootstrap over them is not:

- What a round shares is taken out (a median polish step; Tukey, "Exploratory Data Analysis", 1977).
- The variance of a cell's noise is moderated by those of all cells, as far as these agree (Smyth, "Linear models and
  empirical Bayes methods", Statistical Applications in Genetics and Molecular Biology 3, 2004); draws are Student's.
- Where noise is as large as the gaps between competitors, the luckiest seems the best. So the gaps have a spread of
  their own, between points and between backends at one point, and draws are drawn towards each other (Efron & Morris,
  "Stein's estimation rule and its competitors", Journal of the American Statistical Association 68, 1973). Each of
  several spreads counts by how likely it makes what was measured (Gelman and others, "Bayesian Data Analysis", ch. 5).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, polygamma

from pareto.analysis.statistics.samples import Floats, Ints

Names = npt.NDArray[np.object_]

TRUTHS = 1000
"""The number of draws that probabilities are made of: their standard error is 1.6 % or less."""
SPREADS = 0.002 * 2.0 ** np.arange(11)
"""Standard deviations of the logarithms of competitors' figures, all equally likely before anything is measured: less
is nobody's concern, more is known as well as no spread at all."""
DRAWN = 25
"""The number of spreads that are drawn for one set of draws."""
LEAST_FREEDOM = 4.0
"""Degrees of freedom of the noise's variance below which no probability is stated: two cells have 4 in 5 rounds."""
TOO_NOISY = 0.04
"""Standard error of a competitor's figure, as a share of it, beyond which no probability holds (docs/analysis.md)."""
FAIR_CHANCE = 0.05
"""The probability below which a cell is no competitor: however noisy, it decides nothing."""
NO_CHANCE = 0.001
"""The probability below which a cell is behind, however noisy the others are; one nearer to 1 is ahead."""
_TINY = 1e-12
_ANYWHERE = 1e2
"""Variance of where all cells of a condition lie: nobody knows."""


class Noise(NamedTuple):
    """The noise of each cell and objective: `centre`, its figure without what rounds share, and its `variance` (logs).

    freedom: of each objective. correlation: objectives x objectives, of one trial's noise.
    """

    centre: Floats
    variance: Floats
    freedom: Floats
    correlation: Floats


def noise(logs: Floats) -> Noise:
    """The noise of rounds x cells x objectives, NaN where there is no trial."""
    count = np.count_nonzero(~np.isnan(logs), axis=0)
    cells = logs.shape[1]
    with np.errstate(invalid="ignore"):
        alone = _nanmedian(logs, axis=0)
        shared = _nanmedian(logs - alone, axis=1)[:, None]
        adjusted = logs - np.nan_to_num(shared)
        centre = _nanmedian(adjusted, axis=0)
        residual = adjusted - np.nansum(adjusted, axis=0) / np.maximum(count, 1)
    squares = np.nansum(residual**2, axis=0) * (cells / max(1, cells - 1))
    each = [moderated(*of) for of in zip(squares.T, np.maximum(count - 1, 0).T, strict=True)]
    variance = np.stack([of_one for of_one, _ in each], axis=1) * _of_median(count)
    freedom = np.array([free for _, free in each]) * (1 - 1 / cells)

    # Correlations are over all trials, each cell's in units of its own.
    sizes = np.sqrt(np.nansum(residual**2, axis=0))
    units = np.nan_to_num(residual / np.where(sizes > _TINY, sizes, np.inf))
    sums = np.einsum("rci,rcj->ij", units, units)
    roots = np.sqrt(np.maximum(np.diag(sums), _TINY))
    correlation = sums / roots[:, None] / roots
    np.fill_diagonal(correlation, 1.0)
    return Noise(centre, variance, freedom, correlation)


def moderated(squares: Floats, freedom: Ints) -> tuple[Floats, float]:
    """Variances from sums of squares with these degrees of freedom, each drawn towards what they have in common; and
    the degrees of freedom that they then have.
    """
    known = (freedom > 0) & (squares > _TINY**2)
    total = float(freedom[known].sum())
    if not total:
        return np.zeros(len(squares)), 0.0
    d = freedom[known].astype(float)
    logs = np.log(squares[known] / d) - digamma(d / 2) + np.log(d / 2)
    beyond = float(logs.var(ddof=1) - polygamma(1, d / 2).mean()) if len(d) > 2 else 0.0
    if beyond <= 0:
        return np.full(len(squares), float(squares[known].sum()) / total), total
    prior = 2 * _inverse_trigamma(beyond)
    common = float(np.exp(logs.mean() + digamma(prior / 2) - np.log(prior / 2)))
    return (prior * common + squares) / (prior + freedom), min(prior + float(np.median(d)), total)


@dataclass(frozen=True)
class Draws:
    """`values`: what the true figures may be, draws x cells x objectives: only which of two is the greater says
    anything; NaN where a cell lacks any objective. `error`: cells x objectives, the standard error of each by its
    rounds, as a share of it. `freedom`: the fewest of any objective's noise.
    """

    values: Floats
    error: Floats
    freedom: float

    def of(self, cells: Ints) -> Draws:
        return Draws(self.values[:, cells], self.error[cells], self.freedom)

    def stated(self, shares: Floats) -> Floats:
        """Shares of the draws, one a cell, as probabilities: NaN where they do not hold.

        They do not where too little is known of the noise (`LEAST_FREEDOM`), or where it is too large: neither this
        cell nor half of the competitors (`FAIR_CHANCE`) may be known worse than to `TOO_NOISY`. However large it is, a
        cell that is surely behind or ahead (`NO_CHANCE`) is so.
        """
        if self.freedom < LEAST_FREEDOM:
            return np.full(len(shares), np.nan)
        rivals, errors = shares >= FAIR_CHANCE, self.error.max(axis=1)
        too_noisy = rivals.any() and np.median(errors[rivals]) > TOO_NOISY
        clear = (shares < NO_CHANCE) | (shares > 1 - NO_CHANCE)
        return np.where(clear | ((errors <= TOO_NOISY) & ~too_noisy), shares, np.nan)


def draws(
    measured: Floats, points: Names, floor: Floats | float, centre: Floats | None = None, seed: int = 0
) -> Draws | None:
    """Draws of the true figures; None where nothing is known of the noise, as there is one round or one cell.

    measured: rounds x cells x objectives. points: of each cell; cells of one point differ in their backend. floor: the
    standard deviation, as a share, of what rounds do not show. centre: cells x objectives, the figures themselves,
    where they are known better than by their rounds. An objective without any noise stays as it is.
    """
    cells, objectives = measured.shape[1:]
    scaled, middle = _scaled(measured, centre)
    seen = noise(scaled)
    if centre is None:
        middle = seen.centre
    else:
        # A cell that missed slow rounds looks fast, and medians of the same few rounds err by what is theirs alone.
        with np.errstate(invalid="ignore"):
            middle = middle + np.nan_to_num(seen.centre - _nanmedian(scaled, axis=0))
    variance = seen.variance + np.broadcast_to(np.asarray(floor, dtype=float) ** 2, (cells, objectives))
    values = np.broadcast_to(middle, (TRUTHS, cells, objectives)).copy()
    whole = np.isfinite(middle).all(axis=1)
    values[:, ~whole] = np.nan
    # What no trial ever varied in, such as bytes, is known.
    noisy = (variance[whole] > _TINY**2).any(axis=0)
    freedoms = np.where((seen.variance[whole] > _TINY**2).any(axis=0), seen.freedom, np.inf)[noisy]
    error, freedom = np.sqrt(seen.variance), float(freedoms.min(initial=np.inf))
    if not noisy.any():
        return Draws(values, error, freedom)
    if freedom < 1:
        return None
    rng, at = np.random.default_rng(seed), np.ix_(whole, noisy)
    correlation = seen.correlation[np.ix_(noisy, noisy)]
    possible = _posteriors(middle[at], variance[at], correlation, points[whole], rng)
    mean = np.empty((TRUTHS, *possible[0][0].shape))
    away = np.empty_like(mean)
    for number, (expected, root) in enumerate(possible):
        rows = slice(number, None, DRAWN)
        mean[rows] = expected
        normal = rng.standard_normal((len(mean[rows]), expected.size))
        away[rows] = (normal @ root.T).reshape(away[rows].shape)
    known = np.ones(TRUTHS)
    tails = [np.sqrt(free / rng.chisquare(free, TRUTHS)) if free < np.inf else known for free in freedoms]
    values[np.ix_(np.arange(TRUTHS), whole, noisy)] = mean + away * np.stack(tails, axis=1)[:, None]
    return Draws(values, error, freedom)


def alone(measured: Floats, seed: int) -> Floats:
    """Draws of each cell's true figure by itself, for a limit, so with what rounds share: draws x cells."""
    scaled, _ = _scaled(measured[:, :, None], None)
    seen, rounds = noise(scaled), np.count_nonzero(~np.isnan(measured), axis=0)
    middle = _nanmedian(scaled[:, :, 0], axis=0)
    with np.errstate(invalid="ignore"):
        shared = _nanmedian(scaled[:, :, 0] - middle, axis=1)
    rng, free = np.random.default_rng(seed), max(1.0, float(rounds.max(initial=1) - 1))
    common = np.nanvar(shared, ddof=1) if np.count_nonzero(~np.isnan(shared)) > 1 else 0.0
    spread = np.sqrt(seen.variance[:, 0] + _of_median(rounds) * common)
    values = middle + spread * rng.standard_t(free, (TRUTHS, len(middle)))
    is_log = bool(np.nanmin(measured, initial=np.inf) > 0)
    return np.asarray(np.exp(values) if is_log else values * (np.nanmean(np.abs(measured)) or 1.0))


def _of_median(rounds: Ints) -> Floats:
    """The variance of the median of n normal values of variance 1: 1.35 / n for 3 of them, pi / 2n for many."""
    n = np.maximum(rounds, 1)
    return np.asarray(np.where(n > 2, np.pi / 2 / (n + np.pi / 2 - 1), 1.0 / n))


def _scaled(measured: Floats, centre: Floats | None) -> tuple[Floats, Floats]:
    """Measured and centre as logarithms; an objective that is not above 0 everywhere as multiples of its usual size."""
    scaled = np.concatenate([measured, measured[:1] if centre is None else centre[None]])
    for number in range(measured.shape[2]):
        both, of_one = scaled[:, :, number], measured[:, :, number]
        if np.nanmin(both, initial=np.inf) > 0:
            scaled[:, :, number] = np.log(both)
        elif np.isfinite(of_one).any():
            scaled[:, :, number] /= np.nanmean(np.abs(of_one)) or 1.0
    return scaled[:-1], scaled[-1]


def _posteriors(
    middle: Floats, variance: Floats, correlation: Floats, points: Names, rng: np.random.Generator
) -> list[tuple[Floats, Floats]]:
    """Mean (cells x objectives) and a root of the covariance, for each of `DRAWN` spreads that the cells may have."""
    cells, objectives = middle.shape
    same = (points[:, None] == points[None, :]).astype(float)
    spreads = [_spreads(middle[:, each], variance[:, each], points, rng) for each in range(objectives)]
    roots = np.sqrt(variance)
    noise = np.zeros((cells, objectives, cells, objectives))
    noise[np.arange(cells), :, np.arange(cells), :] = roots[:, :, None] * roots[:, None, :] * correlation
    noise = noise.reshape(cells * objectives, -1) + _TINY * np.eye(cells * objectives)
    anywhere = np.kron(np.ones((cells, cells)), _ANYWHERE * np.eye(objectives))
    centre = middle.mean(axis=0)
    drawn = list(zip(*spreads, strict=True))
    known: dict[tuple[tuple[float, float], ...], tuple[Floats, Floats]] = {}
    # Many cells leave few spreads that are likely: most of those that are drawn are the same.
    for of_each in set(drawn):
        of_points, of_backends = (np.diag(variances) for variances in np.transpose(of_each))
        prior = anywhere + np.kron(same, of_points) + np.kron(np.eye(cells), of_backends)
        gain = np.linalg.solve(prior + noise, prior).T
        covariance = gain @ noise
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        mean = centre + (gain @ (middle - centre).ravel()).reshape(middle.shape)
        # The symmetric root is the same whichever eigenvectors a processor's library finds, and so are the draws.
        known[of_each] = (mean, (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T)
    return [known[of_each] for of_each in drawn]


def _spreads(
    middle: Floats, variance: Floats, points: Names, rng: np.random.Generator
) -> list[tuple[float, float]]:
    """`DRAWN` draws of the variances between points and between backends at one (0 where no point has two), of one
    objective: each pair of `SPREADS` as often as it makes what was measured likely.

    The covariance of the cells is a diagonal, a constant for each point and one for all: its inverse and determinant
    follow from sums (Sherman & Morrison, Annals of Mathematical Statistics 21, 1950), once for each constant.
    """
    _, point = np.unique(points.astype(str), return_inverse=True)
    of_point = np.eye(point.max() + 1)[point]
    several = len(middle) > of_point.shape[1]
    variances = SPREADS**2
    pairs = list(itertools.product(variances, variances if several else [0.0]))
    between, own = np.transpose(pairs)[:, :, None]
    weights = 1 / (own + variance + _TINY)
    away = middle - middle.mean()
    # Pairs x points: with what the cells of a point share. Then over all, with where they lie together.
    ones, sums = weights @ of_point, (weights * away) @ of_point
    shared = 1 + between * ones
    one, total = (ones / shared).sum(axis=1), (sums / shared).sum(axis=1)
    anywhere = 1 + _ANYWHERE * one
    misfits = (weights * away**2).sum(axis=1) - (between * sums**2 / shared).sum(axis=1)
    misfits -= _ANYWHERE * total**2 / anywhere
    size = np.log(shared).sum(axis=1) - np.log(weights).sum(axis=1) + np.log(anywhere)
    logs = -(size + misfits) / 2
    likely = np.exp(logs - logs.max())
    return [pairs[number] for number in rng.choice(len(pairs), DRAWN, p=likely / likely.sum())]


def _nanmedian(values: Floats, axis: int) -> Floats:
    """The medians of what is known, NaN without a warning where nothing is."""
    empty = np.isnan(values).all(axis=axis, keepdims=True)
    medians = np.nanmedian(np.where(empty, 0.0, values), axis=axis, keepdims=True)
    return np.asarray(np.where(empty, np.nan, medians)).squeeze(axis)


def _inverse_trigamma(value: float) -> float:
    """The x whose trigamma is this value, by Newton's method as in Smyth's appendix."""
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-9 * x:
            break
    return x
