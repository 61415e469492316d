"""When a run has measured enough: its front is known well enough (`--until`), or its time is spent (`--budget`)."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pareto.cell import Condition
from pareto.console import duration
from pareto.constants import MOST_ROUNDS
from pareto.plan import Plan
from pareto.runner import Tally
from pareto.sweep import Sweep

if TYPE_CHECKING:
    from analysis.statistics.stability import Certainty
    from pareto.searching import Searching

NAMED = 5
"""Points without a valid trial, or with few, that are named in a line."""


@dataclass
class Stopping:
    """Adds rounds to a sweep's plan until its `until` or `budget` is reached; without either, the plan is all.

    last: each condition's last planned round. further: the plan of one more round of these conditions, by number. look:
    what is known so far of the front, and which points are not known within that share. began: `now` when the budget
    began. say: prints a line for the user. search: decides what each round has, in place of the plan. together: how
    many rounds are measured at the same time, so that each testbed of a fleet has something to do.
    """

    sweep: Sweep
    last: Mapping[Condition, int]
    further: Callable[[Mapping[Condition, int]], Plan]
    look: Callable[[float], Certainty]
    tally: Tally
    began: float
    say: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    search: Searching | None = None
    together: Callable[[], int] = lambda: 1

    def __post_init__(self) -> None:
        self._last = dict(self.last)
        self._known: Certainty | None = None
        self._ended = "interrupted"

    def plans(self, planned: Plan) -> Iterator[Plan]:
        """What to measure next, each asked for when the one before is done: a round (or as many as are measured
        together), or all of `planned` at once.

        An added round has every cell of the conditions that are not sure: a front is of one condition, and its points
        are compared round by round.
        """
        if self.search is not None:
            yield from self._searched(self.search)
            return
        if self.sweep.until is None and self.sweep.budget is None:
            self._ended = "done"
            if planned.trials:
                yield planned
            return
        rounds = [tuple(each) for _, each in itertools.groupby(planned.trials, key=lambda trial: trial.round)]
        while rounds:
            count = self.together()
            part = Plan(tuple(itertools.chain(*rounds[:count])), planned.rounds)
            if not self._fits(part):
                return
            rounds = rounds[count:]
            yield part
        while numbers := self._next():
            added = [
                {
                    condition: number + more
                    for condition, number in numbers.items()
                    if number + more <= MOST_ROUNDS
                }
                for more in range(self.together())
            ]
            parts = [self.further(each) for each in added if each]
            part = Plan(tuple(itertools.chain(*(each.trials for each in parts))), parts[0].rounds)
            if not self._fits(part):
                return
            for each in added:
                self._last |= each
            if self._known is not None:
                self.say(f"{_rounds(max(numbers.values()), len(parts))} added: {_unsure(self._known)}")
            yield part

    def _searched(self, search: Searching) -> Iterator[Plan]:
        """The parts of a search; whenever all is settled, rounds of what is left, as for `plans`.

        What comes next follows from the rows alone, so a run that goes on has the trials of one that never stopped.
        """
        grows = self.sweep.until is not None or self.sweep.budget is not None
        while True:
            search.update()  # `look` reads what is struck off from the disk
            rest = search.unfinished() if grows else None
            if rest is None and (part := search.part()) is not None:
                shorter = self._shortened(part, search)
                if shorter is None:
                    return
                yield shorter
                continue
            if not grows:
                self._ended = "done"
                return
            if rest is None:
                self._last = {condition: search.last(condition) for condition in search.conditions}
                if not (numbers := self._next()):
                    return
                rest = search.further(numbers)
                if not self._fits(rest):
                    return
                if self._known is not None:
                    self.say(f"round {max(numbers.values())} is added: {_unsure(self._known)}")
            elif not self._fits(rest):
                return
            yield rest

    def _shortened(self, part: Plan, search: Searching) -> Plan | None:
        """The part, or what of it is least clear and fits into the budget; None where that is too little."""
        left_s = self._left_s
        if not self.tally.trials or part.estimate_s * self.tally.pace <= left_s:
            return part
        shorter = search.hardest(part, left_s, self.tally.pace)
        if shorter is None:
            self._fits(part)
        else:
            self.say(
                f"of round {part.trials[0].round}, {len(shorter.trials)} cells fit: the least clear ones"
            )
        return shorter

    @property
    def _left_s(self) -> float:
        """Seconds of the budget that are left."""
        budget_s = self.sweep.budget
        return math.inf if budget_s is None else budget_s - (self.now() - self.began)

    def failed(self) -> None:
        """Note that the session ends because trials keep failing, or the testbed broke."""
        if self._ended == "interrupted":
            self._ended = "failed"

    def record(self) -> dict[str, Any] | None:
        """For the manifest: what the user wanted, and what ended the session; None where the plan was all."""
        if self._ended == "done":
            return None
        record = {"until": self.sweep.until, "budget_s": self.sweep.budget, "ended": self._ended}
        if (known := self._known) is None:
            return record
        counts = {"rounds": known.rounds, "points": known.points, "unsure": known.unsure}
        return {**record, **counts, "widest": known.widest, "lost": [*known.lost, *known.mostly_invalid]}

    def _next(self) -> dict[Condition, int]:
        """The next round's number for each condition that needs one; at the end none, and the reason is printed."""
        wanted = set(self._last)
        if self.sweep.until is not None:
            self._known = self.look(self.sweep.until)
            wanted &= self._known.conditions
            if not wanted:
                why = "sure" if self._known.points else "lost"
                self._end(why, _sure(self._known, self.sweep.until))
                return {}
        numbers = {condition: self._last[condition] + 1 for condition in sorted(wanted)}
        allowed = {condition: number for condition, number in numbers.items() if number <= MOST_ROUNDS}
        if not allowed:
            self._end("limit", self._with_doubts(f"no round is added beyond the {MOST_ROUNDS}th"))
        return allowed

    def _fits(self, part: Plan) -> bool:
        """Whether the round will end within the budget. A session's first round is always measured."""
        budget_s = self.sweep.budget
        foreseen_s = part.estimate_s * self.tally.pace
        if budget_s is None or not self.tally.trials or foreseen_s <= self._left_s:
            return True
        spent = f"the next round, of about {duration(foreseen_s)}, does not fit into {duration(budget_s)}"
        self._end("budget", self._with_doubts(spent))
        return False

    def _with_doubts(self, words: str) -> str:
        if self.sweep.until is None:
            return f"stopped, for {words}"
        known = self._known
        return f"not sure, for {words}: {_unsure(known) if known else 'too few rounds for any interval'}"

    def _end(self, why: str, words: str) -> None:
        self._ended = why
        self.say(words)


def known(folder: Path, within: float) -> Certainty:
    """The certainty of a run's front. The analysis is imported between rounds, not while one is measured."""
    from analysis.fronts.front import front
    from analysis.runs import load
    from analysis.statistics import stability

    return stability.certainty(front(load.load([folder])), within)


def _rounds(first: int, count: int) -> str:
    """`round 7 is`, `rounds 7 to 9 are`."""
    return f"round {first} is" if count == 1 else f"rounds {first} to {first + count - 1} are"


def _unsure(known: Certainty) -> str:
    """`3 points unsure, widest rpc 14 latency ±8.1 %`."""
    widest = f", widest {known.widest}" if known.widest else ", with too few valid trials to say how much"
    return f"{_points(known.unsure)} unsure{widest}{_lost(known)}"


def _sure(known: Certainty, within: float) -> str:
    if not known.points:
        return f"nothing can become sure{_lost(known)}"
    which = f"{_points(known.points)} that may be on a front"
    return f"sure after {known.rounds} rounds: {which} within ±{100 * within:.3g} %{_lost(known)}"


def _lost(known: Certainty) -> str:
    none = f"; never a latency and a throughput of {_some(known.lost)}" if known.lost else ""
    return none + (f"; mostly invalid: {_some(known.mostly_invalid)}" if known.mostly_invalid else "")


def _some(points: Sequence[str]) -> str:
    more = len(points) - NAMED
    return ", ".join(points[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _points(count: int) -> str:
    return f"{count} point{'s' if count != 1 else ''}"
