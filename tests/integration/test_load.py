"""What else runs on a host while it is measured is in the row of a trial on a real testbed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from analysis.findings import Options, find
from pareto.cell import Cell
from pareto.checked_sweep import make_sweep
from pareto.hosts.host import EDGE, SERVER
from pareto.hosts.local_testbed import open_local
from pareto.hosts.testbed import Testbed
from pareto.link.probe import Tolerance
from pareto.plan import Effort, Plan, Trial
from pareto.prepare import Prepared, canonical, prepare
from pareto.profile_files import load
from pareto.runner import Runner, Tally, Watcher
from pareto.store import Store
from pareto.workers import Workers
from tests.integration.test_sweep import sound
from tests.less_than_root import needs_networks

pytestmark = [
    pytest.mark.integration,
    needs_networks,
]

MODEL, NETEM, POINT = "mobilenet_v2", "10ms-100mbit", 7
EFFORT = Effort(latency=(5, 0.5), throughput=(8, 0.5))
ANY_LINK = Tolerance(rtt_fraction=1.0, rtt_floor_s=1.0, rate_fraction=0.9)
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
    runner = Runner(workers, store, {NETEM: (profile,)}, ANY_LINK, Watcher(), Tally(), others=others)
    runner.run(Plan((Trial(cell, 1, 0.05, 5.0, EFFORT),), 1))
    (row,) = store.rows()
    return row, find([store.folder], Options(figures="none")).warnings


def test_figures_of_load_are_there(workers: Workers, prepared: Prepared, tmp_path: Path) -> None:
    """Whatever it is: what verdict follows is decided in tests/unit/worker/test_load.py."""
    row, _ = measured(workers, prepared, tmp_path)
    for role in (EDGE, SERVER):
        assert float(row[f"{role}_slowdown"]) > 0
        for what in ("steal", "others", "wait", "core"):
            assert float(row[f"{role}_{what}_percent"]) >= 0
        assert 0 < float(row[f"{role}_core_percent"]) <= 100
    assert float(row["strangers_percent"]) >= 0
    assert sound(dict(row)), row["reason"]
