"""Namespaces and the links between them, through pyroute2.

    root namespace                    edge                link (relay only)            server
    pareto<slot>m0 ---- management -- mgmt0
                                      data0 ---- data --- edge | server --- data ------ data0
    pareto<slot>m1 ---- management ------------------------------------------------- mgmt0

Without a relay the two data0 are one veth pair. Addresses come from 198.18.0.0/15, the range that RFC 2544
sets aside for benchmarks between network devices: no real host is reached by mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyroute2 import IPRoute, netns

from pareto.hosts.local.journal import Journal

DATA = "data0"
MANAGEMENT = "mgmt0"

SYSCTLS = {
    # Slow start after each idle RTO would charge several round trips to every request that follows a pause.
    "net/ipv4/tcp_slow_start_after_idle": "0",
    # One connection's cwnd must not leak into the next through the route cache.
    "net/ipv4/tcp_no_metrics_save": "1",
    # The defaults (4-6 MB) are less than bandwidth x delay of a fast, long link.
    "net/ipv4/tcp_rmem": "4096 131072 67108864",
    "net/ipv4/tcp_wmem": "4096 65536 67108864",
}
_NO_IPV6 = {  # no router solicitations, no duplicate address detection: silence unless we speak
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
}
CONGESTION_CONTROL = "cubic"
"""Linux's own default, whichever one this kernel was given: runs on two machines then compare."""
INITIAL_WINDOW = 100
"""Segments. Connections are measured warm, and from Linux's ten a long link takes seconds to warm up. Many more
would fill the shaper's queue at once and look like a time-out."""


@dataclass(frozen=True)
class Host:
    """One host's place in the network."""

    name: str
    namespace: str
    management_address: str
    data_address: str


@dataclass(frozen=True)
class Network:
    hosts: tuple[Host, ...]
    relay_namespace: str | None
    congestion_control: str


def build(journal: Journal, names: Sequence[str], *, relay: bool) -> Network:
    """Two hosts and the link between them; everything is up when this returns."""
    slot = journal.slot
    hosts = tuple(
        Host(name, f"pareto{slot}-{name}", f"198.18.{slot}.{4 * i + 2}", f"198.19.{slot}.{i + 1}")
        for i, name in enumerate(names)
    )
    relay_namespace = f"pareto{slot}-link" if relay else None
    for host in hosts:
        _namespace(journal, host.namespace, SYSCTLS | _NO_IPV6)
    if relay_namespace is not None:
        _namespace(journal, relay_namespace, _NO_IPV6)
    for i, host in enumerate(hosts):
        _management_link(journal, host, f"pareto{slot}m{i}", f"198.18.{slot}.{4 * i + 1}")
    macs = _data_link(hosts, relay_namespace)
    congestion = _congestion_control()
    for host in hosts:
        peers = [(other.data_address, macs[other.name]) for other in hosts if other is not host]
        _data_address(host, peers, congestion)
    return Network(hosts, relay_namespace, congestion)


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


def _management_link(journal: Journal, host: Host, here: str, address: str) -> None:
    journal.note("interface", here)
    with IPRoute() as ip:
        ip.link("add", ifname=here, kind="veth", peer={"ifname": MANAGEMENT, "net_ns_fd": host.namespace})
        _up(ip, here, address, 30)
    with IPRoute(netns=host.namespace) as ip:
        _up(ip, MANAGEMENT, host.management_address, 30)


def _data_link(hosts: Sequence[Host], relay_namespace: str | None) -> dict[str, str]:
    """Join the hosts, through the relay's namespace if there is one; returns each host's MAC."""
    edge, server = hosts
    if relay_namespace is None:
        with IPRoute(netns=edge.namespace) as ip:
            peer = {"ifname": DATA, "net_ns_fd": server.namespace}
            ip.link("add", ifname=DATA, kind="veth", peer=peer)
    else:
        for host in hosts:
            with IPRoute(netns=host.namespace) as ip:
                peer = {"ifname": host.name, "net_ns_fd": relay_namespace}
                ip.link("add", ifname=DATA, kind="veth", peer=peer)
        with IPRoute(netns=relay_namespace) as ip:
            for host in hosts:
                ip.link("set", index=_index(ip, host.name), state="up")
    macs = {}
    for host in hosts:
        with IPRoute(netns=host.namespace) as ip:
            macs[host.name] = str(ip.get_links(_index(ip, DATA))[0].get_attr("IFLA_ADDRESS"))
    return macs


def _data_address(host: Host, peers: list[tuple[str, str]], congestion: str) -> None:
    """Address, route and neighbours. Static neighbours: an ARP exchange would cost the first packet a round trip."""
    with IPRoute(netns=host.namespace) as ip:
        index = _up(ip, DATA, host.data_address, 24)
        for address, mac in peers:
            ip.neigh("replace", dst=address, lladdr=mac, ifindex=index, state="permanent")
            # A route's metric reaches every socket of both backends; the sysctl is refused in a namespace.
            metrics = {"cc_algo": congestion, "initcwnd": INITIAL_WINDOW}
            ip.route("add", dst=address, dst_len=32, oif=index, prefsrc=host.data_address, metrics=metrics)


def _up(ip: IPRoute, name: str, address: str, prefix: int) -> int:
    index = _index(ip, name)
    ip.addr("add", index=index, address=address, prefixlen=prefix)
    ip.link("set", index=index, state="up")
    return index


def _index(ip: IPRoute, name: str) -> int:
    return int(ip.link_lookup(ifname=name)[0])


def _congestion_control() -> str:
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    if CONGESTION_CONTROL in available:
        return CONGESTION_CONTROL
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
