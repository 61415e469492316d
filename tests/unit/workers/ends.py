"""The workers of a run, whose programs on the hosts are stand-ins that note what they are asked."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from pareto.hosts.host import EDGE, SERVER, Host, TcpSettings
from pareto.hosts.testbed import Testbed
from pareto.models.prepare import Artifact, Prepared
from pareto.partitions.quality import Quality
from pareto.partitions.recipe import Recipe
from pareto.protocol.host_messages import SensorSample
from pareto.remote.link.probe import Reading
from pareto.remote.link.profile import Profile
from pareto.sweep.cell import Cell
from pareto.sweep.foreseen import ModelFacts
from pareto.sweep.plan import QUICK, Trial
from pareto.trial.result import TrialResult
from pareto.trial.workers import Workers
from tests.unit.far_end import HOSTS, FakeShaper, FarEnd, StandIn, bed_of
from tests.unit.reported import CODEC_RUNS, SERIES, TRIAL, UNIT_RUNS, USAGE, facts

MIDDLE = "middle1"
PIDS = {EDGE: 11, MIDDLE: 33, SERVER: 22}
CHAIN = {
    EDGE: HOSTS[EDGE],
    MIDDLE: Host("hub", "192.168.7.9", "eth1", "/home/ada/.pareto", "python3"),
    SERVER: HOSTS[SERVER],
}
NONE = Profile("none")
CELL = Cell("alexnet", (1,), "pool", "tcp", NONE.name, 2)
FACTS = ModelFacts((("input", 600_000), ("pool", 1000), ("output", 0)), 0.01)
WATTS = {EDGE: 2.5, MIDDLE: None, SERVER: None}
LINK = {"rtt_s": 0.05, "rate_bps": 8e6, "rate_back_bps": 9e6}
BETWEEN = ("edge-middle1", "middle1-server")
NOTHING_MEASURED = {"max_abs_error": 1.0, "tolerance": 0.1}
CUT_AT_BOTH = Cell("alexnet", (0, 1), "input+pool", "tcp", NONE.name, 2)


class Ends:
    """Every program that was started, by role and module, the newest last; what they answer may be changed."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, str], list[FarEnd]] = {}
        self.late, self.link, self.in_force = 0, LINK, dict.fromkeys(PIDS, "tuned")
        self.baselines = {EDGE: [None], MIDDLE: [0.02, 0.03], SERVER: [0.05, 0.04]}
        self.answers: dict[str, Any] = {
            "facts": lambda role: replace(facts(PIDS[role]), allocator=self.in_force[role]),
            "listen": {"tcp": 5001, "probe": 5002}, "connect": None, "rendezvous": 5003, "join": None,
            "probe": lambda role: Reading(**self.link), "warm": 0.0,
            "load": "g",
            "stage": {"run_s": 0.01, "weights_bytes": 99},
            "baseline": self._baseline, "usage": USAGE, "units": UNIT_RUNS, "codecs": CODEC_RUNS,
            "roofline": {"flops": 1e9, "bytes_s": 2e9}, "trial": TRIAL,
            "begin": {"by_field": {"energy_j": "powercap"}, "least_window_s": 0.1}, "idle": WATTS.get,
            "latest": SensorSample(1.0, energy_j=3.0), "collect": SERIES,
            "cost": {"cpu_percent": 0.3, "samples": 7, "late_p99_s": None},
        }  # fmt: skip

    def start(self, role: str, module: str) -> FarEnd:
        def answer(request: dict[str, Any]) -> Any:
            if request["op"] == "trial":
                self.worker(EDGE).late = self.late
            answer = self.answers[request["op"]]
            return answer(role) if callable(answer) else answer

        end = FarEnd(defaultdict(lambda: answer))
        self.of.setdefault((role, module), []).append(end)
        return end

    def _baseline(self, role: str) -> float | None:
        """The next one; the last comes first again."""
        self.baselines[role] = [*self.baselines[role][1:], first := self.baselines[role][0]]
        return first

    def worker(self, role: str) -> FarEnd:
        return self.of[role, "pareto.remote.worker"][-1]

    def monitor(self, role: str) -> FarEnd:
        return self.of[role, "pareto.remote.worker.monitor"][-1]

    def asked(self, role: str, request: str, name: str) -> list[Any]:
        """This field of all such requests to the role's worker."""
        return [each[name] for each in self.worker(role).of(request)]

    def transcript(self) -> dict[str, list[str]]:
        """By role, all that its newest worker was asked but for probes, without what is another in each run."""

        def told(request: dict[str, Any]) -> str:
            return ", ".join(f"{name} {it}" for name, it in request.items() if name not in ("token", "keys"))

        roles = [role for role, module in self.of if module == "pareto.remote.worker"]
        return {role: [told(it) for it in self.worker(role).asked if it["op"] != "probe"] for role in roles}

    @property
    def all(self) -> list[FarEnd]:
        return [end for ends in self.of.values() for end in ends]


def bed_of_hosts(ends: Ends, hosts: dict[str, Host]) -> Testbed:
    remotes = {role: StandIn(host, partial(ends.start, role)) for role, host in hosts.items()}
    return bed_of(remotes, shaper=FakeShaper())


def workers_of(
    bed: Testbed,
    sample_s: float | None = 0.2,
    code: Artifact | None = None,
    tcp: TcpSettings | None = None,
    backends: tuple[str, ...] = ("tcp",),
) -> Workers:
    weights, data = Artifact(Path(os.devnull), "w"), {2: Artifact(Path(os.devnull), "d")}
    recipe = Recipe("alexnet", file="net.py" if code else "", attribute="build")
    qualities = {size: {"none": Quality(4 * size, 0.0, 1.0)} for size in (1, 2)}
    prepared = Prepared("alexnet", recipe, weights, code, data, "g", FACTS, {}, qualities)
    return Workers(bed, {"alexnet": prepared}, backends, sample_s, tcp)


def once(cell: Cell = CELL, number: int = 1) -> Trial:
    return Trial(cell, number, 1.0, 1.0, QUICK)


def measured(workers: Workers, cell: Cell = CELL, network: Sequence[Profile] = (NONE,)) -> TrialResult:
    """What a trial reports."""
    return cast(TrialResult, workers.trial(once(cell), network))


def shaper_of(bed: Testbed) -> FakeShaper:
    return cast(FakeShaper, bed.links[0].shaper)
