"""A member of a fleet: a process that holds one testbed open, and measures on it the tasks that a driver hands out.

`python -m pareto.fleet.member` is what a driver starts for each of its testbeds, and tells by a line of JSON on stdin
what to join; it ends with its stdin. `fleet join` is the same by hand, for a scheduler that is there. The testbed is
opened, measured on and put back in the process's main thread, where an interruption arrives, as in an ordinary run;
dask's worker speaks to the scheduler in another. When the scheduler is gone, the main thread is interrupted.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any, cast

from pareto.errors import UserError, one_line
from pareto.fleet import cluster
from pareto.fleet.sending import Lines, Said, Send, Sink
from pareto.fleet.testbeds import MOST_TESTBEDS, with_numbers
from pareto.hosts.connection import FAULTS
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import THIS_MACHINE
from pareto.jsonlines import SILENCE_LIMIT_S
from pareto.plan import Plan, Trial
from pareto.runner import Aborted, Runner
from pareto.sweep import Sweep

IDLE_S = 60.0
"""A testbed for which a driver has nothing more to do is put back after this: others may want its hosts."""
OWN_LEASE_S = 1.5 * SILENCE_LIMIT_S
"""A host notices within `SILENCE_LIMIT_S` that whoever held it is gone."""
RETRY_S = 5.0
"""How often a member by hand looks for a scheduler that is gone."""


@dataclass(frozen=True)
class Order:
    """A task: trials of one (model, network) in one round, and the sweep that they are of.

    session: names the driver's, and where it listens. testbed: what rows call it. sweep: as in a manifest. then: the
    manifest, whose models and profiles the member's own must equal. rounds: of `Plan`. number: how many sessions the
    run had before. code: of the driver's program, by digest.
    """

    session: str
    run: str
    testbed: str
    sweep: Mapping[str, Any]
    then: Mapping[str, Any]
    trials: tuple[Trial, ...]
    rounds: int
    number: int
    code: str


@dataclass(frozen=True)
class Outcome:
    """What came of a task. record: of the session so far, for the manifest. out: why the testbed can do no more."""

    trials: list[dict[str, Any]] = field(default_factory=list)
    record: dict[str, Any] | None = None
    out: str = ""


def patient(sweep: Sweep) -> Sweep:
    """The sweep, with time for hosts that this member itself holds still: its machine may have lost power just now."""
    if sweep.testbed == THIS_MACHINE or sweep.simulated:
        return sweep
    return sweep.model_copy(update={"wait": max(sweep.wait or 0.0, OWN_LEASE_S)})


class Held:
    """A testbed that is open for a driver's session, with its workers. Raises UserError, TestbedError."""

    def __init__(self, testbed: str, order: Order, send: Send) -> None:
        from rich.console import Console

        from pareto.hosts import shipping
        from pareto.manifest import difference, driver, utc_now
        from pareto.run import Job
        from pareto.starting import started

        if order.code != shipping.code()[1]:
            raise UserError(
                "it has another version of this program than the driver: install the same on both"
            )
        wanted = Sweep.model_validate(dict(order.sweep))
        if wanted.simulated != wanted.on(testbed).simulated:
            kind = "simulated" if wanted.simulated else "real"
            raise UserError(f"--testbed {testbed}, and this run is on {kind} ones")
        self.order = order
        out = Console(
            file=cast(IO[str], Lines(send)), width=10_000, highlight=False, emoji=False, markup=False
        )
        with ExitStack() as undo:
            sweep = patient(wanted.on(testbed))
            self._job = job = undo.enter_context(
                closing(Job(sweep, 0.0, dry_run=False, launch=True, console=out))
            )
            if words := difference(order.then, job.records, job.networks):
                raise UserError(f"the driver's run was made {words}")
            self._bed = bed = undo.enter_context(closing(job.testbed()))
            self._workers = workers = undo.enter_context(closing(job.workers(bed, order.number)))
            self.record: dict[str, Any] = {
                "started_at": utc_now(),
                "driver": driver(),
                "testbed_name": order.testbed,
                "label": bed.label,
                "testbed": bed.facts,
                **started(out, workers, bed, job.sweep, job.networks, lambda words: None),
            }
            self._runner: Runner | None = None
            self._undo = undo.pop_all()

    def close(self) -> None:
        """Put the testbed back."""
        self._undo.close()

    def run(self, trials: Sequence[Trial], order: Order, send: Send, wanted: Callable[[], bool]) -> str:
        """Measure the trials as long as they are wanted; returns why the testbed can do no more, if so."""
        from pareto.manifest import session_end

        job = self._job
        sink, watcher = Sink(order.run, self.record["started_at"], send), Said(send)
        if self._runner is None:
            self._runner = job.runner(self._workers, sink, watcher, order.testbed)
        self._runner.store, self._runner.watcher = sink, watcher
        try:
            for sink.place, trial in enumerate(trials):
                if not wanted():
                    break
                self._runner.run(Plan((trial,), order.rounds))
        except (Aborted, TestbedError) as error:
            return str(error)
        finally:
            self.record |= session_end(job.tally, job.networks, self._workers, self._bed)
        return ""


class Member:
    """Holds a testbed; `work` is its main thread's."""

    def __init__(self, testbed: str, say: Callable[[str], None]) -> None:
        self._testbed = testbed
        self._say = say
        self._orders: queue.SimpleQueue[tuple[Order | str, Any, Future[Outcome]]] = queue.SimpleQueue()
        self._held: Held | None = None

    def ask(self, order: Order | str, context: Any = None) -> Outcome:
        """In a thread of dask's: have the main thread do a task; of a session: put the testbed back."""
        done: Future[Outcome] = Future()
        self._orders.put((order, context, done))
        return done.result()

    def work(self) -> None:
        """Do what is wanted until the thread is interrupted. Raises KeyboardInterrupt."""
        pending: Future[Outcome] | None = None
        try:
            while True:
                try:
                    order, context, pending = self._orders.get(timeout=IDLE_S if self._held else None)
                except queue.Empty:
                    self._close()
                    continue
                try:
                    outcome = (
                        self._release(order) if isinstance(order, str) else self._measured(order, *context)
                    )
                except Exception as error:  # the driver is to hear of it, and the testbed is put back
                    outcome = Outcome(
                        out=f"a fault in pareto itself: {type(error).__name__}: {one_line(error)}"
                    )
                if outcome.out:
                    self._close()
                pending.set_result(outcome)
                pending = None
        finally:
            self._close()
            if pending is not None:
                pending.set_exception(RuntimeError("the member ends"))

    def _measured(self, order: Order, send: Send, wanted: Callable[[], bool]) -> Outcome:
        if self._held is not None and self._held.order.session != order.session:
            self._close()
        kept: list[dict[str, Any]] = []

        def both(message: dict[str, Any]) -> None:
            if "row" in message:
                kept.append(message)
            send(message)

        try:
            if self._held is None:
                self._say(f"measuring for {order.run} as {order.testbed}")
                self._held = Held(self._testbed, order, both)
                send({"record": self._held.record})
            out = self._held.run(order.trials, order, both, wanted)
        except (UserError, TestbedError, *FAULTS) as error:
            return Outcome(kept, None, one_line(error))
        return Outcome(kept, self._held.record, out)

    def _release(self, session: str) -> Outcome:
        """Put the testbed back, if it is that driver's."""
        if self._held is not None and self._held.order.session == session:
            self._close()
        return Outcome()

    def _close(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            held.close()
            self._say("put back")


_member: Member | None = None
"""The one of this process."""


def measure(order: Order) -> Outcome:
    """What dask runs in a worker's process."""
    from distributed import get_worker

    assert _member is not None  # noqa: S101
    worker = get_worker()
    key = worker.get_current_task()

    def send(message: dict[str, Any]) -> None:
        worker.log_event(order.session, {"key": str(key), **message})

    def wanted() -> bool:
        """Whether the driver is there still: without it, dask drops the task."""
        task = worker.state.tasks.get(key)
        return task is not None and task.state == "executing"

    return _member.ask(order, (send, wanted))


def release(session: str) -> None:
    """What dask runs in a worker's process when a driver needs its testbed no more."""
    assert _member is not None  # noqa: S101
    _member.ask(session)


class SchedulerLost(KeyboardInterrupt):
    """The scheduler is gone: what is open is put back as at an interruption, and the member goes on."""


def _lost(*_: Any) -> None:
    raise SchedulerLost


def _is_loss(error: BaseException | None) -> bool:
    """Whether nothing else interrupted, before or while all was put back."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) and not isinstance(error, SchedulerLost):
            return False
        error = error.__context__
    return True


def join(
    scheduler: str,
    pems: dict[str, str],
    testbed: str,
    name: str,
    say: Callable[[str], None],
    *,
    stays: bool,
) -> None:
    """Measure for the drivers at a scheduler, until interrupted, or until it is gone; `stays`: then wait for it.

    Raises UserError where no scheduler answers at first, KeyboardInterrupt.
    """
    global _member
    cluster.require()
    if stays:
        signal.signal(cluster.LOST, _lost)
    joined_as = ""
    while True:
        _member = Member(testbed, say)
        others = islice(with_numbers(name), MOST_TESTBEDS if stays else 0)  # a driver has named its own
        names = dict.fromkeys((joined_as or name, *others))
        joined = cluster.Joined(scheduler, pems, names)
        try:
            joined.start()
        except (OSError, TimeoutError, ValueError) as error:
            if not joined_as:
                raise UserError(
                    f"no scheduler lets this member in at {scheduler}: {cluster.why(error)}"
                ) from None
            time.sleep(RETRY_S)
            continue
        joined_as = joined.name
        say(f"joined {scheduler} as {joined_as}")
        try:
            _member.work()
        except KeyboardInterrupt as interruption:
            if not stays or not _is_loss(interruption):
                raise
            say(f"the scheduler is gone: waiting for {scheduler}")
        finally:
            joined.close()


def main() -> int:
    """A member that a driver starts: a line on stdin says what to join; its end is the member's."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    start = json.loads(sys.stdin.readline())
    sys.argv[1:] = start["command"]  # what others see who find the testbed's hosts in use
    if cores := start["cores"]:
        os.sched_setaffinity(0, cores)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, cluster.LOST)

    def interrupt(*_: Any) -> None:
        for number in signals:  # stdin and the scheduler end together: the testbed is put back once
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in signals:
        signal.signal(number, interrupt)

    def end_with_stdin() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_stdin, name="stdin", daemon=True).start()
    try:
        place = start["scheduler"], start["pems"], start["testbed"], start["name"]
        join(*place, lambda line: None, stays=False)
    except KeyboardInterrupt:
        return 130
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    # Tasks name `pareto.fleet.member`: the member is to be that module's.
    from pareto.fleet import member

    sys.exit(member.main())
