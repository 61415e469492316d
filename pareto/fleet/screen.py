"""What the user sees of a fleet: on a terminal each testbed and all of it, in a log a line for each task."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pareto.console import duration
from pareto.plan import Plan, Trial
from pareto.screen import named
from pareto.store import Row

if TYPE_CHECKING:
    from pareto.fleet.tasks import Task
    from pareto.fleet.testbeds import Testbed

REDRAW_HZ = 2


class Board:
    """A live table on a terminal, lines in a log. dashboard: dask's own, if there is one."""

    def __init__(self, out: Console, planned: Plan, dashboard: str) -> None:
        self._out = out
        self._left = {(trial.cell, trial.round): trial.estimate_s for trial in planned.trials}
        self._left_s = sum(self._left.values())
        self._total = len(self._left)
        self._ended, self._took_s, self._foreseen_s = 0, 0.0, 0.0
        self._began_s: float | None = None
        self._testbeds: list[Testbed] = []
        self._live = Live(
            get_renderable=self._draw, console=out, refresh_per_second=REDRAW_HZ, transient=True
        )
        if dashboard:
            out.print(f"dask's dashboard: {dashboard}", soft_wrap=True)

    def __enter__(self) -> Board:
        if self._out.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._out.is_terminal:
            self._live.stop()

    def say(self, line: str) -> None:
        self._out.print(line, soft_wrap=True)

    def expect(self, part: Plan) -> None:
        """Take in what is measured next, which may be more than was planned."""
        for trial in part.trials:
            if (trial.cell, trial.round) not in self._left:
                self._left[trial.cell, trial.round] = trial.estimate_s
                self._left_s += trial.estimate_s
                self._total += 1

    def show(self, testbeds: Iterable[Testbed]) -> None:
        """Take in how the testbeds are now."""
        self._testbeds = list(testbeds)

    def finished(self, testbed: Testbed, trial: Trial, row: Row) -> None:
        if self._began_s is None:
            self._began_s = time.monotonic() - row["wall_s"]
        self._ended += 1
        self._took_s += row["wall_s"]
        foreseen_s = self._left.pop((trial.cell, trial.round), 0.0)
        self._foreseen_s += foreseen_s
        self._left_s -= foreseen_s
        if row["status"] != "ok":
            where = f"{named(trial.cell)}, round {trial.round}, on {testbed.name}"
            self._out.print(f"{row['status']}: {where}: {row['reason']}")

    def task_done(self, testbed: Testbed, task: Task) -> None:
        """In a log, a line for the task that a testbed has finished."""
        if not self._out.is_terminal:
            model, netem = task.group
            took = duration(time.monotonic() - task.began)
            what = f"{model} {netem}, round {task.round}: {len(task.trials)} trials in {took}"
            self.say(
                f"{testbed.name}: {what}; {self._ended}/{self._total} trials, {self._rate()}{self._eta()}"
            )

    def _rate(self) -> str:
        if self._began_s is None:
            return "0 rows a minute"
        minutes = max(time.monotonic() - self._began_s, 1e-3) / 60
        rate = self._ended / minutes
        return f"{rate:,.0f} rows a minute" if rate >= 100 else f"{rate:.3g} rows a minute"

    def _eta(self) -> str:
        """When all will be done, by what trials took so far and how many testbeds are at work."""
        at_work = sum(1 for each in self._testbeds if each.address and not each.out)
        if not at_work or not self._left:
            return ""
        pace = self._took_s / self._foreseen_s if self._foreseen_s else 1.0
        return f", {duration(pace * self._left_s / at_work)} left"

    def _draw(self) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        # First: where there are more testbeds than lines, the last of them are cut off.
        table.add_row("all", f"{self._ended}/{self._total} trials", f"{self._rate()}{self._eta()}")
        for testbed in self._testbeds:
            doing = Text(_doing(testbed), overflow="ellipsis", no_wrap=True)
            table.add_row(testbed.name, doing, f"{testbed.trials} rows")
        return table


def _doing(testbed: Testbed) -> str:
    if testbed.out:
        return f"taken out: {testbed.out}"
    if not testbed.address:
        return "lost" if testbed.is_lost else "starting"
    if (task := testbed.task) is None:
        return "idle"
    model, netem = task.group
    return f"{model} {netem}, round {task.round}: {task.came} of {len(task.trials)} trials"
