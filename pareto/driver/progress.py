"""The display of a run while it measures: a bar on a terminal, lines in a log. Fits 80 columns."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pareto.analysis.naming import count
from pareto.analysis.schema import LATENCY_ONLY, THROUGHPUT_ONLY
from pareto.driver.runner import MAX_REBUILDS, Watcher
from pareto.driver.screen import named
from pareto.protocol.trial_messages import Progress
from pareto.remote.link.units import minutes
from pareto.remote.worker.sensors.throttled import throttled_words
from pareto.sweep.cell import Cell
from pareto.sweep.plan import Plan, Trial
from pareto.trial.store import Row

REDRAW_HZ = 1.0
WIDTH = 24
_BAR = {"█": "green", "▒": "yellow", "░": "dim"}
_WORDS = "settled", "open", "left"
"""The bar's parts, in their order."""
Groups = tuple[tuple[object, ...], ...]
WAITING_S = 1.0
"""A trial that waits so long is the first on a network, or has a stage built; loading one that was built is faster."""


class Display(Watcher):
    """A live line on a terminal, a line for each tenth of the trials in a log."""

    def __init__(
        self,
        out: Console,
        plan: Plan,
        *,
        shares_machine: bool = False,
        grows: bool = False,
        testbeds: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """shares_machine: the hosts that are measured are on this machine, so no thread wakes for the drawing: it is
        drawn when the driver is awake anyway (`sampled`). grows: rounds are added until enough is known, so that no
        cell is settled before the end. testbeds: what those of a fleet do.
        """
        self.at_once = 1
        """How many testbeds measure at the same time."""
        self._out, self._testbeds = out, testbeds
        self._expected = set(plan.trials)
        self._left = _by_place(plan.trials)
        self._cells = {trial.cell for trial in plan.trials}
        self._tried = set[Cell]()
        self._undecided = set[Cell]()
        self._grows = grows
        self._eta_s: float | None = None
        self._ended = self._tenths = 0
        self._paces = defaultdict[tuple[object, ...], list[float]](list)
        self._now: Trial | None = None
        self._began = 0.0
        self._phase = self._last = self._sensors = ""
        self._doing = "starting"
        self.is_live = out.is_terminal
        self._wakes = self.is_live and not shares_machine
        self._live = Live(
            get_renderable=self._draw,
            console=out,
            auto_refresh=self._wakes,
            refresh_per_second=REDRAW_HZ,
            transient=True,
        )

    def __enter__(self) -> Display:
        if self.is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()  # which does nothing unless it was started

    def expect(self, part: Plan, left: Plan | None = None) -> None:
        """Take in what is measured next, which may be more than was planned, and all that is left as far as is
        foreseen; None: what was planned. In a log, an added round has no lines."""
        self._eta_s = None
        self._cells |= {trial.cell for trial in part.trials}
        if left is not None:
            self._left = _by_place([*part.trials, *left.trials])
            self._undecided = {cell for cell, _ in self._left}
        elif added := set(part.trials) - self._expected:
            self._expected |= added
            self._left |= _by_place(added)
            self._tenths = 10

    def say(self, line: str) -> None:
        self._out.print(line, soft_wrap=True)

    def shows(self, words: str) -> None:
        """Say what is done before the first trial."""
        self._doing = words
        if self.is_live:
            self._live.refresh()

    def started(self, trial: Trial) -> None:
        self._now, self._began = trial, time.monotonic()
        self.doing("")

    def doing(self, words: str) -> None:
        self._phase = words
        if self.is_live and not self._wakes:
            self._live.refresh()

    def sampled(self, latest: dict[str, dict[str, Any]], progress: Progress | None) -> None:
        shown = {role: _sensed(sample) for role, sample in latest.items()}
        self._sensors = "; ".join(f"{role} {words}" for role, words in shown.items() if words)
        done = progress and f"{progress.phase}, {count(progress.requests, 'request')} done"
        self.doing(done or "measuring")

    def finished(self, trial: Trial, row: Row) -> None:
        # One that is measured again is counted once.
        self._ended += self._left.pop((trial.cell, trial.round), None) is not None
        self._tried.add(trial.cell)
        self._eta_s = None
        for group in _groups(trial):
            self._paces[group].append(row["wall_s"] / trial.estimate_s)
        self._last = _figures(row)
        if row["status"] == "failed":  # others may be measured again: what is left is told at the end
            self._out.print(f"failed: {named(trial.cell)}, round {trial.round}: {row['reason']}")
        total = self._ended + len(self._left)
        tenth = 10 * self._ended // total
        if not self.is_live and tenth > self._tenths:
            self._tenths = tenth
            self._out.print(
                f"{self._ended}/{total} trials, {minutes(self.eta_s)} left; {named(trial.cell)}: {self._last}"
            )

    def rebuilds(self, reason: str, times: int) -> None:
        self._out.print(
            f"attention: {reason}: the testbed is built or reached again, and the trial done again ({times} of at "
            f"most {MAX_REBUILDS} times in a row)"
        )

    @property
    def eta_s(self) -> float:
        """Seconds that are left, by what trials took so far: those of a cell, else those most like it."""
        if self._eta_s is None:  # not for each drawing: of thousands of trials it takes a while
            left: dict[Groups, float] = defaultdict(float)
            for trial in list(self._left.values()):  # others may end while it is drawn
                left[_groups(trial)] += trial.estimate_s
            self._eta_s = sum(self._pace(groups) * estimate_s for groups, estimate_s in left.items())
        return self._eta_s / self.at_once

    def _pace(self, groups: Groups) -> float:
        """How many times as long as foreseen trials take, by those that have ended."""
        cell, *others = groups
        if cell in self._paces:
            return statistics.fmean(self._paces[cell])
        paces = next((self._paces[group] for group in others if group in self._paces), [])
        return statistics.median([1.0, *paces])  # the plan's own counts, too: a first one may be far off

    @property
    def cells(self) -> tuple[int, int, int]:
        """The numbers of cells that are settled (struck off, or done), open (measured, and may be again), and left."""
        more = {cell for cell, _ in list(self._left)}  # others may end while it is drawn
        more |= self._undecided if more else set()  # a search decides between rounds
        settled = 0 if self._grows else len(self._cells - more)
        left = len(more - self._tried)
        return settled, len(self._cells) - settled - left, left

    def _draw(self) -> Table:
        both = Table.grid()
        if self._cells:
            bar, numbers = Text(), self.cells
            ends = [round(WIDTH * sum(numbers[: part + 1]) / len(self._cells)) for part in range(3)]
            for begin, end, (mark, style) in zip([0, *ends], ends, _BAR.items(), strict=False):
                bar.append(mark * (end - begin), style)
            told = ", ".join(f"{each} {word}" for each, word in zip(numbers, _WORDS, strict=True))
            both.add_row(bar.append(f" {told}; about {minutes(self.eta_s)}"))
        if self._now:
            gone_s = time.monotonic() - self._began
            whole_s = self._now.estimate_s * self._pace(_groups(self._now))
            phase = f"; {self._phase}" if self._phase else ""
            took = f"{gone_s:.0f} s of about {minutes(whole_s)}{phase}"
            line = Text(f"trial {self._ended + 1}: {took}; {named(self._now.cell)}")
            line.no_wrap, line.overflow = True, "ellipsis"
            both.add_row(line)
        both.add_row(f"last: {self._last}" if self._last else self._doing)
        for words in (*filter(None, [self._sensors]), *self._testbeds()):
            both.add_row(Text(words, overflow="ellipsis", no_wrap=True))
        return both


def _by_place(trials: Iterable[Trial]) -> dict[tuple[Cell, int], Trial]:
    return {(trial.cell, trial.round): trial for trial in trials}


def _groups(trial: Trial) -> Groups:
    """A trial's groups, whose trials are off by the same share: the cell, what is like it, all; long waits apart."""
    cell, waits = trial.cell, trial.waiting_s >= WAITING_S
    like = (cell.model, cell.netem, waits)
    return (cell.id, waits), (*like, cell.transport, cell.engine), like, (waits,), ()


_SENSED = (
    ("cpu_percent", "{:.0f}% CPU", 1.0),
    ("rss_bytes", "{:.0f} MB", 1e-6),
    ("temperature_c", "{:.0f} °C", 1.0),
    ("frequency_hz", "{:.2f} GHz", 1e-9),
    ("power_w", "{:.1f} W", 1.0),
    ("gpu_percent", "{:.0f}% GPU", 1.0),
)


def _sensed(sample: Mapping[str, Any]) -> str:
    """A device's last sensor readings in words; what it has no sensor for is left out."""
    words = [text.format(sample[name] * unit) for name, text, unit in _SENSED if sample.get(name) is not None]
    return ", ".join([*words, *throttled_words(sample.get("throttled") or 0)])


def _figures(row: Row) -> str:
    if row.get("latency_s") is None:
        return str(row["status"])
    latency, throughput = f"{row['latency_s'] * 1e3:.1f} ms", f"{row['throughput_ips']:.2f} images/s"
    return {LATENCY_ONLY: latency, THROUGHPUT_ONLY: throughput}.get(row["status"], f"{latency}, {throughput}")
