"""Which cells of a condition are measured next, and which are struck off, from forecasts and the rows so far.

Every decision is a function of the rows, so that a run that goes on decides as one that never stopped. On a scale where
less is better (`losses`: the logarithm of the latency, and of one over the throughput)

    measured = the cell's level + what the whole round shares + noise of this trial

What the forecast puts on the front, or near it, is measured first and has two thirds of the rounds to itself; all else
joins then. A cell is struck off when another one is better in both objectives, and the probability that this is chance,
over all looks, is `ALPHA` at most (Bonferroni's inequality; half of it goes to each):

- by physics: the other's level is below this cell's bound, which needs no trial of this cell. Only the other's noise
  can be wrong, so the probabilities of all others that were measured add up, whatever the number of such cells;
- by rounds: the other's level is below this cell's, in differences that the rounds' own effects cancel from. All pairs
  add up whose first cell may be struck off wrongly: those not struck off yet (Holm, "A simple sequentially rejective
  multiple test procedure", Scandinavian Journal of Statistics 6, 1979).

A strike is taken back when later rounds of the other cell make the difference less certain. Eliminating arms that are
surely dominated, and giving what that saves to the rest, is due to Auer, Chiang, Ortner & Drugan, "Pareto front
identification from stochastic bandit feedback", AISTATS 2016. That only pairs decide, and that ties may be reported, is
as in Kone, Kaufmann & Richert, "Adaptive algorithms for relaxed Pareto set identification", NeurIPS 2023. Where time is
short, the cells whose place is least clear are measured: the empirical gaps of Kone, Kaufmann & Richert, "Bandit Pareto
set identification: the fixed budget setting", AISTATS 2024.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components
from scipy.special import stdtr

from analysis.fronts.shared_rounds import nondominated
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

    @cached_property
    def weights(self) -> Floats:
        """Of each cell: what share of the probability of a wrong strike is for strikes by it; all add up to 1.

        In equal parts for each tier: a cell that cannot be on the front is beaten by one that is, which is likely.
        """
        _, tier, count = np.unique(self.tiers, return_inverse=True, return_counts=True)
        return np.asarray(1.0 / (len(count) * count[tier]))


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

    def put(self, cells: Ints, how: str, by: Ints, chance: Floats) -> None:
        """Strike these cells off where the probability, within a look's share of all, is half of `ALPHA` at most."""
        self.chance[cells] = np.minimum(1.0, chance)
        struck = self.chance[cells] <= ALPHA / 2
        self.how[cells[struck]] = how
        self.by[cells[struck]] = by[struck]

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

    def __init__(self, prospects: Prospects, measured: Floats) -> None:
        """measured: rounds x cells x 2, `losses`, NaN without a valid trial."""
        self.prospects = prospects
        self.measured = measured
        self.known: Bools = np.asarray(~np.isnan(measured).any(axis=2))
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
        # What a connected part has in common is all that it leaves open: with that added, it can be inverted.
        same = (self.part[:, None] == self.part[None]) / np.bincount(self.part)[self.part] if len(k) else 0.0
        inverse = np.linalg.inv(laplacian + same) - same
        right = np.einsum("rc,rco->co", k, x - x.sum(axis=1, keepdims=True) / in_round[:, None, None])
        self.levels = inverse @ right
        own = np.diag(inverse)
        self.apart = np.maximum(0.0, own[:, None] + own[None] - 2 * inverse)
        self.count = k.sum(axis=0)
        effects = np.einsum("rc,rco->ro", k, x - self.levels) / in_round[:, None]
        self.residual = np.where(known[..., None], x - self.levels - effects[:, None], 0.0)
        self.freedom = int(known.sum()) - len(self.cells) - int(rounds.sum()) + self.parts
        self.usual = self.levels + effects.sum(axis=0) / max(1, len(effects))
        """Levels in a round like the mean of all so far, also of cells that were not in all of them."""
        self.first = known, x

    def _noise(self) -> tuple[Floats, float] | None:
        """What is known of one trial's noise: variances, cells x 2, with their degrees of freedom.

        From repeated rounds; as long as these are too few, from how far the round with most cells scatters about the
        forecast, which holds the forecast's own error too, so that it is no less. Which of them depends on how many
        trials there are alone, not on what they measured.
        """
        if self.freedom >= LEAST_FREEDOM:
            repeats = np.maximum(self.count - 1, 0).astype(np.int64)
            share = repeats.sum() / self.freedom
            made = [moderated(share * (self.residual[..., o] ** 2).sum(axis=0), repeats) for o in (0, 1)]
            variances = np.stack([variance for variance, _ in made], axis=1)
            return variances, max(1.0, min(free for _, free in made) / share)
        known, x = self.first
        if not len(known):
            return None
        row = int(known.sum(axis=1).argmax())
        off = np.where(known[row][:, None], x[row] - self.prospects.expected[self.cells], np.nan)
        off = off[~np.isnan(off).any(axis=1)]
        if len(off) <= LEAST_FREEDOM:
            return None
        return np.broadcast_to(off.var(axis=0, ddof=1), (len(self.cells), 2)), len(off) - 1.0

    def strikes(self, standing: Bools, share: float) -> Strikes:
        """Which cells are struck off by what is known now.

        standing: those that are struck off already. share: of the probability of a wrong strike, how much this look
        may use.
        """
        cells = len(self.prospects.expected)
        result, noise = Strikes.none(cells), self._noise()
        if noise is None:
            return result
        variance, freedom = noise
        error = np.sqrt(variance / self.count[:, None] + FLOOR**2)
        under = stdtr(freedom, (self.usual - self._bounds[self.cells]) / error).min(axis=1)
        result.below[self.cells] = 2 * len(self.cells) * under / share <= ALPHA
        by, chance = self._by_rounds(variance, freedom, standing)
        result.put(self.cells, ROUNDS, by, chance / share)
        if not result.below.any():
            unmeasured = np.setdiff1d(np.arange(cells), self.cells)
            by, chance = self._by_physics(unmeasured, error, freedom)
            result.put(unmeasured, PHYSICS, by, chance / share)
        return result

    def front(self, among: Bools) -> Bools:
        """Which of these cells that were measured none other of them dominates, by the rounds that each two share."""
        return nondominated(np.where(among[:, None], self.measured, np.nan), (False, False))

    @cached_property
    def _bounds(self) -> Floats:
        """The bounds, lower where the machine is faster than it was when they were made; never higher."""
        moved = self.usual - self.prospects.expected[self.cells]
        known = moved[~np.isnan(moved).any(axis=1)]
        return self.prospects.bound + (np.minimum(0.0, np.median(known, axis=0)) if len(known) else 0.0)

    def _by_rounds(self, variance: Floats, freedom: float, standing: Bools) -> tuple[Ints, Floats]:
        """Of each measured cell: which one strikes it most surely, and the probability that it is not worse than that
        one, over all pairs of this look.

        Of all pairs those count whose second cell may still be on the front: the fewer are left, the surer is a strike
        (Holm 1979).
        """
        left = ~standing[self.cells]
        worse = self.levels[:, None] - self.levels[None]
        error = np.sqrt(self.apart[..., None] * np.maximum(variance[:, None], variance[None]) + 2 * FLOOR**2)
        no_better, behind = ((worse + SAME) / error).min(axis=2), ((worse - SAME) / error).max(axis=2)
        chance = np.ones(no_better.shape)
        # Elsewhere the probability is too large to matter.
        tried = (np.minimum(no_better, behind) > 1) & (self.part[:, None] == self.part[None])
        chance[tried] = np.maximum(stdtr(freedom, -no_better[tried]), 2 * stdtr(freedom, -behind[tried]))
        chance /= self.prospects.weights[self.cells]
        by, least = _least(chance)
        order = np.argsort(least[left], kind="stable")
        count = np.full(len(least), max(1.0, left.sum()))
        each = left.sum() - np.arange(left.sum())
        stepped = np.empty(left.sum())
        stepped[order] = np.maximum.accumulate(least[left][order] * each)
        result = least * count
        result[left] = stepped
        return self.cells[by], result

    def _by_physics(self, cells: Ints, error: Floats, freedom: float) -> tuple[Ints, Floats]:
        """The same of these cells' bounds against each measured cell. A bound does not vary: so only how many cells
        were measured counts.
        """
        ahead = (self._bounds[cells][:, None] - self.usual[None]) / error[None]
        chance = np.ones(ahead.shape[:2])
        tried = (ahead > 1).all(axis=2)
        chance[tried] = stdtr(freedom, -ahead[tried]).sum(axis=1)
        chance /= self.prospects.weights[self.cells]
        by, least = _least(chance)
        return self.cells[by], least


def _least(chance: Floats) -> tuple[Ints, Floats]:
    """Where each row is least, and how much that is."""
    by = chance.argmin(axis=1)
    return by, chance[np.arange(len(by)), by]


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


@dataclass(frozen=True)
class _State:
    """Where a search stands after a look at rows with this digest."""

    rows: bytes
    when: Ints
    strikes: Strikes
    front: Bools


class Search:
    """The decisions of one condition's search. Each is a function of the rows; looks at rows that did not change since
    are kept.
    """

    def __init__(self, prospects: Prospects, rounds: int, *, grows: bool = False) -> None:
        """rounds: how many each cell gets that is not struck off. grows: whether more rounds may be added."""
        self.prospects, self.rounds, self.grows = prospects, rounds, grows
        self.joins = 1 if (prospects.tiers < 2).all() else 1 + 2 * rounds // 3
        """The round in which cells that are not likely are measured for the first time: by then those that can strike
        them off are known well."""
        self._states: list[_State] = []

    def decide(self, measured: Floats, tried: Bools) -> Decision:
        """What to measure after these trials, by making every decision so far again.

        measured: rounds x cells x 2, `losses`, NaN without a valid trial. tried: rounds x cells, whether there is a
        trial, valid or not.

        A strike stands until its probability to be chance exceeds `MOVED`. A cell that joined late, or comes back,
        lacks rounds. Where it is on the front, they are made up for by rounds of that front, but not more than as many
        again.
        """
        cells, rounds = len(self.prospects.expected), self.rounds
        state = _State(
            b"",
            np.zeros(cells, dtype=np.int64),
            Strikes.none(cells),
            np.ones(cells, bool),
        )
        step = 0
        for number in range(1, max(len(tried), 2 * rounds) + 1):
            done = _first(tried, number)
            missing = state.front & (state.when == 0) & (done[: number - 1].sum(axis=0) < rounds)
            if number > max(rounds, len(tried)) and not missing.any():
                break
            for part in self._parts(number):
                due = part & (state.when == 0) & ~done[number - 1]
                if number > rounds:
                    due &= state.front & missing.any()
                if due.any():
                    return Decision(number, due, state.strikes, state.when)
                rows = _first(measured, number)
                if number == 1:
                    rows[0, ~part] = np.nan
                state = self._after(step, number, state, rows)
                step += 1
        return Decision(0, np.zeros(cells, dtype=bool), state.strikes, state.when)

    def _parts(self, number: int) -> Bools:
        """The cells of a round, part by part, each with those before it: parts x cells."""
        tiers = self.prospects.tiers
        present = np.unique(tiers if number >= self.joins else tiers[tiers < 2])
        return np.asarray(tiers <= (present if number == 1 else present[-1:])[:, None])

    def _after(self, step: int, number: int, state: _State, rows: Floats) -> _State:
        """The state after one look more."""
        digest = blake2b(rows.tobytes()).digest()
        if step < len(self._states):
            if self._states[step].rows == digest:
                return self._states[step]
            del self._states[step:]
        look, share = Look(self.prospects, rows), self._share(step)
        if not share:
            self._states.append(replace(state, rows=digest, front=look.front(state.when == 0)))
            return self._states[-1]
        now = look.strikes(state.when > 0, share)
        is_struck = now.how != ""
        stays = (state.when > 0) & ~is_struck & (now.chance <= MOVED) & ~now.below.any()
        when = np.where(is_struck | stays, np.where(state.when > 0, state.when, number), 0)
        self._states.append(_State(digest, when, now.over(state.strikes, stays), look.front(when == 0)))
        return self._states[-1]

    def _share(self, step: int) -> float:
        """How much of the probability of a wrong strike the look after so many others may use; all have 1 at most.

        Where rounds may be added without end, half of it is theirs. Where not, a look after the last round strikes
        nothing off: that would save nothing.
        """
        looks = len(self._parts(1)) + self.rounds - 1
        if not self.grows:
            return 1 / looks if step < looks else 0.0
        added = step - looks
        return 1 / (2 * looks) if added < 0 else 0.5 / ((added + 1) * (added + 2))


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
