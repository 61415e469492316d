"""The choice of what is measured next of a condition's cells, from forecasts and the rows so far.

Every decision is a function of the rows, so that a run that goes on decides as one that never stopped. Cells that the
forecast puts on the front, or near it, are measured first and have two thirds of the rounds to themselves; all others
join then. Between rounds cells are struck off (`pareto.predict.strikes`). A strike is taken back when later rounds of
the other cell make the difference less certain.

Eliminating arms that are surely dominated, and giving what that saves to the rest, is due to Auer, Chiang, Ortner &
Drugan, "Pareto front identification from stochastic bandit feedback", AISTATS 2016.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from pareto.analysis.fronts import shared_rounds
from pareto.analysis.schema import STANDS
from pareto.analysis.statistics.samples import Bools, Floats, Ints
from pareto.analysis.statistics.significance import MEASURES, medians
from pareto.predict.strikes import Evidence, Prospects, Strikes, losses
from pareto.sweep import plan
from pareto.sweep.cell import Cell, Condition

Group = tuple[str, str, int, str, str, int, str, str]
"""The values shared by all cells that are searched together: a condition but for the codec (`group_of`)."""
NAMES = ("model", "netem", "batch_size", "engine", "in_flight_asked", "prefetch_asked", "allocator", "load")
"""The columns of a group's values."""
MOVED = 0.5
"""The probability to be chance above which a strike is taken back."""


@dataclass(frozen=True)
class Decision:
    """The outcome of a look at a condition's cells, and the next step with them.

    strikes: what is struck off. when: of each cell, after which round; 0 if it is not. front: of those that are not.
    round: the number of the next one, 0 when nothing is left to measure. due: its cells that have no trial in it yet.
    """

    strikes: Strikes
    when: Ints
    front: Bools
    due: Bools
    round: int = 0


class Search:
    """The search among cells that compete, their trials so far, and its decisions. Looks at the same rows are kept."""

    decision: Decision
    measured: Floats
    """Rounds x cells x 2, `losses`, NaN without a valid trial."""
    tried: Bools
    """Rounds x cells, whether there is a trial, valid or not."""
    took_s: Floats
    """Rounds x cells, NaN without a trial."""

    def __init__(
        self, prospects: Prospects, rounds: int, *, grows: bool = False, cells: list[Cell] | None = None
    ) -> None:
        """rounds: how many each cell gets that is not struck off. grows: whether more rounds may be added."""
        self.prospects, self.rounds, self.grows, self.cells = prospects, rounds, grows, cells or []
        self.joins = 1 if (prospects.tiers < 2).all() else 1 + 2 * rounds // 3
        """The first round of cells that are not likely: by then those that can strike them off are known well."""
        self._known: dict[tuple[int, bytes], Decision] = {}
        """The outcome of each look so far, by its number and the digest of its rows."""

    def read(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Take these trials, of the cells and of others, and decide."""
        places = {(cell.point, cell.backend, cell.codec): number for number, cell in enumerate(self.cells)}
        found = [(row, places.get((row["point"], row["backend"], row["codec"]))) for row in rows]
        mine = [(row, (int(row["round"]) - 1, place)) for row, place in found if place is not None]
        shape = max((number + 1 for _, (number, _) in mine), default=0), len(self.cells)
        figures = np.full((2, *shape), np.nan)
        self.tried, self.took_s = np.zeros(shape, dtype=bool), np.full(shape, np.nan)
        for row, at in mine:
            self.tried[at] = True
            self.took_s[at] = float(row["wall_s"] or 0)
            for objective, (figure, column) in zip(figures, MEASURES.items(), strict=True):
                if row["status"] in STANDS[figure]:
                    objective[at] = float(row[column] or "nan")
        self.measured = losses(*figures)
        self.decision = self.after()

    def after(self, rounds: int | None = None) -> Decision:
        """The decision after so many rounds; None: after all."""
        return self.decide(self.measured[:rounds], self.tried[:rounds])

    def decide(self, measured: Floats, tried: Bools) -> Decision:
        """The decision after such trials, by making every decision so far again.

        A cell that joined late, or comes back, lacks rounds. Where it is on the front, rounds of that front make up for
        them, but not more than as many again.
        """
        cells, rounds, had = len(self.prospects.expected), self.rounds, len(tried)
        none = np.zeros(cells, dtype=bool)
        now = Decision(Strikes.none(cells), np.zeros(cells, dtype=np.int64), ~none, none)
        most = max(had, 2 * rounds)
        measured = np.pad(measured, ((0, most - had), (0, 0), (0, 0)), constant_values=np.nan)
        tried = np.pad(tried, ((0, most - had), (0, 0)))
        step = 0
        for number in range(1, most + 1):
            missing = now.front & (now.when == 0) & (tried[: number - 1].sum(axis=0) < rounds)
            if number > max(rounds, had) and not missing.any():
                break
            for part in self._parts(number):
                due = part & (now.when == 0) & ~tried[number - 1]
                if number > rounds:
                    due &= now.front & missing.any()
                if due.any():
                    return replace(now, round=number, due=due)
                rows = measured[:number].copy()
                if number == 1:
                    rows[0, ~part] = np.nan
                # Rows, and how many looks there were, say all that a decision follows from.
                key = step, blake2b(rows.tobytes()).digest()
                if key not in self._known:
                    self._known[key] = self._after(step, number, now, rows)
                now = self._known[key]
                step += 1
        return now

    def _parts(self, number: int) -> Bools:
        """The cells of a round, part by part, each with those before it: parts x cells."""
        tiers = self.prospects.tiers
        present = np.unique(tiers if number >= self.joins else tiers[tiers < 2])
        return np.asarray(tiers <= (present if number == 1 else present[-1:])[:, None])

    def _after(self, step: int, number: int, before: Decision, rows: Floats) -> Decision:
        """The decision after one look more."""
        look, share = Evidence(self.prospects, rows), self._share(step)
        when, strikes = before.when, before.strikes
        if share:
            now = look.strikes(when > 0, share)
            is_struck = now.how != ""
            stays = (when > 0) & ~is_struck & (now.chance <= MOVED) & ~now.below.any()
            when = np.where(is_struck | stays, np.where(when > 0, when, number), 0)
            # Those that stay are as they were; a bound that does not hold is known by now alone.
            how, by, chance = (np.where(stays, *each) for each in zip(strikes[:3], now[:3], strict=True))
            strikes = Strikes(how, by, chance, now.below)
        return replace(before, strikes=strikes, when=when, front=look.front(when == 0))

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

    def where(self, mask: Any) -> list[Cell]:
        """The cells where the mask is true."""
        return [self.cells[place] for place in np.flatnonzero(mask)]

    @property
    def medians(self) -> Floats:
        """The medians over rounds, NaN without a figure that can be trusted: cells x 2."""
        return np.stack([medians(self.measured[:, :, each].T) for each in (0, 1)], axis=1)

    def behind(self, figures: Floats, others: Floats, times: float) -> Bools:
        """Whether, on each of its fronts, something is `times` as good in both objectives: cells x 2, `losses`."""
        result, clearly = np.ones(len(figures), dtype=bool), math.log(times)
        for those in self.prospects.members:
            rivals = np.nan_to_num(others[those], nan=np.inf)
            rivals = rivals[np.argsort(rivals[:, 0])]
            best = np.concatenate([[np.inf], np.minimum.accumulate(rivals[:, 1])])
            faster = np.searchsorted(rivals[:, 0], figures[those, 0] - clearly)
            result[those] &= best[faster] < figures[those, 1] - clearly
        return result

    def ruled_out(self, others: Floats) -> list[Cell]:
        """Those that the links keep clearly behind these figures: they have short trials, but are not struck off."""
        return self.where(self.behind(self.prospects.bound, others, plan.CLEARLY))


def group_of(condition: Condition) -> Group:
    return (*condition[:3], *condition[4:])


def gaps(measured: Floats) -> Floats:
    """How clear each cell's place is, by the rounds that each two share, on the scale of `strikes.losses`: the less,
    the less; a cell without a valid trial has 0. measured: as a `Search` takes it.

    The empirical gaps of Kone, Kaufmann & Richert, "Bandit Pareto set identification: the fixed budget setting",
    AISTATS 2024: of a dominated cell, by how much; of another, how much it lacks to be dominated, or to dominate one
    that would then be on the front.
    """
    worse = shared_rounds.least_excess(measured)  # by how much the second dominates the first
    known = ~np.isnan(measured).any(axis=2).all(axis=0)
    np.fill_diagonal(worse, -np.inf)
    behind = worse.max(axis=1, initial=-np.inf)
    behind[~known] = 0.0
    ahead = (behind <= 0) & known
    others = np.abs(np.maximum(worse[:, ahead], worse[ahead].T)).min(axis=1, initial=np.inf)
    after = known & ~ahead
    beaten = (np.maximum(-worse[after].T, 0) + behind[after]).min(axis=1, initial=np.inf)
    return np.where(known, np.where(ahead, np.minimum(others, beaten), behind), 0.0)
