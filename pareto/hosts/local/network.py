"""Namespaces and the links between them, through pyroute2.

    root namespace                         edge              link0 (relay only)           server
    pareto<slot>m0 ---- management ------- mgmt0
                                           data0 --- data --- edge | server --- data ---- data0
    pareto<slot>m1 ---- management ------------------------------------------------------ mgmt0

Without a relay the two data0 are one veth pair. A host in the middle of a chain has a data0 towards the edge and a
data1 towards the server, and passes on what the others have to say to each other; each link is a network of its own.
Addresses come from 198.18.0.0/15, the range that RFC 2544 sets aside for benchmarks between network devices: no real
host is reached by mistake.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute, netns

from pareto.hosts.host import End, TcpSettings
from pareto.hosts.local.journal import Journal
from pareto.protocol.jsonlines import Refused

DATA, ONWARD = "data0", "data1"
MANAGEMENT = "mgmt0"
PREFIX = 30

_SIOCGIFFLAGS, _IFF_UP = 0x8913, 1

_SYSCTLS = {
    # One connection's cwnd must not leak into the next through the route cache.
    "net/ipv4/tcp_no_metrics_save": "1",
    # The defaults (4-6 MB) are less than bandwidth x delay of a fast, long link.
    "net/ipv4/tcp_rmem": "4096 131072 67108864",
    "net/ipv4/tcp_wmem": "4096 65536 67108864",
}
_FORWARDING = {"net/ipv4/ip_forward": "1"}
_NO_IPV6 = {  # no router solicitations, no duplicate address detection: silence unless we speak
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
}
CONGESTION_CONTROL = "cubic"
"""Linux's own default, whichever one this kernel was given: runs on two machines then compare."""


@dataclass(frozen=True)
class HostSpace:
    """One host's namespace. ends: of its links, that towards the edge first."""

    name: str
    namespace: str
    management_address: str
    ends: tuple[End, ...]


@dataclass(frozen=True)
class LinkSpace:
    """A link between two neighbours. relay_namespace: the relay's, whose interfaces have the names of the hosts."""

    near: End
    far: End
    relay_namespace: str | None


class Watch:
    """Watches a namespace, and the interfaces that must be up in it."""

    def __init__(self, namespace: str, interfaces: tuple[str, ...]) -> None:
        self._namespace = namespace
        self._interfaces = interfaces
        with inside(namespace):
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def fault(self) -> str:
        """The part that is gone, in words; empty where all is there."""
        if not Path("/run/netns", self._namespace).exists():
            return f"the namespace {self._namespace} is gone"
        for interface in self._interfaces:
            try:
                request = struct.pack("16s16x", interface.encode())
                flags = struct.unpack_from("H", fcntl.ioctl(self._socket, _SIOCGIFFLAGS, request), 16)[0]
                state = "" if flags & _IFF_UP else "down"
            except OSError:
                state = "gone"
            if state:
                return f"the interface {interface} in {self._namespace} is {state}"
        return ""


def sysctls(tcp: TcpSettings) -> dict[str, str]:
    """The kernel settings of each host's namespace."""
    return {"net/ipv4/tcp_slow_start_after_idle": str(int(tcp.slow_start_after_idle)), **_SYSCTLS}


def congestion_control(wanted: str | None) -> str:
    """The one that is wanted, else cubic, else this kernel's own. Raises Refused where it lacks what is wanted."""
    name = wanted or CONGESTION_CONTROL
    with socket.socket() as sock:
        try:  # for root the kernel loads its module
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
            return name
        except OSError:
            if wanted is not None:
                has = _sysctl("tcp_available_congestion_control").split()
                raise Refused(f"--congestion {wanted}: this kernel has only {' and '.join(has)}") from None
    return _sysctl("tcp_congestion_control")


def watches(hosts: Iterable[HostSpace], links: Iterable[LinkSpace]) -> list[Watch]:
    """One for each namespace, to look now and then whether it is whole."""
    of_hosts = [Watch(host.namespace, (MANAGEMENT, *(end.interface for end in host.ends))) for host in hosts]
    return of_hosts + [
        Watch(link.relay_namespace, (link.near.role, link.far.role)) for link in links if link.relay_namespace
    ]


def build(
    journal: Journal, names: Sequence[str], tcp: TcpSettings, *, relay: bool
) -> tuple[tuple[HostSpace, ...], tuple[LinkSpace, ...]]:
    """A chain of hosts, all up, and the links between neighbours. tcp: with a congestion control of this kernel's."""
    slot = journal.slot
    links = tuple(
        LinkSpace(
            End(near, f"198.19.{slot}.{4 * number + 1}", ONWARD if number else DATA),
            End(far, f"198.19.{slot}.{4 * number + 2}", DATA),
            f"pareto{slot}-link{number}" if relay else None,
        )
        for number, (near, far) in enumerate(pairwise(names))
    )
    hosts = tuple(
        HostSpace(
            name,
            f"pareto{slot}-{name}",
            f"198.18.{slot}.{4 * number + 2}",
            tuple(end for link in links for end in (link.far, link.near) if end.role == name),
        )
        for number, name in enumerate(names)
    )
    for number, host in enumerate(hosts):
        passes_on = _FORWARDING if len(host.ends) > 1 else {}
        _namespace(journal, host.namespace, sysctls(tcp) | passes_on | _NO_IPV6)
        _management_link(journal, host, f"pareto{slot}m{number}", f"198.18.{slot}.{4 * number + 1}")
    spaces = {host.name: host.namespace for host in hosts}
    for link in links:
        if link.relay_namespace is not None:
            _namespace(journal, link.relay_namespace, _NO_IPV6)
        _data_link(link, spaces)
    # A route's metric reaches every socket of both backends; the sysctl is refused in a namespace.
    metrics = {"cc_algo": tcp.congestion, "initcwnd": tcp.initial_window}
    for number, link in enumerate(links):
        _join(spaces, link.near, link.far, hosts[number + 1 :], metrics)
        _join(spaces, link.far, link.near, hosts[: number + 1], metrics)
    return hosts, links


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Run a block in `namespace`. For this thread only; sockets made there stay there."""
    netns.pushns(namespace)
    try:
        yield
    finally:
        netns.popns()


def _namespace(journal: Journal, name: str, sysctls: dict[str, str]) -> None:
    journal.note("namespace", name)
    netns.create(name)
    with inside(name):
        for key, value in sysctls.items():
            path = Path("/proc/sys") / key
            if path.exists():  # not every kernel has IPv6
                path.write_text(value)
    with IPRoute(netns=name) as ip:
        ip.link("set", index=1, state="up")


def _management_link(journal: Journal, host: HostSpace, here: str, address: str) -> None:
    journal.note("interface", here)
    with IPRoute() as ip:
        ip.link("add", ifname=here, kind="veth", peer={"ifname": MANAGEMENT, "net_ns_fd": host.namespace})
        _up(ip, here, address)
    with IPRoute(netns=host.namespace) as ip:
        _up(ip, MANAGEMENT, host.management_address)


def _data_link(link: LinkSpace, spaces: dict[str, str]) -> None:
    """Join two hosts, through the relay's namespace if there is one."""
    if link.relay_namespace is None:
        with IPRoute(netns=spaces[link.near.role]) as ip:
            peer = {"ifname": link.far.interface, "net_ns_fd": spaces[link.far.role]}
            ip.link("add", ifname=link.near.interface, kind="veth", peer=peer)
        return
    with IPRoute(netns=link.relay_namespace) as ip:
        for end in (link.near, link.far):
            peer = {"ifname": end.interface, "net_ns_fd": spaces[end.role]}
            ip.link("add", ifname=end.role, kind="veth", peer=peer)
            ip.link("set", index=_index(ip, end.role), state="up")


def _join(
    spaces: dict[str, str], own: End, other: End, beyond: Sequence[HostSpace], metrics: dict[str, Any]
) -> None:
    """Address, routes to all beyond the other end, static neighbours: ARP would cost the first packet a round trip."""
    with IPRoute(netns=spaces[other.role]) as ip:
        mac = ip.get_links(_index(ip, other.interface))[0].get_attr("IFLA_ADDRESS")
    with IPRoute(netns=spaces[own.role]) as ip:
        index = _up(ip, own.interface, own.address)
        ip.neigh("replace", dst=other.address, lladdr=mac, ifindex=index, state="permanent")
        for end in (end for host in beyond for end in host.ends):
            by = {} if end == other else {"gateway": other.address}
            ip.route(
                "add", dst=end.address, dst_len=32, oif=index, prefsrc=own.address, metrics=metrics, **by
            )


def _up(ip: IPRoute, name: str, address: str) -> int:
    index = _index(ip, name)
    ip.addr("add", index=index, address=address, prefixlen=PREFIX)
    ip.link("set", index=index, state="up")
    return index


def _index(ip: IPRoute, name: str) -> int:
    return int(ip.link_lookup(ifname=name)[0])


def _sysctl(name: str) -> str:
    return (Path("/proc/sys/net/ipv4") / name).read_text().strip()
