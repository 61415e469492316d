"""Runs a plan on a testbed, trial by trial, into a store. A fault loses at most the trial in flight."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from pareto.analysis.schema import BETWEEN, DEVICES, REQUESTS, trial_name
from pareto.hosts.connection import FAULTS
from pareto.hosts.inventory import THIS_MACHINE
from pareto.hosts.testbed import Link
from pareto.protocol.constants import MOST_REQUESTS
from pareto.protocol.trial_messages import Progress
from pareto.remote.backends import registry
from pareto.remote.link import probe
from pareto.remote.link.profile import Profile, seed_of
from pareto.sweep.bounds import Crossing
from pareto.sweep.networks import Networks
from pareto.sweep.plan import Plan, Trial
from pareto.sweep.sweep import Sweep
from pareto.sweep.waits import starts_anew
from pareto.trial import devices
from pareto.trial.any_workers import RECENT_S, AnyWorkers
from pareto.trial.faults import PASSING, Samples, crossed_late
from pareto.trial.result import TrialResult
from pareto.trial.rows import link_row, stage_rows, trial_row
from pareto.trial.store import Row, Store

MAX_FAILURES_IN_A_ROW = 5
MAX_REBUILDS = 3
"""How often in a row a lost testbed is built or reached again for the same trial, before the trial fails."""
MOST_AGAIN, MAX_SPOILT_IN_A_ROW = 2, 3
"""How often a trial that was spoilt is measured again after its round; and how many of these may be spoilt one after
another before the others are left alone: what spoils them has not passed."""
MOST_READINGS = 4
"""Readings of a link, of which the last counts: a link that is off is off in each, a hiccup is in one or two."""


Spoilt = tuple[Trial, Row, str]
"""A trial with its row, and what is to blame."""


class Aborted(Exception):
    """Trials keep failing: going on would only fill the disk with failures."""


class Watcher:
    """Follows the trials, as the screen does. This one shows nothing."""

    is_live = False
    """Whether it shows the devices' sensors while a trial runs."""

    def doing(self, words: str) -> None:
        """The trial that was started waits for this."""

    def sampled(self, latest: dict[str, dict[str, Any]], progress: Progress | None) -> None: ...

    def started(self, trial: Trial) -> None: ...

    def finished(self, trial: Trial, row: Row) -> None: ...

    def rebuilds(self, reason: str, times: int) -> None:
        """The testbed was lost, and is built again for the same trial: so many times in a row."""


@dataclass
class Tally:
    """A session's trials so far, and where its time went, in seconds."""

    wall: float = 0.0
    foreseen: float = 0.0
    """The seconds that all trials took, and those that the plan foresaw."""
    measuring: float = 0.0
    probing: float = 0.0
    watching: float = 0.0
    """Seconds of trials on the driver's clock, and the driver's own processor time meanwhile."""
    driver_cpu: float = 0.0
    trials: int = 0
    faulty: list[Row] = field(default_factory=list)
    cut: int = 0
    """Trials with a phase that ended by its number of requests, whatever its time."""
    at_once: int = 1
    """How many testbeds measure at the same time."""
    again: list[Row] = field(default_factory=list)
    """The trials that were measured again, with why and who was to blame."""
    rebuilt: list[Row] = field(default_factory=list)
    """When the testbed was built again, for which trial, and why."""

    @property
    def pace(self) -> float:
        """The time that trials take of the run's, as a multiple of what was foreseen for each."""
        return (self.wall / self.foreseen if self.foreseen else 1.0) / self.at_once

    def add(self, trial: Trial, row: Row) -> None:
        """Count a trial that has its row."""
        self.trials += 1
        self.wall += row["wall_s"]
        self.foreseen += trial.estimate_s
        made = max(row.get(f"{phase}_requests") or 0 for phase in ("latency", "throughput"))
        self.cut += made >= MOST_REQUESTS and trial.effort.latency[1] > 0
        if row["status"] != "ok":
            self.faulty.append(row)

    def measured_again(self, spoilt: Spoilt) -> None:
        trial, row, blamed = spoilt
        self.faulty = [each for each in self.faulty if each is not row]
        named = {"trial": trial_id(trial), "status": row["status"], "reason": row["reason"]}
        self.again.append({**named, "blamed": blamed})


@dataclass
class Runner:
    """Runs plans of a sweep, one after the other. `tally` and the store hold the results, also after an interruption.

    now: seconds on a clock that only goes forward. testbed: its name. starts: how often the run's workers have started.
    """

    workers: AnyWorkers
    store: Store
    networks: Networks
    sweep: Sweep
    watcher: Watcher
    tally: Tally
    now: Callable[[], float] = time.monotonic
    testbed: str = THIS_MACHINE
    starts: int = 0

    def __post_init__(self) -> None:
        self.starts += 1
        self._began = datetime.now(timezone.utc), self.now()
        self._last_probes: dict[str, tuple[float, probe.Probed]] = {}
        self._shaped = ""
        self._round: int | None = None
        self._allocator = ""
        self._failures = self._rebuilds = 0
        self._is_there = False

    def run(self, plan: Plan) -> None:
        """Every trial of the plan; those that something spoilt that may pass once or twice more, after their round.
        Raises Aborted, and TestbedError when the hosts cannot work together at all."""
        for number, trials in itertools.groupby(plan.trials, key=lambda trial: trial.round):
            if self._round not in (None, number) and starts_anew(self.sweep.restart_rounds, number):
                self._restart()
            self._round = number
            spoilt = list(filter(None, (self._one(trial, plan) for trial in trials)))
            for _ in range(MOST_AGAIN):
                spoilt = self._once_more(spoilt, plan)

    def _once_more(self, spoilt: Sequence[Spoilt], plan: Plan) -> list[Spoilt]:
        """Those of these trials that are spoilt when measured again. Some in a row end it: the cause has not passed."""
        again: list[Spoilt | None] = []
        for each in spoilt:
            trial, last = each[0], again[-MAX_SPOILT_IN_A_ROW:]
            if len(last) == MAX_SPOILT_IN_A_ROW and all(last):
                break
            if not self.store.take_back(trial.cell, trial.round):
                break
            self.tally.measured_again(each)
            again.append(self._one(trial, plan))
        return list(filter(None, again))

    def _one(self, trial: Trial, plan: Plan) -> Spoilt | None:
        """Measure a trial; it is returned where something spoilt it that may pass. Raises as `run`."""
        self.watcher.started(trial)
        if self._allocator not in ("", trial.cell.allocator):
            self._restart()
        self._allocator = trial.cell.allocator
        row = self._attempt(trial, plan)
        blamed = row.pop(PASSING, "")
        self.store.append_trial(row)
        self.tally.add(trial, row)
        self.watcher.finished(trial, row)
        self._failures = self._failures + 1 if row["status"] == "failed" else 0
        if self._failures and self._rebuilds == MAX_REBUILDS and not self._is_there:
            raise Aborted(f"the testbed was lost and did not come back: {row['reason']}")
        if self._failures == MAX_FAILURES_IN_A_ROW:
            raise Aborted(f"{self._failures} trials failed in a row, the last because: {row['reason']}")
        if self._failures:
            self._restart()
        return (trial, row, blamed) if blamed else None

    def _restart(self) -> None:
        """Have the next trial start with fresh workers, newly shaped links and new connections."""
        self.workers.close()
        self._last_probes.clear()
        self._shaped = ""
        self.starts += 1

    def _attempt(self, trial: Trial, plan: Plan) -> Row:
        """The trial's row. If the testbed is lost meanwhile, the trial is repeated on a new one."""
        while True:
            row = self._row(trial, plan)
            lost = self.workers.lost() if row.get("status") == "failed" else ""
            if not lost:
                self._rebuilds = 0
                return row
            if self._is_there:  # else the row says why it could not be had again
                row["reason"] = lost
            if self._rebuilds == MAX_REBUILDS:
                return row
            self._rebuilds += 1
            self.tally.rebuilt.append({"at": self._date(), "trial": trial_id(trial), "reason": lost})
            self.watcher.rebuilds(lost, self._rebuilds)
            self._restart()

    def _row(self, trial: Trial, plan: Plan) -> Row:
        began = self.now()
        cell = trial.cell
        row = {
            **self._named(trial),
            "point_name": cell.point_name,
            "secure": registry.parse(cell.backend).secure,
            "stands_for": BETWEEN.join(cell.stands_for),
            "started_at": self._date(),
            "restart": self.starts,
        }
        try:
            row |= self._measure(trial, plan)
        except FAULTS as fault:
            row |= {"status": "failed", "reason": str(fault)}
        row["wall_s"] = self.now() - began
        return row

    def _measure(self, trial: Trial, plan: Plan) -> Row:
        """Probe the links, run the trial, probe them again, and store the details. Raises FAULTS."""
        cell, network, tolerance = trial.cell, self.networks[trial.cell.netem], self.sweep.link_tolerance
        self._is_there = False
        self.watcher.doing("making the hosts ready")
        self.workers.ready(cell, network)
        self._is_there = True
        if cell.netem != self._shaped:
            self._last_probes.clear()  # each link was shaped anew, also one that keeps its profile
            self._shaped = cell.netem
        links = list(zip(self.workers.links, network, strict=True))
        before = [self._recent(link) or self._probe(trial, link, asked, "before") for link, asked in links]
        for link, profile in links:
            if profile.period_s is not None:
                # Each cell of a round sees the same part of the trace, each round another.
                link.shaper.restart(profile.offset_s + plan.part(trial.round) * profile.period_s)
        link_seed = self._seed_links(trial, links)
        begun = [link.shaper.state() for link, _ in links]
        self.watcher.doing("loading the stages, measuring them alone")
        sampled = self.watcher.sampled if self.watcher.is_live else None
        began, worked = self.now(), time.process_time()
        result = self.workers.trial(trial, network, sampled)
        self.tally.watching += self.now() - began
        self.tally.driver_cpu += time.process_time() - worked
        ended = [link.shaper.state() for link, _ in links]
        after = [self._probe(trial, link, profile, "after") for link, profile in links]
        samples = self.workers.samples()  # now there is one after the end, too
        seen = [(was.position_s or 0.0, now.position_s or 0.0) for was, now in zip(begun, ended, strict=True)]
        crossings = self.workers.crossings(cell, network, seen)
        probes = {link.name: (was, now) for (link, _), was, now in zip(links, before, after, strict=True)}
        idle_s = None
        if isinstance(result, TrialResult):
            self.tally.measuring += result.edge.measured_s
            self._store_details(trial, crossings, result, samples)
            if crossed_late(cell, crossings, result, probes, tolerance):
                began = self.now()
                idle_s = self.workers.idle_crossing_s(links[0][0], crossings[0])
                self.tally.probing += self.now() - began
        limits = self.sweep.slowdown, self.sweep.others, tolerance
        phase = self.sweep.level, self.sweep.edge_cpu < 1
        row = trial_row(cell, crossings, result, probes, samples, *limits, idle_s, *phase)
        row["link_seed"] = link_seed
        dropped = [(was.dropped, now.dropped) for was, now in zip(begun, ended, strict=True)]
        if dropped and all(was is not None and now is not None for was, now in dropped):
            row["dropped_packets"] = sum((now or 0) - (was or 0) for was, now in dropped)
        changing = [span for span, profile in zip(seen, network, strict=True) if profile.period_s is not None]
        if changing:
            row["trace_from_s"], row["trace_to_s"] = changing[0]
        return row

    def _seed_links(self, trial: Trial, links: Sequence[tuple[Link, Profile]]) -> int | None:
        """Seed the links for the round, so that each of its cells meets the same chance; None if one takes no seed."""
        seed = seed_of(self.sweep.seed, trial.round)
        seeded = [link.shaper.seed(seed_of(seed, link.name)) for link, profile in links if profile.by_chance]
        return seed if seeded and all(seeded) else None

    def _store_details(
        self, trial: Trial, crossings: Sequence[Crossing], result: TrialResult, samples: Samples
    ) -> None:
        """Write all but the trial's own row: without that, these do not count."""
        self.store.write_parts(REQUESTS, trial.cell, trial.round, result.request_columns())
        series = {
            role: devices.within(of_role, window)
            for role, of_role in samples.items()
            if (window := result.hosts[role].usage.trial_window) is not None
        }
        self.store.write_parts(DEVICES, trial.cell, trial.round, series)
        rows = stage_rows(trial.cell, crossings, result, samples)
        self.store.append_stages(self._named(trial) | row for row in rows)

    def _probe(self, trial: Trial, link: Link, profile: Profile, when: str) -> probe.Probed:
        """A reading of the link. One that is off is taken again: a machine's hiccup passes, a fault stays."""
        self.watcher.doing(f"probing the link {when}")
        self._last_probes.pop(link.name, None)
        for _ in range(MOST_READINGS):
            began = self.now()
            probed, span = self.workers.probed(link, profile, self.sweep.link_tolerance)
            ended = self.now()
            self.store.append_link(
                {
                    "at": self._date(),
                    "model": trial.cell.model,
                    "netem": profile.name,
                    "testbed": self.testbed,
                    "link": link.name,
                    "trial": trial_id(trial),
                    "when": when,
                    "verdict": "off" if probed.fault else "ok",
                    "reason": probed.fault,
                    **link_row(profile, probed.reading, span),
                }
            )
            self.tally.probing += ended - began
            if not probed.fault:
                self._last_probes[link.name] = ended, probed
                break
        return probed

    def _recent(self, link: Link) -> probe.Probed | None:
        """The probe after the last trial, if it was good and is recent."""
        taken, probed = self._last_probes.get(link.name, (-math.inf, None))
        return probed if self.now() - taken < RECENT_S * len(self.workers.links) else None

    def _named(self, trial: Trial) -> Row:
        """The columns that say which trial a row is of, and where it was measured."""
        return {"run": self.store.run, **trial.cell.columns, "round": trial.round, "testbed": self.testbed}

    def _date(self) -> str:
        began, then = self._began
        return (began + timedelta(seconds=self.now() - then)).isoformat(timespec="milliseconds")


def trial_id(trial: Trial) -> str:
    return trial_name(trial.cell.id, trial.round)
