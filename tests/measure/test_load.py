"""What else runs on a host of a real testbed, and a host that is slow: the shares, the slowdowns, and the verdict."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pareto.analysis.findings import Options, find
from pareto.driver.runner import Runner, Tally, Watcher
from pareto.hosts.host import EDGE, SERVER
from pareto.hosts.local.testbed import open_local
from pareto.hosts.testbed import Testbed
from pareto.models.prepare import Prepared, canonical, prepare
from pareto.sweep.cell import Cell
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.plan import Effort, Plan, Trial
from pareto.sweep.profile_files import load
from pareto.trial.store import Store
from pareto.trial.workers import Workers
from tests.less_than_root import needs_networks
from tests.measure.conftest import Figures

pytestmark = needs_networks
SLOW_S = 0.05
MODEL, NETEM, POINT = "mobilenet_v2", "10ms-100mbit", 7
EFFORT = Effort(latency=(5, 0.5), throughput=(8, 0.5))
ANY_LINK = {"rtt_tolerance": 1.0, "rtt_floor": 1.0, "tolerance": 0.9}
"""What is wrong here is not the link, whatever else the machine does."""


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(MODEL, canonical(make_sweep({"model": MODEL, "netem": NETEM})))


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with closing(open_local()) as bed:
        yield bed


@pytest.fixture(scope="module")
def workers(bed: Testbed, prepared: Prepared) -> Iterator[Workers]:
    with closing(Workers(bed, {MODEL: prepared}, ("tcp",), sample_s=0.05)) as workers:
        workers.start()
        yield workers


def measured(
    workers: Workers, prepared: Prepared, out: Path, others: float = 1.0
) -> tuple[Mapping[str, str], list[str]]:
    """The row of a trial in which others may take this share of the cores, and what its report warns of."""
    profile = load(NETEM)
    manifest = {
        "sweep": {"testbed": "local"},
        "networks": {NETEM: [NETEM]},
        "profiles": {NETEM: profile.record()},
    }
    store = Store.create(out, "run", manifest)
    cell = Cell(MODEL, (POINT,), prepared.facts.points[POINT][0], "tcp", NETEM, 1)
    sweep = make_sweep({"model": MODEL, "restart": "never"}).model_copy(update={**ANY_LINK, "others": others})
    runner = Runner(workers, store, {NETEM: (profile,)}, sweep, Watcher(), Tally())
    runner.run(Plan((Trial(cell, 1, 0.05, 5.0, EFFORT),), 1))
    (row,) = store.rows()
    return row, find([store.folder], Options(figures="none")).warnings


@contextmanager
def changed(workers: Workers, bed: Testbed, file: str, was: str, now: str) -> Iterator[None]:
    """The server's own copy of the code, for the workers that are started meanwhile."""
    path = Path(bed.remotes[SERVER]._code) / file
    text = path.read_text()
    assert text.count(was) == 1
    workers.close()
    path.write_text(text.replace(was, now))
    yield
    path.write_text(text)
    workers.close()


@contextmanager
def busy_loop(core: int | None) -> Iterator[None]:
    """Somebody else's program on that core: no descendant of this process, which is the run's driver here."""
    program = (
        "import os, sys\n"
        "if pid := os.fork(): print(pid, flush=True); sys.exit()\n"
        f"os.close(1); os.sched_setaffinity(0, {{{core}}})\n"
        "while True: pass"
    )
    started = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    try:
        yield
    finally:
        os.kill(int(started.stdout), signal.SIGKILL)


@pytest.mark.parametrize("role", [EDGE, SERVER])
def test_a_busy_loop_on_a_hosts_core(
    workers: Workers, bed: Testbed, prepared: Prepared, tmp_path: Path, figures: Figures, role: str
) -> None:
    """It is there before the trial, and never pauses: no baseline is without it."""
    with busy_loop(bed.remotes[role].host.core):
        row, _ = measured(workers, prepared, tmp_path, others=0.1)
    assert row["status"] == "invalid"
    assert "other programs" in row["reason"]
    name = f"busy loop on the {role}'s core"
    figures.state(f"{name}: others there", float(row[f"{role}_others_percent"]), "%", least=20)
    figures.state(f"{name}: strangers on both", float(row["strangers_percent"]), "%", least=15)
    figures.state(f"{name}: its worker waited", float(row[f"{role}_wait_percent"]), "%")
    figures.state(f"{name}: its slowdown", float(row[f"{role}_slowdown"]))


SLOWED = {
    "inside": (
        *("pareto/remote/worker/served.py", "resident.stage, payload)\n"),
        f"resident.stage, payload)\n        time.sleep({SLOW_S})\n",
    ),
    "outside": (
        *("pareto/remote/backends/pipeline.py", "work.answer(number, outputs, (own_s,), 0.0)"),
        f"__import__('time').sleep({SLOW_S}) or work.answer(number, outputs, (own_s,), 0.0)",
    ),
}
"""By where a server gets slow: a file, and what is put there in place of what."""


@pytest.mark.parametrize("where", SLOWED)
def test_a_server_that_is_slow(
    workers: Workers, bed: Testbed, prepared: Prepared, tmp_path: Path, figures: Figures, where: str
) -> None:
    """Inside of its stage the trial is invalid; outside a warning tells that something between them is slow."""
    with changed(workers, bed, *SLOWED[where]):
        row, warnings = measured(workers, prepared, tmp_path)
    over_s = float(row["latency_s"]) - float(row["latency_bound_s"])
    figures.state(f"server slow {where}: latency over its bound", 1e3 * over_s, "ms", least=1e3 * SLOW_S)
    if where == "inside":
        figures.state("server slow inside: slowdown", float(row["server_slowdown"]), least=2)
        assert "the server's stage" in row["reason"]
    elif row["status"] == "ok":
        assert any("of which neither the stages nor the link take" in line for line in warnings)
