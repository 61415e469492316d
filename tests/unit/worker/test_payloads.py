"""Both ends of a backend over real sockets: all of the payload arrives, as it was sent, and is answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from pareto.backends.base import BackendError
from pareto.backends.tcp import TcpClient, TcpServer
from pareto.worker.payloads import Far, Near, payload

Pair = tuple[Near, Far]
LOCAL = "127.0.0.1"
SIZES = (4, 4_000, 3_000_000)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with closing(TcpServer(LOCAL, "t")) as server, closing(TcpClient(LOCAL, server.port, "t")) as client:
        yield Near(client), Far(server)


def test_every_size_arrives_as_it_was_sent(pair: Pair) -> None:
    near, far = pair
    for nbytes in SIZES:
        near.begin(payload(nbytes))
        far.expect(nbytes, 3, kept=True)
        seconds = near.trips(3)
        assert len(seconds) == 3
        assert min(seconds) > 0
        count, last = far.taken
        assert count == 3
        assert last is not None
        assert torch.equal(last, payload(nbytes))


@pytest.mark.parametrize("in_flight", [1, 4])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_stream_ends_when_all_of_it_is_there(pair: Pair, count: int, in_flight: int) -> None:
    near, far = pair
    near.begin(payload(200_000))
    far.expect(200_000, count)
    near.stream(count, in_flight)
    assert far.taken == (count, None)
    far.expect(200_000, 1)  # nothing of the stream is left over
    near.trips(1)
    assert far.taken[0] == 1


def test_tcp_says_when_the_far_end_expects_something_else(pair: Pair, snapshot: SnapshotAssertion) -> None:
    near, far = pair
    near.begin(payload(8))
    far.expect(4, 1)
    with pytest.raises(BackendError) as refused:
        near.trips(1)
    assert str(refused.value) == snapshot
