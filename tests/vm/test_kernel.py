"""The guest is what it should be: another kernel than the host's, with a netem that delays."""

from __future__ import annotations

import platform
import socket
import statistics
import threading
import time
from collections.abc import Iterator

import pytest

from pareto.remote.link import netem, qdisc
from pareto.remote.link.profile import Direction
from pareto.remote.link.qdisc import TrafficControl
from tests.vm import wire
from tests.vm.kernel import CACHE

pytestmark = pytest.mark.vm


@pytest.fixture
def link() -> Iterator[None]:
    with wire.veth():
        yield


def test_this_is_debians_kernel_and_has_netem() -> None:
    assert socket.gethostname() == "guest"
    assert (CACHE / "kernel" / "lib" / "modules" / platform.release()).is_dir()
    assert qdisc.supported()


def shape(interface: str, direction: Direction) -> None:
    with TrafficControl() as control:
        chain = netem.layers(direction)
        assert qdisc.apply(control, interface, chain)
        assert qdisc.read(control, qdisc.index_of(interface)) == chain


def test_a_delay_on_both_ways_is_in_the_round_trip(link: None) -> None:
    shape("data0", Direction(delay_s=0.02))
    with wire.in_peer():
        shape("data1", Direction(delay_s=0.02))
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((wire.PEER, wire.PORT))

    def echo() -> None:
        while (received := server.recvfrom(100))[0]:
            server.sendto(*received)

    thread = threading.Thread(target=echo, daemon=True)
    thread.start()
    times = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client, server:
        client.settimeout(5)
        client.connect((wire.PEER, wire.PORT))
        for _ in range(15):
            begin = time.perf_counter()
            client.send(b"ping")
            client.recv(100)
            times.append(time.perf_counter() - begin)
        client.send(b"")
        thread.join()
    least, median = min(times) * 1e3, statistics.median(times) * 1e3
    print(f"a round trip over 20 ms each way: {least:.2f} ms, at the median {median:.2f} ms")
    assert 40 <= least <= median < 46
