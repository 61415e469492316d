"""A member of a fleet (`fleet join`): a process that holds one testbed open, and measures what drivers hand out on it.

The testbed is opened, measured on and put back in the process's main thread, where an interruption arrives, as in an
ordinary run; dask's worker speaks to the scheduler in another, and interrupts the main thread when that is gone.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pareto.analysis.schema import Table
from pareto.driver.fleet.cluster import CONNECT_S, LOOK_S, RESOURCE, refused
from pareto.driver.runner import Aborted, Watcher
from pareto.hosts.connection import FAULTS
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import THIS_MACHINE
from pareto.partitions import scratch
from pareto.protocol.errors import UserError, one_line
from pareto.protocol.jsonlines import SILENCE_LIMIT_S
from pareto.sweep.cell import Cell
from pareto.sweep.plan import Plan, Trial
from pareto.sweep.sweep import Sweep
from pareto.trial.store import Row, Store

if TYPE_CHECKING:
    from distributed import Security, Worker

IDLE_S = 20.0
"""A testbed for which a driver has nothing more to do is put back after this: others may want its hosts."""
OWN_LEASE_S = 1.5 * SILENCE_LIMIT_S
"""A host notices within `SILENCE_LIMIT_S` that whoever held it is gone."""
Send = Callable[[dict[str, Any]], None]
"""Takes what the driver is to hear at once: a trial, the session's `record`, a line to `say`."""


@dataclass(frozen=True)
class Order:
    """A task, by dask's key: trials of one (model, network) in one round, and the sweep that they are of.

    session: the driver's, and where it listens. testbed: what rows call it. then: the manifest, whose models and
    profiles the member's own must equal. number: how many sessions the run had before. code: of the program, by digest.
    """

    key: str
    session: str
    run: str
    testbed: str
    sweep: Mapping[str, Any]
    then: Mapping[str, Any]
    trials: tuple[Trial, ...]
    rounds: int
    number: int
    code: str


class Outbox(Store):
    """A store without a folder: the parts of a trial are kept until its row comes, and sent as one.

    place: of the trial in its task. opened: when its testbed was.
    """

    def __init__(self, run: str, opened: str, send: Send) -> None:
        super().__init__(Path(run))
        self.place, self._opened, self._send = 0, opened, send
        self._clear()

    def _clear(self) -> None:
        self._parts: dict[str, Any] = {"links": [], "stages": [], "requests": b"", "devices": b""}

    def append_link(self, row: Row) -> None:
        self._parts["links"].append(plain(row))

    def append_stages(self, rows: Iterable[Row]) -> None:
        self._parts["stages"] = [plain(row) for row in rows]

    def write_content(self, table: Table, cell: Cell, number: int, content: bytes) -> None:
        self._parts[table.file.rstrip("/")] = content

    def take_back(self, cell: Cell, number: int) -> bool:
        """False: a trial that is sent stands."""
        return False

    def append_trial(self, row: Row) -> None:
        """Send the trial with all that it has."""
        self._send({"place": self.place, "opened": self._opened, "row": plain(row), **self._parts})
        self._clear()


def plain(row: Row) -> Row:
    """The row with Python's own numbers: dask's messages have no others."""
    return {name: value.item() if hasattr(value, "item") else value for name, value in row.items()}


class Member(Executor, Watcher):
    """Holds a testbed. dask's worker submits tasks to it; the main thread does them, in `work`."""

    worker: Worker

    def __init__(self, testbed: str, say: Callable[[str], None]) -> None:
        self._testbed, self._say = testbed, say
        self._asked: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self.session = ""
        """The driver's for whom the testbed is open; empty while it is not."""
        self._undo = ExitStack()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._asked.put((future, partial(function, *arguments, **options)))
        return future

    def work(self) -> None:
        """Do what is submitted until the thread is interrupted, or there is an `end`. Raises KeyboardInterrupt."""
        try:
            while True:
                try:
                    asked = self._asked.get(timeout=IDLE_S if self.session else None)
                except queue.Empty:
                    self.close()
                    continue
                if asked is None:
                    raise KeyboardInterrupt
                future, call = asked
                if future.set_running_or_notify_cancel():
                    future.set_result(call())
        finally:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the testbed is put back once
            finally:  # also where a signal comes just now
                self.close()

    def end(self) -> None:
        """Have `work` end, at once where it does something. A signal alone may not reach it: Python wakes no thread
        for one that another thread got, and code that must not fail may swallow the interrupt."""
        os.kill(os.getpid(), signal.SIGTERM)
        self._asked.put(None)

    def close(self) -> None:
        """Put the testbed back."""
        if self.session:
            self.session = ""
            self._undo.close()
            self._say("put back")

    def send(self, message: dict[str, Any]) -> None:
        """Send the driver of the task a message."""
        self.worker.log_event(self._order.session, {"key": self._order.key, **message})

    def tell(self, line: str) -> None:
        """Send the driver a line to print."""
        if words := line.strip():
            self.send({"say": words})

    def rebuilds(self, reason: str, times: int) -> None:
        self.tell(f"{reason}: it is built again, and the trial done again")

    def is_wanted(self) -> bool:
        """Whether the driver is there still: without it, dask drops the task."""
        return getattr(self.worker.state.tasks.get(self._order.key), "state", "") == "executing"

    def measure(self, order: Order) -> None:
        """Measure a task's trials as long as they are wanted, on the testbed that is open for its driver. Raises
        RuntimeError where the testbed can do no more."""
        self._order = order
        try:
            if self.session != order.session:
                self.close()
                self._say(f"measuring for {order.run}")
                self._open(order)
                self.send({"record": self._record})
            for self._outbox.place, trial in enumerate(order.trials):
                if self.is_wanted():
                    self._runner.run(Plan((trial,), order.rounds))
        except (Aborted, UserError, TestbedError, *FAULTS) as error:
            raise RuntimeError(one_line(error)) from None
        finally:
            if self.session:
                self.send({"record": self._record | self._end()})

    def _open(self, order: Order) -> None:
        """Open the testbed for a driver, with its workers. Raises UserError, TestbedError."""
        from pareto.basics.console import Lines, console
        from pareto.driver.job import Job
        from pareto.driver.manifest import difference, session_begin, session_end
        from pareto.hosts import parcels
        from pareto.trial.start import started

        wanted = Sweep.model_validate(dict(order.sweep))
        sweep = wanted.on(self._testbed)
        if order.code != parcels.code()[1]:
            raise UserError(
                "it has another version of this program than the driver: install the same on both"
            )
        if wanted.simulated != sweep.simulated:
            raise UserError(f"--testbed {self._testbed}: simulated and real ones do not measure together")
        # A member that was killed may hold the hosts still.
        if self._testbed != THIS_MACHINE and not sweep.simulated:
            sweep = sweep.model_copy(update={"wait": max(sweep.wait or 0.0, OWN_LEASE_S)})
        out = console(to=Lines(self.tell))
        out.width = 10_000
        with ExitStack() as undo:
            job = undo.enter_context(closing(Job(sweep, 0.0, dry_run=False, launch=True, console=out)))
            if words := difference(order.then, job.records, job.networks):
                raise UserError(f"the driver's run was made {words}")
            bed = undo.enter_context(closing(job.testbed()))
            workers = undo.enter_context(closing(job.workers(bed, order.number)))
            self._record: dict[str, Any] = {
                **session_begin(bed, order.testbed),
                "label": bed.label,
                **started(out, workers, bed, job.sweep, job.networks, lambda words: None),
            }
            self._outbox = Outbox(order.run, self._record["started_at"], self.send)
            self._runner = job.runner(workers, self._outbox, self, order.testbed)
            self._end = partial(session_end, job.tally, job.networks, workers, bed)
            self._undo, self.session = undo.pop_all(), order.session


_member: Member | None = None
"""The member that this process is, if it is one."""


def measure(task: bytes) -> None:
    """The function that dask runs in a member's process. task: an `Order`, pickled."""
    assert _member is not None  # noqa: S101
    _member.measure(pickle.loads(task))  # noqa: S301  (as dask does with all that comes)


def join(scheduler: str, let_in: Security, testbed: str, name: str, say: Callable[[str], None]) -> None:
    """Measure for the drivers at a scheduler. Raises KeyboardInterrupt; UserError where that is gone, or refuses."""
    from distributed import Status, Worker
    from distributed.comm import get_address_host
    from distributed.utils import get_ip

    member, is_lost, loop = Member(testbed, say), threading.Event(), asyncio.new_event_loop()

    async def joined(folder: str) -> None:
        global _member
        ip = get_ip(get_address_host(scheduler))
        member.worker = Worker(
            scheduler,
            name=name,
            host=f"[{ip}]" if ":" in ip else ip,  # else it listens on all addresses
            nthreads=1,
            executor=member,
            resources={RESOURCE: 1},
            security=let_in,
            memory_limit=0,
            death_timeout=CONNECT_S,
            local_directory=folder,
        )
        _member = member
        await member.worker

    async def watched() -> None:
        while member.worker.status is Status.running:
            await asyncio.sleep(LOOK_S)
        is_lost.set()
        member.end()

    with scratch.folder() as folder:
        threading.Thread(target=loop.run_forever, name="scheduler", daemon=True).start()
        try:
            asyncio.run_coroutine_threadsafe(joined(str(folder)), loop).result()
        except (OSError, RuntimeError, ValueError, asyncio.TimeoutError) as error:
            if "name taken" in str(error.__cause__):
                raise UserError(f"{name} is at {scheduler} already: give another --name") from None
            raise refused(scheduler, error) from None
        say(f"joined {scheduler} as {name}")
        asyncio.run_coroutine_threadsafe(watched(), loop)
        try:
            member.work()
        except KeyboardInterrupt:
            if not is_lost.is_set():
                raise
            raise UserError(f"the scheduler at {scheduler} is gone: join again when it is back") from None
