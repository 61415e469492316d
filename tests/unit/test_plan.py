"""Rounds of cells: complete, in a random but repeatable order, and no longer than the link asks for."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from pareto import plan, spec
from pareto.link import library
from pareto.plan import ModelFacts, Plan
from pareto.spec import Cell, Sweep

MODELS = {
    "a": ModelFacts((("input", 600_000), ("mid", 100_000), ("output", 0)), 0.03),
    "b": ModelFacts((("input", 600_000), ("output", 0)), 0.01),
}


def sweep(**fields: object) -> Sweep:
    return spec.sweep({"model": "a,b", "netem": "none,20ms-20mbit", "trials": 4, **fields})


def make(asked: Sweep, done: frozenset[tuple[Cell, int]] = frozenset()) -> Plan:
    return plan.make(asked, MODELS, {name: library.load(name) for name in asked.netems}, done)


def test_every_round_has_every_cell_once() -> None:
    asked = sweep()
    counted = Counter((trial.cell, trial.round) for trial in make(asked).trials)
    cells = plan.cells(asked, MODELS, asked.netems)
    assert len(cells) == (3 + 2) * 2 * 2  # points x backends x profiles
    assert counted == Counter((cell, number) for cell in cells for number in (1, 2, 3, 4))


def test_the_order_is_random_but_the_seeds() -> None:
    first, again, other = make(sweep()), make(sweep()), make(sweep(seed=1))
    assert first.trials == again.trials
    assert first.trials != other.trials
    rounds = [[t.cell for t in first.trials if t.round == number] for number in (1, 2, 3, 4)]
    links = {tuple(dict.fromkeys((c.model, c.netem) for c in cells)) for cells in rounds}
    within = {tuple(c for c in cells if (c.model, c.netem) == ("a", "none")) for cells in rounds}
    assert len(links) > 1
    assert len(within) == 4


def test_a_round_changes_model_or_link_as_rarely_as_it_can() -> None:
    for number in (1, 2, 3, 4):
        links = [(t.cell.model, t.cell.netem) for t in make(sweep()).trials if t.round == number]
        changes = sum(a != b for a, b in itertools.pairwise(links))
        assert changes == 3  # two models x two profiles


def test_what_is_done_is_left_out_and_the_rest_keeps_its_order() -> None:
    whole = make(sweep())
    done = frozenset((t.cell, t.round) for t in whole.trials[::3])
    rest = make(sweep(), done)
    assert rest.trials == tuple(t for t in whole.trials if (t.cell, t.round) not in done)


def test_points_are_chosen_by_number() -> None:
    asked = sweep(model="a", points="2,0,2", backend="tcp", netem="none")
    assert [(cell.point, cell.point_name) for cell in plan.cells(asked, MODELS, asked.netems)] == [
        (0, "input"),
        (2, "output"),
    ]


def test_phases_follow_the_link() -> None:
    """A cell lasts as long as its least requests need, and never under the phases' seconds."""
    asked = sweep(model="a", netem="none,200ms-5mbit", backend="tcp", trials=1)
    estimate = {(t.cell.netem, t.cell.point): t.estimate_s for t in make(asked).trials}
    transfer_s = 600_000 * 8 / 5e6
    least = plan.THOROUGH.latency[0] * (transfer_s + 0.2) + plan.THOROUGH.throughput[0] * transfer_s
    assert estimate["200ms-5mbit", 0] > least
    assert estimate["none", 0] < 2 * (plan.THOROUGH.latency[1] + plan.THOROUGH.throughput[1])
    quick = sum(t.estimate_s for t in make(sweep(model="a", quick=True)).trials)
    assert quick < 0.5 * sum(t.estimate_s for t in make(sweep(model="a")).trials)


@pytest.mark.parametrize(
    ("netem", "proven", "requests"), [("200ms-5mbit", False, 1), ("200ms-5mbit", True, 0), ("none", True, 6)]
)
def test_warm_up_proves_each_cell_and_costs_a_slow_link_nothing_more(
    netem: str, proven: bool, requests: int
) -> None:
    asked = sweep(model="a", netem=netem, backend="tcp", points="0", trials=1)
    assert make(asked).trials[0].warmup_requests(proven) == requests


def test_the_default_run_fits_into_a_quarter_of_an_hour() -> None:
    """MobileNetV2's payloads at 200 ms and 5 Mbit/s: the job the project is known by."""
    kib = [588, 1568, 784, 294, 294, *[98] * 3, *[49] * 4, *[73.5] * 3, *[30.625] * 3, 61.25, 245, 5, 0]
    models = {"m": ModelFacts(tuple((str(i), int(size * 1024)) for i, size in enumerate(kib)), 0.03)}
    profiles = {"200ms-5mbit": library.load("200ms-5mbit")}
    for options, limit_s in (({}, 15 * 60 - 30), ({"quick": True, "trials": 1}, 3 * 60 - 30)):
        asked = spec.sweep({"model": "m", "netem": "200ms-5mbit", **options})
        assert plan.make(asked, models, profiles).estimate_s < limit_s
