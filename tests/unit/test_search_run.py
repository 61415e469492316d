"""What a search on a run decides by rows, without a run."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from pareto.partitions.engines.registry import ENGINES
from pareto.predict.search_run import Searching
from pareto.remote.link.units import minutes
from pareto.sweep import plan
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.foreseen import ModelFacts
from pareto.sweep.networks import networks_of
from pareto.sweep.sweep import Sweep

# Decisions by rows, without a run


def row(
    point: int, number: int, status: str = "ok", latency_s: str = "0.1", **changed: str
) -> dict[str, str]:
    return {
        **{"model": "m", "netem": "none", "batch_size": "1", "codec": "none", "engine": "eager"},
        **{"in_flight_asked": "auto", "prefetch_asked": "0", "allocator": "tuned", "load": "none"},
        **{"point": str(point), "round": str(number), "status": status, "latency_s": latency_s},
        **{"backend": "tcp", "throughput_ips": "10", "wall_s": "2", **changed},
    }


SLOW = {"netem": "200ms-5mbit"}
HUGE = 10_000_000
"""Over that link such a payload takes 20 s: whatever the hosts take, the edge alone is better in both."""


def sweep_of(**options: Any) -> Sweep:
    return make_sweep({"model": "m", "trials": 2, "search": True, "backend": "tcp", **options})


def searching(
    rows: list[dict[str, str]], sweep: Sweep | None = None, nbytes: int = 5, **facts: Any
) -> Searching:
    sweep = sweep or sweep_of()
    usual = {"points": (("input", 9), ("mid", nbytes), ("output", 0)), "splits": ((0,), (1,), (2,))}
    model = ModelFacts(compute_s=0.1, **{**usual, **facts})
    store = Mock(run="r", rows=lambda: rows, manifest=lambda: {"sessions": [{"profiling_s": 5.0}, {}]})
    return Searching((sweep, {"m": model}, networks_of(sweep, 1)), store, {})


def part_of(search: Searching) -> tuple[plan.Trial, ...]:
    """The next trials; none when all is measured."""
    search.update()
    part = search.part()
    return () if part is None else part.trials


def due(search: Searching) -> set[tuple[str, int]]:
    return {(trial.cell.point, trial.round) for trial in part_of(search)}


def test_trials_of_which_no_figure_counts_are_due_again() -> None:
    rows = [row(0, 1), row(1, 1, "failed", ""), row(2, 1, "latency only")]
    assert due(searching(rows)) == {("1", 1)}
    # But for what failed in the session: a cell that always fails must not keep the others from being measured.
    search = searching(rows)
    search.is_measuring = True
    assert due(search) == {("0", 2), ("1", 2), ("2", 2)}


def test_a_figure_that_stands_is_known_and_the_other_is_not() -> None:
    statuses = ("ok", "latency only", "throughput only", "invalid", "failed")
    search = searching([row(1, number, each) for number, each in enumerate(statuses, 1)])
    (contest,) = search._searches.values()
    assert len(contest.tried) == 3, "what none counts of is due again"
    search.is_measuring = True
    search.update()
    known = [[False] * 2, [False, True], [True, False], [True] * 2, [True] * 2]
    assert np.isnan(contest.measured[:, 1]).tolist() == known
    assert contest.tried[:, 1].all()


def test_profiles_are_learnt_once_and_without_them_a_search_knows_the_links_alone() -> None:
    """Where a profile takes longer than it can spare: no cell waits for what will not come."""
    search = searching([])
    assert search.lacks_profiles
    search.learn(Mock(keys=lambda: {"m"}, get=lambda name: None))
    assert not search.lacks_profiles
    search = searching([], sweep_of(**SLOW))
    (contest,) = search._searches.values()
    assert np.isnan(contest.prospects.expected).all()
    search.learn({}, are_all=True)
    (contest,) = search._searches.values()
    known = contest.prospects
    assert (search.lacks_profiles, known.moves, set(known.tiers)) == (False, False, {0}), "all at first"
    assert np.isfinite(known.expected).all() and np.isfinite(known.bound[:2]).all()
    assert known.fronts is not None and known.fronts.tolist() == [[True]] * 3, "one front"
    # Where no model is ever profiled, too.
    made = searching([], make_sweep({"model": "m", "backend": "tcp,rpc", **SLOW}))
    (contest,) = made._searches.values()
    known = contest.prospects
    assert (made.lacks_profiles, known.moves) == (False, False)
    assert np.exp(known.bound[:, 0]) == pytest.approx([0.198, 0.198, 0.198, 0.198, 0, 0], abs=2e-3)
    assert known.twins is not None and known.fronts is not None
    assert known.twins.tolist() == [[split, backend] for split in range(3) for backend in range(2)]
    assert known.fronts.tolist() == [*[[True, False], [False, True]] * 2, *[[True, True]] * 2]


def test_what_is_less_accurate_strikes_nothing_off() -> None:
    """The driver knows each codec's accuracy at each split before the first trial."""
    facts = {
        "points": (("input", 9), ("mid", 5), ("late", 5), ("output", 0)),
        "splits": ((0,), (1,), (2,), (3,)),
        "accuracy": {(1, "int8", "eager", (1,)): 0.5, (1, "int8", "eager", (2,)): 0.75},
        "dtypes": (("uint8",), ("float32",), ("float32",)),
    }
    (contest,) = searching([], sweep_of(codec="none,int8"), **facts)._searches.values()
    known, names = contest.prospects, [(cell.point, cell.codec) for cell in contest.cells]
    of_cells = zip(names, zip(known.fronts.tolist(), known.accuracy.tolist(), strict=True), strict=True)
    int8, none = [True, False], [False, True]
    assert dict(of_cells) == {
        **{("0", "none"): ([True, True], 1.0), ("3", "none"): ([True, True], 1.0)},
        **{(point, "none"): (none, 1.0) for point in "12"},
        **{("1", "int8"): (int8, 0.5), ("2", "int8"): (int8, 0.75)},
    }


def test_the_first_round_begins_with_what_tells_which_trials_may_be_short() -> None:
    sweep = make_sweep({"model": "m", "backend": "tcp", **SLOW})
    asked = make_sweep({"model": "m", "backend": "tcp", "requests": 64, **SLOW})
    quick, slow = (
        [row(point, 1, **SLOW, **changed) for point in (0, 2)] for changed in ({}, {"throughput_ips": "0.01"})
    )
    slow = [each | {"latency_s": "90"} for each in slow]
    for rows, by, efforts in (
        ([], sweep, {"0": plan.THOROUGH, "2": plan.THOROUGH}),
        (quick, sweep, {"1": plan.SHORT}),
        (slow, sweep, {"1": plan.THOROUGH}),
        (quick, asked, {"1": plan.Effort((64, 0.0), (64, 0.0), (64, 0.0))}),
    ):
        assert {each.cell.point: each.effort for each in part_of(searching(rows, by, HUGE))} == efforts


@pytest.mark.parametrize("budget", [None, "1h"])
def test_a_network_has_its_later_rounds_in_a_row_but_within_a_budget(budget: str | None) -> None:
    sweep = sweep_of(netem="none,200ms-5mbit", trials=3, **({"budget": budget} if budget else {}))
    rows: list[dict[str, str]] = []
    order = []
    while trials := part_of(searching(rows, sweep)):
        rows += [row(each.cell.cuts[0], each.round, netem=each.cell.netem) for each in trials]
        order.append((trials[0].cell.netem, trials[0].round))
    first, second = "none", "200ms-5mbit"
    in_a_row = [(first, 1), (second, 1), (first, 2), (first, 3), (second, 2), (second, 3)]
    by_round = sorted(in_a_row, key=lambda each: each[1])
    assert list(dict.fromkeys(order)) == (in_a_row if budget is None else by_round)


def test_stages_and_rounds_that_are_left_are_foreseen() -> None:
    """The edge alone takes 0.1 s, and any payload 20 s: that has its first round alone."""
    sweep = make_sweep({"model": "m", "backend": "tcp", **SLOW})
    first, last = (row(point, 1, **SLOW) for point in (0, 2))
    for rows, left in (
        ([], {"0": 6, "1": 1, "2": 6}),
        ([first, last], {"0": 5, "1": 1, "2": 5}),
        ([first | {"latency_s": "0.2", "throughput_ips": "5"}, last], {"1": 1, "2": 5}),
    ):
        expected = searching(rows, sweep, HUGE).expected()
        assert Counter(trial.cell.point for trial in expected.trials) == left
    # Stages that no trial had yet take their time to build.
    least_s, sweep = ENGINES["compile"].stage_s, sweep_of(engine="compile")
    done = [row(point, 1, engine="compile") for point in (0, 1)]
    failed = row(2, 1, "failed", "", engine="compile")
    for rows, waiting in (
        ([done[0], failed], {"1": True, "2": True}),
        ([*done, failed], {"2": True}),  # of the whole model
        ([*done, row(2, 1, engine="compile")], {"0": False, "1": False, "2": False}),
    ):
        trials = part_of(searching(rows, sweep))
        assert {trial.cell.point: trial.waiting_s > least_s for trial in trials} == waiting


@pytest.mark.parametrize("added", [(0,), (0, 2), (), (0, 1, 2)])
def test_an_added_round_that_was_interrupted_is_completed(added: tuple[int, ...]) -> None:
    rows = [row(point, number) for number in (1, 2) for point in range(3)] + [
        row(point, 3) for point in added
    ]
    rest = {(str(point), 3) for point in range(3) if point not in added} if added else set()
    assert due(searching(rows, sweep_of(until="1%"))) == rest


def test_each_condition_is_added_a_round_of_its_own() -> None:
    rows = [row(point, number) for number in (1, 2, 3) for point in range(3)]
    rows += [each | {"batch_size": "2"} for each in rows[:6]]
    search = searching(rows, sweep_of(batch_size="1,2", until="1%"))
    search.update()
    part = search.further({condition: 1 + search.last(condition) for condition in search.conditions})
    assert {(trial.cell.batch_size, trial.round) for trial in part.trials} == {(1, 4), (2, 3)}


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_the_cells_are_counted_by_their_rounds(rounds: int) -> None:
    rows = [row(point, number + 1) for number in range(rounds) for point in range(3)]
    search = searching(rows)
    (line,) = search.summary()
    took = f"{minutes(5.0 + 2 * len(rows))} with the model profile's 5 s"
    assert line.startswith(
        f"3 cells: {['3 open', '3 in 1 round', '3 in 2 rounds'][rounds]}; {took}, all cells"
    )
    assert (search.part() is None) == (rounds == 2)
