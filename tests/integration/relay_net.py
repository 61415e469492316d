"""Three namespaces, sockets in the outer two and the relay's process in the middle, for the tests of the relay."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute, netns

from pareto.link import offload
from tests.program import Program

EDGE, SERVER = "10.213.0.1", "10.213.0.2"


class Net:
    """edge -- relay -- server, each a namespace, with static neighbours."""

    def __init__(self) -> None:
        self.names = {role: f"pareto-test-{os.getpid()}-{role}" for role in ("edge", "relay", "server")}
        for name in self.names.values():
            netns.create(name)
        self._without_ipv6()
        self._pair("edge", EDGE)
        self._pair("server", SERVER)
        self._neighbour("edge", SERVER, self._mac("server"))
        self._neighbour("server", EDGE, self._mac("edge"))

    def close(self) -> None:
        for name in self.names.values():
            netns.remove(name)

    def large_windows(self) -> None:
        """TCP buffers of up to 64 MB, as the local testbed sets them: a fast, long link fills no smaller ones."""
        for role in ("edge", "server"):
            netns.pushns(self.names[role])
            try:
                for direction in ("tcp_rmem", "tcp_wmem"):
                    Path("/proc/sys/net/ipv4", direction).write_text(f"4096 1048576 {64 << 20}")
            finally:
                netns.popns()

    def _without_ipv6(self) -> None:
        """A new interface solicits routers and neighbours by itself: packets that no test sent, at any moment."""
        for role in self.names:
            netns.pushns(self.names[role])
            try:
                everything = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
                if everything.exists():
                    everything.write_text("1")
            finally:
                netns.popns()

    def _pair(self, role: str, address: str) -> None:
        with IPRoute(netns=self.names["relay"]) as middle:
            middle.link(
                "add",
                ifname=f"to_{role}",
                kind="veth",
                peer={"ifname": "data0", "net_ns_fd": self.names[role]},
            )
            middle.link("set", index=middle.link_lookup(ifname=f"to_{role}")[0], state="up")
        with IPRoute(netns=self.names[role]) as outer:
            index = outer.link_lookup(ifname="data0")[0]
            outer.addr("add", index=index, address=address, prefixlen=24)
            outer.link("set", index=index, state="up")

    def _mac(self, role: str) -> str:
        with IPRoute(netns=self.names[role]) as outer:
            return str(outer.get_links(ifname="data0")[0].get_attr("IFLA_ADDRESS"))

    def _neighbour(self, role: str, address: str, mac: str) -> None:
        with IPRoute(netns=self.names[role]) as outer:
            index = outer.link_lookup(ifname="data0")[0]
            outer.neigh("add", dst=address, lladdr=mac, ifindex=index, state="permanent")

    def socket(self, role: str, kind: socket.SocketKind) -> socket.socket:
        """A socket keeps the namespace it was made in."""
        netns.pushns(self.names[role])
        try:
            return socket.socket(socket.AF_INET, kind)
        finally:
            netns.popns()

    def offloads(self, on: bool) -> None:
        for role in ("edge", "server"):
            netns.pushns(self.names[role])
            try:
                offload.write("data0", {"tso": on, "gso": on, "gro": False})
            finally:
                netns.popns()


class Relay(Program):
    """The relay's process."""

    ask = Program.reply

    def __init__(self, net: Net) -> None:
        netns.pushns(net.names["relay"])
        try:
            super().__init__("pareto.link.relay", "--edge", "to_edge", "--server", "to_server")
        finally:
            netns.popns()

    def apply(
        self, out: dict[str, Any], back: dict[str, Any] | None = None, **profile: Any
    ) -> dict[str, Any]:
        fields: dict[str, Any] = self.result(
            "apply", edge_to_server=out, server_to_edge=back or {}, **profile
        )
        return fields

    def stats(self) -> dict[str, Any]:
        return dict(self.result("stats"))


def settled(read: Callable[[], float], expected: Any, tries: int = 6) -> float:
    """The first reading that equals what is expected, else the last: what else runs here spoils some of them."""
    reading = read()
    for _ in range(tries - 1):
        if reading == expected:
            break
        reading = read()
    return reading


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
