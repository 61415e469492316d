"""One netem qdisc as the root of one interface: put on, read back, taken off.

All through netlink in the namespace of the calling thread; needs CAP_NET_ADMIN and, for netem, sch_netem.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import threading
from dataclasses import dataclass
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from pareto.link.profile import Direction

NO_NETEM = (
    "this kernel has no sch_netem: install it (Debian, Ubuntu and Raspberry Pi OS ship it with their kernels; "
    "Fedora in kernel-modules-extra), or use the local testbed, whose relay needs none"
)

_ROOT = 0xFFFFFFFF
_HANDLE = 0x70610000  # ours is known by it, even to a helper that came after one that was killed
_DEFAULTS = ("noqueue", "pfifo_fast", "fq_codel", "fq", "mq", "noop")  # what the kernel puts back by itself
_TICK_NS = 64  # the kernel's PSCHED_SHIFT is 6
_CLONE_NEWNET = 0x40000000

_FREE_RATE_BPS = 10e9  # what an unlimited link is taken to carry when its queue is sized
_SLACK_PACKETS = 20_000  # a few TCP connections with full windows (tcp_wmem's default maximum is 4 MiB)
_PACKET_BYTES = 1514


class QdiscError(RuntimeError):
    """An interface that cannot be shaped: one line that says why and what to do."""


@dataclass(frozen=True)
class Netem:
    """netem's fields in its own units: ticks of 64 ns, bytes a second (0: not limited), packets."""

    delay_ticks: int
    rate_bytes: int
    limit_packets: int

    @classmethod
    def of(cls, direction: Direction) -> Netem:
        rate_bps = direction.rate_bps
        in_flight = (rate_bps or _FREE_RATE_BPS) / 8 * direction.delay_s
        return cls(
            round(direction.delay_s * 1e9 / _TICK_NS),
            0 if rate_bps is None else round(rate_bps / 8),
            # Twice what is in flight, and room for the queue that a sender without loss builds.
            int(2 * in_flight / _PACKET_BYTES) + _SLACK_PACKETS,
        )

    @property
    def direction(self) -> Direction:
        """In seconds and bit/s, to the resolution of the kernel's units."""
        return Direction(self.delay_ticks * _TICK_NS / 1e9, self.rate_bytes * 8.0 or None)


def supported() -> bool:
    """Whether this kernel has netem, tried on the loopback of a namespace that lives for the moment.

    Raises PermissionError for who is not root.
    """
    outcome: list[OSError | NetlinkError | None] = []

    def attempt() -> None:
        # A namespace belongs to the thread that unshared it, and ends with it.
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            if libc.unshare(_CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "cannot make a network namespace: run it as root")
            with IPRoute() as ip:
                _put(ip, ip.link_lookup(ifname="lo")[0], Netem.of(Direction(delay_s=0.001)))
        except (OSError, NetlinkError) as error:
            outcome.append(error)
        else:
            outcome.append(None)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    if outcome == [None]:
        return True
    if outcome and isinstance(outcome[0], NetlinkError) and outcome[0].code == errno.ENOENT:
        return False
    raise outcome[0] if outcome and outcome[0] else RuntimeError("the probe for sch_netem died")


def apply(interface: str, direction: Direction) -> Netem:
    """Make a netem with delay and rate the interface's root, or change ours; returns what a dump then says.

    Raises QdiscError where another root qdisc was set by somebody, where netem is missing, or where the kernel
    reports something else than was asked (nothing of ours is left then).
    """
    wanted = Netem.of(direction)
    with IPRoute() as ip:
        index = index_of(interface)
        _refuse_foreign(_root(ip, index), interface)
        try:
            _put(ip, index, wanted)
        except NetlinkError as error:
            raise QdiscError(_explain(error, interface)) from None
        found = _read(_root(ip, index))
        if found != wanted:
            _delete(ip, index)
            raise QdiscError(f"asked {interface} for {wanted}, the kernel reports {found}: removed")
    return wanted


def remove(interface: str) -> bool:
    """Take our qdisc off, if it is on; any other is left alone. Raises QdiscError without such an interface."""
    with IPRoute() as ip:
        index = index_of(interface)
        if not _is_ours(_root(ip, index)):
            return False
        _delete(ip, index)
        return True


def require_plain(interface: str) -> None:
    """Raises QdiscError where a root qdisc set by somebody else may shape what is called unshaped."""
    with IPRoute() as ip:
        _refuse_foreign(_root(ip, index_of(interface)), interface)


def drops(interface: str) -> int:
    """Packets that our qdisc dropped since it was put on. Raises QdiscError if it is not on."""
    with IPRoute() as ip:
        root = _root(ip, index_of(interface))
    if not _is_ours(root):
        raise QdiscError(f"{interface} is not shaped by this program")
    return int(root.get_attr("TCA_STATS2").get_attr("TCA_STATS_QUEUE")["drops"])


def _put(ip: IPRoute, index: int, netem: Netem) -> None:
    """Add or change, with the attributes spelled out: pyroute2's own `rate` also sets the rate estimator."""
    # The rate is always sent: without the attribute netem keeps the one it had.
    rate = {"rate": netem.rate_bytes, "packet_overhead": 0, "cell_size": 0, "cell_overhead": 0}
    options = {
        "delay": netem.delay_ticks,
        "limit": netem.limit_packets,
        **dict.fromkeys(("loss", "gap", "duplicate", "jitter"), 0),
        "attrs": [("TCA_NETEM_RATE", rate)],
    }
    attributes = [("TCA_KIND", "netem"), ("TCA_OPTIONS", options)]
    ip.tc("replace", index=index, handle=_HANDLE, parent=_ROOT, attrs=attributes)


def _delete(ip: IPRoute, index: int) -> None:
    # By its handle: with `root=True` pyroute2 names the handle 1:, which the kernel refuses for any other.
    ip.tc("del", index=index, handle=_HANDLE, parent=_ROOT)


def _read(root: Any) -> Netem | str:
    """The root qdisc as Netem, or in words where it is anything else."""
    if not _is_ours(root):
        return _kind(root)
    options = root.get_attr("TCA_OPTIONS")
    extra = [name for name in ("loss", "gap", "duplicate", "jitter") if options[name]]
    if extra:
        return f"netem with {', '.join(extra)}"
    rate = options.get_attr("TCA_NETEM_RATE")
    return Netem(options["delay"], rate["rate"] if rate else 0, options["limit"])


def _root(ip: IPRoute, index: int) -> Any:
    for qdisc in ip.get_qdiscs(index=index):
        if qdisc["parent"] == _ROOT:
            return qdisc
    return None


def _kind(root: Any) -> str:
    return "noqueue" if root is None else str(root.get_attr("TCA_KIND"))


def _is_ours(root: Any) -> bool:
    return root is not None and root["handle"] == _HANDLE and _kind(root) == "netem"


def index_of(interface: str) -> int:
    """The interface's number. Raises QdiscError if there is none of that name."""
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise QdiscError(f"there is no interface {interface!r} here: there are {names}") from None


def _refuse_foreign(root: Any, interface: str) -> None:
    # The kernel's own have handle 0; one that was configured would not come back by itself.
    by_kernel = root is None or (root["handle"] == 0 and _kind(root) in _DEFAULTS)
    if not by_kernel and not _is_ours(root):
        raise QdiscError(
            f"{interface} already has a root qdisc {_kind(root)}, set by somebody else: it is left alone. "
            f"Remove it (tc qdisc del dev {interface} root) or choose another data interface"
        )


def _explain(error: NetlinkError, interface: str) -> str:
    if error.code == errno.ENOENT:
        return NO_NETEM
    if error.code in (errno.EPERM, errno.EACCES):
        return f"shaping {interface} needs root (or CAP_NET_ADMIN)"
    return f"the kernel refused netem on {interface}: {os.strerror(error.code)}"
