"""Hands out the tasks of a plan to the testbeds of a fleet, and writes what they measured.

A task is all cells of one (model, network) in one round: what is compared with each other is measured on one testbed,
in one hour. The driver itself chooses the next task of a testbed that is idle, of the (model, network) that it has had
least, so that each testbed sees every cell if the rounds allow; dask could only be told whom a task prefers, and its
choice would depend on the order of messages. So dask carries tasks and results, and knows who is there; a task whose
worker is lost, or whose testbed fails, the driver gives to another, without the trials that have come.
"""

from __future__ import annotations

import queue
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from analysis.runs.manifest import testbed_name
from analysis.schema import DEVICES, REQUESTS
from pareto.cell import Cell
from pareto.console import duration
from pareto.fleet import cluster
from pareto.fleet.member import RESOURCE, Order, measure, release
from pareto.fleet.processes import Processes
from pareto.fleet.screen import Board
from pareto.fleet.testbeds import free
from pareto.hosts import shipping
from pareto.plan import Plan, Trial
from pareto.runner import Aborted
from pareto.store import Row, Store

if TYPE_CHECKING:
    from distributed import Client, Future

    from pareto.run import Job
    from pareto.stopping import Stopping

LOOK_S = 0.5
"""How often the driver looks who is there."""
MOST_LOSSES = 3
"""A testbed whose member is lost so often in a row, without a trial in between, is taken out."""
MOST_TRIES = 3
WAIT_S = 3600.0
"""How long a cluster may be without any testbed before the run ends."""
RELEASE_S, GATHER_S = 30.0, 10.0
Group = tuple[str, str]
"""Model and network."""


@dataclass
class Task:
    """number: of those with the same trials still to do, the first comes first."""

    number: int
    trials: tuple[Trial, ...]
    failed: dict[tuple[Cell, int], dict[str, Any]] = field(default_factory=dict)
    """What came of trials that failed: written when nobody is to do them again."""
    tries: int = 1
    """How many testbeds it was given to; a task of which all fails is given to another."""
    began: float = 0.0
    came: int = 0

    @property
    def group(self) -> Group:
        return self.trials[0].cell.model, self.trials[0].cell.netem

    @property
    def round(self) -> int:
        return self.trials[0].round


@dataclass
class Testbed:
    """A testbed of the fleet. name: in the rows. member: its worker's name at the scheduler."""

    name: str
    member: str
    address: str = ""
    """Its worker's; empty while it is lost."""
    task: Task | None = None
    future: Future | None = None
    seen: Counter[Group] = field(default_factory=Counter)
    losses: int = 0
    trials: int = 0
    out: str = ""
    """Why it is in the fleet no more."""

    __test__ = False


def measure_plan(job: Job, store: Store, planned: Plan, stopping: Stopping) -> None:
    """Measure the plan, and what is added to it, on the sweep's testbeds, into the store.

    Raises UserError, StoreError, Aborted when no testbed is left.
    """
    cluster.require()
    parts = stopping.plans(planned)
    first = next(parts, None)
    if first is None:
        return
    sweep = job.sweep
    if sweep.cluster is not None:
        with cluster.there(sweep.cluster, sweep.certificates) as client:
            Driver(job, store, planned, client, None).run(first, parts, stopping)
        return
    pems = cluster.own_pems()
    with cluster.own(pems) as client, Processes(sweep, client.scheduler.address, pems) as processes:
        Driver(job, store, planned, client, processes).run(first, parts, stopping)


class Driver:
    def __init__(
        self, job: Job, store: Store, planned: Plan, client: Client, processes: Processes | None
    ) -> None:
        """processes: of the members that the driver itself has; None where they join by themselves."""
        self._job = job
        self._store = store
        self._client = client
        self._processes = processes
        self._session = f"pareto-{uuid4().hex}"
        self._inbox: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._testbeds: dict[str, Testbed] = {}
        """By their members' names."""
        self._pending: dict[Group, deque[Task]] = {}
        self._numbers = count()
        self._done = set(store.done())
        self._starts: dict[tuple[str, str, int], int] = {}
        self._started = store.starts()
        self._records: dict[tuple[str, str], dict[str, Any]] = {}
        """The sessions' records, by testbed and when each began."""
        self._manifest = store.manifest()
        self._said: set[str] = set()
        self._alone_since = time.monotonic()
        self.board = Board(job.console, planned, cluster.dashboard(client))
        known = [(each.get("member"), each.get("testbed_name")) for each in self._manifest["sessions"]]
        self._names = {member: name for member, name in known if member and name}
        """What members are called in the rows: as in the run's sessions before."""
        if processes is not None:
            for name in processes.names:
                self._testbeds[name] = Testbed(name, name)

    def run(self, first: Plan, parts: Iterator[Plan], stopping: Stopping) -> None:
        """Measure these parts of the plan, each when the one before is done. Raises Aborted, StoreError."""
        self._client.subscribe_topic(self._session, lambda event: self._inbox.put(("event", event[1])))
        self._store.drop_failed()
        self._write_manifest()
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
            self._write_manifest({"stopping": stopping.record()})

    def _measure(self, part: Plan) -> None:
        for _, trials in groupby(
            part.trials, key=lambda each: (each.round, each.cell.model, each.cell.netem)
        ):
            self._add(Task(next(self._numbers), tuple(trials)))
        looked = -LOOK_S
        while self._pending or any(each.task for each in self._testbeds.values()):
            if time.monotonic() - looked >= LOOK_S:
                self._look()
                looked = time.monotonic()
                self.board.show(self._testbeds.values())
            self._hand_out(part.rounds)
            self._check_any_left()
            try:
                kind, message = self._inbox.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            if kind == "event":
                self._hear(message)
            else:
                self._finish(*message)

    def _add(self, task: Task) -> None:
        """To what is to be handed out, in its place."""
        tasks = self._pending.setdefault(task.group, deque())
        tasks.append(task)
        if len(tasks) > 1 and tasks[-2].number > task.number:
            self._pending[task.group] = deque(sorted(tasks, key=lambda each: each.number))

    def _hand_out(self, rounds: int) -> None:
        """Give every testbed that is idle a task of the (model, network) that it has had least."""
        for testbed in self._testbeds.values():
            if not self._pending:
                return
            if testbed.task is not None or testbed.out or not testbed.address:
                continue
            group = min(self._pending, key=lambda one: (testbed.seen[one], self._pending[one][0].number))
            task = self._pending[group].popleft()
            if not self._pending[group]:
                del self._pending[group]
            testbed.task, task.began, task.came = task, time.monotonic(), 0
            testbed.seen[group] += 1
            future = self._client.submit(
                measure,
                self._order(testbed, task, rounds),
                key=f"{self._session}-{task.number}-{uuid4().hex[:8]}",
                workers=[testbed.address],
                resources={RESOURCE: 1},
                pure=False,
                retries=0,
            )
            testbed.future = future
            future.add_done_callback(lambda done: self._inbox.put(("done", (done, None))))

    def _order(self, testbed: Testbed, task: Task, rounds: int) -> Order:
        return Order(
            self._session,
            self._store.run,
            testbed.name,
            self._job.sweep.model_dump(mode="json"),
            {key: self._manifest[key] for key in ("models", "profiles")},
            task.trials,
            rounds,
            len(self._manifest["sessions"]),
            shipping.code()[1],
        )

    # Who is there

    def _look(self) -> None:
        """See who has come and gone."""
        workers: Mapping[str, Mapping[str, Any]] = self._client.scheduler_info()["workers"]
        here = {
            str(worker["name"]): address
            for address, worker in workers.items()
            if RESOURCE in worker.get("resources", {})
        }
        for member in here.keys() - self._testbeds.keys():
            name = self._names.setdefault(member, free(_base(member), set(self._names.values())))
            self._testbeds[member] = Testbed(name, member)
        for testbed in self._testbeds.values():
            address = here.get(testbed.member, "")
            if address != testbed.address:
                if testbed.address:
                    self._lose(testbed)
                testbed.address = address
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
        """Its worker is gone: what it has not done is given out again."""
        testbed.address = ""
        if testbed.task is not None:
            self._say(f"{testbed.name}: lost; what it had not done is given out again")
            self._give_back(testbed)

    def _give_back(self, testbed: Testbed) -> None:
        """What a testbed has not done of its task, failed trials included, is to be done by another."""
        task, future = testbed.task, testbed.future
        testbed.task = testbed.future = None
        if future is not None:
            future.release()
        if task is None:
            return
        left = tuple(trial for trial in task.trials if (trial.cell, trial.round) not in self._done)
        if left:
            self._add(Task(task.number, left, task.failed, task.tries))

    def _take_out(self, testbed: Testbed, why: str) -> None:
        testbed.out = why
        self._say(f"attention: {testbed.name} is taken out of the fleet: {why}")
        self._give_back(testbed)
        if self._processes is not None:
            self._processes.stop(testbed.name)

    def _check_any_left(self) -> None:
        """Raises Aborted when nobody is left who could measure."""
        if any(each.address and not each.out for each in self._testbeds.values()):
            self._alone_since = time.monotonic()
            return
        if self._processes is not None:
            if all(each.out for each in self._testbeds.values()):
                self._write_failed()
                raise Aborted(
                    "no testbed is left: "
                    + "; ".join(f"{each.name}: {each.out}" for each in self._testbeds.values())
                )
            return
        limit_s = self._job.sweep.wait or WAIT_S
        self._say(f"no testbed is at {self._job.sweep.cluster}: waiting {duration(limit_s)} for one")
        if time.monotonic() - self._alone_since > limit_s:
            self._write_failed()
            raise Aborted(f"for {duration(limit_s)} no testbed was at {self._job.sweep.cluster}")

    # What comes

    def _hear(self, message: dict[str, Any]) -> None:
        """What a member says while it measures."""
        testbed = next(
            (each for each in self._testbeds.values() if each.future and each.future.key == message["key"]),
            None,
        )
        if "say" in message:
            if testbed is not None:
                self._say(str(message["say"]), testbed.name)
        elif testbed is not None:  # else it comes late, and another does the trial
            self._take(testbed, message)

    def _take(self, testbed: Testbed, message: dict[str, Any]) -> None:
        """Write what a trial has, unless it is there. What failed waits: another may be to do it again."""
        task, row = testbed.task, message["row"]
        assert task is not None  # noqa: S101
        trial = next((each for each in task.trials if _names(each, row)), None)
        if trial is None or (trial.cell, trial.round) in self._done:
            return
        if row["status"] == "failed":
            if (trial.cell, trial.round) not in task.failed:
                task.came += 1
            task.failed[trial.cell, trial.round] = message
            return
        task.failed.pop((trial.cell, trial.round), None)
        testbed.losses = 0
        self._write(testbed, trial, message)

    def _write(self, testbed: Testbed, trial: Trial, message: dict[str, Any]) -> None:
        row, tally = message["row"], self._job.tally
        row |= {"run": self._store.run, "restart": self._start(testbed, message["opened"], row)}
        if message["requests"]:
            self._store.write_content(REQUESTS, trial.cell, trial.round, message["requests"])
        if message["devices"]:
            self._store.write_content(DEVICES, trial.cell, trial.round, message["devices"])
        for link in message["links"]:
            self._store.append_link(link)
        self._store.append_stages(message["stages"])
        self._store.append_trial(row)
        self._done.add((trial.cell, trial.round))
        tally.trials += 1
        tally.wall += row["wall_s"]
        tally.foreseen += trial.estimate_s
        tally.at_once = max(1, sum(1 for each in self._testbeds.values() if each.address and not each.out))
        if row["status"] != "ok":
            tally.faulty.append(row)
        testbed.trials += 1
        if testbed.task is not None:
            testbed.task.came += 1
        self.board.finished(testbed, trial, row)

    def _start(self, testbed: Testbed, opened: str, row: Row) -> int:
        """Which start of workers, among all of the run's, a row was measured after. opened: when the testbed was."""
        own = testbed.name, opened, int(row["restart"])
        if own not in self._starts:
            self._started += 1
            self._starts[own] = self._started
        return self._starts[own]

    def _finish(self, future: Future, _: None) -> None:
        """A task is over, whichever way."""
        testbed = next((each for each in self._testbeds.values() if each.future is future), None)
        if testbed is None or testbed.task is None:
            return
        if future.status != "finished":
            if future.status == "error" and not _is_loss(future):
                self._take_out(testbed, _first_line(future.exception()))
            else:
                self._lose(testbed)
            return
        try:
            outcome, task = future.result(timeout=GATHER_S), testbed.task
        except Exception:  # its worker went just before it handed it over
            self._lose(testbed)
            return
        for message in outcome.trials:  # what was said meanwhile may have been lost
            self._take(testbed, message)
        if outcome.record is not None:
            self._records[testbed.name, outcome.record["started_at"]] = {
                **outcome.record,
                "member": testbed.member,
            }
            self._write_manifest()
        if outcome.out:
            self._take_out(testbed, outcome.out)
            return
        others = any(each.address and not each.out for each in self._testbeds.values() if each is not testbed)
        if len(task.failed) == len(task.trials) and others and task.tries < MOST_TRIES:
            task.failed.clear()
            task.tries += 1
            self._give_back(testbed)
            return
        for key, message in list(task.failed.items()):
            self._write(
                testbed, next(each for each in task.trials if (each.cell, each.round) == key), message
            )
            del task.failed[key]
        self.board.task_done(testbed, task)
        self._give_back(testbed)

    def _write_failed(self) -> None:
        """The rows of what failed, and what nobody is left to do again."""
        for tasks in self._pending.values():
            for task in tasks:
                for trial in task.trials:
                    if message := task.failed.pop((trial.cell, trial.round), None):
                        name = message["row"]["testbed"]
                        testbed = next(each for each in self._testbeds.values() if each.name == name)
                        self._write(testbed, trial, message)
                        self._done.discard((trial.cell, trial.round))

    # The end

    def _end(self) -> None:
        """Let the testbeds go."""
        for testbed in self._testbeds.values():
            if testbed.future is not None:
                testbed.future.release()
        if self._processes is not None:
            return  # they end with the driver's interest in them
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

    def _write_manifest(self, ended: Mapping[str, Any] | None = None) -> None:
        """The sessions' records as they are now. ended: what each says of the driver's own end."""
        sweep, tally = self._job.sweep, self._job.tally
        records = [{**record, **(ended or {})} for record in self._records.values()]
        manifest = self._manifest | {"sweep": sweep.model_dump(mode="json")}
        if records:
            labels = dict.fromkeys(str(record["label"]) for record in records)
            manifest["testbed"] = f"{'; '.join(labels)}; {len({name for name, _ in self._records})} testbeds"
        manifest["sessions"] = [*self._manifest["sessions"], *records]
        self._store.write_manifest(manifest)
        for name in ("measuring", "probing", "watching", "driver_cpu"):
            setattr(tally, name, sum(record.get(f"{name}_s", 0.0) for record in records))

    def _say(self, line: str, testbed: str = "") -> None:
        """Print a line once; what several testbeds say, for the first."""
        if line not in self._said:
            self._said.add(line)
            self.board.say(f"{testbed}: {line}" if testbed else line)


def _base(member: str) -> str:
    """What the testbed of a member by hand is called: `lab1` of `lab1@host-2`."""
    return member.partition("@")[0]


def member_name(testbed: str, host: str) -> str:
    """What a member by hand is called at the scheduler."""
    return f"{testbed_name(testbed)}@{host}"


def _names(trial: Trial, row: Row) -> bool:
    """Whether a row is of a trial."""
    cell = trial.cell
    return (trial.round, cell.point, cell.backend, cell.batch_size, cell.codec, cell.engine) == (
        row["round"],
        row["point"],
        row["backend"],
        row["batch_size"],
        row["codec"],
        row["engine"],
    ) and (cell.in_flight, str(cell.prefetch)) == (row["in_flight_asked"], row["prefetch_asked"])


def _is_loss(future: Future) -> bool:
    from distributed.scheduler import KilledWorker

    return isinstance(future.exception(), KilledWorker)


def _first_line(error: BaseException | None) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
