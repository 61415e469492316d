"""Workers of a run that does without hosts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pareto.hosts.host import End
from pareto.hosts.shapers import LinkState, Shaper
from pareto.hosts.testbed import Link
from pareto.protocol.trial_messages import WrongOutput
from pareto.remote.link.probe import Probed, Reading, Tolerance
from pareto.remote.link.profile import Profile
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.sweep.foreseen import ModelFacts, crossings
from pareto.sweep.plan import Trial
from tests.unit.example_trial import SENSED, USAGE, WINDOWS, report
from tests.unit.reported import result_of

NONE = Profile("none")
CELL = Cell("mobilenet_v2", (7,), "features.6", "tcp", NONE.name, 1)
FACTS = ModelFacts(tuple((f"features.{i}", 100_352) for i in range(12)), 0.01)
SAMPLES = {"edge": SENSED, "server": SENSED}
END = End("edge", "192.168.7.2", "eth0")
LATEST = {"edge": {"cpu_percent": 7.0}}


@dataclass
class StandInWorkers:
    """Hosts that do what they are asked at once, unless `faults` are still to come: before a trial, or within it.

    Of what they are asked about the link they take notes: where its trace is played from, what chance begins from.
    """

    report: dict[str, Any] | WrongOutput = field(default_factory=lambda: report(**WINDOWS))
    samples_told: dict[str, Any] = field(default_factory=lambda: SAMPLES)
    faults: list[Exception] = field(default_factory=list)
    readings: list[Probed] = field(default_factory=list)
    dropped: list[int | None] = field(default_factory=lambda: [None])
    middles: tuple[str, ...] = ()
    takes_seeds: bool = True
    idle_s: float = 0.4
    """What the bytes of a trial take over the idle link: as long as requests did, or less."""
    closed: int = 0
    gone: str = ""
    within: bool = False
    played: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    crossed: list[float] = field(default_factory=list)

    def lost(self) -> str:
        return self.gone

    def ready(self, cell: Cell, network: Sequence[Profile]) -> None:
        if self.faults and not self.within:
            raise self.faults.pop(0)

    @property
    def links(self) -> tuple[Link, ...]:
        ends = [END, *(replace(END, role=role) for role in (*self.middles, "server"))]
        return tuple(Link(near, far, cast(Shaper, self)) for near, far in itertools.pairwise(ends))

    def crossings(self, cell: Cell, network: Sequence[Profile], seen: Any) -> list[Crossing]:
        return crossings(cell, FACTS, network, [link.name for link in self.links], seen)

    def probed(
        self, link: Link, profile: Profile, tolerance: Tolerance
    ) -> tuple[Probed, tuple[float, float]]:
        good = Probed(Reading(0.0003, None, None), "")
        return (self.readings.pop(0) if self.readings else good), (0.0, 0.0)

    def trial(self, trial: Trial, network: Any, sampled: Any) -> Any:
        if self.faults:
            raise self.faults.pop(0)
        if sampled is not None:
            sampled(LATEST, None)
        if isinstance(self.report, WrongOutput):
            return self.report
        passed_on = {**USAGE, **WINDOWS, "sent_bytes": 1 << 30, "received_bytes": 1 << 30}
        others = {**dict.fromkeys(self.middles, passed_on), "server": {**USAGE, **WINDOWS}}
        return result_of({"edge": self.report, **others})

    def samples(self) -> dict[str, Any]:
        return self.samples_told

    def state(self) -> LinkState:
        return LinkState(self.dropped.pop(0) if len(self.dropped) > 1 else self.dropped[0], None)

    def restart(self, position_s: float) -> None:
        self.played.append(position_s)

    def seed(self, seed: int) -> bool:
        self.seeds.append(seed)
        return self.takes_seeds

    def idle_crossing_s(self, link: Link, crossing: Crossing) -> float:
        self.crossed.append(crossing.payload_bytes)
        return self.idle_s

    def close(self) -> None:
        self.closed += 1
