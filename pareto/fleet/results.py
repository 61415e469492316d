"""What the testbeds of a fleet measured, in the run's folder: each trial once, and a record of each session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.escaping import short
from analysis.schema import CELL, DEVICES, LINKS, REQUESTS, STAGES, TRIALS
from pareto.fleet.testbeds import Testbed, called, free
from pareto.plan import Trial
from pareto.runner import trial_id
from pareto.store import Row, Store, checked, trial_of

if TYPE_CHECKING:
    from pareto.run import Job


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
        named = {name: row[name] for name in (*CELL, "round", "testbed")}
        of_link = {"model": trial.cell.model, "testbed": testbed, "trial": trial_id(trial)}
        if (trial_of(row), row["testbed"]) != ((trial.cell, trial.round), testbed) or not all(
            wanted.items() <= each.items()
            for wanted, rows in ((named, stages), (of_link, links))
            for each in rows
        ):
            raise ValueError("it is of another trial")
        content = (message["requests"], message["devices"])
        if not all(isinstance(each, bytes) for each in content) or not isinstance(message["opened"], str):
            raise ValueError("it has other parts")
        _ = row["wall_s"] + 0.0, int(row["restart"]), row["reason"]  # which are counted with, or shown
        return trial
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise Unfit(f"it sent what is no row of its trial: {short(str(error), 200)}") from None


class Results:
    """then: the manifest as it was before this driver."""

    def __init__(self, job: Job, store: Store) -> None:
        self.then = store.manifest()
        self._job = job
        self._store = store
        self._done = set(store.done())
        self._starts: dict[tuple[str, str, int], int] = {}
        self._started = store.starts()
        self._records: dict[tuple[str, str], dict[str, Any]] = {}
        """The sessions' records, by testbed and when each began."""
        known = [(each.get("member"), each.get("testbed_name")) for each in self.then["sessions"]]
        self._names: dict[str, str] = {member: name for member, name in known if member and name}

    def name(self, member: str) -> str:
        """What rows call the testbed of a member by hand: as in the run's sessions before."""
        return self._names.setdefault(member, free(called(member), set(self._names.values())))

    def has(self, trial: Trial) -> bool:
        """Whether its row is written."""
        return (trial.cell, trial.round) in self._done

    def write(self, trial: Trial, message: Mapping[str, Any], at_once: int) -> None:
        """Write all that a trial has. at_once: how many testbeds are at work."""
        row, tally = message["row"], self._job.tally
        row |= {"run": self._store.run, "restart": self._start(message["opened"], row)}
        if message["requests"]:
            self._store.write_content(REQUESTS, trial.cell, trial.round, message["requests"])
        if message["devices"]:
            self._store.write_content(DEVICES, trial.cell, trial.round, message["devices"])
        for link in message["links"]:
            self._store.append_link(link)
        self._store.append_stages(message["stages"])
        self._store.append_trial(row)
        self._done.add((trial.cell, trial.round))
        tally.at_once = max(1, at_once)
        tally.add(trial, row)

    def _start(self, opened: str, row: Row) -> int:
        """Which start of workers, among all of the run's, a row was measured after. opened: when its testbed was."""
        own = row["testbed"], opened, int(row["restart"])
        return self._starts.setdefault(own, self._started + len(self._starts) + 1)

    def keep(self, testbed: Testbed, record: Mapping[str, Any]) -> None:
        """Write a session's record, as it is so far. Raises Unfit."""
        if not isinstance(record, Mapping) or not {"started_at", "label"} <= record.keys():
            raise Unfit("it sent no record of its session")
        self._records[testbed.name, record["started_at"]] = {**record, "member": testbed.member}
        self.write_manifest()

    def write_manifest(self, ended: Mapping[str, Any] | None = None) -> None:
        """Write the sessions' records as they are now. ended: what each says of the driver's own end."""
        sweep, tally = self._job.sweep, self._job.tally
        records = [{**record, **(ended or {})} for record in self._records.values()]
        manifest = self.then | {"sweep": sweep.model_dump(mode="json")}
        if records:
            labels = dict.fromkeys(str(record["label"]) for record in records)
            manifest["testbed"] = f"{'; '.join(labels)}; {len({name for name, _ in self._records})} testbeds"
        manifest["sessions"] = [*self.then["sessions"], *records]
        self._store.write_manifest(manifest)
        for name in ("measuring", "probing", "watching", "driver_cpu"):
            setattr(tally, name, sum(record.get(f"{name}_s", 0.0) for record in records))
