"""Rounds are added until all is sure, the time is spent, or it would never end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.statistics.stability import Certainty
from pareto.driver.runner import Tally
from pareto.driver.stop import Rounds, Stopping
from pareto.protocol.constants import MOST_ROUNDS
from pareto.sweep import plan, profile_files
from pareto.sweep.cell import Cell, Condition
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.foreseen import ModelFacts
from pareto.sweep.plan import Plan
from pareto.sweep.sweep import Sweep

NETEMS = ("none", "20ms-20mbit")
POINTS = (("input", 600_000), ("mid", 100_000), ("output", 0))
MODELS = {"m": ModelFacts(POINTS, 0.03, splits=((0,), (1,), (2,)))}
NETWORKS = {name: (profile_files.load(name),) for name in NETEMS}
A, B = (("m", name, 1, "none", "eager", "auto", 0, "tuned", "none") for name in NETEMS)
CELLS = 3 * 2
LOST = tuple(f"tcp {n}" for n in range(7))


def knows(
    *unsure: Condition, points: int = 4, lost: tuple[str, ...] = (), widest: str = "rpc 1 latency ±8.1 %"
) -> Certainty:
    return Certainty(7, points, 2 * len(unsure), widest if unsure else "", frozenset(unsure), lost)


@dataclass
class Session:
    """A run in which each trial takes `pace` times what was foreseen, and `looks` tell what is known after a round.

    testbeds: so many trials are measured at the same time, and as many rounds.
    """

    sweep: Sweep
    looks: Iterable[Certainty] = ()
    pace: float = 1.0
    done: frozenset[tuple[Cell, int]] = frozenset()
    time_s: float = 0.0
    testbeds: int = 1
    most: int = 1000
    said: list[str] = field(default_factory=list)
    parts: list[Plan] = field(default_factory=list)

    def __post_init__(self) -> None:
        looks, tally = iter(self.looks), Tally(at_once=self.testbeds)
        networks = {name: NETWORKS[name] for name in self.sweep.netems}
        grows = self.sweep.until is not None or self.sweep.budget is not None
        of = self.sweep, MODELS, networks
        together = (lambda: self.testbeds) if grows else None
        source = Rounds(of, plan.make(of, self.done), lambda: self.done, together)
        look = lambda within: next(looks)  # noqa: E731
        self.stopping = Stopping(self.sweep, source, look, tally, 0.0, self.said.append, lambda: self.time_s)
        for part in itertools.islice(self.stopping.plans(), self.most):
            self.parts.append(part)
            for trial in part.trials:
                tally.trials += 1
                tally.foreseen += trial.estimate_s
                tally.wall += trial.estimate_s * self.pace
                self.time_s += trial.estimate_s * self.pace / self.testbeds

    @property
    def numbers(self) -> list[list[int]]:
        return [sorted({trial.round for trial in part.trials}) for part in self.parts]

    @property
    def trials(self) -> list[tuple[Cell, int]]:
        return [(trial.cell, trial.round) for part in self.parts for trial in part.trials]

    @property
    def record(self) -> dict[str, Any]:
        return self.stopping.record() or {}


def wanted(**options: Any) -> Sweep:
    return make_sweep({"model": "m", "netem": ",".join(NETEMS), "trials": 2, **options})


def round_s(sweep: Sweep) -> float:
    return plan.make((sweep, MODELS, NETWORKS)).estimate_s / sweep.trials


def test_without_either_the_plan_is_all() -> None:
    session = Session(wanted())
    assert session.stopping.record() is None
    assert session.numbers == [[1, 2]]
    assert session.said == []
    assert Session(wanted(), done=frozenset(session.trials)).parts == []
    sure = Session(wanted(until="5%"), [knows()], done=frozenset(session.trials))
    assert (sure.record["ended"], sure.parts) == ("sure", []), "it needs no testbed"


def test_a_fleet_measures_several_rounds_at_once_and_its_budget_is_wall_time() -> None:
    session = Session(wanted(until="5%", trials=4), [knows(A, B), knows()], testbeds=3)
    assert session.numbers == [[1, 2, 3], [4], [5, 6, 7]]
    assert session.said[0].startswith("rounds 5 to 7 are added")
    limited = wanted(budget=f"{2.5 * round_s(wanted())}s")
    alone, fleet = Session(limited), Session(limited, testbeds=4)
    assert (max(alone.numbers)[-1], max(fleet.numbers)[-1]) == (2, 10)


def test_rounds_are_added_until_all_is_sure(snapshot: SnapshotAssertion) -> None:
    session = Session(wanted(until="5%"), [knows(A, B), knows(A, B), knows()])
    assert session.numbers == [[1], [2], [3], [4]]
    assert {len(part.trials) for part in session.parts} == {2 * CELLS}
    assert session.said == snapshot
    ended = {"until": 0.05, "budget_s": None, "ended": "sure", "rounds": 7, "points": 4, "unsure": 0}
    assert session.record == {**ended, "widest": "", "lost": []}
    # Only the conditions that are unsure are measured again, and whole.
    session = Session(wanted(until="5%"), [knows(A, B), knows(B), knows()])
    assert session.numbers == [[1], [2], [3], [4]]
    again = session.parts[-1].trials
    assert {trial.cell.condition for trial in again} == {B}
    assert len({trial.cell for trial in again}) == len(again) == CELLS


def test_each_condition_goes_on_with_its_own_next_round() -> None:
    """A second session asks for more: the rounds that A has not are no gap."""
    first = Session(wanted(until="5%"), [knows(B), knows(B), knows()])
    second = Session(wanted(until="2%"), [knows(A, B), knows()], done=frozenset(first.trials))
    assert {(cell.condition, number) for cell, number in second.trials} == {(A, 3), (B, 5)}
    assert [len(part.trials) for part in second.parts] == [2 * CELLS]
    # A run that was interrupted completes its round first.
    sweep = wanted(netem="none", until="5%")
    whole = Session(sweep, [knows(A), knows(A), knows()])
    begun = 2 * CELLS + 2  # two trials into the round that was added
    again = Session(sweep, [knows(A), knows()], done=frozenset(whole.trials[:begun]))
    assert again.trials == whole.trials[begun:]


def test_a_budget_is_spent_on_whole_rounds(snapshot: SnapshotAssertion) -> None:
    budget_s = 4.5 * round_s(wanted())
    session = Session(wanted(budget=budget_s))
    assert session.record == {"until": None, "budget_s": pytest.approx(budget_s), "ended": "budget"}
    assert session.numbers == [[1], [2], [3], [4]]
    assert session.said == snapshot
    # Twice as slow as foreseen: half as many.
    slow = Session(wanted(budget=5.5 * round_s(wanted())), pace=2.0)
    assert slow.numbers == [[1], [2]]
    assert slow.time_s <= 5.5 * round_s(wanted())
    # One that fits nothing gets one round.
    short = Session(wanted(budget=0.1, until="5%"))
    assert (short.record["ended"], short.numbers) == ("budget", [[1]])
    assert short.said == snapshot


def test_whichever_comes_first_ends_it(snapshot: SnapshotAssertion) -> None:
    budget = 4.5 * round_s(wanted())
    unsure = Session(wanted(until="5%", budget=budget), itertools.repeat(knows(A, B)))
    record = unsure.record
    assert (record["ended"], record["unsure"], record["widest"]) == ("budget", 4, "rpc 1 latency ±8.1 %")
    assert unsure.numbers == [[1], [2], [3], [4]]
    assert unsure.said[-1] == snapshot
    assert Session(wanted(until="5%", budget=budget), [knows(A), knows()]).record["ended"] == "sure"


def test_nothing_is_measured_for_ever(snapshot: SnapshotAssertion) -> None:
    session, fleet = (Session(wanted(until="5%"), itertools.repeat(knows(A)), testbeds=n) for n in (1, 4))
    assert (session.record["ended"], session.numbers[-1]) == ("limit", [MOST_ROUNDS])
    assert session.said[-1] == snapshot
    assert fleet.numbers[-1][-1] == MOST_ROUNDS
    by_budget = Session(wanted(budget="24h"))
    assert by_budget.record["ended"] in ("limit", "budget")
    assert by_budget.numbers[-1][0] <= MOST_ROUNDS


@pytest.mark.parametrize(
    ("known", "nothing", "ended", "lost"),
    [
        (knows(lost=LOST), knows(points=0, lost=LOST[:1]), "sure", [*LOST]),
        (
            Certainty(36, 4, 0, "", frozenset(), ("tcp 0",), ("tcp 3", "rpc 7")),
            Certainty(36, 0, 0, "", frozenset(), (), ("tcp 3",)),
            *("sure", ["tcp 0", "tcp 3", "rpc 7"]),
        ),
    ],
    ids=["no valid trial", "mostly invalid"],
)
def test_what_has_hardly_a_valid_trial_is_told_and_not_waited_for(
    known: Certainty, nothing: Certainty, ended: str, lost: list[str], snapshot: SnapshotAssertion
) -> None:
    session, none = (Session(wanted(until="5%"), [each]) for each in (known, nothing))
    assert (session.record["ended"], session.record["lost"]) == (ended, lost)
    assert none.record["ended"] == "lost"
    assert [*session.said, *none.said] == snapshot


def test_an_end_from_outside_is_told_as_such() -> None:
    session = Session(wanted(until="5%"), itertools.repeat(knows(A)), most=4)
    assert (session.record["ended"], session.record["unsure"]) == ("interrupted", 2)
    session.stopping.failed()
    assert session.record["ended"] == "failed", "it broke"
