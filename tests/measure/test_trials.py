"""How near a trial on a real testbed comes to physics and to the plan: overlap, latency, estimate, units, costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from pareto.hosts.local.testbed import open_local
from pareto.models.prepare import Prepared, canonical, prepare
from pareto.sweep import plan
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.plan import Effort
from pareto.sweep.profile_files import load
from pareto.trial.result import TrialResult
from pareto.trial.workers import Workers
from tests.integration.test_measuring import BUSY, cell, measure
from tests.less_than_root import needs_networks
from tests.measure.conftest import Figures

pytestmark = needs_networks

MODEL = "mobilenet_v2"


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(MODEL, canonical(make_sweep({"model": MODEL, "netem": "none"})))


@pytest.fixture(scope="module")
def workers(prepared: Prepared) -> Iterator[Workers]:
    with closing(open_local()) as bed, closing(Workers(bed, {MODEL: prepared}, ("tcp", "rpc"))) as workers:
        workers.start()
        yield workers


@pytest.mark.parametrize("backend", ["tcp", "rpc"])
def test_compute_and_transfer_overlap(
    workers: Workers, prepared: Prepared, figures: Figures, backend: str
) -> None:
    """A link on which the payload takes about as long as all computing: one after the other would be 1."""
    rate_mbit = max(1, round(prepared.facts.points[10][1] * 8 / prepared.facts.compute_s / 1e6))
    network = (load(f"5ms-{rate_mbit}mbit"),)
    effort = Effort(latency=(5, 0.3), throughput=(8, 0.3))
    _, row = measure(workers, cell(prepared, backend, 10, network=network), network, effort=effort)
    gain = row["throughput_ips"] * row["latency_s"]
    figures.state(f"overlap: gain over one after the other, {backend}", gain, least=1.5)


def test_latency_is_near_its_bound_on_a_slow_link(
    workers: Workers, prepared: Prepared, figures: Figures
) -> None:
    """No slow start, no wait for an acknowledgement, no queueing in super-packets: what is left is physics."""
    network = (load("200ms-5mbit"),)
    it = cell(prepared, "tcp", 13, network=network)
    result, _ = measure(workers, it, network, effort=Effort(latency=(8, 0.3), throughput=(1, 0.1)))
    assert isinstance(result, TrialResult)
    (crossing,) = workers.crossings(it, network)
    over = 100 * min(result.networks_s) / crossing.least_s
    figures.state("latency: of the link, against its least", over, "%", least=100, most=110)


def test_an_estimate_is_what_the_trial_takes(workers: Workers, prepared: Prepared, figures: Figures) -> None:
    name = "50ms-20mbit"
    chosen = {"model": MODEL, "netem": name, "points": "1", "only": True, "backend": "tcp", "trials": 1}
    network = (load(name),)
    facts = {MODEL: replace(prepared.facts, splits=((1,),))}
    (trial,) = plan.make(canonical(make_sweep(chosen)), facts, {name: network}).trials
    workers._model = None  # the trial before this one left another model on the edge, or none
    workers.ready(trial.cell, network)
    began = time.monotonic()
    workers.trial(trial, network)
    workers.probed(workers.links[0], network[0], BUSY)
    share = 100 * (time.monotonic() - began) / trial.estimate_s
    figures.about("estimate: the trial against it", share, "%", aim=100, within=35)


@pytest.mark.parametrize("share", [0.25, 0.05])
def test_a_quota_is_kept(figures: Figures, share: float) -> None:
    spin = (
        "import sys, time; t, c = time.perf_counter(), time.process_time()\n"
        "while time.perf_counter() - t < 2: pass\n"
        "print((time.process_time() - c) / (time.perf_counter() - t))"
    )
    with closing(open_local(edge_cpu=share)) as bed:
        python = bed.remotes["edge"].host.python
        got = statistics.mean(
            float(bed.remotes["edge"].connection.run(f'{python} -c "{spin}"').out) for _ in range(2)
        )
    figures.about(f"quota: {share:.0%} of a core", 100 * got, "%", aim=100 * share, within=1 + 10 * share)
