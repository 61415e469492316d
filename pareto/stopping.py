"""When a run has measured enough: what it was to find is known well enough, or its time is spent."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pareto.constants import MOST_ROUNDS
from pareto.plan import Plan
from pareto.runner import Clock
from pareto.screen import duration
from pareto.sweep import Condition, Sweep

if TYPE_CHECKING:
    from analysis.statistics.stability import Standing

NAMED = 5
"""Of the points without a valid trial, or with few, so many are named in a line."""


class Stopping:
    """Round after round of a sweep until its `until` or its `budget` ends it; without either, its plan alone."""

    def __init__(
        self,
        sweep: Sweep,
        last: Mapping[Condition, int],
        further: Callable[[Mapping[Condition, int]], Plan],
        look: Callable[[float], Standing],
        clock: Clock,
        began: float,
        say: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`last`: each condition's last round that is planned. `further`: one more of these. `look`: whether what
        was measured up to now is known within that share. `began`: `now` when the budget began. `say`: a line for the
        user.
        """
        self._sweep = sweep
        self._last = dict(last)
        self._further = further
        self._look = look
        self._clock = clock
        self._began = began
        self._say = say
        self._now = now
        self._standing: Standing | None = None
        self._ended = "interrupted"

    def plans(self, planned: Plan) -> Iterator[Plan]:
        """What is to be done next, each when the one before it was: a round, or all that was `planned` at once.

        A round that is added has every cell of the conditions that are not sure, for a front is of one condition, and
        its points are compared round by round.
        """
        if self._sweep.until is None and self._sweep.budget is None:
            self._ended = "done"
            if planned.trials:
                yield planned
            return
        for _, trials in itertools.groupby(planned.trials, key=lambda trial: trial.round):
            part = Plan(tuple(trials), planned.rounds)
            if not self._fits(part):
                return
            yield part
        while numbers := self._next():
            part = self._further(numbers)
            if not self._fits(part):
                return
            self._last |= numbers
            if self._standing is not None:
                self._say(f"round {max(numbers.values())} is added: {_unsure(self._standing)}")
            yield part

    def failed(self) -> None:
        """Trials keep failing, or the testbed broke."""
        if self._ended == "interrupted":
            self._ended = "failed"

    def record(self) -> dict[str, Any] | None:
        """For the manifest: what was asked, and what ended the session."""
        if self._ended == "done":
            return None
        asked = {"until": self._sweep.until, "budget_s": self._sweep.budget, "ended": self._ended}
        known = self._standing
        if known is None:
            return asked
        found = {"rounds": known.rounds, "points": known.points, "unsure": known.unsure}
        return {**asked, **found, "widest": known.widest, "lost": [*known.lost, *known.mostly_invalid]}

    def _next(self) -> dict[Condition, int]:
        """The next round's number for each condition that needs one; none at the end, with the reason told."""
        wanted = set(self._last)
        if self._sweep.until is not None:
            self._standing = self._look(self._sweep.until)
            wanted &= self._standing.conditions
            if not wanted:
                why = "sure" if self._standing.points else "lost"
                self._end(why, _sure(self._standing, self._sweep.until))
                return {}
        numbers = {condition: self._last[condition] + 1 for condition in sorted(wanted)}
        allowed = {condition: number for condition, number in numbers.items() if number <= MOST_ROUNDS}
        if not allowed:
            self._end("limit", self._with_doubts(f"no round is added beyond the {MOST_ROUNDS}th"))
        return allowed

    def _fits(self, part: Plan) -> bool:
        """Whether the round will be over within the budget. A session's first is measured whatever it takes."""
        budget_s = self._sweep.budget
        if budget_s is None or not self._clock.trials:
            return True
        foreseen_s = part.estimate_s * self._clock.pace
        if self._now() - self._began + foreseen_s <= budget_s:
            return True
        spent = f"the next round, of about {duration(foreseen_s)}, does not fit into {duration(budget_s)}"
        self._end("budget", self._with_doubts(spent))
        return False

    def _with_doubts(self, words: str) -> str:
        if self._sweep.until is None:
            return f"stopped, for {words}"
        known = self._standing
        return f"not sure, for {words}: {_unsure(known) if known else 'too few rounds for any interval'}"

    def _end(self, why: str, words: str) -> None:
        self._ended = why
        self._say(words)


def _unsure(known: Standing) -> str:
    """`3 points unsure, widest rpc 14 latency ±8.1 %`."""
    widest = f", widest {known.widest}" if known.widest else ", with too few valid trials to say how much"
    return f"{_points(known.unsure)} unsure{widest}{_lost(known)}"


def _sure(known: Standing, within: float) -> str:
    if not known.points:
        return f"nothing can become sure{_lost(known)}"
    which = f"{_points(known.points)} that may be on a front"
    return f"sure after {known.rounds} rounds: {which} within ±{100 * within:.3g} %{_lost(known)}"


def _lost(known: Standing) -> str:
    none = f"; no valid trial of {_some(known.lost)}" if known.lost else ""
    return none + (f"; mostly invalid: {_some(known.mostly_invalid)}" if known.mostly_invalid else "")


def _some(points: Sequence[str]) -> str:
    more = len(points) - NAMED
    return ", ".join(points[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _points(count: int) -> str:
    return f"{count} point{'s' if count != 1 else ''}"
