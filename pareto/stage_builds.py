"""How long trials wait for engines to build stages: long for a new stage, and hardly for one that comes back."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from pareto.cell import Cell
from partitions.engines import registry as engines


class StageBuilds:
    """Which stages engines have built on their hosts; they are built anew for another model, and by fresh workers.

    last: by model, its last point. edge_cpu: the edge's share of a core. fresh: whether the workers have built nothing
    yet; else they have all.
    """

    def __init__(self, last: Mapping[str, int], edge_cpu: float, *, fresh: bool) -> None:
        self._last = last
        self._edge_cpu = edge_cpu
        self._built: set[tuple[str, int, int, int, int]] | None = set() if fresh else None
        self._model = ""

    def forget(self) -> None:
        """Take in that workers start anew."""
        self._built = set()

    def wait_s(self, cell: Cell) -> float:
        """How long the next trial, of this cell, waits for the host that is slowest to build its stage."""
        if self._built is not None and self._model not in ("", cell.model):
            self.forget()
        self._model = cell.model
        engine, hosts = engines.parse(cell.engine), len(cell.cuts) + 1
        waits_s = [0.0]
        for position, (start, end) in enumerate(itertools.pairwise((0, *cell.cuts, self._last[cell.model]))):
            name = engine.at(position, hosts)
            entry, stage = engines.ENGINES[name], (name, position, start, end, cell.batch_size)
            if start < end:
                is_built = self._built is None or stage in self._built
                share = self._edge_cpu if position == 0 else 1.0
                waits_s.append((entry.again_s if is_built else entry.build_s) / share)
                if self._built is not None:
                    self._built.add(stage)
        return max(waits_s)
