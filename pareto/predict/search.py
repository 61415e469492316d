"""The choice of what is measured next of a condition's cells, from forecasts and the rows so far.

Every decision is a function of the rows, so that a run that goes on decides as one that never stopped. Cells that the
forecast puts on the front, or near it, are measured first and have two thirds of the rounds to themselves; all others
join then. Between rounds cells are struck off (`pareto.predict.strikes`). A strike is taken back when later rounds of
the other cell make the difference less certain.

Eliminating arms that are surely dominated, and giving what that saves to the rest, is due to Auer, Chiang, Ortner &
Drugan, "Pareto front identification from stochastic bandit feedback", AISTATS 2016. Where time is short, the cells
whose place is least clear are measured: the empirical gaps of Kone, Kaufmann & Richert, "Bandit Pareto set
identification: the fixed budget setting", AISTATS 2024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from pareto.analysis.fronts import shared_rounds
from pareto.analysis.schema import STANDS
from pareto.analysis.statistics.samples import Bools, Floats, Ints
from pareto.predict.strikes import Look, Prospects, Strikes, losses
from pareto.sweep.cell import Cell
from pareto.trial.store import REDONE

Group = tuple[str, str, int, str, str, int, str]
"""The values shared by all cells that are searched together: a condition but for the codec."""
OBJECTIVES = {"latency": "latency_s", "throughput": "throughput_ips"}
MOVED = 0.5
"""The probability to be chance above which a strike is taken back."""


@dataclass(frozen=True)
class Decision:
    """The next step with a condition's cells.

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
    """The decisions of one condition's search. Looks at rows that did not change since are kept."""

    def __init__(self, prospects: Prospects, rounds: int, *, grows: bool = False) -> None:
        """rounds: how many each cell gets that is not struck off. grows: whether more rounds may be added."""
        self.prospects, self.rounds, self.grows = prospects, rounds, grows
        self.joins = 1 if (prospects.tiers < 2).all() else 1 + 2 * rounds // 3
        """The round in which cells that are not likely are measured for the first time: by then those that can strike
        them off are known well."""
        self._states: list[_State] = []

    def decide(self, measured: Floats, tried: Bools) -> Decision:
        """The decision after these trials, by making every decision so far again.

        measured: rounds x cells x 2, `losses`, NaN without a valid trial. tried: rounds x cells, whether there is a
        trial, valid or not.

        A strike stands until its probability to be chance exceeds `MOVED`. A cell that joined late, or comes back,
        lacks rounds. Where it is on the front, they are made up for by rounds of that front, but not more than as many
        again.
        """
        cells, rounds = len(self.prospects.expected), self.rounds
        state = _State(b"", np.zeros(cells, dtype=np.int64), Strikes.none(cells), np.ones(cells, bool))
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


def gaps(measured: Floats) -> Floats:
    """How clear each cell's place is, by the rounds that each two share, on the scale of `strikes.losses`: the less,
    the less; a cell without a valid trial has 0.

    The empirical gaps of Kone, Kaufmann & Richert (2024): of a dominated cell, by how much; of another, how much it
    lacks to be dominated, or to dominate one that would then be on the front.

    measured: rounds x cells x 2, NaN without a valid trial.
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


@dataclass(frozen=True)
class Trials:
    """The trials so far of what is searched together: `measured` and `tried` as a `Search` takes them. took_s: rounds x
    cells, NaN without a trial."""

    measured: Floats
    tried: Bools
    took_s: Floats

    @classmethod
    def of(
        cls,
        rows: Sequence[Mapping[str, str]],
        group: Group,
        cells: Sequence[Cell],
        *,
        with_unsound: bool = False,
    ) -> Trials:
        place = {(cell.point, cell.backend, cell.codec): number for number, cell in enumerate(cells)}
        key = tuple(map(str, group))
        names = ("model", "netem", "batch_size", "engine", "in_flight_asked", "prefetch_asked", "allocator")
        mine = [
            row
            for row in rows
            if (with_unsound or row["status"] not in REDONE)
            and tuple(row[name] for name in names) == key
            and (row["point"], row["backend"], row["codec"]) in place
        ]
        count = max((int(row["round"]) for row in mine), default=0)
        figures = np.full((count, len(cells), 2), np.nan)
        tried = np.zeros((count, len(cells)), dtype=bool)
        took_s = np.full((count, len(cells)), np.nan)
        for row in mine:
            at = int(row["round"]) - 1, place[row["point"], row["backend"], row["codec"]]
            tried[at] = True
            took_s[at] = float(row["wall_s"] or 0)
            for objective, (figure, column) in enumerate(OBJECTIVES.items()):
                if row["status"] in STANDS[figure]:
                    figures[at[0], at[1], objective] = float(row[column] or "nan")
        return cls(losses(figures[..., 0], figures[..., 1]), tried, took_s)


def medians(measured: Floats) -> Floats:
    """The medians over rounds, NaN without a figure that can be trusted: cells x 2."""
    medians = np.full(measured.shape[1:], np.nan)
    known = ~np.isnan(measured).all(axis=0)
    medians[known] = np.nanmedian(measured[:, known], axis=0)
    return medians
