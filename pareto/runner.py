"""A plan on a testbed, trial by trial, into a store. A fault loses at most the trial in flight."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol

from pareto import devices, verdict
from pareto.crew import Crew
from pareto.hosts.host import EDGE, SERVER
from pareto.hosts.way import FAULTS
from pareto.link import probe
from pareto.link.profile import Profile
from pareto.plan import Plan, Trial
from pareto.store import Row, Store

MAX_FAILURES_IN_A_ROW = 5
RECENT_S = 2.0
"""A probe this young, taken after one trial, serves as the one before the next."""


class Aborted(Exception):
    """Trials keep failing: going on would only fill the disk with failures."""


class Watcher(Protocol):
    """Whoever wants to follow: the screen."""

    is_live: bool
    """Whether it shows what the devices' sensors tell while a trial runs."""

    def sampled(self, latest: dict[str, dict[str, Any]]) -> None: ...

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
        self._last_probe: tuple[float, Profile, probe.Probed] | None = None
        self.clock = clock

    def run(self, plan: Plan) -> None:
        """Every trial of the plan. Raises Aborted, and TestbedError when the hosts cannot work together at all."""
        failures = 0
        for trial in plan.trials:
            self._watcher.started(trial)
            row = self._attempt(trial, plan)
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

    def _attempt(self, trial: Trial, plan: Plan) -> Row:
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
            row |= self._measure(trial, plan)
        except FAULTS as fault:
            row |= {"status": "failed", "reason": str(fault)}
        row["wall_s"] = time.monotonic() - began
        return row

    def _measure(self, trial: Trial, plan: Plan) -> Row:
        cell, profile = trial.cell, self._profiles[trial.cell.netem]
        self._crew.ready(cell, profile)
        before = self._recent(profile) or self._probe(trial, profile, "before")
        if profile.period_s is not None:
            # Each cell of a round sees the same part of the trace, each round another.
            share = (trial.round - 1) / plan.rounds
            self._crew.shaper.restart(profile.offset_s + share * profile.period_s)
        begun = self._crew.shaper.state()
        sampled = self._watcher.sampled if self._watcher.is_live else None
        report, usage = self._crew.trial(trial, profile, plan.effort, sampled)
        ended = self._crew.shaper.state()
        after = self._probe(trial, profile, "after")
        samples = self._crew.samples()  # now there is one after the end, too
        if "requests" in report:
            self._store.write_requests(cell, trial.round, report["requests"])
            self._keep(trial, samples, {EDGE: report, SERVER: usage})
        self.clock.measuring += report.get("measured_s", 0.0)
        seen = begun.position_s or 0.0, ended.position_s or 0.0
        row = verdict.row(cell, profile, report, usage, (before, after), seen, samples)
        if begun.dropped is not None and ended.dropped is not None:
            row["dropped_packets"] = ended.dropped - begun.dropped
        if profile.period_s is not None:
            row["trace_from_s"], row["trace_to_s"] = seen
        return row

    def _keep(self, trial: Trial, samples: Mapping[str, devices.Series], told: Mapping[str, Any]) -> None:
        windows = {role: told[role].get("trial_window") for role in samples}
        kept = {
            role: devices.within(series, window)
            for role, series in samples.items()
            if (window := windows[role]) is not None
        }
        if kept:
            self._store.write_devices(trial.cell, trial.round, kept)

    def _probe(self, trial: Trial, profile: Profile, when: str) -> probe.Probed:
        """The link now. A reading that is off is taken once more: a machine's hiccup is not the link's fault."""
        probed = self._read_link(trial, profile, when)
        return self._read_link(trial, profile, when) if probed.fault else probed

    def _read_link(self, trial: Trial, profile: Profile, when: str) -> probe.Probed:
        began = time.monotonic()
        probed, span = self._crew.probed(profile, self._tolerance)
        ended = time.monotonic()
        self._store.append_link(
            {
                "at": _now(),
                "model": trial.cell.model,
                "netem": profile.name,
                "trial": f"{trial.cell.id}-r{trial.round:02d}",
                "when": when,
                "verdict": "off" if probed.fault else "ok",
                "reason": probed.fault,
                **link_row(profile, probed.reading, span),
            }
        )
        self.clock.probing += ended - began
        self._last_probe = None if probed.fault else (ended, profile, probed)
        return probed

    def _recent(self, profile: Profile) -> probe.Probed | None:
        """The last trial's closing probe, if it was of this link, good, and a moment ago."""
        if self._last_probe is None:
            return None
        taken, of, probed = self._last_probe
        fresh = of == profile and time.monotonic() - taken < RECENT_S
        return probed if fresh else None


def link_row(profile: Profile, reading: probe.Reading, span: probe.Span) -> Row:
    """Asked and measured, for link.csv. What was asked of a link that changes is its mean."""
    out, back = profile.typical.directions
    samples = reading.sample, reading.sample_back
    return {
        "asked_rtt_s": profile.rtt_s,
        "asked_rate_bps": out.rate_bps,
        "asked_rate_back_bps": back.rate_bps,
        "rtt_s": reading.rtt_s,
        "rate_bps": reading.rate_bps,
        "rate_back_bps": reading.rate_back_bps,
        "asked_loss": probe.missing_share(out) if samples[0] else None,
        "asked_loss_back": probe.missing_share(back) if samples[1] else None,
        "datagrams": sum(sample.sent for sample in samples if sample) or None,
        "loss": samples[0].lost / samples[0].sent if samples[0] else None,
        "loss_back": samples[1].lost / samples[1].sent if samples[1] else None,
        "position_s": span[0] if profile.period_s is not None else None,
    }


def link_facts(profiles: Mapping[str, Profile], shaped: Mapping[str, Any]) -> dict[str, Any]:
    """For the manifest: each profile as asked, and what the shaper read back."""
    return {name: {**profile.record(), "in_force": shaped.get(name)} for name, profile in profiles.items()}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
