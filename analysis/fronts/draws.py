"""The cells of a condition in the space of the objectives: as measured, and as they might have been.

A bootstrap over rounds (`resampled`) tells what the medians might have been, had other rounds been measured;
`analysis.statistics.posterior` tells what the figures may be in truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from pareto.analysis.fronts import energy, shared_rounds
from pareto.analysis.fronts.cells import ACTIVES, EFFICIENCIES, ENERGIES, MEDIANS, NEEDED, OF_CELL, cells
from pareto.analysis.fronts.objectives import Objective, chosen
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import transports
from pareto.analysis.runs.points import (
    BUT_CODEC,
    CELL,
    CONDITION,
    NONE,
    ROUND,
    competing,
    in_every_codec,
    nothing_crosses,
    order,
    order_backends,
    pooled,
    round_of,
    searched,
)
from pareto.analysis.runs.standing import stands
from pareto.analysis.statistics import posterior
from pareto.analysis.statistics.noise import floor_of, floors, spread_of
from pareto.analysis.statistics.posterior import FAIR_CHANCE
from pareto.analysis.statistics.samples import Bools, Floats, Ints

RESAMPLES = 2000
TRUTHS = 1000
"""Draws that probabilities are made of: their standard error is 1.6 % or less."""
ALL = "all"
"""Stands for all backends together, in the place of one."""
DRAWN_ROUNDS = 60_000
"""With more than 30 rounds fewer than 2000 resamples are made, so that they draw no more rounds than this..."""
LEAST_RESAMPLES = 400
"""... down to as many (from 150 rounds on): the standard error of a share of them is 2.5 % or less, and what many
rounds decide is seldom near one half."""


@dataclass(frozen=True)
class Draws:
    """The cells of one condition that have a valid trial.

    rows: as in `analysis.fronts.cells.cells`, with `feasible`. resampled: by column, resamples x cells; measured: by
    column, rounds x cells. Both have what objectives and constraint name of the medians; all else is the same in every
    resample. floor: for each objective, what identical treatments, whole runs and testbeds differ by
    (`analysis.statistics.noise`).
    """

    rows: pd.DataFrame
    objectives: tuple[Objective, ...]
    where: Where
    resampled: Mapping[str, Floats]
    measured: Mapping[str, Floats]
    floor: Floats
    seed: int = 0

    @cached_property
    def values(self) -> Floats:
        """The objectives in each resample: resamples x cells x objectives."""
        return _stacked(self.resampled, self.objectives)

    @property
    def medians(self) -> Floats:
        """The medians as measured: cells x objectives, NaN where infeasible."""
        figures = self.rows[[each.column for each in self.objectives]].to_numpy(dtype=float)
        return np.where(self.rows["feasible"].to_numpy()[:, None], figures, np.nan)

    @cached_property
    def feasible(self) -> Bools:
        """Whether a cell satisfies the constraint in each resample: resamples x cells."""
        return np.broadcast_to(self._holds(self.resampled), self.values.shape[:2])

    @cached_property
    def admitted(self) -> Floats:
        """The values, NaN where infeasible: such a point is on no front."""
        return np.where(self.feasible[:, :, None], self.values, np.nan)

    @cached_property
    def true(self) -> posterior.Draws | None:
        """Draws of what the objectives may be in truth (`analysis.statistics.posterior`); None with too few rounds."""
        points = self.rows["point"].to_numpy(dtype=object)
        in_rounds = _stacked(self.measured, self.objectives)
        truths = posterior.draws(in_rounds, points, self.floor, count=TRUTHS, seed=self.seed)
        if truths is None:
            return None
        limited = sorted((self.where.columns & set(self.measured)) - set(OF_CELL))
        holds = self._holds(
            {
                name: posterior.alone(self.measured[name], TRUTHS, self.seed + number)
                for number, name in enumerate(limited)
            }
        )
        holds = np.broadcast_to(holds, truths.values.shape[:2])
        return replace(truths, values=np.where(holds[:, :, None], truths.values, np.nan))

    def _holds(self, drawn: Mapping[str, Floats]) -> Bools:
        """Whether each cell satisfies the constraint with these figures; all others are as in the rows."""
        columns = {name: self.rows[name].to_numpy() for name in self.where.columns} | dict(drawn)
        return self.where.within(self.where.over_backends(self.rows, columns))

    @property
    def maximise(self) -> list[bool]:
        return [each.maximise for each in self.objectives]

    def first(self, resamples: int) -> Draws:
        """The first of the resamples: the same that would have been drawn, had no more been wanted."""
        return replace(self, resampled={name: values[:resamples] for name, values in self.resampled.items()})

    def groups(self) -> Iterator[tuple[str, Ints]]:
        """Each backend with the places of its cells and of those of no backend; at last `ALL` with all places."""
        backend = self.rows["backend"].astype(str).to_numpy()
        for name in transports(self.rows):
            yield name, np.flatnonzero((backend == name) | (backend == NONE))
        yield ALL, np.arange(len(backend))

    def rounds_of_front(self, members: Ints, on_front: Bools) -> int:
        """The fewest rounds of a cell with a fair chance to be on the front of these (resamples x members): it is known
        no better; 0 if there is no front."""
        share = on_front.mean(axis=0)
        rounds = self.rows["rounds"].to_numpy()[members]
        return int(rounds[share >= min(FAIR_CHANCE, share.max())].min()) if on_front.any() else 0


@dataclass(frozen=True)
class Prepared:
    """Trials as their cells (`analysis.fronts.cells.cells`), with the draws of one condition after another.

    of_searches: the valid trials of conditions of which a run was a search. condition: the columns that are the same
    for all points that compete.
    """

    rows: pd.DataFrame
    objectives: tuple[Objective, ...]
    where: Where
    draws: Iterator[Draws]
    of_searches: pd.DataFrame
    condition: Sequence[str] = tuple(CONDITION)

    def measured(self, cells: pd.DataFrame, columns: Sequence[str]) -> Floats | None:
        """Figures of some cells of one condition by round: rounds x cells x columns; None where no run was a search."""
        if self.of_searches.empty:
            return None
        by = list(self.condition)
        trials = self.of_searches.merge(cells[by].drop_duplicates(), on=by)
        if trials.empty:
            return None
        tables = shared_rounds.in_rounds(trials, cells, [*MEDIANS, *ENERGIES, *ACTIVES])
        tables |= _made(tables, cells, set(columns))
        for column in set(columns) & set(OF_CELL):
            tables[column] = np.where(
                np.isnan(tables["latency_s"]), np.nan, cells[column].to_numpy(dtype=float)
            )
        return np.stack([tables[column] for column in columns], axis=2)


def prepared(
    trials: pd.DataFrame,
    objectives: Sequence[str],
    where: str,
    resamples: int = RESAMPLES,
    seed: int = 0,
    *,
    over_codecs: bool = False,
) -> Prepared:
    """The cells of trials and the draws of each condition, by the names of objectives and the text of a constraint.

    over_codecs: the cells of all codecs compete, and a point where nothing crosses, which has none, is one cell.
    Without it each codec is a condition of its own, and such a point is one of its cells. Raises `UserError` for
    objectives or a constraint that can't be read.
    """
    wanted, constraint = chosen(objectives), Where.parse(where)
    of_objectives = [objective.column for objective in wanted]
    known = floors(trials, of_objectives)
    conditions = searched(trials)
    # All columns of a million trials are a gigabyte, and each step below makes a copy.
    trials = competing(trials[[name for name in NEEDED if name in trials]])
    condition = BUT_CODEC if over_codecs else CONDITION
    if over_codecs:
        trials = trials.assign(codec=trials["codec"].astype("str").where(~nothing_crosses(trials), "none"))
    else:
        trials = in_every_codec(trials)
    trials = pooled(trials)
    rows = cells(trials)

    needed = {*of_objectives, *constraint.columns}
    made_of = {energy.WHOLE: ENERGIES, energy.ACTIVE: ACTIVES, **EFFICIENCIES}
    parts = {column for made in needed for column in made_of.get(made, [made])}
    drawn = [column for column in (*MEDIANS, *ENERGIES, *ACTIVES) if column in parts]
    # Columns first, rows then: the other way round, all that is measured would be copied.
    columns = [*CONDITION, "backend", "point", *ROUND, *drawn]
    ok = trials.reindex(columns=columns)[stands(trials).to_numpy()]
    measured = rows[rows["rounds"] > 0]
    measured = measured.assign(feasible=constraint.holds(measured))

    def of_condition(ok: pd.DataFrame, members: pd.DataFrame) -> Draws:
        result = resampled(ok, drawn, resamples, seed)

        def whole(values: Mapping[str, Floats], count: int) -> dict[str, Floats]:
            fixed = {name: members[name].to_numpy(dtype=float)[None] for name in OF_CELL if name in needed}
            repeated = {name: np.repeat(each, count, axis=0) for name, each in fixed.items()}
            return {**values, **_made(values, members, needed), **repeated}

        in_rounds = whole(result.measured, max(1, len(result.run)))
        figures = _stacked(in_rounds, wanted)
        logs = np.log(np.where(figures > 0, figures, np.nan))
        # Where each run had a testbed of its own, they are told apart once.
        apart = {each.tobytes(): each for each in (result.run, result.testbed)}.values()
        spreads = [spread_of(logs, each) for each in apart]
        floor = np.linalg.norm([floor_of(known, members.iloc[0]).of(of_objectives), *spreads], axis=0)
        values = whole(result.values, resample_count(resamples, len(result.run)))
        return Draws(members, wanted, constraint, values, in_rounds, floor, seed)

    groups = (frame.groupby(condition, dropna=False, observed=True) for frame in (ok, measured))
    draws = (of_condition(ok, rows) for (_, ok), (_, rows) in zip(*groups, strict=True))
    return Prepared(rows, wanted, constraint, draws, _valid(trials, conditions), condition)


def _valid(trials: pd.DataFrame, conditions: pd.DataFrame) -> pd.DataFrame:
    """The valid trials of these conditions, with all that a cell may be judged by."""
    columns = [*CELL, *ROUND, *MEDIANS, *ENERGIES, *ACTIVES]
    if conditions.empty:
        return pd.DataFrame(columns=columns)
    valid = trials.reindex(columns=columns)[stands(trials).to_numpy()]
    return valid.merge(conditions, on=CONDITION)


def _stacked(columns: Mapping[str, Floats], objectives: Sequence[Objective]) -> Floats:
    """The columns of the objectives, one behind the other."""
    return np.stack([columns[objective.column] for objective in objectives], axis=2)


def _made(values: Mapping[str, Floats], members: pd.DataFrame, wanted: set[str]) -> dict[str, Floats]:
    """The wanted columns that are made of other figures, in each resample or round."""
    made = {
        column: values[above] / values[below]
        for column, (above, below) in EFFICIENCIES.items()
        if column in wanted
    }
    for which in wanted & {energy.WHOLE, energy.ACTIVE}:
        made[which] = energy.charged(str(members["energy_of"].iloc[0]), members, values, which)
    return made


@dataclass(frozen=True)
class Resampled:
    """By column, `values`: resamples x cells, and `measured`: rounds x cells, sorted by codec, backend and point. The
    same row of every array of `values` is the same draw of rounds: compare within it. `run`, `testbed`: of which each
    round is.
    """

    values: dict[str, Floats]
    measured: dict[str, Floats]
    run: Ints
    testbed: Ints


def resample_count(resamples: int, rounds: int) -> int:
    """The number of resamples that are made, of those that are wanted."""
    return min(resamples, max(LEAST_RESAMPLES, DRAWN_ROUNDS // max(1, rounds)))


def resampled(ok: pd.DataFrame, columns: Sequence[str], resamples: int = 2000, seed: int = 0) -> Resampled:
    """Medians of every cell of one condition over reweighted rounds: the same for all cells and backends.

    `ok`: the trials of one condition that count. Rounds are blocks, as what slows one slows all its cells: a resample
    draws one weight for each (the Bayesian bootstrap; Rubin, The Annals of Statistics 9, 1981: exponential weights),
    and a cell's value in it is its weighted median. Two corrections make few rounds honest:

    - the median is interpolated between the two values at whose middle the weights reach one half, which with equal
      weights is the plain median;
    - its distance from the plain median is stretched by sqrt((n + 1) / (n - 1)), n the cell's rounds: the variance of a
      reweighted mean is by (n - 1) / (n + 1) too small.

    A cell with one round does not vary. NaN where a column has no value, or does not exist. A trial repeated within
    its round counts as a round more. With many rounds fewer resamples are made: `resample_count`.
    """
    keys = [name for name in ("codec", "backend", "point") if name in ok]
    numbered = ok.groupby(keys, observed=True).ngroup().to_numpy()
    names = ok[keys].iloc[np.unique(numbered, return_index=True)[1]]
    codecs = names["codec"].astype("str") if "codec" in names else pd.Series("", index=names.index)
    places = np.lexsort([order(names["point"]), order_backends(names["backend"]), codecs])
    place = np.argsort(places)[numbered]
    block = _blocks(ok, place)

    count = block.max(initial=-1) + 1
    rng = np.random.default_rng(seed)
    weights = rng.standard_exponential((resample_count(resamples, count), count))
    run, testbed = np.zeros((2, count), dtype=np.int64)
    run[block] = pd.factorize(ok["run"])[0]
    if "testbed" in ok:
        testbed[block] = pd.factorize(ok["testbed"])[0]
    # What passed while one run was made slowed all of it: whole runs are drawn, and rounds in them.
    if run.any():
        weights *= rng.standard_exponential((len(weights), run.max() + 1))[:, run]
    values, tables = {}, {}
    for column in columns:
        table = np.full((len(places), count), np.nan)
        if column in ok:
            table[place, block] = ok[column].to_numpy(dtype=float)
        tables[column] = table.T
        values[column] = np.stack([_medians(measured, weights) for measured in table], axis=1)
    return Resampled(values, tables, run, testbed)


def _blocks(ok: pd.DataFrame, cell: Ints) -> Ints:
    """The number of each trial's round (`runs.points.ROUND`); a repetition counts as a round more."""
    block = round_of(ok).to_numpy()
    if len(np.unique(block * (cell.max(initial=0) + 1) + cell)) < len(ok):
        repeat = pd.Series(cell).groupby([block, cell]).cumcount().to_numpy()
        block = pd.Series(cell).groupby([block, repeat]).ngroup().to_numpy()
    return np.asarray(block)


def _medians(measured: Floats, weights: Floats) -> Floats:
    """Weighted medians of one cell's values, a value or NaN a round; weights: resamples x rounds."""
    known = ~np.isnan(measured)
    if not known.all():
        measured, weights = measured[known], weights[:, known]
    n = len(measured)
    if n == 0:
        return np.full(len(weights), np.nan)
    ranked = np.argsort(measured)
    ordered = measured[ranked]
    plain = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    if ordered[0] == ordered[-1]:
        return np.full(len(weights), plain)

    # The half lies five standard deviations, sqrt(n) / 2 ranks each, about the middle: the rest need not be sorted.
    far = int(2.5 * np.sqrt(n)) + 2
    first, last = max(0, n // 2 - far), min(n, n // 2 + far)
    beneath = np.zeros(n)
    beneath[ranked[:first]] = 1
    inside = weights[:, ranked[first:last]]
    # The weight up to the middle of each value.
    reached = np.cumsum(inside, axis=1)
    reached += (weights @ beneath)[:, None]
    reached -= inside / 2
    half = weights.sum(axis=1) / 2
    after = np.clip((reached < half[:, None]).sum(axis=1), 1, last - first - 1)
    draws = np.arange(len(weights))
    before, behind = reached[draws, after - 1], reached[draws, after]
    share = np.clip((half - before) / (behind - before), 0, 1)
    near, beyond = ordered[first + after - 1], ordered[first + after]
    stretch = np.sqrt((n + 1) / (n - 1))
    return np.asarray(plain + stretch * (near + share * (beyond - near) - plain))
