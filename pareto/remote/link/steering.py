"""Chooses which packets are shaped: all of an interface, or those of one host without SSH's; arriving ones by an ifb.

Filters are u32's on IPv4. Each has a priority of its own from 7061 (hex) on: ours are known by it.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from pareto.remote.link import qdisc
from pareto.remote.link.netem import Prio, QdiscError, pack
from pareto.remote.link.qdisc import INGRESS, INGRESS_HANDLE, Node, TrafficControl

_FIRST_PRIORITY = 0x7061
_SSH_PORT = 22
_IPV4, _ALL = 0x0800, 0x0003  # ETH_P_IP, ETH_P_ALL
_ROOT_HANDLE = qdisc.FIRST_HANDLE << 16

# linux/pkt_cls.h, tc_act/tc_mirred.h
_U32_CLASSID, _U32_SELECTOR, _U32_ACTION = 1, 5, 7
_ACT_KIND, _ACT_OPTIONS, _MIRRED_PARMS = 1, 2, 2
_TERMINAL, _STOLEN, _REDIRECT = 1, 4, 1

# (mask, value, offset in the IPv4 header): the words that a packet must have
_Key = tuple[int, int, int]
_Result = dict[int, bytes]
# prio's bands, to one of which a filter sends a packet; at ingress any but none lets pass
_SPARED, _SHAPED = ({_U32_CLASSID: struct.pack("=I", _ROOT_HANDLE | band)} for band in (1, Prio.CHILD))
# No IP options, so that ports lie at 20; TCP.
_TCP: list[_Key] = [(0x0F000000, 0x05000000, 0), (0x00FF0000, 0x00060000, 8)]
_DESTINATION, _SOURCE = 16, 12


@dataclass(frozen=True)
class Scope:
    """The packets of an interface that are shaped. filtered: only what goes to `peer`; else all. Arriving ones are
    shaped if they come from `peer`, or all without one. spared_port: SSH's, by TCP, on either side, where there are
    filters."""

    filtered: bool = False
    peer: str | None = None
    spared_port: int | None = None

    def __str__(self) -> str:
        if not self.filtered:
            return "interface"
        spared = "" if self.spared_port is None else f", TCP port {self.spared_port} spared"
        return f"peer {self.peer}{spared}"


def scope(interface: str, peer: str | None, filtered: bool) -> Scope:
    """The whole interface, or only the peer's packets where SSH leaves through it as well or `filtered` is set. Raises
    QdiscError where that needs the peer's IPv4 address, and it is not known."""
    ssh = _ssh()
    shared = ssh is not None and _leaves_through(interface, ssh[0])
    filtered = filtered or shared
    because = "SSH uses it too" if shared else "that was asked for"
    why = f"{interface} is shaped only towards the other host, for {because}"
    if peer is not None:
        try:
            peer = str(ipaddress.IPv4Address(peer))
        except ValueError:
            if not filtered:
                why = f"of what comes to {interface} only the other host's packets are shaped"
            raise QdiscError(f"{why}: that needs its IPv4 address, and {peer!r} is none") from None
    elif filtered:
        raise QdiscError(f"{why}: say which host that is, or use another data interface")
    # The driver may go through this host to the other one, or run here: then SSH between them is its own.
    port = ssh[1] if ssh else _SSH_PORT
    return Scope(filtered, peer, port if filtered else None)


def _ssh() -> tuple[str, int] | None:
    """The client's address and the server's port of the SSH session that started this program, if one did."""
    connection = os.environ.get("SSH_CONNECTION") or _before_sudo()
    try:
        client, _, _, port = connection.split()
        ipaddress.ip_address(client.partition("%")[0])
        return client, int(port)
    except ValueError:  # a variable, which anybody may set
        return None


def _before_sudo() -> str:
    """SSH_CONNECTION of the nearest ancestor that has one: sudo, which empties the environment, does."""
    process = os.getppid()  # not by psutil, which the privileged program lacks
    while process > 1:
        try:
            environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            parent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            return ""
        for variable in environment:
            if variable.startswith(b"SSH_CONNECTION="):
                return variable.partition(b"=")[2].decode()
        process = int(parent)
    return ""


def _leaves_through(interface: str, address: str) -> bool:
    """Whether packets to this address leave through the interface."""
    address, _, zone = address.partition("%")
    if zone:
        return zone == interface
    if ipaddress.ip_address(address).is_loopback:
        return False
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with IPRoute() as ip:
        try:
            routes = ip.route("get", dst=address, family=family)
        except NetlinkError:  # no way there: it is the network of another namespace
            return False
    return any(route.get_attr("RTA_OIF") == qdisc.index_of(interface) for route in routes)


def steer_egress(control: TrafficControl, index: int, scope: Scope) -> None:
    """Filters on our prio: SSH to the first band, the peer to the second. Raises QdiscError."""
    _add_filters(control, index, _ROOT_HANDLE, scope, _DESTINATION, _SHAPED)


def ifb_name(index: int) -> str:
    """The name of the device for what arrives at the interface of that number. All that steers it there is ours."""
    return f"pareto-ifb{index:x}"


def ifb_index(index: int) -> int | None:
    """The number of the interface's ifb, if it has one."""
    with IPRoute() as ip:
        return next(iter(ip.link_lookup(ifname=ifb_name(index))), None)


def make_ifb(interface: str) -> str:
    """The interface's ifb, up; what it has as root shapes what will be redirected to it. Raises QdiscError."""
    name = ifb_name(qdisc.index_of(interface))
    with IPRoute() as ip, qdisc.explained(interface, "ifb"):
        if not ip.link_lookup(ifname=name):
            ip.link("add", ifname=name, kind="ifb")
        ip.link("set", index=ip.link_lookup(ifname=name)[0], state="up")
    return name


def steer_ingress(control: TrafficControl, interface: str, scope: Scope) -> None:
    """Redirect what arrives and is shaped to the interface's ifb. Raises QdiscError."""
    index = qdisc.index_of(interface)
    with qdisc.explained(interface, "ingress"):
        control.ask(qdisc.PUT, index, Node("ingress", INGRESS_HANDLE, INGRESS))
    to_ifb = {_U32_ACTION: _redirect(qdisc.index_of(ifb_name(index)))}
    _add_filters(control, index, INGRESS_HANDLE, scope, _SOURCE, to_ifb)


def stop_ingress(control: TrafficControl, index: int) -> str:
    """Take our redirection and ifb away, if they are there; says what is left because somebody else uses it."""
    ingress = control.at(index, INGRESS)
    ours = (
        {node.info for node in control.filters(index, ingress.handle) if _is_ours(node)} if ingress else set()
    )
    if not ours and ifb_index(index) is None:  # the ifb is made first and goes last
        return ""
    left = ""
    if ingress is not None:
        for info in ours:
            control.ask(qdisc.DELETE_FILTERS, index, Node("", 0, ingress.handle, info=info))
        if ingress.kind != "ingress" or control.filters(index, ingress.handle):
            left = f"its {ingress.kind} qdisc is used by somebody else: it is left alone"
        else:
            control.ask(qdisc.DELETE, index, ingress)
    delete_ifb(index)
    return left


def delete_ifb(index: int) -> None:
    with IPRoute() as ip:
        for link in ip.link_lookup(ifname=ifb_name(index)):
            ip.link("del", index=link)


def _is_ours(node: Node) -> bool:
    return node.kind == "u32" and 0 <= (node.info >> 16) - _FIRST_PRIORITY < 3


def _redirect(index: int) -> bytes:
    """The result of a filter: the packet leaves through that device instead."""
    parms = struct.pack("=IIiiiiI", 0, 0, _STOLEN, 0, 0, _REDIRECT, index)
    action = {_ACT_KIND: b"mirred\0", _ACT_OPTIONS: pack({_MIRRED_PARMS: parms})}
    return pack({1: pack(action)})


def _add_filters(
    control: TrafficControl, index: int, parent: int, scope: Scope, peer_at: int, shaped: _Result
) -> None:
    """Filters for the packets that are shaped: all, or those whose header has the peer at that offset. Before them,
    for the first match wins, those that spare SSH's, by source and by destination port."""
    filters: list[tuple[int, list[_Key], _Result]] = [(_ALL, [(0, 0, 0)], shaped)]
    if scope.peer is not None:
        filters = [(_IPV4, [(0xFFFFFFFF, int(ipaddress.IPv4Address(scope.peer)), peer_at)], shaped)]
    if scope.filtered and (port := scope.spared_port) is not None:
        by_port = [(0xFFFF0000, port << 16, 20), (0x0000FFFF, port, 20)]
        filters[:0] = [(_IPV4, [*_TCP, key], _SPARED) for key in by_port]
    for priority, (protocol, keys, result) in enumerate(filters, _FIRST_PRIORITY):
        selector = struct.pack("=BBBxHHhhI", _TERMINAL, 0, len(keys), 0, 0, 0, 0, 0)
        for mask, value, offset in keys:
            selector += struct.pack(">II", mask, value) + struct.pack("=ii", offset, 0)
        options = pack({_U32_SELECTOR: selector, **result})
        with qdisc.explained(socket.if_indextoname(index), "mirred" if _U32_ACTION in result else "u32"):
            info = priority << 16 | socket.htons(protocol)
            control.ask(qdisc.ADD_FILTER, index, Node("u32", 0, parent, options, info))
