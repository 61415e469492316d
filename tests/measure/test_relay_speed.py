"""How fast the relay is on this machine: figures to read, for no absolute time holds everywhere."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from pyroute2 import netns

from pareto.link.offload import SLOW_BPS
from tests.integration.relay_net import SERVER, Net, Relay
from tests.less_than_root import needs_networks

pytestmark = [
    pytest.mark.perf,
    needs_networks,
]

MEASURE_S = 1.5

LINKS = {
    "none": (None, 0.0),
    "100 ms": (None, 0.1),
    "1gbit 100 ms": (1e9, 0.1),
    "100mbit 10 ms": (100e6, 0.01),
    "5mbit 200 ms": (5e6, 0.2),
}


@pytest.fixture(scope="module")
def net() -> Iterator[Net]:
    net = Net()
    net.large_windows()
    yield net
    net.close()
    assert not set(net.names.values()) & set(netns.listnetns())


@pytest.mark.parametrize("link", LINKS)
def test_speed(net: Net, link: str, capsys: pytest.CaptureFixture[str]) -> None:
    rate_bps, delay_s = LINKS[link]
    net.offloads(on=rate_bps is None or rate_bps >= SLOW_BPS)
    relay = Relay(net)
    try:
        fields = {"delay_s": delay_s, "rate_bps": rate_bps}
        relay.apply({name: value for name, value in fields.items() if value})
        bit_s, cpu_share = through(net, relay, warm_s=12 * delay_s + 0.2)
        late_p99_s = relay.stats()["late_p99_s"]
    finally:
        relay.close()
    late = "-" if late_p99_s is None else f"{late_p99_s * 1e3:.2f} ms"
    share = f", {bit_s / rate_bps:.3f} of the rate" if rate_bps else ""
    with capsys.disabled():
        print(f"\n{link:15} {bit_s / 1e9:8.4f} Gbit/s{share}, {cpu_share:.2f} of a core, p99 late by {late}")


def through(net: Net, relay: Relay, warm_s: float) -> tuple[float, float]:
    """Payload bit/s of one TCP connection and the relay's CPU share, counted once the window has opened.

    What arrives is compared with what was sent.
    """
    pattern = bytes(range(251)) * 4177  # a prime period: what is lost, repeated or swapped breaks it
    server, edge = net.socket("server", socket.SOCK_STREAM), net.socket("edge", socket.SOCK_STREAM)
    stop = threading.Event()
    with server, edge:
        server.bind((SERVER, 0))
        server.listen(1)
        edge.connect(server.getsockname())
        incoming, _ = server.accept()
        incoming.settimeout(10)

        def send() -> None:
            while not stop.is_set():
                edge.sendall(pattern)
            edge.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        buffer = bytearray(1 << 20)
        repeated = memoryview(pattern + pattern)
        got = counted_from = 0
        began = time.monotonic()
        counting, ended, cpu_s = 0.0, 0.0, 0.0
        with incoming:
            while size := incoming.recv_into(buffer):
                at = got % 251
                assert memoryview(buffer)[:size] == repeated[at : at + size], f"damaged near byte {got}"
                got += size
                now = time.monotonic()
                if not counting and now - began > warm_s:
                    counting, counted_from, cpu_s = now, got, -relay.stats()["cpu_s"]
                elif counting and not ended and now - counting > MEASURE_S:
                    ended, counted_to = now, got
                    cpu_s += relay.stats()["cpu_s"]
                    stop.set()
        sender.join()
    assert got % len(pattern) == 0
    return (counted_to - counted_from) * 8 / (ended - counting), cpu_s / (ended - counting)
