"""Worlds whose truth is known, to hold stated probabilities against it: how often is what is stated with p so?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pareto.analysis.advice.ranking import best_shares
from pareto.analysis.fronts.front import front
from pareto.analysis.fronts.indicators import nondominated_in_each
from pareto.analysis.statistics import posterior
from pareto.analysis.statistics.samples import Bools, Floats
from tests.unit.simulated_rounds import by_condition, trials

BINS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.001)
POINTS = 10


@dataclass(frozen=True)
class World:
    """size: the noise of a trial by itself, in logarithms; `common` times as much is shared by a round.

    gap: competitors differ by as much at the most. kind: lognormal, heavy (Student's t, 3 degrees of freedom, of the
    same variance), outliers (a trial in twenty takes up to several times as long). offset: of each cell, in all its
    rounds alike. uneven: by how much, in logarithms, cells differ in their noise. missing: the share of trials that do
    not count, of what `best` draws.
    """

    size: float
    gap: float
    rounds: int
    kind: str = "lognormal"
    common: float = 1.0
    offset: float = 0.0
    uneven: float = 0.0
    missing: float = 0.0

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        conditions, rounds, _ = shape
        own, shared = (self._drawn(rng, of) for of in (shape, (conditions, rounds, 1)))
        lasting = rng.standard_normal((conditions, 1, shape[2]))
        of_cell = np.exp(self.uneven * rng.standard_normal((conditions, 1, shape[2])))
        return self.size * (of_cell * own + self.common * shared) + self.offset * lasting

    def _drawn(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        if self.kind == "heavy":
            return rng.standard_t(3, shape) / np.sqrt(3)
        found = rng.standard_normal(shape)
        if self.kind == "outliers":
            found += (rng.random(shape) < 0.05) * 5 * np.abs(rng.standard_normal(shape))
        return found


def two(world: World, conditions: int, seed: int) -> tuple[Floats, Bools]:
    """Two backends at one point that differ in latency: what is stated of each to be the faster, and whether it is."""
    rng = np.random.default_rng(seed)
    true = np.zeros((conditions, 2))
    true[:, 1] = rng.uniform(-world.gap, world.gap, conditions)
    latency = np.exp(true[:, None] + world.noise(rng, (conditions, world.rounds, 2)))
    return _stated(latency, np.ones_like(latency)), true == true.min(axis=1, keepdims=True)


def whole(world: World, conditions: int, seed: int) -> tuple[Floats, Bools]:
    """20 points, `POINTS` cuts over two backends: more latency buys more throughput, and backends differ by the gap."""
    rng = np.random.default_rng(seed)
    along = rng.uniform(0, 1, (conditions, POINTS))
    true = []
    for _ in range(2):
        of_points = np.repeat(along + rng.normal(0, 0.1, along.shape), 2, axis=1)
        of_points[:, 1::2] += rng.uniform(-world.gap, world.gap, along.shape)
        true.append(np.exp(of_points))
    shape = conditions, world.rounds, 2 * POINTS
    measured = [each[:, None] * np.exp(world.noise(rng, shape)) for each in true]
    return _stated(*measured), nondominated_in_each(np.stack(true, axis=2), (False, True))


def best(world: World, conditions: int, seed: int) -> tuple[Floats, Bools]:
    """Of as many points the one with the best figures: what `advise` states of it to be the best, and whether it is."""
    rng = np.random.default_rng(seed)
    true = np.repeat(rng.normal(0, 0.1, (conditions, POINTS)), 2, axis=1)
    true[:, 1::2] += rng.uniform(-world.gap, world.gap, (conditions, POINTS))
    latency = np.exp(true[:, None] + world.noise(rng, (conditions, world.rounds, 2 * POINTS)))
    latency[rng.random(latency.shape) < world.missing] = np.nan
    points = np.repeat(np.arange(POINTS), 2).astype(object)
    stated, right = np.full((2, conditions), np.nan)
    for number, of_all in enumerate(latency):
        known = ~np.isnan(of_all).all(axis=0)
        measured, truth = of_all[:, known], true[number, known]
        figures = np.nanmedian(measured, axis=0)
        draws = posterior.draws(measured[:, :, None], points[known], 0.0, figures[:, None])
        if draws is not None:
            first = figures.argmin()
            stated[number] = draws.stated(best_shares(draws.values[:, :, 0]))[first]
            right[number] = truth[first] == truth.min()
    return stated, right == 1


def _stated(latency: Floats, throughput: Floats) -> Floats:
    """Conditions x cells, in the order in which the cells were given."""
    rows = front(trials(latency, throughput, ("tcp", "rpc")))
    rows = rows.assign(place=2 * rows["point"].astype(int) + (rows["backend"] == "rpc"))
    return by_condition(rows.sort_values(["netem", "place"]), "probability_all")


def table(stated: Floats, true: Bools) -> list[tuple[float, float, int]]:
    """For each bin: what was stated on average, the share that was so, and how many. Of those with a probability.

    A probability below one half states the contrary with the rest.
    """
    known = ~np.isnan(stated)
    p, so = stated[known], true[known]
    sure, right = np.maximum(p, 1 - p), np.where(p >= 0.5, so, ~so)
    found = []
    for low, high in pairwise(BINS):
        among = (sure >= low) & (sure < high)
        count = int(among.sum())
        means = (float(sure[among].mean()), float(right[among].mean())) if count else (np.nan, np.nan)
        found.append((*means, count))
    return found
