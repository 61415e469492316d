"""The cells of a condition in the space of the objectives: as measured, and as they might have been.

A bootstrap over rounds tells what the medians might have been, had other rounds been measured;
`analysis.statistics.posterior` tells what the figures may be in truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.fronts import energy
from pareto.analysis.fronts.cells import ACTIVES, EFFICIENCIES, ENERGIES, MEDIANS, NEEDED, OF_CELL, cells
from pareto.analysis.fronts.objectives import Objective, chosen
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import transports
from pareto.analysis.runs.points import BUT_CODEC, CONDITION, NONE, ROUND, round_of
from pareto.analysis.runs.standing import MEASURED, SETTLED, competing, stands
from pareto.analysis.runs.treatments import in_every_codec, pooled
from pareto.analysis.statistics import posterior
from pareto.analysis.statistics.noise import floor_of, floors, spread_of
from pareto.analysis.statistics.samples import Bools, Floats, Ints

RESAMPLES = 2000
ALL = "all"
"""Stands for all backends together, in the place of one."""
DRAWN_ROUNDS, LEAST_RESAMPLES = 60_000, 400
"""With more than 30 rounds fewer than 2000 resamples are made, so that they draw no more rounds than this, down to 400
(from 150 rounds on): what many rounds decide is seldom near one half."""
ON_ENERGY_FRONT = ("latency_s", "throughput_ips", energy.WHOLE, energy.ACTIVE)
_MEASURED = (*MEDIANS, *ENERGIES, *ACTIVES)
_MADE_OF = {energy.WHOLE: ENERGIES, energy.ACTIVE: ACTIVES, **EFFICIENCIES}
_OF_CONDITION = ["codec", "backend", "point"]


@dataclass(frozen=True)
class Draws:
    """The cells of one condition that have a valid trial.

    rows: as in `analysis.fronts.cells.cells`, with `feasible`. rounds: by column, what trials measured of what
    objectives and constraint are made of, rounds x cells. origin: the run and the testbed of each round, 2 x rounds.
    noise: for each objective, what identical treatments differ by. is_search: whether a run was a search.
    """

    rows: pd.DataFrame
    objectives: tuple[Objective, ...]
    where: Where
    rounds: Mapping[str, Floats]
    origin: Ints
    noise: Floats
    is_search: bool
    resamples: int = RESAMPLES
    seed: int = 0

    @property
    def columns(self) -> list[str]:
        return [each.column for each in self.objectives]

    @property
    def maximise(self) -> list[bool]:
        return [each.maximise for each in self.objectives]

    @property
    def medians(self) -> Floats:
        """The medians as measured: cells x objectives, NaN where infeasible."""
        return np.where(self.rows[["feasible"]], self.rows[self.columns].to_numpy(dtype=float), np.nan)

    def measured(self, columns: Sequence[str]) -> Floats:
        """The figures of each round: rounds x cells x columns."""
        return np.stack([self._figures(self.rounds, column) for column in columns], axis=2)

    @cached_property
    def floor(self) -> Floats:
        """The spread of identical treatments, whole runs and testbeds, for each objective."""
        figures = self.measured(self.columns)
        logs = np.log(np.where(figures > 0, figures, np.nan))
        # Where each run had a testbed of its own, they are told apart once.
        apart = {each.tobytes(): each for each in self.origin}.values()
        return np.asarray(np.linalg.norm([self.noise, *(spread_of(logs, each) for each in apart)], axis=0))

    @cached_property
    def _resampled(self) -> dict[str, Floats]:
        """Medians over reweighted rounds, the same for all cells and backends: by column, resamples x cells.

        Rounds are blocks, as what slows one slows all its cells: a resample draws one weight for each (the Bayesian
        bootstrap; Rubin, The Annals of Statistics 9, 1981: exponential weights).
        """
        run = self.origin[0]
        most = min(self.resamples, max(LEAST_RESAMPLES, DRAWN_ROUNDS // len(run)))
        rng = np.random.default_rng(self.seed)
        weights = rng.standard_exponential((most, len(run)))
        # What passed while one run was made slowed all of it: whole runs are drawn, and rounds in them.
        if run.any():
            weights *= rng.standard_exponential((most, run.max() + 1))[:, run]
        return {
            name: np.stack([_medians(of_cell, weights) for of_cell in self.rounds[name].T], axis=1)
            for name in _parts(*self.columns, *self.where.columns)
        }

    @cached_property
    def values(self) -> Floats:
        """The objectives in each resample: resamples x cells x objectives."""
        return np.stack([self._figures(self._resampled, column) for column in self.columns], axis=2)

    @cached_property
    def feasible(self) -> Bools:
        """Whether a cell satisfies the constraint in each resample: resamples x cells."""
        limited = {name: self._figures(self._resampled, name) for name in self._limited}
        return np.broadcast_to(self._holds(limited), self.values.shape[:2])

    @cached_property
    def admitted(self) -> Floats:
        """The values, NaN where infeasible: such a point is on no front."""
        return np.where(self.feasible[:, :, None], self.values, np.nan)

    @cached_property
    def true(self) -> posterior.Draws | None:
        """Draws of what the objectives may be in truth (`analysis.statistics.posterior`); None with too few rounds."""
        points = self.rows["point"].to_numpy(dtype=object)
        measured = self.measured(self.columns)
        truths = posterior.draws(measured, points, self.floor, seed=self.seed)
        if truths is None:
            return None
        limited = {
            name: posterior.alone(self._figures(self.rounds, name), self.seed + number)
            for number, name in enumerate(self._limited)
        }
        holds = np.broadcast_to(self._holds(limited), truths.values.shape[:2])
        return replace(truths, values=np.where(holds[:, :, None], truths.values, np.nan))

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
        fair = share >= min(posterior.FAIR_CHANCE, share.max())
        return int(rounds[fair].min()) if on_front.any() else 0

    @property
    def _limited(self) -> list[str]:
        """The columns of the constraint that vary from round to round."""
        return sorted(self.where.columns & {*_MEASURED, *_MADE_OF})

    def _holds(self, drawn: Mapping[str, Floats]) -> Bools:
        """Whether each cell satisfies the constraint with these figures; all others are as in the rows."""
        columns = {name: self.rows[name].to_numpy() for name in self.where.columns} | dict(drawn)
        return self.where.within(self.where.over_backends(self.rows, columns))

    def _figures(self, of: Mapping[str, Floats], column: str) -> Floats:
        """A column in each round or resample, by the figures that it is made of; others are the same in all."""
        if column in OF_CELL:
            return np.broadcast_to(self.rows[column].to_numpy(dtype=float), next(iter(of.values())).shape)
        if column in EFFICIENCIES:
            above, below = EFFICIENCIES[column]
            return of[above] / of[below]
        if column in (energy.WHOLE, energy.ACTIVE):
            return energy.charged(str(self.rows["energy_of"].iloc[0]), self.rows, of, column)
        return of[column]


def prepared(
    trials: pd.DataFrame,
    objectives: Sequence[str],
    where: str,
    resamples: int = RESAMPLES,
    seed: int = 0,
    *,
    over_codecs: bool = False,
) -> tuple[pd.DataFrame, Iterator[Draws]]:
    """The cells of trials (`analysis.fronts.cells.cells`, with `feasible`), and the draws of each condition that has a
    valid trial, by the names of objectives and the text of a constraint.

    over_codecs: the cells of all codecs compete, and a point where nothing crosses, which has none, is one cell.
    Without it each codec is a condition of its own, and such a point is one of its cells. resamples: of many rounds
    fewer are made. Raises `UserError` for objectives or a constraint that can't be read.
    """
    wanted, constraint = chosen(objectives), Where.parse(where)
    columns = [each.column for each in wanted]
    known = floors(trials, columns)
    condition = BUT_CODEC if over_codecs else CONDITION
    searched = trials[trials[SETTLED] != MEASURED] if SETTLED in trials else trials.head(0)
    searches = {*searched[condition].astype("str").drop_duplicates().itertuples(index=False, name=None)}
    # All columns of a million trials are a gigabyte, and each step below makes a copy.
    trials = competing(trials[[name for name in NEEDED if name in trials]])
    trials = pooled(in_every_codec(trials, together=over_codecs))
    rows = cells(trials)
    rows["feasible"] = constraint.holds(rows)
    parts = _parts(*columns, *constraint.columns, *(ON_ENERGY_FRONT if searches else ()))
    # Columns first, rows then: the other way round, all that is measured would be copied.
    needed = [*CONDITION, "backend", "point", *ROUND, *parts]
    ok = trials.reindex(columns=needed)[stands(trials).to_numpy()]
    by_condition = ok.groupby(condition, dropna=False, observed=True)

    def of_condition(key: tuple[Any, ...], members: pd.DataFrame) -> Draws:
        places = members[_OF_CONDITION].assign(place=range(len(members)))
        own = by_condition.get_group(key).merge(places, on=_OF_CONDITION)
        number = round_of(own).to_numpy()
        rounds = np.full((len(parts), number.max() + 1, len(members)), np.nan)
        rounds[:, number, own["place"]] = own[parts].to_numpy(dtype=float).T
        origin = np.zeros((2, rounds.shape[1]), dtype=np.int64)
        origin[:, number] = [pd.factorize(own[name])[0] for name in ("run", "testbed")]
        noise = floor_of(known, members.iloc[0]).of(columns)
        of, is_search = dict(zip(parts, rounds, strict=True)), tuple(map(str, key)) in searches
        return Draws(members, wanted, constraint, of, origin, noise, is_search, resamples, seed)

    measured = rows[rows["rounds"] > 0].groupby(condition, dropna=False, observed=True)
    return rows, (of_condition(key, members) for key, members in measured)


def _parts(*columns: str) -> list[str]:
    """The figures of trials that these columns are made of; the latency says in any case which rounds there are."""
    parts = {"latency_s"}.union(*(_MADE_OF.get(column, [column]) for column in columns))
    return [name for name in _MEASURED if name in parts]


def _medians(measured: Floats, weights: Floats) -> Floats:
    """Weighted medians of one cell's values, a value or NaN a round; weights: resamples x rounds.

    A median is interpolated between the two values at whose middle the weights reach one half; its distance from the
    plain median is stretched, as the variance of a reweighted mean is by (n - 1) / (n + 1) too small.
    """
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
