"""Hands out the tasks of a plan to the testbeds of a fleet, and writes what they measured.

A task is all cells of one (model, network) in one round: what is compared with each other is measured on one testbed,
in one hour. Dask carries tasks and messages, and knows who is there; the driver itself chooses what an idle testbed
does next, and gives a task whose member is lost, or whose testbed fails, to another, without the trials that have come.
"""

from __future__ import annotations

import pickle
import queue
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pareto.analysis.schema import CELL, DEVICES, LINKS, REQUESTS, STAGES, TRIALS
from pareto.basics.escaping import short
from pareto.driver.fleet import cluster
from pareto.driver.fleet.member import Order
from pareto.driver.manifest import SPENT
from pareto.driver.progress import Display
from pareto.driver.runner import Aborted, trial_id
from pareto.hosts import parcels
from pareto.protocol.errors import one_line
from pareto.remote.link.units import minutes
from pareto.sweep.cell import Cell
from pareto.sweep.plan import Plan, Trial
from pareto.trial.store import Row, Store, checked, trial_of

if TYPE_CHECKING:
    from distributed import Client

    from pareto.driver.job import Job
    from pareto.driver.stop import Stopping

MOST_LOSSES = 3
"""A testbed whose member ends so often in a row, without a trial in between, is taken out."""
WAIT_S = 3600.0
"""How long a cluster may be without any testbed before the run ends."""
Task = tuple[Trial, ...]
Start = Callable[[str], subprocess.Popen[str]]


def group(task: Task) -> tuple[str, str]:
    """The model and the network of a task."""
    return task[0].cell.model, task[0].cell.netem


def tasks(trials: Iterable[Trial]) -> list[Task]:
    """The tasks of which these trials are, in their order."""
    return [tuple(each) for _, each in groupby(trials, lambda trial: (trial.round, *group((trial,))))]


def taken(waiting: list[Task], testbed: FleetTestbed) -> Task:
    """The task that a testbed does next: of what it has had least, the first. So it sees every cell if rounds allow."""
    task = min(waiting, key=lambda each: testbed.seen[group(each)])
    waiting.remove(task)
    testbed.seen[group(task)] += 1
    return task


@dataclass(eq=False)
class FleetTestbed:
    """A testbed of the fleet.

    name: of its member at the scheduler, and in the rows. process: the member, if it is the driver's own. address: the
    member's at the scheduler; empty while it is not there. future: dask's, of the task. seen: how many tasks it has
    had, by model and network. failed: its last trials, as far as they failed: another does them again if it is taken
    out. out: why it is in the fleet no more.
    """

    name: str
    process: subprocess.Popen[str] | None = None
    address: str = ""
    task: Task = ()
    future: Any = None
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    losses: int = 0
    failed: list[Trial] = field(default_factory=list)
    out: str = ""

    @property
    def is_here(self) -> bool:
        """Whether it can be given a task, or has one."""
        return bool(self.address) and not self.out

    def in_words(self) -> str:
        """Its name, and what it does now."""
        doing = f"{' '.join(group(self.task))}, round {self.task[0].round}" if self.task else "idle"
        if not self.is_here:
            doing = f"taken out: {self.out}" if self.out else "not there"
        return f"{self.name}: {doing}"


class Unfit(Exception):
    """The fault of a message that is of no trial which its member was given, or has no row."""


def fitting(message: Mapping[str, Any], trials: Sequence[Trial], testbed: str) -> Trial:
    """The trial of a member's task that a message is of, all of whose rows can be written. Raises Unfit."""
    try:
        trial: Trial = trials[message["place"]]
        row = message["row"]
        stages, links = message["stages"], message["links"]
        for table, rows in ((TRIALS, [row]), (STAGES, stages), (LINKS, links)):
            for each in rows:
                checked(each, table)
        named = {name: row[name] for name in (*CELL, "round", "testbed")}.items()
        of_link = {"model": trial.cell.model, "testbed": testbed, "trial": trial_id(trial)}.items()
        is_its = (trial_of(row), row["testbed"]) == ((trial.cell, trial.round), testbed)
        is_its = is_its and all(named <= each.items() for each in stages)
        if not is_its or not all(of_link <= each.items() for each in links):
            raise ValueError("it is of another trial")
        if [type(message[part]) for part in ("requests", "devices", "opened")] != [bytes, bytes, str]:
            raise ValueError("it has other parts")
        _ = row["wall_s"] + 0.0, int(row["restart"]), row["reason"]  # which are counted with, or shown
        return trial
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise Unfit(f"it sent what is no row of its trial: {short(str(error), 200)}") from None


def measure_plan(job: Job, store: Store, planned: Plan, stopping: Stopping) -> None:
    """Measure the plan, and what is added to it, into the store. Raises UserError, StoreError, Aborted."""
    parts = stopping.plans()
    if (first := next(parts, None)) is not None:
        with cluster.opened(job.sweep) as (client, start):
            Driver(job, store, planned, client, start).run(chain([first], parts), stopping)


class Driver:
    """Measures a sweep's plan on a fleet. start: starts a member of its own."""

    def __init__(self, job: Job, store: Store, planned: Plan, client: Client, start: Start) -> None:
        self._sweep, self._tally = job.sweep, job.tally
        self._store, self._client, self._start = store, client, start
        self._then = store.manifest()
        self._rows: dict[tuple[Cell, int], Row] = {done: {} for done in store.done()}
        """Those that are written: of the trials before, nothing."""
        self._starts: dict[tuple[str, str, int], int] = {}
        """By testbed, when it was opened, and its own number: which start of workers, of all the run's."""
        self._started = store.starts()
        self._records: dict[tuple[str, str], Mapping[str, Any]] = {}
        """The sessions' records, by testbed and when each began."""
        self._session = f"pareto-{uuid4().hex}"
        self._inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        """The messages that came, in their order, each with the key of its task."""
        self._testbeds: dict[str, FleetTestbed] = {}
        self._waiting: list[Task] = []
        self._said: set[str] = set()
        self._here_s = time.monotonic()
        """When a testbed was there last."""
        grows = job.sweep.grows
        self._progress = Display(
            job.console, planned, grows=grows, testbeds=lambda: map(FleetTestbed.in_words, self._all())
        )

    def run(self, parts: Iterable[Plan], stopping: Stopping) -> None:
        """Measure these parts of the plan, each when the one before is done. Raises Aborted, StoreError."""
        self._client.subscribe_topic(self._session, lambda event: self._inbox.put(event[1]))
        self._store.drop_unsound()
        self._write_manifest()
        try:
            for name in self._sweep.testbeds if self._sweep.cluster is None else ():
                self._testbeds[name] = FleetTestbed(name, self._start(name))
            with self._progress:
                for part in parts:
                    self._progress.expect(part)
                    self._measure(part)
        except Aborted:
            stopping.failed()
            raise
        finally:
            self._write_manifest({"stopping": stopping.record()})

    def _measure(self, part: Plan) -> None:
        self._waiting += tasks(part.trials)
        looked = -cluster.LOOK_S
        while self._waiting or any(each.task for each in self._all()):
            if time.monotonic() - looked >= cluster.LOOK_S:
                self._look()
                looked = time.monotonic()
            for testbed in self._here():
                if self._waiting and not testbed.task:
                    self._hand_out(testbed, part.rounds)
            with suppress(queue.Empty):
                self._hear(self._inbox.get(timeout=cluster.LOOK_S))

    def _hand_out(self, testbed: FleetTestbed, rounds: int) -> None:
        testbed.task, key = taken(self._waiting, testbed), f"{self._session}-{uuid4().hex}"
        then = {part: self._then[part] for part in ("models", "profiles")}
        of_run = self._session, self._store.run, testbed.name, self._sweep.model_dump(mode="json"), then
        order = Order(key, *of_run, testbed.task, rounds, len(self._then["sessions"]), parcels.code()[1])

        def measure(task: bytes) -> None:  # as this travels whole, a scheduler need not have this program
            from pareto.driver.fleet import member

            member.measure(task)

        where = {"workers": [testbed.address], "resources": {cluster.RESOURCE: 1}}
        testbed.future = self._client.submit(measure, pickle.dumps(order), key=key, pure=False, **where)
        testbed.future.add_done_callback(lambda done: self._inbox.put({"key": done.key}))

    def _all(self) -> list[FleetTestbed]:
        return list(self._testbeds.values())

    def _here(self) -> list[FleetTestbed]:
        return [each for each in self._all() if each.is_here]

    def _look(self) -> None:
        """See who has come and gone. Raises Aborted where nobody is left who could measure."""
        if self._client.status != "running":
            raise Aborted(f"the scheduler at {self._sweep.cluster} is gone")
        workers = self._client.scheduler_info()["workers"].items()
        here = {str(one["name"]): address for address, one in workers if cluster.RESOURCE in one["resources"]}
        for name in sorted(here.keys() - self._testbeds.keys()):
            self._testbeds[name] = FleetTestbed(name)
        for testbed in self._all():
            if (address := here.get(testbed.name, "")) != testbed.address:
                self._lose(testbed)
                testbed.address = address
                if address and not testbed.process:
                    self._progress.say(f"{testbed.name}: joined")
            if (process := testbed.process) and not testbed.out and process.poll() is not None:
                testbed.losses += 1
                if testbed.losses < MOST_LOSSES:
                    testbed.process = self._start(testbed.name)
                else:
                    why = short(process.communicate()[1].strip().rpartition("\n")[2])
                    self._take_out(testbed, f"its process ended {MOST_LOSSES} times{why and f': {why}'}")
        self._check_any_left()

    def _lose(self, testbed: FleetTestbed) -> None:
        """Its member is gone, if it had one: what it has not done is given out again."""
        if testbed.is_here:
            self._progress.say(f"{testbed.name}: lost; what it had not done is given out again")
        testbed.address = ""
        self._give_back(testbed)

    def _give_back(self, testbed: FleetTestbed) -> None:
        """Put back the part of a testbed's task that it has not done, for another to do."""
        self._waiting[:0] = tasks(each for each in testbed.task if (each.cell, each.round) not in self._rows)
        if testbed.future is not None:
            testbed.future.release()
        testbed.task, testbed.future = (), None

    def _take_out(self, testbed: FleetTestbed, why: str) -> None:
        testbed.out = why
        self._progress.say(f"attention: {testbed.name} is taken out of the fleet: {why}")
        self._give_back(testbed)
        self._waiting[:0] = tasks(testbed.failed)

    def _check_any_left(self) -> None:
        """Raises Aborted where no testbed is left, or none has been at the cluster for too long."""
        where, limit_s = self._sweep.cluster, self._sweep.wait or WAIT_S
        if self._here():
            self._here_s = time.monotonic()
        elif where is not None:
            self._say(f"no testbed is at {where}: waiting {minutes(limit_s)} for one")
            if time.monotonic() - self._here_s > limit_s:
                raise Aborted(f"for {minutes(limit_s)} no testbed was at {where}")
        elif all(each.out for each in self._all()):
            raise Aborted("no testbed is left: " + "; ".join(f"{one.name}: {one.out}" for one in self._all()))

    def _hear(self, message: dict[str, Any]) -> None:
        """Act on a member's message about its task; one with nothing but its key says that it is over."""
        found = (each for each in self._all() if each.future and each.future.key == message["key"])
        if (testbed := next(found, None)) is None:  # it comes late: another does the trial
            return
        try:
            if "place" in message:
                self._take(testbed, message)
            elif "record" in message:
                self._keep(testbed, message["record"])
            elif "say" in message:
                self._say(f"{testbed.name}: {message['say']}", str(message["say"]))
            elif testbed.future.status == "finished":
                self._give_back(testbed)
            elif testbed.future.status == "error":
                self._take_out(testbed, one_line(testbed.future.exception())[:200])
            else:
                self._lose(testbed)
        except Unfit as fault:
            self._take_out(testbed, str(fault))

    def _take(self, testbed: FleetTestbed, message: dict[str, Any]) -> None:
        """Write all that a trial has, in place of how it failed elsewhere. Raises Unfit."""
        trial, store, row = fitting(message, testbed.task, testbed.name), self._store, message["row"]
        key = trial.cell, trial.round
        if (before := self._rows.get(key)) is not None:
            if before.get("status") != "failed":
                return
            store.take_back(*key)
            self._tally.faulty.remove(before)
        own = testbed.name, message["opened"], int(row["restart"])
        start = self._starts.setdefault(own, self._started + len(self._starts) + 1)
        self._rows[key] = row = row | {"run": store.run, "restart": start}
        for table, content in ((REQUESTS, message["requests"]), (DEVICES, message["devices"])):
            if content:
                store.write_content(table, *key, content)
        for link in message["links"]:
            store.append_link(link)
        store.append_stages(message["stages"])
        store.append_trial(row)
        testbed.losses, testbed.failed = 0, [*testbed.failed, trial] if row["status"] == "failed" else []
        self._tally.at_once = self._progress.at_once = max(1, len(self._here()))
        self._tally.add(trial, row)
        self._progress.finished(trial, row)

    def _keep(self, testbed: FleetTestbed, record: Mapping[str, Any]) -> None:
        """Write a session's record, as it is so far. Raises Unfit."""
        if not isinstance(record, Mapping) or not {"started_at", "label"} <= record.keys():
            raise Unfit("it sent no record of its session")
        self._records[testbed.name, str(record["started_at"])] = record
        self._write_manifest()

    def _write_manifest(self, ended: Mapping[str, Any] | None = None) -> None:
        """Write the sessions' records as they are now. ended: what each says of the driver's own end."""
        records = [{**record, **(ended or {})} for record in self._records.values()]
        manifest = self._then | {"sweep": self._sweep.model_dump(mode="json")}
        if records:
            labels = dict.fromkeys(str(record["label"]) for record in records)
            manifest["testbed"] = f"{'; '.join(labels)}; {len({name for name, _ in self._records})} testbeds"
        manifest["sessions"] = [*self._then["sessions"], *records]
        self._store.write_manifest(manifest)
        for name in SPENT:
            setattr(self._tally, name, sum(record.get(f"{name}_s", 0.0) for record in records))

    def _say(self, line: str, words: str = "") -> None:
        """Print a line, if none with these words was printed: what several testbeds say, for the first."""
        if (words or line) not in self._said:
            self._said.add(words or line)
            self._progress.say(line)
