"""A root qdisc that somebody else put there: written down before ours replaces it, put back as it was.

What the kernel tells of a qdisc is not always all of it. So only kinds whose telling is known to be complete are
taken, and each is first put together again on an interface that nobody uses, and compared.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from pareto.link import qdisc, tc
from pareto.link.netem import QdiscError
from pareto.link.tc import Node, TrafficControl

KINDS = ("tbf", "fq_codel", "pfifo", "bfifo", "prio", "htb", "netem")

# linux/pkt_sched.h
_HTB_INIT, _HTB_INIT_LAYOUT, _HTB_VERSION = 2, "=5I", 3
_CODEL_TIMES = (1, 3, 7)  # TCA_FQ_CODEL_TARGET, _INTERVAL, _CE_THRESHOLD, in microseconds
_NETEM_FIXED = struct.Struct("=6I")
_NETEM_SLOT = 9


@dataclass(frozen=True)
class Snapshot:
    """A tree of qdiscs, its root first, and the classes that somebody made in it."""

    qdiscs: tuple[Node, ...]
    classes: tuple[Node, ...]

    @property
    def kind(self) -> str:
        return self.qdiscs[0].kind

    @classmethod
    def read(cls, control: TrafficControl, index: int) -> Snapshot | None:
        """What is on the interface now; None where the kernel's own default is."""
        root = control.root(index)
        if root is None or qdisc.by_kernel(root):
            return None
        # Those without a handle the kernel makes by itself; so it does the classes of any kind but htb.
        below = (
            node for node in control.qdiscs(index) if node.handle and node.parent not in (tc.ROOT, tc.INGRESS)
        )
        classes = (node for node in control.classes(index) if node.kind == "htb")
        return cls((settable(root), *_sorted(below)), _sorted(classes))

    def put(self, control: TrafficControl, index: int) -> None:
        """Make it the root. Raises NetlinkError."""
        made: set[int] = set()
        waiting = list(self.qdiscs)
        while waiting:
            node = next(node for node in waiting if node.parent == tc.ROOT or node.parent >> 16 in made)
            waiting.remove(node)
            control.put_qdisc(index, node)
            self._put_classes(control, index, node.handle >> 16)
            made.add(node.handle >> 16)

    def _put_classes(self, control: TrafficControl, index: int, major: int) -> None:
        waiting = [node for node in self.classes if node.handle >> 16 == major]
        while waiting:
            names = {node.handle for node in waiting}
            node = next(node for node in waiting if node.parent not in names)  # its parent is there
            waiting.remove(node)
            control.add_class(index, node)

    def to_dict(self) -> dict[str, Any]:
        return {"qdiscs": _written(self.qdiscs), "classes": _written(self.classes)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Snapshot:
        return cls(_unwritten(fields["qdiscs"]), _unwritten(fields["classes"]))


def take(control: TrafficControl, interface: str) -> Snapshot | None:
    """What is on the interface, proven to be restorable (None: the kernel's default, or ours).

    Raises QdiscError where it cannot be put back as it is.
    """
    index = qdisc.index_of(interface)
    root = control.root(index)
    if qdisc.is_ours(root):
        return None
    found = Snapshot.read(control, index)
    if found is None:
        return None
    reason = _unfaithful(control, index, found)
    if reason:
        qdisc.refuse_foreign(interface, root, f", for {reason}")
    return found


def _unfaithful(control: TrafficControl, index: int, found: Snapshot) -> str:
    """Why this cannot be put back as it is, or nothing."""
    for node in found.qdiscs:
        if node.kind not in KINDS:
            return f"a {node.kind} cannot be put back as it was"
        if node.size_table:
            return "its size table cannot be put back"
        if node.kind == "netem" and _has_distribution(node.options):
            return "the distribution of its jitter cannot be read"
    for node in (*found.qdiscs, *found.classes):
        if control.filters(index, node.handle):
            return "its filters cannot be put back"
    try:
        qdisc.in_throwaway_namespace(lambda *there: _rehearse(found, *there))
    except (NetlinkError, QdiscError):
        return "it could not be put together again"
    return ""


def _has_distribution(netem: bytes) -> bool:
    """Whether it may have one: the kernel uses it, but never tells it."""
    jitter_ticks = _NETEM_FIXED.unpack_from(netem)[5]
    return bool(jitter_ticks) or _NETEM_SLOT in tc.unpack(netem[_NETEM_FIXED.size :])


def _rehearse(found: Snapshot, control: TrafficControl, index: int) -> None:
    found.put(control, index)
    if Snapshot.read(control, index) != found:
        raise QdiscError("what was put together differs")


def _sorted(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(sorted((settable(node) for node in nodes), key=lambda node: node.handle))


def settable(node: Node) -> Node:
    """As the kernel takes it: without what it counts, and where it wants to be told otherwise than it tells."""
    attributes = {} if node.kind not in ("htb", "fq_codel") else tc.unpack(node.options)
    if node.kind == "htb" and _HTB_INIT in attributes:
        _, quantum, default, debug, _ = struct.unpack(_HTB_INIT_LAYOUT, attributes[_HTB_INIT])
        attributes[_HTB_INIT] = struct.pack(_HTB_INIT_LAYOUT, _HTB_VERSION, quantum, default, debug, 0)
    for kind in _CODEL_TIMES if node.kind == "fq_codel" else ():
        if kind in attributes:
            told = struct.unpack("=I", attributes[kind])[0]
            attributes[kind] = struct.pack("=I", _codel_time(told))
    return replace(node, options=tc.pack(attributes) if attributes else node.options, info=0, drops=0)


def _codel_time(told_us: int) -> int:
    """The microseconds that codel, which keeps units of 1024 ns, tells as these: it rounds down both ways."""
    return next(us for us in (told_us, told_us + 1) if (us * 1000 >> 10) * 1024 // 1000 == told_us)


def _written(nodes: Iterable[Node]) -> list[dict[str, Any]]:
    return [
        {"kind": node.kind, "handle": node.handle, "parent": node.parent, "options": node.options.hex()}
        for node in nodes
    ]


def _unwritten(fields: Iterable[Mapping[str, Any]]) -> tuple[Node, ...]:
    return tuple(
        Node(each["kind"], each["handle"], each["parent"], bytes.fromhex(each["options"])) for each in fields
    )
