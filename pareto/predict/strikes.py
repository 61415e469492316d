"""The cells of a condition that cannot be on its front, by forecasts and the rows so far.

On a scale where less is better (`losses`: the logarithm of the latency, and of one over the throughput)

    measured = the cell's level + what the whole round shares + noise of this trial

A cell is struck off when another one is better in both objectives, and the probability that this is chance, over all
looks, is `ALPHA` at most (Bonferroni's inequality; half of it goes to each):

- by physics: the other's level is below this cell's bound. Only the other's noise can be wrong, so the probabilities of
  all others that were measured add up, whatever the number of such cells;
- by rounds: the other's level is below this cell's, in differences that the rounds' own effects cancel from. All pairs
  add up whose first cell may be struck off wrongly: those not struck off yet (Holm, "A simple sequentially rejective
  multiple test procedure", Scandinavian Journal of Statistics 6, 1979).

With several codecs there are several fronts: one for each codec, and one over all in latency, throughput and accuracy.
A cell is struck off when on each codec's front that it could be on another one beats it that is no less accurate: so it
is off the front over all codecs as well. On some front in truth, it is struck off only if the test against that front
is wrong, too: so the greatest of a cell's probabilities, one a front, counts.

Only pairs decide, and ties may be reported, as in Kone, Kaufmann & Richert, "Adaptive algorithms for relaxed Pareto
set identification", NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components
from scipy.special import stdtr, stdtrit

from pareto.analysis.fronts.shared_rounds import nondominated
from pareto.analysis.statistics.posterior import moderated
from pareto.analysis.statistics.samples import Bools, Floats, Ints
from pareto.analysis.statistics.significance import holm

ALPHA = 0.05
"""The greatest probability that a cell of the true front is struck off in a condition."""
PHYSICS, ROUNDS = "physics", "rounds"
LIKELY = 2.0
"""Cells that a forecast off by up to so many standard deviations puts on the front are measured before all others."""
SAME = 0.02
"""The share that a gain must exceed to be worth a place on the front to a cell that elsewhere loses more."""
FLOOR = 0.003
"""Standard deviation of what more rounds of a cell do not show, as a share: its place in memory, its connections."""
LEAST_LIKELY = 8
"""At least so many cells are measured before all others: from fewer the noise is not known."""
AT_ONCE = 2_000_000
"""Pairs of cells that are compared at once."""
LEAST_FREEDOM, LEAST_REPEATS = 3, 12
"""Fewer degrees of freedom say nothing of the noise; and fewer of repeated rounds less than what backends tell."""


@dataclass(frozen=True)
class Prospects:
    """Facts known of a condition's cells before any is measured: each array is cells x 2, on the scale of `losses`.

    expected: the forecast. error: its standard deviation. bound: what the cell cannot be below. NaN where nothing is
    known: such a cell is measured as if it were likely, and no physics strikes it off.

    fronts: cells x fronts, on which of them a cell may be; None: there is one, for all. accuracy: of each cell, or of
    all, known beforehand. twins: cells x 2, numbers of what a cell is but for its backend, and of that; None: they tell
    less than the forecast. moves: whether bounds move with the machine's speed: not those of links.
    """

    expected: Floats
    error: Floats
    bound: Floats
    fronts: Bools | None = None
    accuracy: float | Floats = 1.0
    twins: Ints | None = None
    moves: bool = True

    @cached_property
    def tiers(self) -> Ints:
        """Tiers by cell: 0 on the front by the forecast, 1 likely, or among the `LEAST_LIKELY` likeliest, 2 neither."""
        # By how many standard deviations another one dominates each, on the front where that is least.
        worst = np.full(len(self.expected), np.inf)
        for those in self.members:
            for part in np.array_split(those, 1 + len(those) ** 2 // AT_ONCE):
                behind = np.full((len(part), len(those)), np.inf)
                for expected, error in zip(self.expected.T, self.error.T, strict=True):
                    with np.errstate(invalid="ignore", divide="ignore"):
                        errors = np.hypot(error[part][:, None], error[those])
                        far = (expected[part][:, None] - expected[those]) / errors
                    behind = np.minimum(behind, far)
                behind[self.less_accurate(part, those)] = -np.inf
                most = np.nan_to_num(behind, nan=-np.inf).max(axis=1, initial=-np.inf)
                worst[part] = np.minimum(worst[part], most)
        likely = max(LIKELY, float(np.sort(worst)[:LEAST_LIKELY][-1])) if len(worst) else LIKELY
        return np.asarray((worst > 0).astype(np.int64) + (worst > likely))

    @cached_property
    def weights(self) -> Floats:
        """Each cell's share of the probability of a wrong strike, for strikes by it; all add up to 1.

        In equal parts for each tier: a cell that cannot be on the front is beaten by one that is, which is likely.
        """
        _, tier, count = np.unique(self.tiers, return_inverse=True, return_counts=True)
        return np.asarray(1.0 / (len(count) * count[tier]))

    @property
    def members(self) -> list[Ints]:
        """The cells of each front."""
        fronts = np.ones((len(self.expected), 1)) if self.fronts is None else self.fronts
        return [np.flatnonzero(front) for front in fronts.T if front.any()]

    def less_accurate(self, cells: Ints, than: Ints) -> Bools:
        """Whether each of the others is less accurate than each of these cells: cells x others."""
        accuracy = np.broadcast_to(self.accuracy, len(self.expected))
        return np.asarray(accuracy[cells][:, None] > accuracy[than])


def losses(latency_s: Floats, throughput_ips: Floats) -> Floats:
    """The two objectives on the scale where less is better: an array with an axis more, of length 2."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([np.log(latency_s), -np.log(throughput_ips)], axis=-1)


class Strikes(NamedTuple):
    """The strike of each cell: how it is struck off (empty text if it is not), by which cell (-1: none), and the
    probability that this is chance; and whether it was measured below its bound, which then bounds nothing."""

    how: npt.NDArray[np.object_]
    by: Ints
    chance: Floats
    below: Bools

    @classmethod
    def none(cls, cells: int) -> Strikes:
        how, by = np.full(cells, "", dtype=object), np.full(cells, -1, dtype=np.int64)
        return cls(how, by, np.ones(cells), np.zeros(cells, dtype=bool))


class Evidence:
    """The evidence of the rows so far on the cells of one condition: their levels without what rounds share, by a
    two-way additive model and least squares.

    A level is that of a round like the mean of all that are linked, also of a cell that was not in all of them. Two
    cells differ the more surely, the more rounds link them. The rounds' own effects are solved for, with the Laplacian
    of the graph in which two rounds are the closer, the more cells they have in common: there are few rounds, and may
    be thousands of cells.
    """

    def __init__(self, prospects: Prospects, measured: Floats) -> None:
        """measured: rounds x cells x 2, `losses`, NaN without a valid trial."""
        self.prospects, self.measured = prospects, measured
        whole: Bools = np.asarray(~np.isnan(measured).any(axis=2))
        self.cells = np.flatnonzero(whole.any(axis=0))
        """Those that were measured; all that follows is about these."""
        rounds = whole.any(axis=1)
        known, x = whole[rounds][:, self.cells], measured[rounds][:, self.cells]
        k, x = known.astype(float), np.where(known[..., None], x, 0.0)
        self.count, in_round = k.sum(axis=0), k.sum(axis=1)
        self.weight = k / self.count
        laplacian = np.diag(in_round) - self.weight @ k.T
        parts, part = connected_components(k @ k.T > 0, directed=False)
        self.part = part[k.argmax(axis=0)] if len(k) else part
        # What a connected part has in common is all that it leaves open.
        self.inverse = np.linalg.pinv(laplacian, hermitian=True)
        right = np.einsum("rc,rco->ro", k, x - np.einsum("rc,rco->co", self.weight, x))
        effects = self.inverse @ right
        self.levels = np.einsum("rc,rco->co", self.weight, x - effects[:, None])
        self.residual = np.where(known[..., None], x - self.levels - effects[:, None], 0.0)
        self.freedom = int(known.sum()) - len(self.cells) - int(rounds.sum()) + parts
        self.first = known, x

    def _apart(self, cells: Ints) -> Floats:
        """The variances of the differences of these cells' levels and all levels, in units of a trial's noise."""
        linked = self.inverse @ self.weight
        own = 1 / self.count + (self.weight * linked).sum(axis=0)
        apart = own[cells][:, None] + own[None] - 2 * (self.weight[:, cells].T @ linked)
        apart[np.arange(len(cells)), cells] = 0.0
        return np.asarray(np.maximum(0.0, apart))

    def _noise(self) -> tuple[Floats, float] | None:
        """One trial's noise as far as it is known: variances, cells x 2, with their degrees of freedom.

        From repeated rounds; as long as these are too few, from how far the round with most cells scatters about the
        forecast, which holds the forecast's own error too, so that it is no less. Without a forecast to speak of, from
        how far backends at one split are apart beyond what they are apart at most splits: that varies, too. The
        choice among them depends only on how many trials there are, not on what they measured.
        """
        first = self._noise_of_first()
        has_twins = first is not None and self.prospects.twins is not None
        if self.freedom < (LEAST_REPEATS if has_twins else LEAST_FREEDOM):
            return first
        repeats = np.maximum(self.count - 1, 0).astype(np.int64)
        share = repeats.sum() / self.freedom
        made = [moderated(share * (self.residual[..., o] ** 2).sum(axis=0), repeats) for o in (0, 1)]
        variances = np.stack([variance for variance, _ in made], axis=1)
        return variances, max(1.0, min(free for _, free in made) / share)

    def _noise_of_first(self) -> tuple[Floats, float] | None:
        """The same by the round with most cells alone."""
        known, x = self.first
        if not len(known):
            return None
        row = int(known.sum(axis=1).argmax())
        there = known[row]
        if self.prospects.twins is None:
            off = (x[row] - self.prospects.expected[self.cells])[there]
            off = off[~np.isnan(off).any(axis=1)]
            off, freedom = off - off.sum(axis=0) / max(1, len(off)), len(off) - 1
        else:
            off, freedom = _between_twins(x[row][there], self.prospects.twins[self.cells[there]])
        if freedom < LEAST_FREEDOM:
            return None
        return np.broadcast_to((off**2).sum(axis=0) / freedom, (len(self.cells), 2)), float(freedom)

    def strikes(self, standing: Bools, share: float) -> Strikes:
        """The strikes of cells by what is known now. standing: those that are struck off already. share: of the
        probability of a wrong strike, how much this look may use: half of it for each of both ways."""
        result, noise = Strikes.none(len(self.prospects.expected)), self._noise()
        if noise is None:
            return result

        def put(how: str, cells: Ints, by: Ints, chance: Floats) -> None:
            result.chance[cells] = np.minimum(1.0, chance)
            struck = result.chance[cells] <= ALPHA / 2
            result.how[cells[struck]], result.by[cells[struck]] = how, by[struck]

        variance, freedom = noise
        error = np.sqrt(variance / self.count[:, None] + FLOOR**2)
        under = stdtr(freedom, (self.levels - self._bounds[self.cells]) / error).min(axis=1)
        result.below[self.cells] = 2 * len(self.cells) * under / share <= ALPHA
        by, chance = self._by_rounds(variance, freedom, standing)
        put(ROUNDS, self.cells, by, chance / share)
        if not result.below.any():
            others = np.flatnonzero(result.how == "")
            by, chance = self._by_physics(others, error, freedom)
            surer = chance / share < result.chance[others]
            put(PHYSICS, others[surer], by[surer], chance[surer] / share)
        return result

    def front(self, among: Bools) -> Bools:
        """Those of these measured cells that none other of them dominates, by the rounds that each two share: on some
        front, in both objectives and accuracy."""
        result = np.zeros(len(among), dtype=bool)
        accuracy = np.broadcast_to(self.prospects.accuracy, self.measured.shape[:2])[..., None]
        figures = np.concatenate([np.where(among[:, None], self.measured, np.nan), accuracy], axis=2)
        for those in self.prospects.members:
            result[those] |= nondominated(figures[:, those], (False, False, True))
        return result

    @cached_property
    def _bounds(self) -> Floats:
        """The bounds, lower where the machine is faster than it was when they were made; never higher."""
        if not self.prospects.moves:
            return self.prospects.bound
        moved = self.levels - self.prospects.expected[self.cells]
        known = moved[~np.isnan(moved).any(axis=1)]
        return self.prospects.bound + (np.minimum(0.0, np.median(known, axis=0)) if len(known) else 0.0)

    def _by_rounds(self, variance: Floats, freedom: float, standing: Bools) -> tuple[Ints, Floats]:
        """The surest strike of each measured cell: by which one, and the probability that it is not worse than that
        one, over all pairs of this look whose second cell may still be on the front."""
        left = ~standing[self.cells]
        by, least = np.zeros(len(left), dtype=np.int64), np.zeros(len(left))
        for those in self._members:
            for part in np.array_split(those, 1 + len(those) ** 2 // AT_ONCE):
                _keep_less_sure(by, least, part, *self._surest(part, those, variance, freedom))
        result = least * max(1.0, left.sum())
        result[left] = holm(least[left])
        return self.cells[by], result

    def _surest(self, cells: Ints, others: Ints, variance: Floats, freedom: float) -> tuple[Ints, Floats]:
        """The surest strike of each of these measured cells: by which of the others, and the probability that it is not
        worse than that one over the striking one's weight."""
        apart = self._apart(cells)[:, others]
        no_better, behind = np.full(apart.shape, np.inf), np.full(apart.shape, -np.inf)
        for objective in (0, 1):
            worse = self.levels[cells, objective][:, None] - self.levels[others, objective]
            pair = np.maximum(variance[cells, objective][:, None], variance[others, objective])
            error = np.sqrt(apart * pair + 2 * FLOOR**2)
            no_better = np.minimum(no_better, (worse + SAME) / error)
            behind = np.maximum(behind, (worse - SAME) / error)
        sure = np.minimum(no_better, behind)
        sure[self.part[cells][:, None] != self.part[others]] = -np.inf
        sure[self.prospects.less_accurate(self.cells[cells], self.cells[others])] = -np.inf
        weights, tier = np.unique(self.prospects.weights[self.cells[others]], return_inverse=True)
        # The probability is that of `sure`, or twice that. So it need not be known where half of it is more than
        # what the surest pair has at most. Where `sure` is 1 or less it is too large to matter.
        most = np.stack([sure[:, tier == each].max(axis=1) for each in range(len(weights))], axis=1)
        limit = (2 * stdtr(freedom, -most) / weights).min(axis=1)[:, None] * weights
        least = np.maximum(1.0, np.minimum(most, -stdtrit(freedom, np.minimum(limit, 0.5))))
        tried = sure >= least[:, tier]
        chance = np.ones(sure.shape)
        chance[tried] = np.maximum(stdtr(freedom, -no_better[tried]), 2 * stdtr(freedom, -behind[tried]))
        chance /= weights[tier]
        return others[chance.argmin(axis=1)], chance.min(axis=1)

    def _by_physics(self, cells: Ints, error: Floats, freedom: float) -> tuple[Ints, Floats]:
        """The same of these cells' bounds, which do not vary: so only how many cells were measured counts."""
        by, least = np.zeros(len(cells), dtype=np.int64), np.zeros(len(cells))
        for front, those in zip(self.prospects.members, self._members, strict=True):
            part = np.flatnonzero(np.isin(cells, front))
            if not len(those):
                least[part] = np.inf
                continue
            ahead = (self._bounds[cells[part]][:, None] - self.levels[those]) / error[those]
            chance = np.ones(ahead.shape[:2])
            tried = (ahead > 1).all(axis=2)
            tried &= ~self.prospects.less_accurate(cells[part], self.cells[those])
            chance[tried] = stdtr(freedom, -ahead[tried]).sum(axis=1)
            chance /= self.prospects.weights[self.cells[those]]
            _keep_less_sure(by, least, part, those[chance.argmin(axis=1)], chance.min(axis=1))
        return self.cells[by], least

    @cached_property
    def _members(self) -> list[Ints]:
        """The places of each front's measured cells, among all that were measured."""
        return [np.flatnonzero(np.isin(self.cells, front)) for front in self.prospects.members]


def _between_twins(figures: Floats, twins: Ints) -> tuple[Floats, int]:
    """The distance of each figure from the mean of its twins, beyond what its backend usually has; and the degrees of
    freedom. Where a twin lacks, its usual distance errs, and so the noise is no less."""
    _, split, twice = np.unique(twins[:, 0], return_inverse=True, return_counts=True)
    has_twin = twice[split] > 1
    _, backend = np.unique(twins[has_twin, 1], return_inverse=True)
    off = np.zeros_like(figures)
    for figure, apart in zip(figures.T, off.T, strict=True):
        apart[:] = figure - (np.bincount(split, figure) / twice)[split]
        usual = np.bincount(backend, apart[has_twin]) / np.bincount(backend)
        apart[has_twin] -= usual[backend]
    return off, int((twice - 1).sum()) - len(np.unique(backend)) + 1


def _keep_less_sure(by: Ints, chance: Floats, cells: Ints, also_by: Ints, also: Floats) -> None:
    """Take these probabilities of some cells, and what they are struck off by, where they are the greater ones."""
    greater = also >= chance[cells]
    by[cells[greater]], chance[cells[greater]] = also_by[greater], also[greater]
