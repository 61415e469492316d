"""Which task a testbed gets next."""

from __future__ import annotations

from pareto.cell import Cell
from pareto.fleet.tasks import Task, Tasks
from pareto.fleet.testbeds import Testbed
from pareto.plan import QUICK, Plan, Trial


def planned(rounds: int) -> Tasks:
    """Those of two networks, with two cells each."""
    tasks = Tasks()
    trials = tuple(
        Trial(Cell("m", (point,), "mid", "tcp", netem, 1), number, 0.1, 2.0, QUICK)
        for number in range(1, rounds + 1)
        for netem in ("wifi", "lte")
        for point in (1, 2)
    )
    tasks.plan(Plan(trials, rounds))
    return tasks


def taken(tasks: Tasks, testbed: Testbed, *here: Testbed) -> Task:
    task = tasks.take(testbed, here)
    assert task is not None
    return task


def named(task: Task) -> tuple[str, int]:
    return task.group[1], task.round


def test_a_testbed_gets_what_it_has_had_least_and_of_that_the_first() -> None:
    tasks, one, other = planned(2), Testbed("lab1", "lab1"), Testbed("lab2", "lab2")
    here = one, other
    assert [named(taken(tasks, each, *here)) for each in (one, other, one, other)] == [
        *(("wifi", 1), ("lte", 1)),
        *(("lte", 2), ("wifi", 2)),
    ]
    assert not tasks
    assert tasks.take(one, here) is None


def test_what_is_given_back_is_in_its_place_again() -> None:
    tasks, testbed = planned(3), Testbed("lab1", "lab1")
    first = taken(tasks, testbed, testbed)
    assert len(first.trials) == 2
    tasks.add(first)
    assert [named(task) for task in tasks.waiting() if task.group == first.group] == [
        ("wifi", number) for number in (1, 2, 3)
    ]


def test_what_failed_on_a_testbed_goes_to_another_while_there_is_one() -> None:
    tasks, one, other = planned(1), Testbed("lab1", "lab1"), Testbed("lab2", "lab2")
    failed = taken(tasks, one, one, other)
    failed.tried.add(one.member)
    tasks.add(failed)
    assert named(taken(tasks, one, one, other)) == ("lte", 1)
    assert tasks.take(one, (one, other)) is None
    assert tasks.take(one, (one,)) is failed
