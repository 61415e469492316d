"""What the kernel says of this process' own TCP connections: real sockets, real transfers, both backends' libraries."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from pareto.protocol.jsonlines import Refused
from pareto.remote.worker import connections
from pareto.remote.worker.connections import Connection
from tests.unit import watched_worker
from tests.unit.backends.builders import refusal
from tests.unit.forked import Forked

PEER, OTHER = "127.0.0.2", "127.0.0.3"
ALLOWED, AVAILABLE = (
    Path(f"/proc/sys/net/ipv4/tcp_{which}_congestion_control").read_text().split()
    for which in ("allowed", "available")
)
MANY = 1 << 21
TOKEN = "a token"  # noqa: S105
ROLES = ("edge", "middle1", "server")
PROBES = 5
"""Segments at most that TCP sends again though nothing is lost: it probes a tail (RFC 8985) whose receiver is late."""


class Pairs(ExitStack):
    """Connections over loopback, both of whose ends this process has. Those to a peer are its clients' ends."""

    def listener(self, address: str) -> socket.socket:
        return self.enter_context(socket.create_server((address, 0)))

    def connect(self, address: str) -> tuple[socket.socket, socket.socket]:
        listener = self.listener(address)
        client = self.enter_context(socket.create_connection(listener.getsockname(), 10))
        client.settimeout(None)
        return client, self.enter_context(listener.accept()[0])


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    with Pairs() as pairs:
        yield pairs


def transfer(pair: tuple[socket.socket, socket.socket], nbytes: int) -> None:
    """All of it is acknowledged when this returns: the answer does so."""
    client, server = pair

    def take() -> None:
        left = nbytes
        while left:
            left -= len(server.recv(min(left, 1 << 16)))
        server.sendall(b"!")

    with ThreadPoolExecutor() as pool:
        taking = pool.submit(take)
        client.sendall(bytes(nbytes))
        taking.result()
    assert client.recv(1) == b"!"


def inode(sock: socket.socket) -> int:
    return os.fstat(sock.fileno()).st_ino


def another() -> str:
    """Another than reno, which every kernel has."""
    found = [name for name in ALLOWED if name != "reno"]
    if not found:
        pytest.skip("this kernel allows reno alone")
    return found[0]


def carried(before: Mapping[int, Connection], after: Mapping[int, Connection]) -> Any:
    return connections.carried(before, after)


def test_connections_to_the_peer_are_found_and_no_others(pairs: Pairs) -> None:
    wanted, other = pairs.connect(PEER), pairs.connect(OTHER)
    left, right = socket.socketpair()
    reader, writer = os.pipe()
    with left, right, socket.socket(type=socket.SOCK_DGRAM) as datagrams, socket.socket():
        datagrams.connect((PEER, 9))
        assert list(connections.to(PEER)) == [inode(wanted[0])]
        assert list(connections.to(OTHER)) == [inode(other[0])]
        assert connections.to("127.0.0.9") == {}
    for fd in (reader, writer):
        os.close(fd)
    wanted[1].close()
    wanted[0].recv(1)  # the end of file: it is established no longer
    assert connections.to(PEER) == {}
    with socket.socket(socket.AF_INET6) as client:  # one for both kinds of addresses counts
        client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        client.connect((f"::ffff:{PEER}", pairs.listener(PEER).getsockname()[1]))
        assert len(connections.to(PEER)) == 1


def test_a_transfer_is_told_of(pairs: Pairs) -> None:
    pair = pairs.connect(PEER)
    before = connections.to(PEER)
    transfer(pair, MANY)
    after = connections.to(PEER)
    (now,) = after.values()
    assert now.acked_bytes is not None
    assert 0 <= now.acked_bytes - MANY <= 1  # the SYN counts in some kernels
    told = carried(before, after)
    assert told.congestion == now.congestion in AVAILABLE
    assert now.retransmits == told.tcp_retransmits <= PROBES
    assert told.tcp_cwnd_packets >= 2
    assert 0 < told.tcp_min_rtt_s <= 2 * told.tcp_rtt_s < 2
    assert told.tcp_delivery_rate_bps > 1e6
    # An older kernel tells less.
    pair = pairs.connect(PEER)
    transfer(pair, MANY)
    lacking = ["delivery_rate_bps", "min_rtt_s", "acked_bytes", "retransmits"]
    for lacks, length in enumerate((232, 160, 136, 104, 90)):  # Linux 4.6, 4.1, 3.x
        read = Connection.of(pair[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, length), "cubic")
        assert {name for name, value in vars(read).items() if value is None} == {*lacking[:lacks]}
        assert (carried({}, {1: read}).tcp_retransmits is None) == (lacks == len(lacking))
    # Looking changes nothing.
    client, server = pairs.connect(PEER)
    client.setblocking(False)

    def state() -> tuple[int, list[int]]:
        flags = [fcntl.fcntl(sock, fcntl.F_GETFL) for sock in (client, server)]
        return len(os.listdir("/proc/self/fd")), flags  # noqa: PTH208

    opened, flags = state()
    for _ in range(50):
        connections.to(PEER)
        connections.set_congestion("reno")
    # Garbage of other tests may be collected meanwhile, which closes theirs.
    assert state()[0] <= opened
    assert state()[1] == flags
    client.setblocking(True)
    transfer((client, server), 1000)


def test_of_several_connections_the_one_that_carried_most_meanwhile_is_told_of(pairs: Pairs) -> None:
    """Also where another one has carried more before, and where it was opened meanwhile."""
    busy_before = pairs.connect(PEER)
    transfer(busy_before, 2 * MANY)
    before = connections.to(PEER)
    now = pairs.connect(PEER)
    now[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    busy_before[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, another().encode())
    transfer(now, MANY)
    transfer(busy_before, 1000)
    assert carried(before, connections.to(PEER)).congestion == "reno"
    assert carried({}, connections.to(PEER)).congestion == another()
    # The sums are told of connections that carried together.
    used, idle = [pairs.connect(PEER) for _ in range(3)], pairs.connect(PEER)
    transfer(idle, MANY)
    before = connections.to(PEER)
    for number, pair in enumerate(used):
        transfer(pair, MANY << number)
    after = connections.to(PEER)
    told = carried(before, after)
    busy = [after[inode(pair[0])] for pair in used]
    assert told.tcp_connections == 3
    assert told.tcp_cwnd_packets == sum(each.cwnd_packets or 0 for each in busy)
    assert told.tcp_delivery_rate_bps == busy[-1].delivery_rate_bps
    assert told.tcp_rtt_s == busy[-1].rtt_s  # of the busiest


def info(**values: int) -> Connection:
    """What the kernel says where all is zero but for this."""
    data = bytearray(200)
    for name, value in values.items():
        form, place = {"retransmits": ("=I", 100), "acked": ("=Q", 120), "least_rtt": ("=I", 148)}[name]
        struct.pack_into(form, data, place, value)
    return Connection.of(bytes(data), "cubic")


def test_retransmissions_are_those_since_the_first_look_and_what_was_never_measured_is_not_told() -> None:
    """A kernel that has no round trip yet says 0, and all ones for the least of them."""
    assert carried({}, {}) is None
    first, later = info(retransmits=5), info(retransmits=12)
    assert carried({7: first}, {7: later}).tcp_retransmits == 7
    both = info(retransmits=12, acked=10_000)
    assert carried({7: first, 8: later}, {7: both, 8: both}).tcp_retransmits == 7
    read = info(least_rtt=0xFFFFFFFF)
    assert read.rtt_s is read.min_rtt_s is read.delivery_rate_bps is None


def test_every_socket_of_the_process_gets_the_congestion_control(pairs: Pairs) -> None:
    """And what a listener accepts later. One that is not there is refused with those that are."""
    name = another()
    client, server = pairs.connect(PEER)
    listener = pairs.listener(PEER)
    for each in ("reno", name):
        connections.set_congestion(each)
        connections.require_congestion(each)
    with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
        for sock in (client, server, listener, accepted):
            used = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert used.partition(b"\0")[0].decode() == name
    words = refusal(connections.require_congestion, "nonesuch", by=Refused)
    assert all(each in words for each in ("nonesuch", *AVAILABLE))


@pytest.fixture
def hosts() -> Iterator[dict[str, Forked]]:
    """Three workers that were told to use reno, and whose rpc agents have met."""
    with ExitStack() as undo:
        hosts = {role: undo.enter_context(closing(Forked(watched_worker.serve, "reno"))) for role in ROLES}
        for role in ROLES[1:]:
            hosts[role].result("listen", address="127.0.0.1", token=TOKEN, backends=["rpc"])
        where = {"address": "127.0.0.1", "interface": "lo", "hosts": ROLES, "backend": "rpc"}
        where["port"] = hosts["server"].result("rendezvous", address="127.0.0.1")
        with ThreadPoolExecutor() as pool:  # they wait for each other
            list(pool.map(lambda role: hosts[role].result("join", role=role, **where), ROLES))
        yield hosts


def test_rpcs_connections_are_found_and_set_and_go_on(hosts: dict[str, Forked]) -> None:
    """TensorPipe opened them, some when they were first needed: nothing of ours has their descriptors."""
    for host in (hosts["edge"], hosts["middle1"]):
        host.result("warm", backend="rpc", nbytes=1)
        for nbytes in (MANY, 2 * MANY):
            before = host.result("connections", address="127.0.0.1")
            host.result("warm", backend="rpc", nbytes=nbytes)
            after = host.result("connections", address="127.0.0.1")
            acked = [it["acked_bytes"] - before[inode]["acked_bytes"] for inode, it in after.items()]
            assert nbytes <= sum(acked) < 1.01 * nbytes + 10_000
            assert sum(each > nbytes / 20 for each in acked) == 16
            assert {it["congestion"] for it in after.values()} == {"reno"}
    assert hosts["edge"].result("facts")["congestion_control"] == "reno"
