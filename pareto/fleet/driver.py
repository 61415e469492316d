"""Hands out the tasks of a plan to the testbeds of a fleet, and takes in what they measured.

The driver itself chooses the next task of a testbed that is idle (`pareto.fleet.tasks`): dask could only be told whom a
task prefers, and its choice would depend on the order of messages. So dask carries tasks and results, and knows who is
there; a task whose worker is lost, or whose testbed fails, the driver gives to another, without the trials that have
come (`pareto.fleet.results`).
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pareto.console import duration
from pareto.errors import UserError, one_line
from pareto.fleet import certificates, cluster
from pareto.fleet.cluster import RESOURCE
from pareto.fleet.member import Order, measure, release
from pareto.fleet.processes import Processes
from pareto.fleet.results import Results, Unfit, fitting
from pareto.fleet.screen import Board
from pareto.fleet.tasks import Task, Tasks
from pareto.fleet.testbeds import Testbed
from pareto.hosts import shipping
from pareto.plan import Plan, Trial
from pareto.runner import Aborted
from pareto.store import Store

if TYPE_CHECKING:
    from distributed import Client, Future

    from pareto.run import Job
    from pareto.stopping import Stopping

LOOK_S = 0.5
"""How often the driver looks who is there."""
MOST_LOSSES = 3
"""A testbed whose member is lost so often in a row, without a trial in between, is taken out."""
MOST_TRIES = 3
"""On how many testbeds, if there are others, a trial is tried that fails."""
WAIT_S = 3600.0
"""How long a cluster may be without any testbed, or be gone, before the run ends."""
RELEASE_S, GATHER_S = 30.0, 10.0


def measure_plan(job: Job, store: Store, planned: Plan, stopping: Stopping) -> None:
    """Measure the plan, and what is added to it, on the sweep's testbeds, into the store.

    Raises UserError, StoreError, Aborted when no testbed is left.
    """
    cluster.require()
    parts = stopping.plans()
    first = next(parts, None)
    if first is None:
        return
    sweep = job.sweep
    if sweep.cluster is not None:
        client = cluster.client(sweep.cluster, sweep.certificates)
        Driver(job, store, planned, client, None).run(first, parts, stopping)
        return
    pems = certificates.own_pems()
    with cluster.own(pems) as client, Processes(sweep, client.scheduler.address, pems) as processes:
        Driver(job, store, planned, client, processes).run(first, parts, stopping)


class Driver:
    def __init__(
        self, job: Job, store: Store, planned: Plan, client: Client, processes: Processes | None
    ) -> None:
        """processes: of the members that the driver itself has; None where they join by themselves."""
        self._job = job
        self._store = store
        self._results = Results(job, store)
        self._client = client
        self._processes = processes
        self._session = f"pareto-{uuid4().hex}"
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        """What is to be done about what came, by the thread that writes."""
        self._testbeds: dict[str, Testbed] = {}
        """By their members' names."""
        self._tasks = Tasks()
        self._scheduler: str | None = None
        """The identity of the one that is listened to."""
        self._said: set[str] = set()
        self._lacks = ""
        self._lacks_since = time.monotonic()
        self.board = Board(job.console, planned, cluster.dashboard(client))
        if processes is not None:
            for name in processes.names:
                self._testbeds[name] = Testbed(name, name)

    def run(self, first: Plan, parts: Iterator[Plan], stopping: Stopping) -> None:
        """Measure these parts of the plan, each when the one before is done. Raises Aborted, StoreError."""
        self._listen()
        self._store.drop_unsound()
        self._results.write_manifest()
        try:
            with self.board:
                part: Plan | None = first
                while part is not None:
                    self.board.expect(part)
                    self._measure(part)
                    part = next(parts, None)
        except Aborted:
            stopping.failed()
            raise
        finally:
            self._end()
            self._results.write_manifest({"stopping": stopping.record()})

    def _measure(self, part: Plan) -> None:
        self._tasks.plan(part)
        looked = -LOOK_S
        while self._tasks or any(each.task for each in self._testbeds.values()):
            if time.monotonic() - looked >= LOOK_S:
                self._look()
                looked = time.monotonic()
                self.board.show(self._testbeds.values())
            self._hand_out(part.rounds)
            self._check_any_left()
            with suppress(queue.Empty):
                self._inbox.get(timeout=LOOK_S)()

    def _hand_out(self, rounds: int) -> None:
        """Give every testbed that is idle a task."""
        for testbed in self._testbeds.values():
            if not self._tasks:
                return
            if testbed.task is not None or not testbed.is_here:
                continue
            task = self._tasks.take(testbed, self._here())
            if task is None:
                continue
            testbed.task, task.began, task.came = task, time.monotonic(), 0
            future = self._client.submit(
                measure,
                Order(
                    self._session,
                    self._store.run,
                    testbed.name,
                    self._job.sweep.model_dump(mode="json"),
                    {key: self._results.then[key] for key in ("models", "profiles")},
                    task.trials,
                    rounds,
                    len(self._results.then["sessions"]),
                    shipping.code()[1],
                ),
                key=f"{self._session}-{task.number}-{uuid4().hex[:8]}",
                workers=[testbed.address],
                resources={RESOURCE: 1},
                pure=False,
                retries=0,
            )
            testbed.future = future
            future.add_done_callback(lambda done: self._inbox.put(partial(self._finish, done)))

    # Who is there

    def _here(self) -> list[Testbed]:
        return [each for each in self._testbeds.values() if each.is_here]

    def _listen(self) -> None:
        """Take in what members say, at the scheduler that is there now."""
        self._scheduler = self._client.scheduler_info().get("id")
        self._client.subscribe_topic(
            self._session, lambda event: self._inbox.put(partial(self._hear, event[1]))
        )

    def _reach(self) -> None:
        """Be at the scheduler, by a new client where it was gone: it knows nothing of this driver. Raises Aborted."""
        client, sweep = self._client, self._job.sweep
        if client.status == "running" and client.scheduler_info().get("id") == self._scheduler:
            return
        for testbed in self._testbeds.values():
            self._lose(testbed)
        with suppress(OSError, RuntimeError, TimeoutError):
            client.close(timeout=1)
        assert sweep.cluster is not None  # noqa: S101
        while True:
            self._check_patience("scheduler")
            with suppress(UserError):
                self._client = cluster.client(sweep.cluster, sweep.certificates)
                break
        self._listen()

    def _look(self) -> None:
        """See who has come and gone. Raises Aborted."""
        if self._processes is None:
            self._reach()
        workers: Mapping[str, Mapping[str, Any]] = self._client.scheduler_info()["workers"]
        here = {
            str(worker["name"]): address
            for address, worker in workers.items()
            if RESOURCE in worker.get("resources", {})
        }
        for member in sorted(here.keys() - self._testbeds.keys()):
            name = self._results.name(member)
            self._testbeds[member] = Testbed(name, member)
            self.board.say(f"{name}: joined as {member}")
        for testbed in self._testbeds.values():
            address = here.get(testbed.member, "")
            if address == testbed.address:
                continue
            self._lose(testbed)
            testbed.address = address
            if address and testbed.is_lost:
                self.board.say(f"{testbed.name}: there again")
                testbed.is_lost = False
        if self._processes is not None:
            for name, why in self._processes.renew():
                testbed = self._testbeds[name]
                testbed.losses += 1
                if testbed.losses >= MOST_LOSSES:
                    self._take_out(
                        testbed, f"its process ended {testbed.losses} times{f': {why}' if why else ''}"
                    )
                else:
                    self._processes.start(name)

    def _lose(self, testbed: Testbed) -> None:
        """Its worker is gone, if it had one: what it has not done is given out again."""
        if testbed.address and not testbed.out:
            testbed.is_lost = True
            given = "; what it had not done is given out again" if testbed.task is not None else ""
            self.board.say(f"{testbed.name}: lost{given}")
        testbed.address = ""
        self._give_back(testbed)

    def _give_back(self, testbed: Testbed) -> None:
        """What a testbed has not done of its task, failed trials included, is to be done by another."""
        task, future = testbed.task, testbed.future
        testbed.task = testbed.future = None
        if future is not None:
            future.release()
        if task is None:
            return
        if left := tuple(trial for trial in task.trials if not self._results.has(trial)):
            self._tasks.add(replace(task, trials=left))

    def _take_out(self, testbed: Testbed, why: str) -> None:
        testbed.out = why
        self.board.say(f"attention: {testbed.name} is taken out of the fleet: {why}")
        self._give_back(testbed)
        if self._processes is not None:
            self._processes.stop(testbed.name)

    def _check_any_left(self) -> None:
        """Raises Aborted when nobody is left who could measure."""
        testbeds = self._testbeds.values()
        if self._here():
            self._lacks, self._lacks_since = "", time.monotonic()
        elif self._processes is None:
            self._check_patience("other testbed" if any(each.out for each in testbeds) else "testbed")
        elif all(each.out for each in testbeds):
            self._write_failed()
            raise Aborted("no testbed is left: " + "; ".join(f"{each.name}: {each.out}" for each in testbeds))

    def _check_patience(self, lacks: str) -> None:
        """lacks: what is not at the cluster. Raises Aborted when that has been so for too long."""
        limit_s, where = self._job.sweep.wait or WAIT_S, self._job.sweep.cluster
        if lacks != self._lacks:
            self.board.say(f"no {lacks} is at {where}: waiting {duration(limit_s)} for one")
            self._lacks = lacks
        if time.monotonic() - self._lacks_since > limit_s:
            self._write_failed()
            raise Aborted(f"for {duration(limit_s)} no {lacks} was at {where}")

    # What comes

    def _hear(self, message: dict[str, Any]) -> None:
        """What a member says while it measures."""
        for testbed in self._testbeds.values():  # none, where it comes late: another does the trial then
            if testbed.future is not None and testbed.future.key == message.get("key"):
                if "say" in message:
                    self._say(str(message["say"]), testbed.name)
                else:
                    self._take_all(testbed, [message] if "place" in message else [], message.get("record"))

    def _take_all(
        self, testbed: Testbed, messages: Iterable[dict[str, Any]], record: Mapping[str, Any] | None
    ) -> bool:
        """Write trials and a session's record; whether they are what was asked for. Else the testbed is taken out."""
        try:
            for message in messages:
                self._take(testbed, message)
            if record is not None:
                self._results.keep(testbed, record)
        except Unfit as fault:
            self._take_out(testbed, str(fault))
            return False
        return True

    def _take(self, testbed: Testbed, message: dict[str, Any]) -> None:
        """Write what a trial has, unless it is there. What failed waits: another may do it again. Raises Unfit."""
        task = testbed.task
        assert task is not None  # noqa: S101
        trial = fitting(message, task.trials, testbed.name)
        if self._results.has(trial):
            return
        if message["row"]["status"] == "failed":
            task.came += trial not in task.failed
            task.failed[trial] = message
            return
        task.failed.pop(trial, None)
        testbed.losses = 0
        self._write(testbed, trial, message)

    def _write(self, testbed: Testbed, trial: Trial, message: dict[str, Any]) -> None:
        self._results.write(trial, message, len(self._here()))
        testbed.trials += 1
        if testbed.task is not None:
            testbed.task.came += 1
        self.board.finished(testbed, trial, message["row"])

    def _finish(self, future: Future) -> None:
        """A task is over, whichever way."""
        testbed = next((each for each in self._testbeds.values() if each.future is future), None)
        if testbed is None or testbed.task is None:
            return
        if future.status == "error" and not _is_loss(future):
            self._take_out(testbed, one_line(future.exception() or RuntimeError())[:200])
            return
        outcome, task = None, testbed.task
        if future.status == "finished":
            with suppress(Exception):  # its worker may go just before it hands it over
                outcome = future.result(timeout=GATHER_S)
        if outcome is None:
            self._lose(testbed)
            return
        # What was said meanwhile may have been lost.
        if not self._take_all(testbed, outcome.trials, outcome.record):
            return
        if outcome.out:
            self._take_out(testbed, outcome.out)
            return
        task.tried.add(testbed.member)
        if not task.failed or len(task.tried) >= MOST_TRIES or not task.is_for_another(self._here()):
            self._write_failed_of(task)
            self.board.task_done(testbed, task)
        self._give_back(testbed)

    def _write_failed(self) -> None:
        """The rows of what failed, and what nobody is left to do again."""
        for task in self._tasks.waiting():
            self._write_failed_of(task)

    def _write_failed_of(self, task: Task) -> None:
        for trial, message in task.failed.items():
            name = message["row"]["testbed"]
            self._write(next(each for each in self._testbeds.values() if each.name == name), trial, message)
        task.failed.clear()

    # The end

    def _end(self) -> None:
        """Let the testbeds go."""
        for testbed in self._testbeds.values():
            if testbed.future is not None:
                testbed.future.release()
        if self._processes is not None:
            return  # they end with the driver's interest in them
        if self._client.status == "running":
            idle = [each for each in self._testbeds.values() if each.address and each.task is None]
            released = [
                self._client.submit(
                    release,
                    self._session,
                    key=f"{self._session}-release-{each.name}",
                    workers=[each.address],
                    resources={RESOURCE: 1},
                    pure=False,
                )
                for each in idle
            ]
            deadline = time.monotonic() + RELEASE_S
            while not all(each.done() for each in released) and time.monotonic() < deadline:
                time.sleep(LOOK_S / 10)
        # ValueError: a scheduler that is lost while a connection becomes TLS.
        with suppress(OSError, RuntimeError, TimeoutError, ValueError):
            self._client.close(timeout=1)

    def _say(self, line: str, testbed: str) -> None:
        """Print a line of a testbed's once; what several say, for the first."""
        if line not in self._said:
            self._said.add(line)
            self.board.say(f"{testbed}: {line}")


def _is_loss(future: Future) -> bool:
    from distributed.scheduler import KilledWorker

    return isinstance(future.exception(), KilledWorker)
