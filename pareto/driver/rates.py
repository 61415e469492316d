"""The highest rate at which each cell holds the SLO: what a run with `--find-rate` measures next, by its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pareto.analysis.schema import CELL
from pareto.driver.stop import Rounds
from pareto.sweep import plan
from pareto.sweep.cell import Cell
from pareto.sweep.foreseen import Asked
from pareto.sweep.load import NO, OPEN, YES
from pareto.sweep.plan import FIRST, Plan
from pareto.trial.store import Store

WITHIN = 0.05
"""The search ends where the lowest rate that is refused is not further above the highest that holds."""
FEW, MOST_STEPS, MOST_FAULTS = 6, 12, 3
"""Rounds of a cell: as it takes usually, at most, and of these without a figure."""
BEYOND, LEAST = 1.25, 0.05
"""How far beyond the closed loop's images/s a rate is tried, and down to which share of it."""
Tried = Sequence[tuple[float, str]]
"""The rate of each round, in requests a second, and whether the SLO held; empty text where nothing is known."""


class Rates(Rounds):
    """Rounds of the cells whose highest rate is not known yet, each at a rate of its own."""

    def __init__(self, asked: Asked, store: Store) -> None:
        super().__init__(asked, Plan((), 1))
        self._store, self._cells = store, plan.cells(asked)
        self._next: dict[Cell, tuple[int, float | None]] = {}

    def update(self) -> None:
        tried: dict[tuple[str, ...], list[tuple[float, str, float]]] = {}
        if self._store.has_rows:
            # The analysis is imported between rounds, not while one is measured.
            from pareto.analysis.fronts import load
            from pareto.analysis.runs.load import load as trials

            rates = load.tried(trials([self._store.folder]))
            for *key, rate, holds, closed in rates.itertuples(index=False, name=None):
                tried.setdefault(tuple(map(str, key)), []).append((rate, holds, closed))
        self._next = {}
        for cell in self._cells:
            rows = tried.get(tuple(str(cell.columns[name]) for name in CELL), [])
            known = [closed for *_, closed in rows if closed > 0]
            rate = next_rate([(rate, holds) for rate, holds, _ in rows], max(known, default=0.0))
            if not rows or rate is not None:
                self._next[cell] = len(rows) + 1, rate

    def part(self) -> Plan | None:
        """The next round of the cells that have had the fewest; None where all is known."""
        if not self._next:
            return None
        number = min(number for number, _ in self._next.values())
        rates = {cell: rate for cell, (_, rate) in self._next.items() if rate is not None}
        return plan.in_rounds(
            self._asked, [number], lambda cell, _: self._next.get(cell, (0,))[0] == number, rates=rates
        )


def next_rate(tried: Tried, closed: float) -> float | None:
    """The rate to try next, in requests a second; None where the highest is known within `WITHIN`, or no more is tried.

    It doubles, or halves, until one holds and one does not, and is then their geometric mean. closed: requests a second
    of the closed loop; 0 where that is not known, as where a first trial failed.
    """
    high = min((rate for rate, holds in tried if holds in (NO, OPEN)), default=math.inf)
    low = max((rate for rate, holds in tried if holds == YES and rate < high), default=0.0)
    faults = sum(not holds for _, holds in tried)
    if len(tried) >= MOST_STEPS or faults >= MOST_FAULTS or not closed:
        return None
    if not low and high == math.inf:
        return FIRST * closed
    if high == math.inf:
        return min(2 * low, BEYOND * closed) if low < BEYOND * closed / (1 + WITHIN) else None
    if not low:
        return high / 2 if high / 2 > LEAST * closed else None
    return math.sqrt(low * high) if high > low * (1 + WITHIN) else None
