"""The load phase over a real connection: what arrives waits, is served in order, or is dropped; and it always ends."""

from __future__ import annotations

import threading

import pytest
import torch

from pareto.protocol.errors import BackendError
from pareto.protocol.trial_messages import Arrivals
from pareto.remote.backends.base import Tensors, layout
from pareto.remote.backends.tcp import TcpClient, TcpServer
from pareto.remote.worker.open_loop import offered
from pareto.remote.worker.phases import Edge
from tests.unit.backends.builders import Work, Works, opened

INPUTS = [(torch.full((1, 8), float(number)),) for number in range(4)]


def connect(server: TcpServer, work: Work = lambda tensors: (tensors[0] + 1,)) -> TcpClient:
    takes = layout(INPUTS[0])
    return opened(server, Works(takes, work), takes)


def unchanged(tensors: Tensors) -> Tensors:
    return tensors


def test_every_request_that_arrives_is_served_in_order_with_its_own_result(server: TcpServer) -> None:
    at_s = [place / 200 for place in range(40)]
    found = offered(Edge(connect(server), unchanged, INPUTS), Arrivals(at_s, 1000), depth=3)
    samples = found.phase.samples
    assert [sample.scheduled_s for sample in samples] == at_s
    assert not found.dropped_s and len(found.late_s) == 40
    assert all(late_s >= 0 for late_s in found.late_s)
    assert all(sample.started_s >= at for sample, at in zip(samples, at_s, strict=True))
    assert sorted(which for which, _ in found.phase.outputs) == [0, 1, 2, 3]
    assert all(torch.equal(result, INPUTS[which][0] + 1) for which, (result,) in found.phase.outputs)


def test_what_finds_the_queue_full_is_dropped(server: TcpServer) -> None:
    """All have arrived when the first is computed: the queue has room for two; a stall before it is one less served."""

    def compute(tensors: Tensors) -> Tensors:
        threading.Event().wait(0.3)
        return tensors

    at_s = [0.0, *(0.1 + place / 1000 for place in range(20))]
    found = offered(Edge(connect(server), compute, INPUTS), Arrivals(at_s, 2), depth=1)
    served = [sample.scheduled_s for sample in found.phase.samples]
    assert len(served) in (2, 3) and served + found.dropped_s == at_s and len(found.late_s) == 21


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_fault_ends_it_though_more_would_arrive(server: TcpServer, where: str) -> None:
    def fails(tensors: Tensors) -> Tensors:
        raise BackendError("no more")

    client = connect(server, fails) if where == "there" else connect(server)
    with pytest.raises(BackendError):
        edge = Edge(client, fails if where == "here" else unchanged, INPUTS)
        offered(edge, Arrivals([0.0, 0.001, 0.002, 3600.0], 8), depth=2)
    assert not [each for each in threading.enumerate() if each.name.endswith(("(_send)", "(_receive)"))]
