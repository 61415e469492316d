"""From the kernel's counters, as files, to what a trial's row says of other programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psutil
import pytest

from pareto.hosts.local import cpu
from pareto.remote.link.probe import Probed
from pareto.remote.worker.sensors import processor
from pareto.remote.worker.sensors.processor import WatchedProcess
from pareto.trial.rows import trial_row
from tests.unit.reported import result_of
from tests.unit.test_trial import CELL, CROSSING, GOOD, PHASES, USAGE, report

TICKS = os.sysconf("SC_CLK_TCK")
AT_S = (0.0, 2.0, 4.0)
"""When the counters were read: around the latency phase, and around the throughput phase."""
OWN_S = (0.0, 0.5, 1.5)


class Counters:
    """What /proc says of two cores, a worker on them, and its one thread; `read` goes on to the next of AT_S."""

    def __init__(self, folder: Path, others_s: Sequence[float], steal_s: float, waited_s: float) -> None:
        self._stat, self._thread = folder / "stat", folder / "task/7/schedstat"
        self._thread.parent.mkdir(parents=True)
        self._others_s, self._steal_s, self._waited_s = others_s, steal_s, waited_s
        self.used = SimpleNamespace(user=0.0, system=0.0, children_user=0.0, children_system=0.0)
        self.process = mock.Mock(
            oneshot=nullcontext,
            status=lambda: psutil.STATUS_RUNNING,
            cpu_affinity=lambda: [0, 1],
            children=lambda **_: [],
            cpu_times=lambda: self.used,
            memory_info=lambda: SimpleNamespace(rss=4096),
        )

    def path(self, name: str) -> Path:
        return self._stat if name == "/proc/stat" else Path(name)

    def read(self, at: int) -> None:
        self.used.user = OWN_S[at]
        share = AT_S[at] / AT_S[-1]
        busy, steal = OWN_S[at] + self._others_s[at], self._steal_s * share
        ticks = (busy, 0, 0, 2 * AT_S[at] - busy - steal, 0, 0, 0, steal, 0, 0)
        half = " ".join(str(round(each * TICKS / 2)) for each in ticks)
        self._stat.write_text(f"cpu {half}\ncpu0 {half}\ncpu1 {half}\ncpu2 {'9 ' * 10}\n")
        self._thread.write_text(f"1 {round(self._waited_s * share * 1e9)} 1\n")


def on_a_host_of_its_own(counters: Counters, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The row of a trial whose server had these counters."""
    monkeypatch.setattr(processor, "Path", counters.path)
    found = WatchedProcess(os.getpid())
    found._process, found._cores, found._quota = counters.process, {0, 1}, None
    found._tasks = counters._thread.parent.parent
    samples = []
    for at, at_s in enumerate(AT_S):
        counters.read(at)
        samples.append({"at_s": at_s, **found.sample(at_s)})
    series = {name: [sample[name] for sample in samples] for name in samples[0]}
    good, result = Probed(GOOD, ""), result_of({"edge": report(**PHASES), "server": {**USAGE, **PHASES}})
    return trial_row(CELL, [CROSSING], result, {"edge-server": (good, good)}, {"server": series}, others=0.2)


@pytest.mark.parametrize(("others_s", "percent"), [((0.0, 0.4, 0.8), 10.0), ((0.0, 0.0, 2.0), 25.0)])
def test_what_others_had_of_a_hosts_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, others_s: tuple[float, ...], percent: float
) -> None:
    made = on_a_host_of_its_own(Counters(tmp_path, others_s, 0.4, 1.0), monkeypatch)
    figures = {name: made[f"server_{name}_percent"] for name in ("others", "steal", "wait")}
    assert figures == pytest.approx({"others": percent, "steal": 5.0, "wait": 25.0})
    assert made["status"] == ("ok" if percent < 20 else "latency only")


@pytest.mark.parametrize(("others_s", "steal_s"), [(0.8, 0.0), (0.8, 4.0), (4.0, 0.4)])
def test_what_strangers_had_of_one_machines_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, others_s: float, steal_s: float
) -> None:
    counters, clock = Counters(tmp_path, (0.0, 0.0, others_s), steal_s, 0.0), iter((AT_S[0], AT_S[-1]))
    monkeypatch.setattr(cpu, "Path", counters.path)
    monkeypatch.setattr(cpu, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    programs = SimpleNamespace(Process=lambda _: counters.process, Error=psutil.Error)
    monkeypatch.setattr(cpu, "psutil", programs)
    counters.read(0)
    percent = cpu.watch_strangers([0, 1])
    counters.read(len(AT_S) - 1)
    assert percent() == pytest.approx(100 * others_s / 8)
