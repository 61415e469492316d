"""Each way's two ends over real sockets: all of the payload arrives, as it was sent, and is answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from pareto.backends.base import BackendError
from pareto.backends.tcp import TcpClient, TcpServer
from pareto.bench.asked import Way
from pareto.bench.ends import Ends, Spot
from pareto.hosts.host import TestbedError
from pareto.hosts.session import Heartbeat
from pareto.worker.bench.backends import ClientNear, ServerFar
from pareto.worker.bench.busy import Busy
from pareto.worker.bench.event_loop import LoopFar, LoopNear
from pareto.worker.bench.sockets import FloorFar, FloorNear, NaiveFar, NaiveNear
from pareto.worker.bench.way import Far, Near, Order, payload
from tests.unit.far_end import HOSTS, FarEnd, StandIn

Pair = tuple[Near, Far]
LOCAL = "127.0.0.1"
SIZES = (4, 4_000, 3_000_000)


def tcp() -> Pair:
    server = TcpServer(LOCAL, "t")
    return ClientNear(TcpClient(LOCAL, server.port, "t")), ServerFar(server)


def joined(near: Callable[[str, int, str], Near], far: Callable[[str, str], Any]) -> Pair:
    listener = far(LOCAL, "t")
    return near(LOCAL, listener.port, "t"), listener


WAYS: dict[str, Callable[[], Pair]] = {
    "floor": lambda: joined(FloorNear, FloorFar),
    "naive": lambda: joined(NaiveNear, NaiveFar),
    "asyncio": lambda: joined(LoopNear, LoopFar),
    "tcp": tcp,
}


@pytest.fixture(params=WAYS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    near, far = WAYS[request.param]()
    yield near, far
    near.close()
    far.close()


def test_every_size_arrives_as_it_was_sent(pair: Pair) -> None:
    near, far = pair
    for nbytes in SIZES:
        near.begin(payload(nbytes))
        far.expect(Order(nbytes, 3, kept=True))
        seconds = near.trips(3)
        assert len(seconds) == 3
        assert min(seconds) > 0
        count, last = far.taken()
        assert count == 3
        assert last is not None
        assert torch.equal(last, payload(nbytes))


@pytest.mark.parametrize("in_flight", [1, 4])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_stream_ends_when_all_of_it_is_there(pair: Pair, count: int, in_flight: int) -> None:
    near, far = pair
    near.begin(payload(200_000))
    far.expect(Order(200_000, count))
    near.stream(count, in_flight)
    assert far.taken() == (count, None)
    far.expect(Order(200_000, 1))  # nothing of the stream is left over
    near.trips(1)
    assert far.taken()[0] == 1


@pytest.mark.parametrize("near", [FloorNear, NaiveNear, LoopNear])
def test_nobody_is_let_in_without_the_token(near: Callable[[str, int, str], Near]) -> None:
    far = NaiveFar(LOCAL, "t")
    with pytest.raises(Exception, match="wrong token"):
        near(LOCAL, far.port, "guessed")
    far.close()


def test_tcp_says_when_the_far_end_expects_something_else(snapshot: SnapshotAssertion) -> None:
    near, far = tcp()
    near.begin(payload(8))
    far.expect(Order(4, 1))
    with pytest.raises(BackendError) as refused:
        near.trips(1)
    assert str(refused.value) == snapshot
    near.close()
    far.close()


def test_a_busy_thread_works_until_it_is_told_not_to() -> None:
    busy = Busy()
    try:
        busy.set(1.0)
        cpu = threading.Event()
        began = worked()
        while worked() == began:  # the suite's own limit ends a thread that never works
            cpu.wait(0.005)
    finally:
        busy.set(0.0)


def worked() -> int:
    """Clock ticks of processor time of the thread called busy."""
    (thread,) = [it for it in threading.enumerate() if it.name == "busy"][-1:]
    with open(f"/proc/self/task/{thread.native_id}/stat") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11])


def ends(**told: Any) -> Ends:
    """With programs that answer what they are told to."""
    answers: dict[str, Any] = {
        "facts": {},
        "listen": {"floor": 1},
        "connect": None,
        "expect": None,
        "trips": {"median_s": 1e-3, "mean_s": 1e-3, "sent_bytes": 40_000},
        "stream": {"seconds": 1e-3, "cpu_s": 1e-3, "sent_bytes": 40_000},
        "taken": {"cpu_s": 2e-3, "count": 10, "same": True},
        **told,
    }
    replies = {op: (lambda _, op=op: answers[op]) for op in answers}
    hosts = [StandIn(host, lambda _: FarEnd(replies)) for host in HOSTS.values()]
    spot = Spot(*hosts, "192.168.7.1", "eth0", "enp3s0")  # type: ignore[arg-type]
    heartbeat = Heartbeat()
    heartbeat.stop()
    return Ends(spot, heartbeat, [Way("floor")])


def test_both_ends_processor_time_is_told() -> None:
    told = ends().stream(Way("floor"), 4_000, 10, 4)
    assert told == {"seconds": 1e-3, "near_cpu_s": 1e-3, "far_cpu_s": 2e-3, "sent_bytes": 40_000}


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ({"stream": {"seconds": 1e-3, "cpu_s": 1e-3, "sent_bytes": 39_999}}, "39999 of 40000 bytes"),
        ({"taken": {"cpu_s": 1e-3, "count": 9, "same": None}}, "9 of 10 payloads"),
    ],
    ids=["bytes", "payloads"],
)
def test_a_stream_that_did_not_cross_is_no_figure(
    told: dict[str, Any], count: str, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(TestbedError, match=count) as refused:
        ends(**told).stream(Way("floor"), 4_000, 10, 4)
    assert str(refused.value) == snapshot


def test_trips_that_did_not_cross_are_no_figure() -> None:
    less = ends(trips={"median_s": 1e-3, "mean_s": 1e-3, "sent_bytes": 39_999})
    with pytest.raises(TestbedError, match="39999 of 40000 bytes"):
        less.trips(Way("floor"), 4_000, 10)


def test_what_arrives_changed_is_no_figure(snapshot: SnapshotAssertion) -> None:
    changed = ends(taken={"cpu_s": 1e-3, "count": 10, "same": False})
    changed.trips(Way("floor"), 4_000, 10)
    with pytest.raises(TestbedError) as refused:
        changed.trips(Way("floor"), 4_000, 10, kept=True)
    assert str(refused.value) == snapshot
