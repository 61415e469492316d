"""What it costs to leave freed memory to the C library."""

from __future__ import annotations

from typing import cast

import pytest

from pareto.driver.session import allocator_cost
from pareto.hosts.session import SessionLost
from pareto.remote.link.profile import Profile
from pareto.sweep.cell import Cell
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.plan import ModelFacts
from pareto.trial.any_workers import AnyWorkers
from pareto.trial.workers import Workers

MODELS = {
    name: ModelFacts(
        tuple((f"p{n}", 100) for n in range(11)), 0.03, splits=tuple((n,) for n in (0, 3, 6, 10))
    )
    for name in ("a", "b")
}
NETWORKS = {"none": (Profile("none"),)}
TUNED = {"edge": [0.02, 0.01, 0.03], "server": [0.02, 0.04, 0.05]}
"""Seconds of a run on each host, one baseline after the other."""


class StandIn(Workers):
    """Hosts on which the edge takes twice as long by default; a run of `b` is not disturbed any less."""

    def __init__(self, allocator: str = "tuned", dies_with: str = "") -> None:
        self.allocator, self._dies_with = allocator, dies_with
        self.asked: list[tuple[str, str, str]] = []

    def loaded(self, cell: Cell) -> None:
        self.allocator = cell.allocator
        if self._dies_with == cell.allocator:
            raise SessionLost("the edge is gone")

    def alone(self, cell: Cell) -> dict[str, float | None]:
        number = self.asked.count((cell.model, cell.point, self.allocator))
        self.asked.append((cell.model, cell.point, self.allocator))
        took = {role: seconds[number] for role, seconds in TUNED.items()}
        return {"edge": took["edge"] * (2 if self.allocator == "default" else 1), "middle1": None} | {
            "server": took["server"]
        }


def cost(workers: object, **options: object) -> object:
    sweep = make_sweep({"model": "a,b", "backend": "tcp", **options})
    return allocator_cost(cast(AnyWorkers, workers), sweep, MODELS, NETWORKS)


@pytest.mark.parametrize("begins", ["tuned", "default"])
def test_each_model_is_run_where_it_is_cut_most_evenly_and_the_shortest_of_each_counts(begins: str) -> None:
    workers = StandIn(begins)
    of_each = {"point": "6", "times": {"edge": 2.0, "server": 1.0}}
    assert cost(workers) == [{"model": name, "batch_size": 1, **of_each} for name in ("a", "b")]
    assert [kept for *_, kept in workers.asked] == sorted(
        [begins] * 6 + [workers.allocator] * 6, key=begins.__ne__
    )
    assert workers.allocator != begins, "they start once"


def test_where_hosts_are_lost_or_none_it_is_not_known() -> None:
    assert cost(StandIn(dies_with="default")) == []
    assert cost(object()) == []


@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({}, True),
        ({"quick": True}, False),
        ({"quick": True, "allocator": "tuned,default"}, True),
        ({"allocator": "default"}, False),
    ],
)
def test_when_it_is_measured(options: dict[str, object], due: bool) -> None:
    assert bool(cost(StandIn(), **options)) is due
