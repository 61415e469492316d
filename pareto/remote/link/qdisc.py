"""The kernel's traffic control over netlink: qdiscs and filters of a device, and the chain of qdiscs that is ours.

Options are bytes, as the kernel has them: pyroute2 0.9.7 does the sockets, the framing and the errors, but does not
know netem's burst losses and seed. Everything acts in the network namespace of the calling thread, needs
CAP_NET_ADMIN and, for netem, sch_netem. A refusal by the kernel is a NetlinkError.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyroute2 import netlink
from pyroute2.netlink import rtnl
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nlsocket import NetlinkSocket
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from pareto.remote.link.netem import Layer, Netem, Prio, QdiscError, Tbf

ROOT, INGRESS = 0xFFFFFFFF, 0xFFFFFFF1
INGRESS_HANDLE = 0xFFFF0000
FIRST_HANDLE = 0x7061
"""The chain's handles are 7061:, 7062:, ...: ours is known by them, even to a helper that came after one that was
killed."""

NO_NETEM = (
    "this kernel has no sch_netem: install it (Debian, Ubuntu and Raspberry Pi OS ship it with their kernels; "
    "Fedora in kernel-modules-extra), or use the local testbed, whose relay needs none"
)

_LAYERS: dict[str, type[Netem] | type[Tbf] | type[Prio]] = {kind.KIND: kind for kind in (Netem, Tbf, Prio)}
_LONGEST_CHAIN = 4
_CLONE_NEWNET = 0x40000000
_MODULES = {"u32": "cls_u32", "mirred": "act_mirred", "ifb": "ifb"}  # the others are sch_ and their name
_DROPS_AT = 12  # in struct tc_stats

# What `TrafficControl.ask` asks for. A delete of filters takes all of one priority and protocol.
PUT = rtnl.RTM_NEWQDISC, netlink.NLM_F_CREATE | netlink.NLM_F_REPLACE
"""Adds a qdisc, or changes the one of that handle; another at its place goes."""
CHANGE = rtnl.RTM_NEWQDISC, netlink.NLM_F_REPLACE
"""Changes the qdisc of that handle; an error where there is none."""
DELETE = rtnl.RTM_DELQDISC, 0
ADD_FILTER = rtnl.RTM_NEWTFILTER, netlink.NLM_F_CREATE | netlink.NLM_F_EXCL
DELETE_FILTERS = rtnl.RTM_DELTFILTER, 0


class _Message(netlink.nlmsg):  # type: ignore[misc]  # pyroute2 has no types
    """tcmsg with its options undecoded."""

    prefix = "TCA_"
    fields = tcmsg.fields
    nla_map = (
        ("TCA_UNSPEC", "none"),
        ("TCA_KIND", "asciiz"),
        ("TCA_OPTIONS", "cdata"),
        ("TCA_STATS", "cdata"),
    )


@dataclass(frozen=True)
class Node:
    """A qdisc or filter. Handles are 32 bits, ``7061:2`` is 0x70610002. `info`: a filter's priority and protocol."""

    kind: str
    handle: int
    parent: int
    options: bytes = b""
    info: int = 0
    drops: int = field(default=0, compare=False)


class TrafficControl(AbstractContextManager["TrafficControl"]):
    """A netlink socket for qdiscs and filters; a context manager."""

    def __init__(self) -> None:
        self._socket = NetlinkSocket(family=netlink.NETLINK_ROUTE, ext_ack=True, nlm_generator=False)
        self._socket.bind()
        self._socket.register_policy(dict.fromkeys((PUT[0], ADD_FILTER[0]), _Message))

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def qdiscs(self, index: int) -> list[Node]:
        """The interface's qdiscs, without those that the kernel puts below a class by itself."""
        return list(self._dump(rtnl.RTM_GETQDISC, index))

    def at(self, index: int, parent: int) -> Node | None:
        """The interface's qdisc at ROOT or INGRESS."""
        return next((qdisc for qdisc in self.qdiscs(index) if qdisc.parent == parent), None)

    def filters(self, index: int, parent: int) -> list[Node]:
        return list(self._dump(rtnl.RTM_GETTFILTER, index, parent))

    def ask(self, what: tuple[int, int], index: int, node: Node) -> None:
        """Have the kernel do it with the interface's node."""
        kind, flags = what
        message = _Message()
        message["family"], message["index"] = socket.AF_UNSPEC, index
        message["handle"], message["parent"], message["info"] = node.handle, node.parent, node.info
        attributes = (("TCA_KIND", node.kind), ("TCA_OPTIONS", node.options)) if flags else ()
        message["attrs"] = [attribute for attribute in attributes if attribute[1]]
        self._socket.nlm_request(message, kind, netlink.NLM_F_REQUEST | netlink.NLM_F_ACK | flags)

    def _dump(self, kind: int, index: int, parent: int = 0) -> Iterator[Node]:
        message = _Message()
        message["index"], message["parent"] = index, parent
        for answer in self._socket.nlm_request(message, kind, netlink.NLM_F_REQUEST | netlink.NLM_F_DUMP):
            if answer["index"] != index:
                continue
            stats = answer.get_attr("TCA_STATS")
            yield Node(
                str(answer.get_attr("TCA_KIND")),
                answer["handle"],
                answer["parent"],
                bytes(answer.get_attr("TCA_OPTIONS") or b""),
                answer["info"],
                struct.unpack_from("=I", stats, _DROPS_AT)[0] if stats else 0,
            )


def nodes(chain: Sequence[Layer]) -> list[Node]:
    """The chain as the kernel takes it, from the root down."""
    made, parent = [], ROOT
    for number, layer in enumerate(chain):
        handle = (FIRST_HANDLE + number) << 16
        made.append(Node(layer.KIND, handle, parent, layer.options()))
        parent = handle | layer.CHILD
    return made


def apply(control: TrafficControl, interface: str, chain: Sequence[Layer], *, anew: bool = False) -> bool:
    """Make the chain the interface's root, in place of ours or the kernel's default, and compare it with a dump.

    Where qdiscs of ours of the same kinds are there they are changed and keep what they hold, unless `anew`. Returns
    whether they were made: they have no filters then. Raises QdiscError where the kernel refuses, or reports something
    else than was asked for: nothing of ours is left then.
    """
    index = index_of(interface)
    anew = anew or [node.kind for node in ours(control, index)] != [layer.KIND for layer in chain]
    try:
        if anew:
            # Not put over it: a netem that duplicates suffers no other beside it, not even for that moment.
            remove(control, index)
        for node in nodes(chain):
            with explained(interface, node.kind):
                control.ask(PUT, index, node)
        in_force = read(control, index)
        if in_force != list(chain):
            raise QdiscError(f"asked {interface} for {list(chain)}, the kernel reports {in_force}: removed")
    except QdiscError:
        remove(control, index)
        raise
    return anew


def read(control: TrafficControl, index: int) -> list[Layer | str]:
    """Our chain as it is, from the root down; in words where a qdisc is not as we ever set it."""
    return [
        _LAYERS[node.kind].read(node.options) if node.kind in _LAYERS else node.kind
        for node in ours(control, index)
    ]


def ours(control: TrafficControl, index: int) -> list[Node]:
    """The qdiscs of our chain that are there, from the root down."""
    by_handle = {qdisc.handle >> 16: qdisc for qdisc in control.qdiscs(index)}
    if not is_ours(by_handle.get(FIRST_HANDLE)):
        return []
    handles = range(FIRST_HANDLE, FIRST_HANDLE + _LONGEST_CHAIN)
    return [by_handle[handle] for handle in handles if handle in by_handle]


def is_ours(root: Node | None) -> bool:
    place = FIRST_HANDLE << 16, ROOT
    return root is not None and (root.handle, root.parent) == place and root.kind in (Netem.KIND, Prio.KIND)


def remove(control: TrafficControl, index: int) -> str:
    """Take our chain off, if it is on; the kernel puts its default there. Says which other root is left alone."""
    root = control.at(index, ROOT)
    if root is not None and is_ours(root):
        control.ask(DELETE, index, root)
    kind = foreign(root)
    return kind and f"its root qdisc is now a {kind}, set by somebody else: it is left alone"


def foreign(root: Node | None) -> str:
    """The kind of a root qdisc that somebody else chose; empty for ours and for the kernel's own, without a handle."""
    return root.kind if root is not None and root.handle and not is_ours(root) else ""


def refuse_foreign(control: TrafficControl, interface: str) -> None:
    """Raises QdiscError where the interface has a root qdisc that is neither the kernel's own nor ours."""
    if kind := foreign(control.at(index_of(interface), ROOT)):
        raise QdiscError(
            f"{interface} already has a root qdisc {kind}, set by somebody else: it is left alone. "
            f"Remove it (tc qdisc del dev {interface} root) or choose another data interface"
        )


def drops(control: TrafficControl, index: int) -> int:
    """Packets that our chain dropped since it was put on."""
    # The first netem's: it counts what its children drop as well, but prio does not count what netem loses at random.
    return next((node.drops for node in ours(control, index) if node.kind == Netem.KIND), 0)


def supported() -> bool:
    """Whether this kernel has netem, tried on the loopback of a namespace that lives for the moment. Raises
    PermissionError for who is not root."""

    def attempt() -> None:
        with TrafficControl() as control:
            control.ask(PUT, socket.if_nametoindex("lo"), nodes([Netem(15_625, 1000)])[0])

    try:
        in_namespace(attempt)
    except NetlinkError as error:
        if error.code == errno.ENOENT:
            return False
        raise
    return True


def in_namespace(act: Callable[[], None], namespace: Path | None = None) -> None:
    """Call `act` in a network namespace: that of a file, or a new one, which ends with the call. Raises what it raises,
    and OSError."""
    with ExitStack() as undo:
        file = undo.enter_context(namespace.open()) if namespace else None

        def enter() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(file.fileno(), _CLONE_NEWNET) if file else libc.unshare(_CLONE_NEWNET):
                what = f"enter {namespace}" if namespace else "make a network namespace: run it as root"
                raise OSError(ctypes.get_errno(), f"cannot {what}")
            act()

        undo.enter_context(ThreadPoolExecutor(1)).submit(enter).result()


def index_of(interface: str) -> int:
    """The interface's number. Raises QdiscError if there is none of that name."""
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise QdiscError(f"there is no interface {interface!r} here: there are {names}") from None


@contextmanager
def explained(interface: str, kind: str) -> Iterator[None]:
    """Turn what the kernel refuses while a qdisc, filter or device of that kind is made into one line: QdiscError."""
    try:
        yield
    except NetlinkError as error:
        if error.code in (errno.EPERM, errno.EACCES):
            words = f"shaping {interface} needs root (or CAP_NET_ADMIN)"
        elif error.code == errno.ENOENT and kind == Netem.KIND:
            words = NO_NETEM
        elif error.code in (errno.ENOENT, errno.EOPNOTSUPP):
            module = _MODULES.get(kind, f"sch_{kind}")
            words = (
                f"this kernel has no {module}, which shaping {interface} needs here: load it (modprobe {module}), or "
                "install it (Debian and Ubuntu ship it with their kernels; Fedora in kernel-modules-extra)"
            )
        else:
            words = f"the kernel refused {kind} on {interface}: {in_words(error)}"
        raise QdiscError(words) from None


def in_words(error: NetlinkError) -> str:
    """The error's name, and the kernel's own words for it where it has any."""
    words = f" ({error.args[1]})" if len(error.args) > 1 and error.args[1] else ""
    return os.strerror(error.code) + words
