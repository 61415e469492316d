"""What else runs on a host while it is measured, on a real testbed: each makes the trial invalid, or is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from analysis.findings import Options, find
from pareto.cell import Cell
from pareto.checked_sweep import make_sweep
from pareto.hosts.host import EDGE, SERVER
from pareto.hosts.local_testbed import open_local
from pareto.hosts.testbed import Testbed
from pareto.link.probe import Tolerance
from pareto.options import SLOWED
from pareto.plan import Effort, Plan, Trial
from pareto.prepare import Prepared, canonical, prepare
from pareto.profile_files import load
from pareto.runner import Runner, Tally, Watcher
from pareto.store import Store
from pareto.workers import Workers
from tests.less_than_root import needs_networks

pytestmark = [
    pytest.mark.integration,
    needs_networks,
]

MODEL, NETEM, POINT = "mobilenet_v2", "10ms-100mbit", 7
EFFORT = Effort(latency=(5, 0.5), throughput=(8, 0.5))
ANY_LINK = Tolerance(rtt_fraction=1.0, rtt_floor_s=1.0, rate_fraction=0.9)
"""What is wrong here is not the link, whatever else the machine does."""
SLOW_S = 0.05


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
    runner = Runner(workers, store, {NETEM: (profile,)}, ANY_LINK, Watcher(), Tally(), others=others)
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
def test_a_busy_loop_on_a_hosts_core_makes_the_trial_invalid(
    workers: Workers, bed: Testbed, prepared: Prepared, tmp_path: Path, role: str
) -> None:
    """It is there before the trial, and never pauses: no baseline is without it.

    The kernel may give a short stage the core at once whenever it wakes: then nothing is slower. Or it moves what
    carries the link to the other core, whose host is slower then.
    """
    with busy_loop(bed.remotes[role].host.core):
        row, _ = measured(workers, prepared, tmp_path, others=0.1)
    assert row["status"] == "invalid"
    assert "other programs" in row["reason"]
    assert float(row[f"{role}_others_percent"]) > 20
    assert float(row["strangers_percent"]) > 15  # of two cores
    if "stage took" not in row["reason"]:
        return
    slower = role if float(row[f"{role}_slowdown"]) > SLOWED else {EDGE: SERVER, SERVER: EDGE}[role]
    assert f"the {slower}'s stage" in row["reason"]
    assert float(row[f"{slower}_slowdown"]) > SLOWED
    assert float(row[f"{slower}_wait_percent"]) > 10
    # The bounds are those of a host that is left alone, so that the efficiency sees it.
    lost_s = float(row[f"{slower}_s"]) * (1 - 1 / float(row[f"{slower}_slowdown"]))
    assert float(row["latency_s"]) - float(row["latency_bound_s"]) > 0.8 * lost_s


def test_a_server_that_is_slowed_inside_its_stage_makes_the_trial_invalid(
    workers: Workers, bed: Testbed, prepared: Prepared, tmp_path: Path
) -> None:
    inside = (
        "pareto/worker/served.py",
        "_resident.stage, tensors)\n",
        f"_resident.stage, tensors)\n        time.sleep({SLOW_S})\n",
    )
    with changed(workers, bed, *inside):
        row, _ = measured(workers, prepared, tmp_path)
    assert row["status"] == "invalid"
    assert "the server's stage" in row["reason"]
    assert float(row["server_s"]) > SLOW_S


def test_a_server_that_is_slowed_outside_of_its_stage_is_told(
    workers: Workers, bed: Testbed, prepared: Prepared, tmp_path: Path
) -> None:
    answer = "request.answer(outputs, (own_s,), 0.0)"
    outside = ("pareto/backends/pipeline.py", answer, f"__import__('time').sleep({SLOW_S}) or {answer}")
    with changed(workers, bed, *outside):
        row, warnings = measured(workers, prepared, tmp_path)
    if row["status"] == "ok":
        assert [line for line in warnings if "of which neither the stages nor the link take" in line]
    assert float(row["latency_s"]) - float(row["latency_bound_s"]) > SLOW_S


def test_figures_of_load_are_there_for_a_trial_that_nothing_disturbs(
    workers: Workers, prepared: Prepared, tmp_path: Path
) -> None:
    row, _ = measured(workers, prepared, tmp_path)
    for role in (EDGE, SERVER):
        assert float(row[f"{role}_slowdown"]) > 0
        for what in ("steal", "others", "wait", "core"):
            assert float(row[f"{role}_{what}_percent"]) >= 0
        assert 0 < float(row[f"{role}_core_percent"]) <= 100
    assert float(row["throughput_ips"]) <= 1.1 * float(row["throughput_bound_ips"])
