"""How true the load phase is on this machine: waits against theory, and how late requests arrive at a high rate."""

from __future__ import annotations

import resource
import time
from contextlib import closing

import numpy as np
import pytest
import torch

from pareto.protocol.trial_messages import Arrivals
from pareto.remote.backends.base import NoLink, Tensors, layout
from pareto.remote.backends.tcp import TcpServer
from pareto.remote.worker.open_loop import offered
from pareto.remote.worker.phases import Edge
from pareto.sweep.load import Load
from tests.measure.conftest import Figures
from tests.unit.backends.builders import HERE, TOKEN, Works, opened

STAGE_S, REQUESTS = 0.02, 600
INPUT = (torch.zeros(1, 8),)


def waits(tensors: Tensors) -> Tensors:
    """A stage that takes 20 ms, and no processor."""
    time.sleep(STAGE_S)
    return tensors


@pytest.mark.parametrize("kind", ["constant", "poisson"])
@pytest.mark.parametrize("rate", [10, 30, 45, 49])
def test_waits_as_in_theory(rate: int, kind: str, figures: Figures) -> None:
    """Against Lindley's recursion for the same arrivals, each served for as long as it was in fact: a little over
    20 ms, so that 49 a second are what it can do, and without an aim."""
    at_s = Load("", rate, by_chance=kind == "poisson").arrivals(REQUESTS, 0.0, "a seed", rate)
    found = offered(Edge(NoLink(), waits, [INPUT]), Arrivals(at_s, REQUESTS), depth=1)
    samples, theory_s = found.phase.samples, [0.0]
    for gap_s, before in zip(np.diff(at_s), samples, strict=False):
        theory_s.append(max(0.0, theory_s[-1] + before.latency_s - gap_s))
    latency_s = np.array([each.finished_s for each in samples]) - np.array(at_s)
    expected_s = np.array(theory_s) + STAGE_S
    for what, of in (("mean", np.mean), ("p95", lambda values: np.quantile(values, 0.95))):
        aim = {"least": 0.95, "most": 1.05} if rate < 49 else {}
        figures.state(
            f"{kind} {rate}/s: {what} latency, of theory", float(of(latency_s) / of(expected_s)), **aim
        )


def test_arrivals_at_two_thousand_a_second(figures: Figures) -> None:
    with closing(TcpServer(HERE, TOKEN)) as server:
        client = opened(server, Works(layout(INPUT), lambda tensors: tensors), layout(INPUT))
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        at_s = Load("", 2000).arrivals(10_000, 0.0)
        edge = Edge(client, lambda tensors: tensors, [INPUT])
        found = offered(edge, Arrivals(at_s, 1000), depth=8)
        passed_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    busy_s = sum(getattr(after, each) - getattr(before, each) for each in ("ru_utime", "ru_stime"))
    for name, q in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        figures.state(
            f"2000/s: lateness {name}",
            1e6 * float(np.quantile(found.late_s, q)),
            "µs",
            most=1000 if q < 0.999 else None,
        )
    figures.state("2000/s: core of both ends, with the tcp they serve", 100 * busy_s / passed_s, "%")
    figures.state("2000/s: dropped", len(found.dropped_s), "")
