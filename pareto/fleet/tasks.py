"""The tasks of a fleet's run, and which of them a testbed gets next.

A task is all cells of one (model, network) in one round: what is compared with each other is measured on one testbed,
in one hour. A testbed gets a task of the (model, network) that it has had least, so that each sees every cell if the
rounds allow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import TYPE_CHECKING, Any

from pareto.plan import Plan, Trial

if TYPE_CHECKING:
    from pareto.fleet.testbeds import Testbed

Group = tuple[str, str]
"""Model and network."""


@dataclass(eq=False)
class Task:
    """number: of those with the same trials still to do, the first comes first."""

    number: int
    trials: tuple[Trial, ...]
    failed: dict[Trial, dict[str, Any]] = field(default_factory=dict)
    """What came of trials that failed: written when nobody is to do them again."""
    tried: set[str] = field(default_factory=set)
    """The members that have done it: what failed there, another is to do."""
    began: float = 0.0
    came: int = 0

    @property
    def group(self) -> Group:
        return self.trials[0].cell.model, self.trials[0].cell.netem

    @property
    def round(self) -> int:
        return self.trials[0].round

    def is_for_another(self, here: Iterable[Testbed]) -> bool:
        """Whether one of these testbeds has not tried it."""
        return any(each.member not in self.tried for each in here)


class Tasks:
    """Those that wait to be handed out; false when there are none."""

    def __init__(self) -> None:
        self._waiting: dict[Group, deque[Task]] = {}
        self._numbers = count()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def plan(self, part: Plan) -> None:
        """Add the tasks of a part of a plan."""
        for _, trials in groupby(
            part.trials, key=lambda each: (each.round, each.cell.model, each.cell.netem)
        ):
            self.add(Task(next(self._numbers), tuple(trials)))

    def add(self, task: Task) -> None:
        """Add a task, in its place."""
        tasks = self._waiting.setdefault(task.group, deque())
        tasks.append(task)
        if len(tasks) > 1 and tasks[-2].number > task.number:
            self._waiting[task.group] = deque(sorted(tasks, key=lambda each: each.number))

    def take(self, testbed: Testbed, here: Iterable[Testbed]) -> Task | None:
        """The task that a testbed does next, which waits no more; None where there is none for it.

        What failed on it, it gets again only where no other testbed that is here could do it.
        """
        firsts = {
            group: task
            for group, tasks in self._waiting.items()
            if (
                task := next(
                    (
                        each
                        for each in tasks
                        if testbed.member not in each.tried or not each.is_for_another(here)
                    ),
                    None,
                )
            )
        }
        if not firsts:
            return None
        group = min(firsts, key=lambda one: (testbed.seen[one], firsts[one].number))
        self._waiting[group].remove(firsts[group])
        if not self._waiting[group]:
            del self._waiting[group]
        testbed.seen[group] += 1
        return firsts[group]

    def waiting(self) -> Iterator[Task]:
        for tasks in self._waiting.values():
            yield from tasks
