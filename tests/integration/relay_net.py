"""Three namespaces, sockets in the outer two and the relay's process in the middle, for the tests of the relay."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pyroute2 import IPRoute, netns

from pareto.protocol.jsonlines import plain
from pareto.remote.link import offload
from pareto.remote.link.probe import ConnectProbe, OpenProbe, Question
from tests.program import Program, wait_until

EDGE, SERVER = "10.213.0.1", "10.213.0.2"
HEADERS = 42
"""Ethernet, IPv4 and UDP."""
SLEW_S = 1e-4
"""By which the clock of the stamps may run ahead of the relay's meanwhile."""
LONG_S = 60.0
"""After so long a test hangs."""
_SO_NO_CHECK, _SO_LINGER_NONE, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 11, struct.pack("ii", 1, 0), 33, 35
_END = b"the end"
COUNTED = ("dropped", "lost", "duplicated", "reordered", "corrupted")
_numbers = itertools.count()


class Net:
    """edge -- relay -- server, each a namespace, with static neighbours."""

    def __init__(self) -> None:
        ours = f"pareto-test-{os.getpid()}-{next(_numbers)}"
        self.names = {role: f"{ours}-{role}" for role in ("edge", "relay", "server")}
        for name in self.names.values():
            netns.create(name)
        self._without_ipv6()
        self._pair("edge", EDGE)
        self._pair("server", SERVER)
        self._neighbour("edge", "server", SERVER)
        self._neighbour("server", "edge", EDGE)

    def close(self) -> None:
        for name in self.names.values():
            netns.remove(name)

    @contextlib.contextmanager
    def within(self, role: str) -> Iterator[None]:
        """This thread is there meanwhile."""
        netns.pushns(self.names[role])
        try:
            yield
        finally:
            netns.popns()

    def large_windows(self) -> None:
        """TCP buffers of up to 64 MB, as the local testbed sets them: a fast, long link fills no smaller ones."""
        for role in ("edge", "server"):
            with self.within(role):
                for direction in ("tcp_rmem", "tcp_wmem"):
                    Path("/proc/sys/net/ipv4", direction).write_text(f"4096 1048576 {64 << 20}")

    def _without_ipv6(self) -> None:
        """A new interface solicits routers and neighbours by itself: packets that no test sent, at any moment."""
        for role in self.names:
            with self.within(role):
                everything = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
                if everything.exists():
                    everything.write_text("1")

    def _pair(self, role: str, address: str) -> None:
        with IPRoute(netns=self.names["relay"]) as middle:
            peer = {"ifname": "data0", "net_ns_fd": self.names[role]}
            middle.link("add", ifname=f"to_{role}", kind="veth", peer=peer)
            middle.link("set", index=middle.link_lookup(ifname=f"to_{role}")[0], state="up")
        with IPRoute(netns=self.names[role]) as outer:
            index = outer.link_lookup(ifname="data0")[0]
            outer.addr("add", index=index, address=address, prefixlen=24)
            outer.link("set", index=index, state="up")

    def _neighbour(self, role: str, other: str, address: str) -> None:
        with IPRoute(netns=self.names[other]) as there:
            mac = str(there.get_links(ifname="data0")[0].get_attr("IFLA_ADDRESS"))
        with IPRoute(netns=self.names[role]) as outer:
            index = outer.link_lookup(ifname="data0")[0]
            outer.neigh("add", dst=address, lladdr=mac, ifindex=index, state="permanent")

    def socket(self, role: str, kind: socket.SocketKind) -> socket.socket:
        """A socket keeps the namespace it was made in."""
        with self.within(role):
            return socket.socket(socket.AF_INET, kind)

    def offloads(self, on: bool) -> None:
        for role in ("edge", "server"):
            with self.within(role):
                offload.write("data0", {"tso": on, "gso": on, "gro": False})


class Relay(Program):
    """The relay's process."""

    ask = Program.reply

    def __init__(self, net: Net) -> None:
        with net.within("relay"):
            super().__init__("pareto.remote.link.relay", "--edge", "to_edge", "--server", "to_server")

    def apply(
        self, out: dict[str, Any], back: dict[str, Any] | None = None, **profile: Any
    ) -> dict[str, Any]:
        return dict(self.result("apply", edge_to_server=out, server_to_edge=back or {}, **profile))

    def stats(self) -> dict[str, Any]:
        return dict(self.result("stats"))

    def drained(self) -> bool:
        return wait_until(lambda: self.stats()["draining_s"] == 0, LONG_S)


@contextlib.contextmanager
def net_with_relay() -> Iterator[tuple[Net, Relay]]:
    """The namespaces and a relay between them, of which nothing is left."""
    net = Net()
    try:
        net.offloads(on=False)
        relay = Relay(net)
        yield net, relay
        relay.close()
    finally:
        net.close()
    assert not set(net.names.values()) & set(netns.listnetns())


class Arrival(NamedTuple):
    """A datagram that came, by the kernel's stamp, which does not depend on when a process gets a core to read it."""

    number: int
    sent_ns: int
    came_ns: int
    payload: bytes

    @property
    def delay_s(self) -> float:
        return (self.came_ns - self.sent_ns) / 1e9


class Crossed(NamedTuple):
    """What came of numbered datagrams, in that order, and what the relay counted of them."""

    arrivals: list[Arrival]
    counted: dict[str, int]
    late_p99_s: float | None

    @property
    def numbers(self) -> list[int]:
        return [arrival.number for arrival in self.arrivals]

    def since_first_s(self, place: int) -> float:
        """Seconds from the sending of the first until the arrival at that place."""
        return (self.arrivals[place].came_ns - self.arrivals[0].sent_ns) / 1e9


def payload_of(number: int, size: int) -> bytes:
    return number.to_bytes(4, "big") + bytes(size - 4)


def datagrams(
    net: Net,
    relay: Relay,
    count: int,
    size: int = 64,
    *,
    to: str = "server",
    checksum: bool = True,
    pause: Callable[[], object] = lambda: None,
) -> Crossed:
    """Send numbered datagrams over the link as it is shaped, which it no longer is afterwards. `pause`: after each."""
    source, far_end = ("edge", SERVER) if to == "server" else ("server", EDGE)
    near, far = net.socket(source, socket.SOCK_DGRAM), net.socket(to, socket.SOCK_DGRAM)
    before = relay.stats()
    with near, far:
        far.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        far.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        far.settimeout(LONG_S)
        near.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, int(not checksum))
        far.bind((far_end, 0))
        near.connect(far.getsockname())
        sent_ns = []
        for number in range(count):
            sent_ns.append(time.time_ns())
            near.send(payload_of(number, size))
            pause()
        assert wait_until(lambda: _taken(relay.stats()) - _taken(before) >= count, LONG_S)
        after = relay.stats()
        # Nothing waits any more, so the last comes last: what has not come by then was lost.
        relay.apply({})
        near.send(_END)
        arrivals = []
        while (got := far.recvmsg(2048, 64))[0] != _END:
            payload, ancillary, _, _ = got
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
            number = int.from_bytes(payload[:4], "big") % count
            arrivals.append(Arrival(number, sent_ns[number], seconds * 10**9 + nanoseconds, payload))
    return Crossed(arrivals, {name: after[name] - before[name] for name in COUNTED}, after["late_p99_s"])


def _taken(stats: dict[str, Any]) -> int:
    """Packets that the relay has read and that no longer wait there."""
    forwarded = sum(way["packets"] for way in stats["forwarded"].values())
    return int(forwarded + stats["lost"] + stats["dropped"] - stats["duplicated"])


def transfer(net: Net, relay: Relay, data: bytes, at: Callable[[int], object] = lambda have: None) -> bytes:
    """What arrives of a transfer by TCP, edge to server. `at`: called with how many bytes have come.

    Ends by a reset: nothing of the connection is sent again later.
    """
    server, edge = net.socket("server", socket.SOCK_STREAM), net.socket("edge", socket.SOCK_STREAM)
    with server, edge:
        server.bind((SERVER, 0))
        server.listen(1)
        edge.settimeout(LONG_S)
        edge.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _SO_LINGER_NONE)
        edge.connect(server.getsockname())
        incoming, _ = server.accept()
        with incoming:
            incoming.settimeout(LONG_S)
            sender = threading.Thread(target=edge.sendall, args=(data,))
            sender.start()
            got = bytearray()
            while len(got) < len(data):
                piece = incoming.recv(1 << 20)
                assert piece, "closed"
                got += piece
                at(len(got))
            sender.join()
            edge.close()
    assert relay.drained()
    return bytes(got)


Probe = Callable[..., dict[str, Any]]
Shape = Callable[[dict[str, Any], dict[str, Any]], Probe]


@contextlib.contextmanager
def probed_link() -> Iterator[tuple[Relay, Shape]]:
    """A relay with a probe at each end, and what shapes it each way and gives what asks the probe.

    Over new connections, as TCP's memory of another link misleads it.
    """
    with net_with_relay() as (net, relay):
        ends = {}
        for role in ("edge", "server"):
            with net.within(role), prompt():
                ends[role] = Program("pareto.remote.worker.probe")
        port = ends["server"].result(OpenProbe.op, **plain(OpenProbe(SERVER, "t")))

        def probe(**fields: Any) -> dict[str, Any]:
            ends["server"].reply("any word")  # else it would end: its driver is silent
            return dict(ends["edge"].result(Question.op, **plain(Question(**fields))))

        def shape(out: dict[str, Any], back: dict[str, Any]) -> Probe:
            relay.apply(out, back)
            ends["edge"].result(ConnectProbe.op, **plain(ConnectProbe(SERVER, port, "t")))
            return probe

        yield relay, shape
        for end in ends.values():
            end.close()


@contextlib.contextmanager
def prompt() -> Iterator[None]:
    """Real-time priority where permitted, for this thread and those it starts: on a busy machine the two ends
    would otherwise wait for a core, and that is not the link's delay."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
