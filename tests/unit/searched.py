"""Searches of fronts whose truth is known, against all cells in every round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pareto.analysis.fronts.shared_rounds import nondominated
from pareto.analysis.prediction.forecast import BY_ENGINE
from pareto.analysis.statistics.samples import Bools, Floats, Ints
from pareto.predict.search import Search
from pareto.predict.strikes import Prospects, losses

ROUNDS = 6
OWN = 0.01
"""Noise of a trial by itself where a round's noise is common to all its cells."""
NETWORKS = ((0.1, 5e6), (0.005, 100e6), (0.01, 30e6))
"""One-way delays (s) and rates (bit/s)."""
BACKENDS_S = (0.0001, 0.0007)
FORECAST_ERROR = (0.03, 0.05)
"""Standard deviations of the forecast's latency and throughput, as shares."""
MARGIN = 0.1
"""What a bound leaves to the stages beyond their 5 % quantile."""
FROM_MEDIAN = 1.645
"""How far that quantile lies from the median of a normal distribution, in standard deviations."""
TIED = 3.0
"""Standard errors of a difference of two medians within which two cells are a tie."""
SLOWED, SLOWED_BY = 0.05, 1.5
"""How many trials are slowed, and by which factor, where the noise is `slowed`."""
ENGINE, OF_UNITS = (0.27, 1.26), 0.3
"""Of another engine than the profile's: between which shares of its time there a host's stages take by it, all equally
likely on a logarithmic scale; and the standard deviation of that of one unit."""
CELLS = (0.03, 0.3)
"""Between which sizes the noise of `cells` differs, all equally likely on a logarithmic scale."""


@dataclass(frozen=True)
class Result:
    """is_right, all_right: whether the search's front, and that of all cells in every round, are the true one up to
    ties. share: of the time that all take; trials: of their number. lost: whether a cell of the true front was struck
    off.
    """

    is_right: bool
    all_right: bool
    share: float
    trials: float
    lost: bool


CODECS = ((1.0, 0.0), (0.25, 2e-9), (0.15, 8e-9), (0.7, 20e-9), (0.5, 1e-9))
"""The share that each codec sends, and what encoding takes on the edge, in seconds a byte; the first is none."""


@dataclass(frozen=True)
class Truth:
    """`levels` and `bound`: cells x 2, as `pareto.predict.strikes.losses`, without what noise adds to the bound.

    fronts: cells x codecs, on which front each may be. accuracy: of each cell. links: the bound of the link alone.
    twins: cells x 2, a number of each split and codec, and of the backend. expected, error: of the forecast, as a
    profile of another engine has them; otherwise `levels` and 0.
    """

    levels: Floats
    bound: Floats
    expected: Floats
    error: Floats
    fronts: Bools
    accuracy: Floats
    links: Floats
    twins: Ints


def landscape(
    rng: np.random.Generator, cells: int, *, ties: bool = False, codecs: int = 1, engine: bool = False
) -> Truth:
    """A model of random units that is cut between two hosts at each point, over two backends, through some codecs.

    cells: with each codec. ties: points in fours have the same units before them, so that all their figures are equal.
    The last point has one cell for all codecs. Each codec but the first costs some accuracy, at each point another one.
    engine: what is measured runs by another engine than what was profiled, so that bounds count the link alone.
    """
    units = cells // 2 - 1
    share = rng.lognormal(0, 0.6, units)
    edge = np.concatenate([[0.0], np.cumsum(share / share.sum())]) * rng.uniform(0.05, 0.3)
    nbytes = 150e3 * np.exp(rng.normal(1.2, 0.5, units + 1) - 2.5 * np.arange(units + 1) / units)
    nbytes[0], nbytes[-1] = 150e3, 0
    if ties:
        same = np.concatenate([np.arange(1, units) // 4 * 4, [units]])
        edge[1:], nbytes[1:] = edge[same], nbytes[same]
    slower = rng.uniform(4, 30)
    later = (edge[-1] - edge) / slower
    if engine:
        by_engine = np.exp(rng.uniform(*np.log(ENGINE), 2)[:, None] + rng.normal(0, OF_UNITS, (2, units)))
        then, after = np.pad(np.cumsum(by_engine * np.diff(edge), axis=1), ((0, 0), (1, 0)))
        profiled, measured = (edge, later), (then, (after[-1] - after) / slower)
    else:
        profiled = measured = edge, later
    delay_s, rate = NETWORKS[rng.integers(len(NETWORKS))]
    codec, backend, point = (each.ravel() for each in np.indices((codecs, len(BACKENDS_S), units + 1)))
    lost = np.array([np.zeros(units + 1), *(rng.integers(0, 4, units + 1) / 16 for _ in CODECS[1:codecs])])
    (sent, byte_s), over_s, nbytes = (
        np.array(CODECS).T[:, codec],
        np.array(BACKENDS_S)[backend],
        nbytes[point],
    )
    crosses = nbytes > 0
    line_s, coding_s = 8 * sent * nbytes / rate, byte_s * nbytes
    on_link_s = np.where(crosses, line_s + 2 * delay_s, 0)

    def figures(of: Sequence[Floats], *, least: bool = False) -> tuple[Floats, Floats, Floats]:
        """Seconds of the stages, of a request, and from one to the next."""
        known, faster = (0.0 if engine else 1 - MARGIN, 0.98) if least else (1.0, 1)
        stages_s = known * np.stack([of[0][point] + coding_s, of[1][point] + coding_s / slower])
        latency_s = stages_s.sum(axis=0) + on_link_s * faster + (0 if least else over_s * crosses)
        return stages_s, latency_s, np.max([*stages_s, faster * line_s, latency_s / 64], axis=0)

    stages_s, latency_s, period_s = figures(profiled)
    unsure_s = BY_ENGINE * engine * np.stack(profiled)[:, point]
    longer_s = np.max([*(stages_s + unsure_s), period_s], axis=0)
    with np.errstate(divide="ignore"):  # a link alone takes nothing where nothing crosses
        truth = Truth(
            *(losses(each[1], 1 / each[2]) for each in (figures(measured), figures(measured, least=True))),
            losses(latency_s, 1 / period_s),
            np.stack([np.hypot(*unsure_s) / latency_s, longer_s / period_s - 1], axis=1),
            ~crosses[:, None] | (np.arange(codecs) == codec[:, None]),
            1 - lost[codec, point],
            losses(on_link_s * 0.98, 1 / (0.98 * line_s)),
            np.stack([codec * (units + 1) + point, backend], axis=1),
        )
    kept = crosses | (codec == 0)
    return Truth(*(each[kept] for each in vars(truth).values()))


def repeat(
    seed: int,
    cells: int,
    noise: float,
    kind: str,
    *,
    ties: bool = False,
    drift: float = 0.0,
    off: float = 1.0,
    codecs: int = 1,
    engine: bool = False,
    default: bool = False,
) -> Result:
    """One search; `default`: what a run does without one.

    kind: the noise is a `single` trial's, or `common` to a round, of which its profile has one too.

    Or it is a single trial's, and has heavy `tails` (Student's distribution with 3 degrees of freedom, of the same
    standard deviation), or some trials are `slowed`, or each of the `cells` has a noise of its own (`noise` is unused).
    drift: the logarithm by which all grows slower from the first round to the last. off: how many times as
    far off the forecast is as it says.
    """
    rng = np.random.default_rng([seed, cells])
    truth = landscape(rng, cells, ties=ties, codecs=codecs, engine=engine)
    levels, count = truth.levels, 2 * ROUNDS
    cells = len(levels)
    common = noise if kind == "common" else 0.0
    single = np.full((cells, 1), OWN if kind == "common" else noise)
    if kind == "cells":
        single = np.exp(rng.uniform(*np.log(CELLS), single.shape))
    shared = rng.normal(0, common, (count, 1, 2)) + drift * np.linspace(0, 2, count)[:, None, None]
    if kind == "tails":
        own = rng.standard_t(3, (count, *levels.shape)) / math.sqrt(3)
    else:
        own = rng.normal(0, 1, (count, *levels.shape))
    figures = levels + shared + single * own
    if kind == "slowed":
        figures += math.log(SLOWED_BY) * (rng.random((count, cells, 1)) < SLOWED)
    then = rng.normal(0, common, 2)
    known = Prospects(
        truth.expected + then + off * rng.normal(0, FORECAST_ERROR, levels.shape),
        np.hypot(FORECAST_ERROR, truth.error),
        truth.bound if engine else truth.bound + then - FROM_MEDIAN * single,
        truth.fronts,
        truth.accuracy,
        moves=not engine,
    )
    if default:
        known = Prospects(
            *(truth.levels + rng.normal(0, 0.4, levels.shape), np.full_like(levels, np.nan), truth.links),
            _of_backends(truth), truth.accuracy, twins=truth.twins, moves=False,
        )  # fmt: skip
    seen = np.full_like(figures, np.nan)
    search = Search(known, ROUNDS)
    while (now := search.decide(seen, ~np.isnan(seen[..., 0]))).round:
        seen[now.round - 1, now.due] = figures[now.round - 1, now.due]
    tie = TIED * np.hypot(single, single.T) * math.sqrt(math.pi / 2 / ROUNDS)
    seconds, done = _seconds(figures), ~np.isnan(seen[..., 0])
    every = np.median(figures[:ROUNDS], axis=0)
    right, all_right, lost = True, True, False
    # The cells of each codec's front, and with several one of all; and accuracy, which is known exactly.
    fronts = [(np.flatnonzero(front), np.zeros((front.sum(), 0))) for front in truth.fronts.T]
    for members, exact in [*fronts, *[(np.arange(cells), -truth.accuracy[:, None])] * (codecs > 1)]:
        mine, ties_there = levels[members], tie[np.ix_(members, members)]
        left = np.flatnonzero(now.when[members] == 0)
        shown = np.concatenate([seen[:, members], np.broadcast_to(exact, (count, *exact.shape))], axis=2)
        shown[np.isnan(seen[:, members]).any(axis=2)] = np.nan
        best = nondominated(shown[:, left], (False,) * shown.shape[2])
        right &= _is_right(left[best], mine, ties_there, exact)
        of_all = np.concatenate([every[members], exact], axis=1)
        all_right &= _is_right(np.flatnonzero(true_front(of_all)), mine, ties_there, exact)
        lost |= bool((true_front(np.concatenate([mine, exact], axis=1)) & (now.when[members] > 0)).any())
    return Result(
        right, all_right, float(seconds[done].sum() / seconds[:ROUNDS].sum()),
        float(done.sum() / (ROUNDS * cells)), lost,
    )  # fmt: skip


def _of_backends(truth: Truth) -> Bools:
    """On which front of a codec and backend each cell may be: where nothing crosses, on those of all backends."""
    crosses = np.isfinite(truth.links[:, 0])
    own = (truth.twins[:, 1:] == np.arange(len(BACKENDS_S))) | ~crosses[:, None]
    return (truth.fronts[:, :, None] & own[:, None]).reshape(len(crosses), -1)


def _seconds(figures: Floats) -> Floats:
    """What each trial takes: two phases of some requests or half a second, warm-up, drain, and a probe."""
    request_s, pace_s = np.exp(figures[..., 0]), np.exp(figures[..., 1])
    return np.asarray(np.maximum(request_s, 0.6) + np.maximum(3 * pace_s, 0.5) + 2 * request_s + 0.6)


def true_front(levels: Floats) -> Bools:
    """Whether none of the others dominates each cell: less is better."""
    no_better = (levels[:, None] >= levels[None]).all(axis=2)
    return np.asarray(~(no_better & (levels[:, None] > levels[None]).any(axis=2)).any(axis=1))


def _is_right(front: Ints, levels: Floats, tie: Floats, exact: Floats) -> bool:
    """Whether none of its cells is dominated by more than a tie, and each of the true front is within one of its cells.

    The cover of Kone, Kaufmann & Richert (2023). tie: cells x cells. exact: further objectives, cells x objectives.
    """
    more = tie[front][..., None]
    true = np.flatnonzero(true_front(np.concatenate([levels, exact], axis=1)))
    no_better = (exact[front][:, None] >= exact[None]).all(axis=2)
    beaten = ((levels[front][:, None] > levels[None] + more).all(axis=2) & no_better).any(axis=1)
    no_worse = (exact[front][:, None] <= exact[true][None]).all(axis=2)
    covered = ((levels[front][:, None] <= levels[true][None] + more[:, true]).all(axis=2) & no_worse).any(
        axis=0
    )
    return bool(not beaten.any() and covered.all())
