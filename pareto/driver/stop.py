"""When a run has measured enough: its front is known well enough (`--until`), or its time is spent (`--budget`)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pareto.analysis.naming import count, some
from pareto.driver.runner import Tally
from pareto.protocol.constants import MOST_ROUNDS
from pareto.remote.link.units import minutes
from pareto.sweep import plan
from pareto.sweep.cell import Condition
from pareto.sweep.foreseen import Asked
from pareto.sweep.plan import Done, Plan, Trial
from pareto.sweep.sweep import Sweep

if TYPE_CHECKING:
    from pareto.analysis.statistics.stability import Certainty
    from pareto.predict.search_run import Searching

NAMED = 5
"""Points without a valid trial, or with few, that are named in a line."""


class Rounds:
    """Every cell in each round: what decides which trials come next where nothing is searched."""

    def __init__(
        self,
        asked: Asked,
        planned: Plan,
        done: Callable[[], Done] = frozenset,
        together: Callable[[], int] | None = None,
    ) -> None:
        """done: tells what is measured by now. together: how many rounds are measured at once, so that no testbed of a
        fleet is idle; None: all planned."""
        self._asked, self._done, self._together = asked, done, together
        self._last = plan.last_rounds(asked, done())
        self.conditions = [*self._last]
        by_round = itertools.groupby(planned.trials, key=lambda trial: trial.round)
        self._rounds, self._planned = [tuple(each) for _, each in by_round], planned.rounds

    def update(self) -> None:
        """Nothing follows from what was measured."""

    def part(self) -> Plan | None:
        """The next part of what is planned; None after it."""
        count = len(self._rounds) if self._together is None else self._together()
        now, self._rounds = self._rounds[:count], self._rounds[count:]
        return Plan(tuple(itertools.chain(*now)), self._planned) if now else None

    def last(self, condition: Condition) -> int:
        """The number of a condition's last round."""
        return self._last[condition]

    def further(self, numbers: Mapping[Condition, int]) -> Plan:
        """A round more of these conditions, each with the number of its own; or several that are measured together."""
        trials: list[Trial] = []
        for more in range(self._together() if self._together is not None else 1):
            added = {each: number + more for each, number in numbers.items() if number + more <= MOST_ROUNDS}
            trials += plan.further(self._asked, added, self._done()).trials
            self._last |= added
        return Plan(tuple(trials), self._planned)

    def hardest(self, part: Plan, left_s: float, pace: float) -> Plan | None:
        """The part of a round that fits into a budget: none, as rounds are whole, or not begun."""
        return None


@dataclass
class Stopping:
    """The part of a source to measure until a sweep's `until` or `budget` is reached; without either, what is planned.

    look: what is known of the front so far, within that share. began: `now` when the budget began.
    """

    sweep: Sweep
    source: Rounds | Searching
    look: Callable[[float], Certainty]
    tally: Tally
    began: float
    say: Callable[[str], None]
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._known: Certainty | None = None
        self._ended = "interrupted"

    def plans(self) -> Iterator[Plan]:
        """The plans to measure, each asked for when the one before is done.

        An added round has every cell of the conditions that are not sure, or what a search has left of them: a front is
        of one condition, and its points are compared round by round. The next plan follows from the rows, so a run
        that goes on has the trials of one that never stopped.
        """
        while True:
            self.source.update()  # `look` reads what is struck off from the disk
            part, said = self.source.part(), ""
            if part is None:
                if not (numbers := self._next()):
                    return
                part, first = self.source.further(numbers), max(numbers.values())
                if self._known is not None:
                    last = max(trial.round for trial in part.trials)
                    rounds = f"round {first} is" if last <= first else f"rounds {first} to {last} are"
                    said = f"{rounds} added: {_unsure(self._known)}"
            if (fits := self._shortened(part)) is None:
                return
            if said:
                self.say(said)
            yield fits

    def _shortened(self, part: Plan) -> Plan | None:
        """The part, or what of it fits into the budget; None for too little. A session's first part always fits."""
        budget, foreseen_s = self.sweep.budget, part.estimate_s * self.tally.pace
        if budget is None or not self.tally.trials:
            return part
        if foreseen_s <= (left_s := budget - (self.now() - self.began)):
            return part
        if shorter := self.source.hardest(part, left_s, self.tally.pace):
            cells = len(shorter.trials)
            self.say(f"of round {part.trials[0].round}, {cells} cells fit: the least clear ones")
        else:
            spent = f"the next round, of about {minutes(foreseen_s)}, does not fit into {minutes(budget)}"
            self._end("budget", self._with_doubts(spent))
        return shorter

    def failed(self) -> None:
        """Note that the session ends because trials keep failing, or the testbed broke."""
        if self._ended == "interrupted":
            self._ended = "failed"

    def record(self) -> dict[str, Any] | None:
        """For the manifest: what the user wanted, and what ended the session; None where the plan was all."""
        if self._ended == "done":
            return None
        record: dict[str, Any] = {
            "until": self.sweep.until,
            "budget_s": self.sweep.budget,
            "ended": self._ended,
        }
        if (known := self._known) is not None:
            record |= {"rounds": known.rounds, "points": known.points, "unsure": known.unsure}
            record |= {"widest": known.widest, "lost": [*known.lost, *known.mostly_invalid]}
        return record

    def _next(self) -> dict[Condition, int]:
        """The next round's number for each condition that needs one; at the end none, and the reason is printed."""
        wanted = set(self.source.conditions)
        if self.sweep.until is self.sweep.budget is None:
            self._ended = "done"
            return {}
        if self.sweep.until is not None:
            self._known = self.look(self.sweep.until)
            wanted &= self._known.conditions
            if not wanted:
                self._end("sure" if self._known.points else "lost", _sure(self._known, self.sweep.until))
                return {}
        numbers = {condition: self.source.last(condition) + 1 for condition in sorted(wanted)}
        allowed = {condition: number for condition, number in numbers.items() if number <= MOST_ROUNDS}
        if not allowed:
            self._end("limit", self._with_doubts(f"no round is added beyond the {MOST_ROUNDS}th"))
        return allowed

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
    from pareto.analysis.fronts.front import front
    from pareto.analysis.runs import load
    from pareto.analysis.statistics import stability

    return stability.certainty(front(load.load([folder])), within)


def _unsure(known: Certainty) -> str:
    """`3 points unsure, widest rpc 14 latency ±8.1 %`."""
    widest = f", widest {known.widest}" if known.widest else ", with too few valid trials to say how much"
    return f"{count(known.unsure, 'point')} unsure{widest}{_lost(known)}"


def _sure(known: Certainty, within: float) -> str:
    if not known.points:
        return f"nothing can become sure{_lost(known)}"
    which = f"{count(known.points, 'point')} that may be on a front"
    return f"sure after {known.rounds} rounds: {which} within ±{100 * within:.3g} %{_lost(known)}"


def _lost(known: Certainty) -> str:
    none = f"; never a latency and a throughput of {some(known.lost, NAMED)}" if known.lost else ""
    return none + (f"; mostly invalid: {some(known.mostly_invalid, NAMED)}" if known.mostly_invalid else "")
