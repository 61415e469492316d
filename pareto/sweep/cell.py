"""A cell: one combination of what a sweep compares, which is measured once a round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pareto.analysis.schema import CELL, cell_name
from pareto.partitions.allocator import TUNED
from pareto.partitions.engines import registry as engine_registry
from pareto.remote.backends import registry
from pareto.sweep import load
from pareto.sweep.sweep import AUTO

Condition = tuple[str, str, int, str, str, str, int, str, str]
"""The values shared by all points that are compared: model, network, batch size, codec, engine, requests in flight,
those decoded ahead, the hosts' allocators, and the load."""


@dataclass(frozen=True)
class Cell:
    """One combination to measure. cuts: for each link, how many units run before it. codec: at work there. prefetch:
    requests to decode ahead. load: of a third phase. stands_for: the codecs of the sweep that come to the same there
    (`Codec.at`)."""

    model: str
    cuts: tuple[int, ...]
    point_name: str
    backend: str
    netem: str
    batch_size: int
    codec: str = "none"
    engine: str = engine_registry.EAGER
    in_flight: str = AUTO
    prefetch: int = 0
    allocator: str = TUNED
    load: str = load.NONE
    stands_for: tuple[str, ...] = field(default=(), compare=False)

    @property
    def point(self) -> str:
        """The cuts as trials.csv has them: `7`, or `3+7` in a chain of three hosts."""
        return "+".join(map(str, self.cuts))

    @property
    def columns(self) -> dict[str, Any]:
        """The columns that say in every table which cell a row is of: its fields, some called `..._asked` there."""
        columns = {name: getattr(self, name.removesuffix("_asked")) for name in CELL}
        return columns | {"prefetch_asked": str(self.prefetch)}

    @property
    def condition(self) -> Condition:
        return self._condition(self.codec)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Those in which it competes: one for each codec that it stands for."""
        codecs = self.stands_for or (self.codec,)
        return tuple(map(self._condition, codecs))

    def _condition(self, codec: str) -> Condition:
        on = self.model, self.netem, self.batch_size
        return (*on, codec, self.engine, self.in_flight, self.prefetch, self.allocator, self.load)

    @property
    def transport(self) -> str:
        """The backend without its label: `tcp:4` of `tcp:4:a`."""
        return registry.parse(self.backend).transport

    @property
    def agent(self) -> str:
        return registry.parse(self.backend).agent

    @property
    def id(self) -> str:
        return cell_name(self.columns)
