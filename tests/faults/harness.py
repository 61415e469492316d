"""The one harness: a run of tiny trials in which a fault of the table strikes, and what must hold after each.

Finished rows are kept to the byte; each cell has one row a round, once what failed was done again; nothing is left of
what was lost; it is noticed, and the reason names what happened. How soon is printed with `--deep`, and judges nothing.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pareto.analysis.schema import STATUSES
from pareto.driver import runner
from pareto.driver.runner import Runner, Tally
from pareto.models.prepare import Prepared, canonical, prepare
from pareto.partitions import registry
from pareto.sweep.cell import Cell
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.plan import Effort, Plan, Trial
from pareto.sweep.profile_files import load
from pareto.trial.any_workers import AnyWorkers
from pareto.trial.store import REDONE, Row, Store
from tests.faults.table import AGAIN, FAILED, INVALID, Fault

NET = Path(__file__).with_name("net.py")
LINK = load("none")
POINT = 1
EFFORT = Effort(latency=(8, 0.05), throughput=(8, 0.05))
ANY = {"tolerance": 9.0, "rtt_tolerance": 9.0, "rtt_floor": 9.0, "slowdown": 1000.0, "others": 1.0}
MOST_ROUNDS = 200
"""Until the look that notices: against hanging."""
MEASURED = tuple(status for status in STATUSES if status != "failed")


def tiny_model() -> Prepared:
    """A model whose trials take a second."""
    sweep = canonical(make_sweep({"model": f"{NET}:build", "netem": "none"}))
    return prepare(registry.canonical(sweep.models[0]), sweep)


now_s = time.monotonic  # noqa: TID251 - what --deep prints


@dataclass
class Struck:
    """When a fault struck, and when it was noticed: seconds on one clock."""

    at_s: float | None = None
    noticed_s: float | None = None
    rebuilt: list[str] = field(default_factory=list)

    def notice(self) -> None:
        if self.at_s is not None and self.noticed_s is None:
            self.noticed_s = now_s() - self.at_s


class Watcher(runner.Watcher):
    """Notes when the run speaks of a fault."""

    def __init__(self) -> None:
        self.struck = Struck()

    def finished(self, trial: Trial, row: Row) -> None:
        if row["status"] != "ok":
            self.struck.notice()

    def rebuilds(self, reason: str, times: int) -> None:
        self.struck.rebuilt.append(reason)
        self.struck.notice()


class Harness:
    """A run whose rounds are done one by one, on workers that live on from fault to fault."""

    def __init__(self, out: Path, prepared: Prepared, workers: AnyWorkers) -> None:
        self.store = Store.create(out, "run", {"sessions": []})
        self.watcher = Watcher()
        self._prepared, self._rounds = prepared, itertools.count(1)
        self._asked: list[tuple[Cell, int]] = []
        sweep = make_sweep({"model": prepared.name, "restart": "never"}).model_copy(update=ANY)
        self.runner = Runner(workers, self.store, {LINK.name: (LINK,)}, sweep, self.watcher, Tally())

    def suffer(
        self, fault: Fault, strike: Callable[[Struck], None], repairs: Sequence[Callable[[], None]] = ()
    ) -> tuple[Row, Struck]:
        """Run a round with a fault, which `strike` arms, and check all that must hold; returns its row.

        repairs: what ends a fault that lasts, before the next round. The strike may add to them.
        """
        path = self.store.folder / "trials.csv"
        before, self.watcher.struck = path.read_bytes(), Struck()
        struck = self.watcher.struck
        strike(struck)
        self.runner._failures = 0  # five in a row, of faults that each got one, would end it
        row = self._round(fault.backend)
        assert struck.at_s is not None, "it did not strike"
        assert path.read_bytes().startswith(before)
        if fault.then == AGAIN:
            for _ in range(MOST_ROUNDS):
                if struck.rebuilt:
                    break
                row = self._round(fault.backend)  # the trial was over before the look that notices
            assert row["status"] in MEASURED, row["reason"]
            (reason,) = struck.rebuilt
        else:
            assert struck.rebuilt == []
            reason = row["reason"]
            expected = {FAILED: ("failed",), INVALID: ("invalid",)}.get(fault.then, MEASURED)
            assert row["status"] in expected, row
        assert fault.reason in reason, reason
        if fault.then in (AGAIN, FAILED):
            assert struck.noticed_s is not None
        if row["status"] == "failed":
            for repair in repairs:
                repair()
            after = self._round(fault.backend)
            assert after["status"] in MEASURED, after["reason"]
        return row | {"reason": reason}, struck

    def resume(self) -> None:
        """Each cell has one row a round, after what has no figure that counts is done again."""
        kept = [row for row in self.store.rows() if row["status"] not in REDONE]
        done = self.store.done()
        self.store.drop_unsound()
        assert self.store.rows() == kept
        self.watcher.struck = Struck()
        for cell, number in self._asked:
            if (cell, number) not in done:
                self._run(cell, number)
        rows = self.store.rows()
        assert rows[: len(kept)] == kept
        asked = Counter((cell.backend, number) for cell, number in self._asked)
        assert Counter((row["backend"], int(row["round"])) for row in rows) == asked
        assert {row["status"] for row in rows} <= set(MEASURED), rows

    def _round(self, backend: str) -> Row:
        name = self._prepared.facts.points[POINT][0]
        cell, number = Cell(self._prepared.name, (POINT,), name, backend, LINK.name, 1), next(self._rounds)
        self._asked.append((cell, number))
        return self._run(cell, number)

    def _run(self, cell: Cell, number: int) -> Row:
        self.runner.run(Plan((Trial(cell, number, 0.01, 1.0, EFFORT),), 1))
        return dict(self.store.rows()[-1])


def once(act: Callable[[], None], struck: Struck) -> Callable[[], None]:
    """Does it the first time only, and notes when."""
    lock = threading.Lock()

    def strike() -> None:
        with lock:
            if struck.at_s is not None:
                return
            struck.at_s = now_s()
        act()

    return strike
