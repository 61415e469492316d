"""The kernel's traffic control over netlink: qdiscs, classes and filters of one interface, their options as bytes.

Options stay what the kernel sent: so a qdisc of somebody else can be put back to the bit, and what pyroute2 0.9.7
does not know (netem's burst losses) is there as well. pyroute2 does the sockets, the framing and the errors.
All calls act in the network namespace of the thread that made the object, and raise NetlinkError.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyroute2.netlink import (
    NETLINK_ROUTE,
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_DUMP,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    NLM_F_REQUEST,
    nlmsg,
)
from pyroute2.netlink.nlsocket import NetlinkSocket
from pyroute2.netlink.rtnl import (
    RTM_DELQDISC,
    RTM_DELTFILTER,
    RTM_GETQDISC,
    RTM_GETTCLASS,
    RTM_GETTFILTER,
    RTM_NEWQDISC,
    RTM_NEWTCLASS,
    RTM_NEWTFILTER,
)
from pyroute2.netlink.rtnl.tcmsg import tcmsg

ROOT, INGRESS = 0xFFFFFFFF, 0xFFFFFFF1
INGRESS_HANDLE = 0xFFFF0000

_TYPE = 0x3FFF  # the bits of an attribute's type that are not flags
_DROPS_AT = 12  # in struct tc_stats


class _Message(nlmsg):  # type: ignore[misc]  # pyroute2 has no types
    """tcmsg with its options undecoded."""

    prefix = "TCA_"
    fields = tcmsg.fields
    nla_map = (
        ("TCA_UNSPEC", "none"),
        ("TCA_KIND", "asciiz"),
        ("TCA_OPTIONS", "cdata"),
        ("TCA_STATS", "cdata"),
        ("TCA_XSTATS", "cdata"),
        ("TCA_RATE", "cdata"),
        ("TCA_FCNT", "cdata"),
        ("TCA_STATS2", "cdata"),
        ("TCA_STAB", "cdata"),
    )


@dataclass(frozen=True)
class Node:
    """A qdisc, class or filter. Handles are 32 bits, ``7061:2`` is 0x70610002. `info` is a filter's priority and
    protocol, or the qdisc under a class."""

    kind: str
    handle: int
    parent: int
    options: bytes = b""
    info: int = 0
    size_table: bytes = b""
    drops: int = field(default=0, compare=False)


class TrafficControl:
    """A netlink socket for qdiscs, classes and filters; a context manager."""

    def __init__(self) -> None:
        self._socket = NetlinkSocket(family=NETLINK_ROUTE, ext_ack=True, nlm_generator=False)
        self._socket.bind()
        self._socket.register_policy(dict.fromkeys((RTM_NEWQDISC, RTM_NEWTCLASS, RTM_NEWTFILTER), _Message))

    def __enter__(self) -> TrafficControl:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def qdiscs(self, index: int) -> list[Node]:
        """Those that somebody or the kernel put there; not the ones that only fill a class without its own."""
        return list(self._dump(RTM_GETQDISC, index))

    def root(self, index: int) -> Node | None:
        return next((qdisc for qdisc in self.qdiscs(index) if qdisc.parent == ROOT), None)

    def classes(self, index: int) -> list[Node]:
        return list(self._dump(RTM_GETTCLASS, index))

    def filters(self, index: int, parent: int) -> list[Node]:
        return list(self._dump(RTM_GETTFILTER, index, parent))

    def put_qdisc(self, index: int, qdisc: Node) -> None:
        """Add it, or change the one of that handle; another at its place goes."""
        self._request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, index, qdisc)

    def change_qdisc(self, index: int, qdisc: Node) -> None:
        """Only if one of that handle is there."""
        self._request(RTM_NEWQDISC, NLM_F_REPLACE, index, qdisc)

    def delete_qdisc(self, index: int, qdisc: Node) -> None:
        self._request(RTM_DELQDISC, 0, index, Node("", qdisc.handle, qdisc.parent))

    def add_class(self, index: int, node: Node) -> None:
        self._request(RTM_NEWTCLASS, NLM_F_CREATE | NLM_F_EXCL, index, node)

    def add_filter(self, index: int, node: Node) -> None:
        self._request(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, index, node)

    def delete_filters(self, index: int, parent: int, info: int) -> None:
        """All of one priority and protocol."""
        self._request(RTM_DELTFILTER, 0, index, Node("", 0, parent, info=info))

    def _dump(self, kind: int, index: int, parent: int = 0) -> Iterator[Node]:
        message = _Message()
        message["index"], message["parent"] = index, parent
        for answer in self._socket.nlm_request(message, kind, NLM_F_REQUEST | NLM_F_DUMP):
            if answer["index"] != index:
                continue
            stats = answer.get_attr("TCA_STATS")
            yield Node(
                str(answer.get_attr("TCA_KIND")),
                answer["handle"],
                answer["parent"],
                bytes(answer.get_attr("TCA_OPTIONS") or b""),
                answer["info"],
                bytes(answer.get_attr("TCA_STAB") or b""),
                struct.unpack_from("=I", stats, _DROPS_AT)[0] if stats else 0,
            )

    def _request(self, kind: int, flags: int, index: int, node: Node) -> None:
        message = _Message()
        message["family"], message["index"] = socket.AF_UNSPEC, index
        message["handle"], message["parent"], message["info"] = node.handle, node.parent, node.info
        attributes: list[tuple[str, Any]] = [("TCA_KIND", node.kind)] if node.kind else []
        if node.options:
            attributes.append(("TCA_OPTIONS", node.options))
        message["attrs"] = attributes
        self._socket.nlm_request(message, kind, NLM_F_REQUEST | NLM_F_ACK | flags)


def pack(attributes: Mapping[int, bytes]) -> bytes:
    """Netlink attributes, type to content, as bytes."""
    return b"".join(
        struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)
        for kind, value in attributes.items()
    )


def unpack(data: bytes) -> dict[int, bytes]:
    """The inverse of `pack`, flags of the types dropped."""
    attributes = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        attributes[kind & _TYPE] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return attributes
