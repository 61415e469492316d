"""Which cells of a condition are measured next, and which are struck off, from forecasts and the rows so far.

Every decision is a function of the rows, so that a run that goes on decides as one that never stopped. On a scale where
less is better (`losses`: the logarithm of the latency, and of one over the throughput)

    measured = the cell's level + what the whole round shares + noise of this trial

A cell is struck off when another one is better in both objectives, and the probability that this is chance, over all
looks and all pairs of cells that were measured, is `ALPHA` at most (Bonferroni's inequality; half of it goes to each):

- by physics: the other's level is below this cell's bound, which needs no trial of this cell;
- by rounds: the other's level is below this cell's, in differences that the rounds' own effects cancel from.

A strike is taken back when later rounds of the other cell make the difference less certain. Eliminating arms that are
surely dominated, and giving what that saves to the rest, is due to Auer, Chiang, Ortner & Drugan, "Pareto front
identification from stochastic bandit feedback", AISTATS 2016. That only pairs decide, and that ties may be reported, is
as in Kone, Kaufmann & Richert, "Adaptive algorithms for relaxed Pareto set identification", NeurIPS 2023. Where time is
short, the cells whose place is least clear are measured: the empirical gaps of Kone, Kaufmann & Richert, "Bandit Pareto
set identification: the fixed budget setting", AISTATS 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components
from scipy.special import stdtr

from analysis.statistics.posterior import moderated
from analysis.statistics.samples import Bools, Floats, Ints

ALPHA = 0.05
"""The greatest probability that a cell of the true front is struck off in a condition."""
PHYSICS, ROUNDS = "physics", "rounds"
LIKELY = 2.0
"""Cells that the forecast puts on the front, if its errors are up to so many standard deviations, are measured before
all others."""
SAME = 0.02
"""What is better by no more than this share is not worth a place on the front to what is worse by more."""
FLOOR = 0.003
"""Standard deviation of what more rounds of a cell do not show, as a share: its place in memory, its connections."""
LEAST_LIKELY = 8
"""At least so many cells are measured before all others: from fewer the noise is not known."""
MOVED = 0.5
"""What a strike's probability to be chance must exceed for it to be taken back."""
AT_ONCE = 2_000_000
"""Pairs of cells that are compared at once."""
LEAST_FREEDOM = 3
"""Fewer degrees of freedom say nothing of the noise."""


@dataclass(frozen=True)
class Prospects:
    """What is known of a condition's cells before any is measured: each array is cells x 2, on the scale of `losses`.

    expected: the forecast. error: its standard deviation. bound: what the cell cannot be below. NaN where nothing is
    known: such a cell is measured as if it were likely, and no physics strikes it off.
    """

    expected: Floats
    error: Floats
    bound: Floats

    @classmethod
    def unknown(cls, cells: int) -> Prospects:
        return cls(*np.full((3, cells, 2), np.nan))

    @cached_property
    def tiers(self) -> Ints:
        """Of each cell: 0 on the front by the forecast, 1 likely, or among the likeliest `LEAST_LIKELY`, 2 neither."""
        # By how many standard deviations another one dominates each.
        worst = np.full(len(self.expected), -np.inf)
        for part in np.array_split(np.arange(len(worst)), 1 + len(worst) ** 2 // AT_ONCE):
            gap = self.expected[part][:, None] - self.expected[None]
            with np.errstate(invalid="ignore", divide="ignore"):
                behind = (gap / np.hypot(self.error[part][:, None], self.error[None])).min(axis=2)
            worst[part] = np.nan_to_num(behind, nan=-np.inf).max(axis=1, initial=-np.inf)
        likely = max(LIKELY, float(np.sort(worst)[:LEAST_LIKELY][-1])) if len(worst) else LIKELY
        return np.asarray((worst > 0).astype(np.int64) + (worst > likely))


def losses(latency_s: Floats, throughput_ips: Floats) -> Floats:
    """The two objectives on the scale where less is better: an array with an axis more, of length 2."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([np.log(latency_s), -np.log(throughput_ips)], axis=-1)


@dataclass(frozen=True)
class Strikes:
    """Of each cell: how it is struck off (empty text if it is not), by which cell (-1: none), and the probability that
    this is chance; and whether it was measured below its bound, which then bounds nothing.
    """

    how: npt.NDArray[np.object_]
    by: Ints
    chance: Floats
    below: Bools

    @classmethod
    def none(cls, cells: int) -> Strikes:
        return cls(
            np.full(cells, "", dtype=object),
            np.full(cells, -1, dtype=np.int64),
            np.ones(cells),
            np.zeros(cells, dtype=bool),
        )

    def over(self, kept: Strikes, stays: Bools) -> Strikes:
        """These strikes, with those of `kept` where they stay."""
        return Strikes(
            np.where(stays, kept.how, self.how),
            np.where(stays, kept.by, self.by),
            np.where(stays, kept.chance, self.chance),
            self.below,
        )


class Look:
    """What the rows so far say of the cells of one condition."""

    def __init__(self, prospects: Prospects, measured: Floats, looks: int) -> None:
        """measured: rounds x cells x 2, `losses`, NaN without a valid trial. looks: how many there will be at most."""
        self.prospects = prospects
        self.measured = measured
        self.known: Bools = np.asarray(~np.isnan(measured).any(axis=2))
        self.looks = looks
        self.cells = np.flatnonzero(self.known.any(axis=0))
        """Those that were measured; all that follows is about these."""
        self._fit()

    def _fit(self) -> None:
        """Levels of the cells without what rounds share: a two-way additive model by least squares.

        The inverse of its reduced normal matrix, a graph's Laplacian, gives the variance of each difference of two
        levels in units of the noise's: two cells differ the more surely, the more rounds link them.
        """
        rounds = self.known.any(axis=1)
        known, x = self.known[rounds][:, self.cells], self.measured[rounds][:, self.cells]
        k, x = known.astype(float), np.where(known[..., None], x, 0.0)
        in_round = k.sum(axis=1)
        laplacian = np.diag(k.sum(axis=0)) - (k / in_round[:, None]).T @ k
        self.parts, self.part = connected_components(laplacian != 0, directed=False)
        inverse = np.linalg.pinv(laplacian, hermitian=True)
        right = np.einsum("rc,rco->co", k, x - x.sum(axis=1, keepdims=True) / in_round[:, None, None])
        self.levels = inverse @ right
        own = np.diag(inverse)
        self.apart = own[:, None] + own[None] - 2 * inverse
        self.count = k.sum(axis=0)
        effects = np.einsum("rc,rco->ro", k, x - self.levels) / in_round[:, None]
        self.residual = np.where(known[..., None], x - self.levels - effects[:, None], 0.0)
        self.freedom = int(known.sum()) - len(self.cells) - int(rounds.sum()) + self.parts
        self.usual = self.levels + effects.sum(axis=0) / max(1, len(effects))
        """Levels in a round like the mean of all so far, also of cells that were not in all of them."""
        self.first = known, x

    def _noises(self) -> list[tuple[Floats, float]]:
        """What is known of one trial's noise: variances, cells x 2, with their degrees of freedom.

        From repeated rounds; and from how far the round with most cells scatters about the forecast, which holds the
        forecast's own error too, so that it is no less.
        """
        sources = []
        repeats = np.maximum(self.count - 1, 0).astype(np.int64)
        if self.freedom >= LEAST_FREEDOM:
            share = repeats.sum() / self.freedom
            made = [moderated(share * (self.residual[..., o] ** 2).sum(axis=0), repeats) for o in (0, 1)]
            variances = np.stack([variance for variance, _ in made], axis=1)
            sources.append((variances, max(1.0, min(free for _, free in made) / share)))
        known, x = self.first
        row = int(known.sum(axis=1).argmax()) if len(known) else 0
        if len(known):
            off = np.where(known[row][:, None], x[row] - self.prospects.expected[self.cells], np.nan)
            off = off[~np.isnan(off).any(axis=1)]
            if len(off) > LEAST_FREEDOM:
                variance = off.var(axis=0, ddof=1)
                sources.append((np.broadcast_to(variance, (len(self.cells), 2)), len(off) - 1.0))
        return sources

    def strikes(self) -> Strikes:
        """Which cells are struck off by what is known now, whatever was before."""
        cells = len(self.prospects.expected)
        result, sources = Strikes.none(cells), self._noises()
        unmeasured = np.setdiff1d(np.arange(cells), self.cells)
        for variance, freedom in sources:
            error = np.sqrt(variance / self.count[:, None] + FLOOR**2)
            under = stdtr(freedom, (self.usual - self._bounds[self.cells]) / error).min(axis=1)
            result.below[self.cells] |= len(sources) * 2 * self.looks * len(self.cells) * under <= ALPHA
        for variance, freedom in sources:
            self._take(result, self.cells, ROUNDS, len(sources) * self._by_rounds(variance, freedom))
            if not result.below.any():
                self._take(
                    result,
                    unmeasured,
                    PHYSICS,
                    len(sources) * self._by_physics(unmeasured, variance, freedom),
                )
        result.how[result.chance > ALPHA / 2] = ""
        result.by[result.chance > ALPHA / 2] = -1
        return result

    def front(self, among: Bools) -> Bools:
        """Which of these cells that were measured none other of them dominates, by the levels."""
        result = np.zeros(len(among), dtype=bool)
        kept = among[self.cells]
        levels = self.levels[kept]
        beaten = (levels[:, None] > levels[None]).all(axis=2).any(axis=1)
        result[self.cells[kept][~beaten]] = True
        return result

    def _take(self, result: Strikes, cells: Ints, how: str, chance: Floats) -> None:
        """Put the surest strike of each of these cells into the result. chance: these cells x measured cells."""
        best = chance.argmin(axis=1)
        least = np.minimum(1.0, chance[np.arange(len(cells)), best])
        better = least < result.chance[cells]
        result.chance[cells[better]] = least[better]
        result.by[cells[better]] = self.cells[best[better]]
        result.how[cells[better]] = how

    @cached_property
    def _bounds(self) -> Floats:
        """The bounds, lower where the machine is faster than it was when they were made; never higher."""
        moved = self.usual - self.prospects.expected[self.cells]
        known = moved[~np.isnan(moved).any(axis=1)]
        return self.prospects.bound + (np.minimum(0.0, np.median(known, axis=0)) if len(known) else 0.0)

    def _by_rounds(self, variance: Floats, freedom: float) -> Floats:
        """The probability, over all looks and pairs, that each measured cell is not worse than each other: m x m."""
        m = len(self.cells)
        gap = self.levels[:, None] - self.levels[None]
        larger = np.maximum(variance[:, None], variance[None])
        error = np.sqrt(self.apart[..., None] * larger + 2 * FLOOR**2)
        no_better = stdtr(freedom, -(gap + SAME) / error).max(axis=2)
        worse = 2 * stdtr(freedom, -(gap - SAME) / error).min(axis=2)
        chance = np.maximum(no_better, worse)
        chance[self.part[:, None] != self.part[None]] = 1.0
        np.fill_diagonal(chance, 1.0)
        return np.asarray(self.looks * m * max(1, m - 1) * chance)

    def _by_physics(self, cells: Ints, variance: Floats, freedom: float) -> Floats:
        """The same of these cells' bounds against each measured cell: cells x m."""
        gap = self._bounds[cells][:, None] - self.usual[None]
        error = np.sqrt(variance / self.count[:, None] + FLOOR**2)
        chance = stdtr(freedom, -gap / error[None]).sum(axis=2)
        return np.asarray(np.where(np.isnan(chance), 1.0, self.looks * len(self.cells) * chance))


@dataclass(frozen=True)
class Decision:
    """What is to be done next with a condition's cells.

    round: the number of the next round, 0 when there is nothing more to measure. due: its cells that have no trial in
    it yet. strikes: what is struck off. when: of each cell, after which round; 0 if it is not.
    """

    round: int
    due: Bools
    strikes: Strikes
    when: Ints


def decide(prospects: Prospects, measured: Floats, tried: Bools, rounds: int, looks: int) -> Decision:
    """What to measure after these trials, by making every decision so far again.

    measured: rounds x cells x 2, `losses`, NaN without a valid trial. tried: rounds x cells, whether there is a trial,
    valid or not. rounds: how many each cell gets that is not struck off. looks: how many there will be at most.

    A strike stands until its probability to be chance exceeds `MOVED`. A cell that comes back lacks rounds. Where it
    is on the front by the levels, they are made up for by rounds of that front, but not more than as many again.
    """
    cells = len(prospects.expected)
    when, strikes = np.zeros(cells, dtype=np.int64), Strikes.none(cells)
    front = np.ones(cells, dtype=bool)
    for number in range(1, max(len(tried), 2 * rounds) + 1):
        done = _first(tried, number)
        missing = front & (when == 0) & (done[: number - 1].sum(axis=0) < rounds)
        if number > max(rounds, len(tried)) and not missing.any():
            break
        # Of the first round, the likeliest cells come first, with a look before the others. A later round is one part.
        for part in prospects.tiers[None] <= (np.arange(3)[:, None] if number == 1 else 2):
            due = part & (when == 0) & ~done[number - 1]
            if number > rounds:
                due &= front & missing.any()
            if due.any():
                return Decision(number, due, strikes, when)
            so_far = _first(measured, number)
            if number == 1:
                so_far[0, ~part] = np.nan
            look = Look(prospects, so_far, looks)
            now = look.strikes()
            is_struck = now.how != ""
            stays = (when > 0) & ~is_struck & (now.chance <= MOVED) & ~now.below.any()
            when = np.where(is_struck | stays, np.where(when > 0, when, number), 0)
            strikes = now.over(strikes, stays)
            front = look.front(when == 0)
    return Decision(0, np.zeros(cells, dtype=bool), strikes, when)


def _first(rows: Any, number: int) -> Any:
    """A copy of the first rows, with empty ones (NaN, False) where there are fewer."""
    kept = rows[:number]
    empty = np.nan if rows.dtype == float else False
    return np.concatenate([kept, np.full((number - len(kept), *rows.shape[1:]), empty)])


def gaps(levels: Floats) -> Floats:
    """How clear each cell's place is, cells x 2 on the scale of `losses`: the less, the less; NaN counts as not at all.

    The empirical gaps of Kone, Kaufmann & Richert (2024): of a dominated cell, by how much; of another, how much it
    lacks to be dominated, or to dominate one that would then be on the front.
    """
    worse = (levels[:, None] - levels[None]).min(axis=2)  # by how much the second dominates the first
    np.fill_diagonal(worse, -np.inf)
    known = ~np.isnan(levels).any(axis=1)
    worse[~known] = worse[:, ~known] = -np.inf
    behind = worse.max(axis=1, initial=-np.inf)
    behind[~known] = 0.0
    ahead = (behind <= 0) & known
    others = np.abs(np.minimum(-worse, -worse.T))[:, ahead].min(axis=1, initial=np.inf)
    beaten = (np.maximum(-worse.T, 0) + behind)[:, known & ~ahead].min(axis=1, initial=np.inf)
    return np.where(known, np.where(ahead, np.minimum(others, beaten), behind), 0.0)
