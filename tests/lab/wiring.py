"""The network of a lab: a namespace for each host, and veth pairs between them that can be unplugged.

    root namespace                          pi                       gpu
    paretolab<slot>m0 ---- management ---- mgmt0
                                           data0 ------ data ------ data0
    paretolab<slot>m1 ---- management ----------------------------- mgmt0

With a jump host, the far end of gpu's mgmt0 is the jump's lan0, and the root namespace has a link to the jump alone.
With a host in the middle, mid, its data0 is joined to pi's and its data1 to gpu's, each pair a network.
Addresses come from RFC 2544's range like the local testbed's, from the upper half of it, which that one leaves free.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from pyroute2 import IPRoute, netns

from pareto.hosts.local.journal import Journal

DATA, ONWARD, MANAGEMENT, LAN = "data0", "data1", "mgmt0", "lan0"


@dataclass
class Place:
    """One host's place in the network. `down` has the interfaces that are unplugged, be the host on or off."""

    name: str
    namespace: str
    addresses: dict[str, tuple[str, int]]
    down: set[str] = field(default_factory=set)
    is_silent: bool = False
    boots: int = 0


def build(journal: Journal, *, jump: bool = False, middle: bool = False) -> dict[str, Place]:
    """Namespaces and links of all hosts; every interface is up when this returns."""
    slot, management, data = journal.slot, f"198.18.{128 + journal.slot}", f"198.19.{128 + journal.slot}"
    prefix, gpus = (25, f"{data}.129") if middle else (24, f"{data}.2")
    pi = _place(journal, "pi", {MANAGEMENT: (f"{management}.2", 30), DATA: (f"{data}.1", prefix)})
    gpu = _place(journal, "gpu", {MANAGEMENT: (f"{management}.6", 30), DATA: (gpus, prefix)})
    places = [pi, gpu]
    _to_root(journal, pi, f"paretolab{slot}m0", f"{management}.1")
    if jump:
        between = _place(
            journal, "jump", {MANAGEMENT: (f"{management}.10", 30), LAN: (f"{management}.5", 30)}
        )
        places.append(between)
        _pair(between, LAN, gpu, MANAGEMENT)
        here = f"paretolab{slot}m2"
        _to_root(journal, between, here, f"{management}.9")
        # Without it the way to gpu's address were this machine's default route. Here nobody answers for it: the jump
        # forwards nothing.
        with IPRoute() as ip:
            ip.route("add", dst=f"{management}.4/30", oif=_index(ip, here), scope="link")
    else:
        _to_root(journal, gpu, f"paretolab{slot}m1", f"{management}.5")
    if middle:
        links = {DATA: (f"{data}.3", prefix), ONWARD: (f"{data}.130", prefix)}
        mid = _place(journal, "mid", {MANAGEMENT: (f"{management}.14", 30), **links})
        places.append(mid)
        _to_root(journal, mid, f"paretolab{slot}m3", f"{management}.13")
        _pair(pi, DATA, mid, DATA)
        _pair(mid, ONWARD, gpu, DATA)
    else:
        _pair(pi, DATA, gpu, DATA)
    for place in places:
        plug_in(place)
    return {place.name: place for place in places}


def plug_in(place: Place) -> None:
    """Give the interfaces their addresses, as a host does when it boots."""
    with IPRoute(netns=place.namespace) as ip:
        ip.link("set", index=1, state="up")
        for interface, (address, prefix) in place.addresses.items():
            ip.addr("replace", index=_index(ip, interface), address=address, prefixlen=prefix)
            if interface not in place.down:
                ip.link("set", index=_index(ip, interface), state="up")


def set_link(place: Place, interface: str, *, up: bool) -> None:
    """Down, the other end sees no carrier, and neither end hears anything: no reset, no end of a connection."""
    place.down = place.down - {interface} if up else place.down | {interface}
    if place.is_silent:
        return
    with IPRoute(netns=place.namespace) as ip:
        ip.link("set", index=_index(ip, interface), state="up" if up else "down")


def silence(place: Place) -> None:
    """Every interface down, until `wake`."""
    place.is_silent = True
    with IPRoute(netns=place.namespace) as ip:
        for interface in place.addresses:
            ip.link("set", index=_index(ip, interface), state="down")


def wake(journal: Journal, place: Place) -> None:
    """Move a silent place's interfaces to a new namespace and bring them up there. What the kernel still had to send of
    the old one's connections, their ends above all, is gone with it, as it is when a machine loses power."""
    if not place.is_silent:
        return
    old = place.namespace
    place.boots += 1
    place.namespace = f"pareto-lab{journal.slot}-{place.name}-{place.boots}"
    journal.note("namespace", place.namespace)
    netns.create(place.namespace)
    new = os.open(Path("/run/netns", place.namespace), os.O_RDONLY)
    try:
        with IPRoute(netns=old) as ip:
            for interface in place.addresses:
                ip.link("set", index=_index(ip, interface), net_ns_fd=new)
    finally:
        os.close(new)
    netns.remove(old)
    place.is_silent = False
    plug_in(place)


def _place(journal: Journal, name: str, addresses: dict[str, tuple[str, int]]) -> Place:
    namespace = f"pareto-lab{journal.slot}-{name}"
    journal.note("namespace", namespace)
    netns.create(namespace)
    return Place(name, namespace, addresses)


def _to_root(journal: Journal, place: Place, here: str, address: str) -> None:
    journal.note("interface", here)
    with IPRoute() as ip:
        ip.link("add", ifname=here, kind="veth", peer={"ifname": MANAGEMENT, "net_ns_fd": place.namespace})
        index = _index(ip, here)
        ip.addr("add", index=index, address=address, prefixlen=30)
        ip.link("set", index=index, state="up")


def _pair(one: Place, interface: str, other: Place, others: str) -> None:
    with IPRoute(netns=one.namespace) as ip:
        ip.link("add", ifname=interface, kind="veth", peer={"ifname": others, "net_ns_fd": other.namespace})


def _index(ip: IPRoute, name: str) -> int:
    return int(ip.link_lookup(ifname=name)[0])
