"""A plan on a testbed, trial by trial, into a store. A fault loses at most the trial in flight."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol

from pareto import verdict
from pareto.crew import Crew
from pareto.hosts.session import SessionError, SessionLost
from pareto.hosts.ssh import Unreachable
from pareto.link import probe
from pareto.link.profile import Profile
from pareto.plan import Effort, Plan, Trial
from pareto.store import Row, Store

FAULTS = (SessionError, SessionLost, TimeoutError, Unreachable)
MAX_FAILURES_IN_A_ROW = 5
RECENT_S = 2.0
"""A probe this young, taken after one trial, serves as the one before the next."""


class Aborted(Exception):
    """Trials keep failing: going on would only fill the disk with failures."""


class Watcher(Protocol):
    """Whoever wants to follow: the screen."""

    def started(self, trial: Trial) -> None: ...

    def finished(self, trial: Trial, row: Row) -> None: ...


@dataclass
class Clock:
    """Where the wall time went, in seconds."""

    measuring: float = 0.0
    probing: float = 0.0
    trials: int = 0
    faulty: list[Row] = field(default_factory=list)


class Runner:
    """Runs a plan once. `clock` and the store hold what came of it, also after an interruption."""

    def __init__(
        self,
        crew: Crew,
        store: Store,
        profiles: Mapping[str, Profile],
        tolerance: probe.Tolerance,
        watcher: Watcher,
        clock: Clock,
    ) -> None:
        self._crew = crew
        self._store = store
        self._profiles = profiles
        self._tolerance = tolerance
        self._watcher = watcher
        self._last_probe: tuple[float, str, probe.Reading] | None = None
        self.clock = clock

    def run(self, plan: Plan) -> None:
        """Every trial of the plan. Raises Aborted, and TestbedError when the hosts cannot work together at all."""
        failures = 0
        for trial in plan.trials:
            self._watcher.started(trial)
            row = self._attempt(trial, plan.effort)
            self._store.append_trial(row)
            self.clock.trials += 1
            if row["status"] != "ok":
                self.clock.faulty.append(row)
            self._watcher.finished(trial, row)
            failures = failures + 1 if row["status"] == "failed" else 0
            if failures == MAX_FAILURES_IN_A_ROW:
                raise Aborted(f"{failures} trials failed in a row, the last because: {row['reason']}")
            if failures:  # the next trial starts with fresh workers
                self._crew.close()
                self._last_probe = None

    def _attempt(self, trial: Trial, effort: Effort) -> Row:
        began = time.monotonic()
        row: Row = {
            "run": self._store.run,
            "model": trial.cell.model,
            "point": trial.cell.point,
            "point_name": trial.cell.point_name,
            "backend": trial.cell.backend,
            "netem": trial.cell.netem,
            "batch_size": trial.cell.batch_size,
            "codec": trial.cell.codec,
            "round": trial.round,
            "started_at": _now(),
        }
        try:
            row |= self._measure(trial, effort)
        except FAULTS as fault:
            row |= {"status": "failed", "reason": str(fault)}
        row["wall_s"] = time.monotonic() - began
        return row

    def _measure(self, trial: Trial, effort: Effort) -> Row:
        cell, profile = trial.cell, self._profiles[trial.cell.netem]
        self._crew.ready(cell, profile)
        before = self._recent(profile) or self._probe(trial, profile, "before")
        report, usage = self._crew.trial(trial, profile, effort)
        after = self._probe(trial, profile, "after")
        if "requests" in report:
            self._store.write_requests(cell, trial.round, report["requests"])
        self.clock.measuring += report.get("measured_s", 0.0)
        return verdict.row(cell, profile, report, usage, (before, after), self._tolerance)

    def _probe(self, trial: Trial, profile: Profile, when: str) -> probe.Reading:
        """The link now. A reading that is off is taken once more: a machine's hiccup is not the link's fault."""
        reading = self._read_link(trial, profile, when)
        return reading if self._last_probe else self._read_link(trial, profile, when)

    def _read_link(self, trial: Trial, profile: Profile, when: str) -> probe.Reading:
        began = time.monotonic()
        reading = self._crew.probe(profile)
        ended = time.monotonic()
        fault = probe.judge(profile, reading, self._tolerance)
        self._store.append_link(
            {
                "at": _now(),
                "model": trial.cell.model,
                "netem": profile.name,
                "trial": f"{trial.cell.id}-r{trial.round:02d}",
                "when": when,
                "verdict": "off" if fault else "ok",
                "reason": fault,
                "asked_rtt_s": profile.rtt_s,
                "asked_rate_bps": profile.edge_to_server.rate_bps,
                "asked_rate_back_bps": profile.server_to_edge.rate_bps,
                "rtt_s": reading.rtt_s,
                "rate_bps": reading.rate_bps,
                "rate_back_bps": reading.rate_back_bps,
            }
        )
        self.clock.probing += ended - began
        self._last_probe = None if fault else (ended, profile.name, reading)
        return reading

    def _recent(self, profile: Profile) -> probe.Reading | None:
        """The last trial's closing probe, if it was of this link, good, and a moment ago."""
        if self._last_probe is None:
            return None
        taken, name, reading = self._last_probe
        fresh = name == profile.name and time.monotonic() - taken < RECENT_S
        return reading if fresh else None


def link_facts(profiles: Mapping[str, Profile], shaped: Mapping[str, Any]) -> dict[str, Any]:
    """For the manifest: each profile as asked, and what the shaper read back."""
    return {name: {**profile.to_dict(), "in_force": shaped.get(name)} for name, profile in profiles.items()}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
