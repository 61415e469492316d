"""Both ends of a backend over real sockets: all of the payload arrives, as it was sent, and is answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from pareto.protocol.errors import BackendError
from pareto.protocol.jsonlines import Refused
from pareto.protocol.messages import Connect, Listen
from pareto.protocol.profile_messages import Expect, GetTaken, Timed, TimePayloads
from pareto.remote.backends.tcp import TcpClient, TcpServer
from pareto.remote.worker import device
from pareto.remote.worker.payloads import Answering, Near, payload
from pareto.remote.worker.worker import Worker

Pair = tuple[Near, TcpServer]
LOCAL = "127.0.0.1"
SIZES = (4, 4_000, 3_000_000)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with closing(TcpServer(LOCAL, "t")) as server, closing(TcpClient(LOCAL, server.port, "t")) as client:
        yield Near(client), server


def test_every_size_arrives_as_it_was_sent(pair: Pair) -> None:
    near, far = pair
    for nbytes in SIZES:
        near.begin(payload(nbytes))
        far.serve(stage := Answering(nbytes, kept=True))
        seconds = near.trips(3)
        assert len(seconds) == 3
        assert min(seconds) > 0
        count, last = stage.taken
        assert count == 3
        assert last is not None
        assert torch.equal(last, payload(nbytes))


@pytest.mark.parametrize("in_flight", [1, 4])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_stream_ends_when_all_of_it_is_there(pair: Pair, count: int, in_flight: int) -> None:
    near, far = pair
    near.begin(payload(200_000))
    far.serve(stage := Answering(200_000))
    near.stream(count, in_flight)
    assert stage.taken == (count, None)
    far.serve(stage := Answering(200_000))  # nothing of the stream is left over
    near.trips(1)
    assert stage.taken[0] == 1


def test_two_workers_time_payloads_between_them() -> None:
    """By whatever backends, which may have a server in common, and again after the far end served something else."""
    near, far = (Worker(device.named("cpu")) for _ in range(2))
    ports = far.listen(Listen(LOCAL, "t"))
    near.connect(Connect(LOCAL, "t", ports, ["tcp", "tcp:2"]))

    def timed(backend: str, nbytes: int, in_flight: int | None = None) -> Timed:
        far.payloads.expect(Expect(backend, nbytes, 5, kept=True))
        report = near.payloads.time(TimePayloads(backend, nbytes, 5, "lo", in_flight))
        taken = far.payloads.taken(GetTaken())
        assert (taken.count, taken.same) == (5, True)
        assert report.sent_bytes >= 5 * nbytes
        return report

    for backend, nbytes in (("tcp", 4_000), ("tcp:2", 4_000), ("tcp", 4_000), ("tcp", 300_000)):
        assert len(timed(backend, nbytes).seconds) == 5
    assert len(timed("tcp", 300_000, 4).seconds) == 1
    far._servers["tcp"].serve(Answering(8))
    timed("tcp", 300_000)


def test_nothing_is_taken_that_was_not_expected() -> None:
    with pytest.raises(Refused, match="nothing was expected"):
        Worker(device.named("cpu")).payloads.taken(GetTaken())


def test_tcp_says_when_the_far_end_expects_something_else(pair: Pair, snapshot: SnapshotAssertion) -> None:
    near, far = pair
    near.begin(payload(8))
    far.serve(Answering(4))
    with pytest.raises(BackendError) as refused:
        near.trips(1)
    assert str(refused.value) == snapshot
