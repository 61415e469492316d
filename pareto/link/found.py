"""An interface as it was found, and how it becomes that again."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pareto.link import offload, qdisc, snapshot, steering
from pareto.link.netem import QdiscError
from pareto.link.snapshot import Snapshot
from pareto.link.tc import TrafficControl


@dataclass(frozen=True)
class Found:
    """`root` is None where the kernel's default was. `ingress` says that what arrives is, or may be, steered by us."""

    index: int
    offloads: offload.Offloads
    root: Snapshot | None = None
    ingress: bool = False

    def put_back(self, interface: str) -> list[str]:
        """Undo what is ours; says what is not as it was because somebody changed it meanwhile.

        Raises QdiscError, NetlinkError or OSError.
        """
        if dict(socket.if_nameindex()).get(self.index) != interface:
            steering.delete_ifb(self.index)
            return ["the interface itself is gone"]
        left: list[str] = []
        # From the last to the first, each whatever becomes of the others.
        with ExitStack() as undo:
            undo.callback(offload.write, interface, self.offloads)
            control = undo.enter_context(TrafficControl())
            undo.callback(lambda: left.append(self._put_root(control, interface)))
            if self.ingress:
                undo.callback(lambda: left.append(steering.stop_ingress(control, interface)))
        return [line for line in left if line]

    def _put_root(self, control: TrafficControl, interface: str) -> str:
        root = control.root(self.index)
        if root is not None and not qdisc.is_ours(root) and not qdisc.by_kernel(root):
            if Snapshot.read(control, self.index) == self.root:
                return ""
            return f"its root qdisc is now a {root.kind}, set by somebody else: it is left alone"
        qdisc.clear(control, self.index)
        if self.root is not None:
            with qdisc.explained(interface, self.root.kind):
                self.root.put(control, self.index)
            if Snapshot.read(control, self.index) != self.root:
                raise QdiscError(f"{interface} has its root qdisc {self.root.kind} back, but not as it was")
        return ""

    def to_dict(self) -> dict[str, Any]:
        root = self.root.to_dict() if self.root else None
        return {"index": self.index, "offloads": self.offloads, "root": root, "ingress": self.ingress}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Found:
        root = fields["root"]
        return cls(
            fields["index"], fields["offloads"], Snapshot.from_dict(root) if root else None, fields["ingress"]
        )


def look(interface: str) -> Found:
    """The interface as it is. Raises QdiscError where somebody's qdiscs on it could not be put back, or OSError."""
    index = qdisc.index_of(interface)
    with TrafficControl() as control:
        return Found(index, offload.read(interface), snapshot.take(control, interface))
