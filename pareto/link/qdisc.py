"""Our qdiscs on one device: a chain from its root down, put on, read back, taken off.

All through netlink in the namespace of the calling thread; needs CAP_NET_ADMIN and, for netem, sch_netem.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyroute2.netlink.exceptions import NetlinkError

from pareto.link import tc
from pareto.link.netem import Layer, Netem, Prio, QdiscError, Tbf
from pareto.link.tc import Node, TrafficControl

FIRST_HANDLE = 0x7061
"""The chain's handles are 7061:, 7062:, ...: ours is known by them, even to a helper that came after one that was
killed."""

NO_NETEM = (
    "this kernel has no sch_netem: install it (Debian, Ubuntu and Raspberry Pi OS ship it with their kernels; "
    "Fedora in kernel-modules-extra), or use the local testbed, whose relay needs none"
)

_LAYERS: tuple[type[Netem] | type[Tbf] | type[Prio], ...] = (Netem, Tbf, Prio)
_LONGEST_CHAIN = 4
_CLONE_NEWNET = 0x40000000
_MODULES = {"u32": "cls_u32", "mirred": "act_mirred", "ifb": "ifb"}  # the others are sch_ and their name


def supported() -> bool:
    """Whether this kernel has netem, tried on the loopback of a namespace that lives for the moment.

    Raises PermissionError for who is not root.
    """
    try:
        in_throwaway_namespace(
            lambda control, index: control.put_qdisc(index, nodes([Netem(15_625, 1000)])[0])
        )
    except NetlinkError as error:
        if error.code == errno.ENOENT:
            return False
        raise
    return True


def in_throwaway_namespace(attempt: Callable[[TrafficControl, int], None]) -> None:
    """Try something on the loopback of a network namespace that lives for the moment. Raises what it raises."""
    failures: list[BaseException] = []

    def enter() -> None:
        # A namespace belongs to the thread that unshared it, and ends with it.
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            if libc.unshare(_CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "cannot make a network namespace: run it as root")
            with TrafficControl() as control:
                attempt(control, socket.if_nametoindex("lo"))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def apply(control: TrafficControl, interface: str, chain: Sequence[Layer], *, anew: bool = False) -> bool:
    """Make the chain the interface's root, whatever was there, and compare it with what a dump then says.

    Where qdiscs of ours of the same kinds are there they are changed, and what they hold stays, unless they are
    asked for `anew`. Returns whether they were made: they have no filters then. Raises QdiscError where the kernel
    refuses, or reports something else than was asked: nothing of ours is left then.
    """
    index = index_of(interface)
    anew = anew or [node.kind for node in ours(control, index)] != [layer.KIND for layer in chain]
    try:
        if anew:
            clear(control, index)
        for node in nodes(chain):
            with explained(interface, node.kind):
                control.put_qdisc(index, node)
        found = read(control, index)
        if found != list(chain):
            raise QdiscError(f"asked {interface} for {list(chain)}, the kernel reports {found}: removed")
    except QdiscError:
        remove(control, index)
        raise
    return anew


def read(control: TrafficControl, index: int) -> list[Layer | str]:
    """Our chain as it is, from the root down; in words where a qdisc is not as we ever set it."""
    kinds = {layer.KIND: layer for layer in _LAYERS}
    return [
        kinds[node.kind].read(node.options) if node.kind in kinds else node.kind
        for node in ours(control, index)
    ]


def ours(control: TrafficControl, index: int) -> list[Node]:
    """The qdiscs of our chain that are there, from the root down."""
    found = {qdisc.handle >> 16: qdisc for qdisc in control.qdiscs(index)}
    root = found.get(FIRST_HANDLE)
    if root is None or not is_ours(root):
        return []
    return [found[handle] for handle in range(FIRST_HANDLE, FIRST_HANDLE + _LONGEST_CHAIN) if handle in found]


def is_ours(root: Node | None) -> bool:
    return (
        root is not None
        and root.handle == FIRST_HANDLE << 16
        and root.parent == tc.ROOT
        and root.kind in (Netem.KIND, Prio.KIND)
    )


def by_kernel(root: Node | None) -> bool:
    """Whether the kernel put it there and would do so again: nobody chose it, so it has no handle."""
    return root is None or root.handle == 0


def remove(control: TrafficControl, index: int) -> bool:
    """Take our chain off, if it is on; the kernel puts its default there. Any other root is left alone."""
    root = control.root(index)
    if root is None or not is_ours(root):
        return False
    control.delete_qdisc(index, root)
    return True


def clear(control: TrafficControl, index: int) -> None:
    """Leave the kernel's default as root, whatever was there."""
    # Not put over it: a netem that duplicates suffers no other beside it, not even for that moment.
    root = control.root(index)
    if root is not None and not by_kernel(root):
        control.delete_qdisc(index, root)


def refuse_foreign(interface: str, root: Node | None, reason: str = "") -> None:
    """Raises QdiscError where a root qdisc is neither the kernel's own nor ours."""
    if root is not None and not by_kernel(root) and not is_ours(root):
        raise QdiscError(
            f"{interface} already has a root qdisc {root.kind}, set by somebody else: it is left alone{reason}. "
            f"Remove it (tc qdisc del dev {interface} root) or choose another data interface"
        )


def drops(control: TrafficControl, index: int) -> int:
    """Packets that our chain dropped since it was put on."""
    # The first netem's: it counts what its children drop as well, but prio does not count what netem loses at random.
    return next((node.drops for node in ours(control, index) if node.kind == Netem.KIND), 0)


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
        raise QdiscError(_explain(error, interface, kind)) from None


def nodes(chain: Sequence[Layer]) -> list[Node]:
    """The chain as the kernel takes it, from the root down."""
    made, parent = [], tc.ROOT
    for number, layer in enumerate(chain):
        handle = (FIRST_HANDLE + number) << 16
        made.append(Node(layer.KIND, handle, parent, layer.options()))
        parent = handle | layer.CHILD
    return made


def said(error: NetlinkError) -> str:
    """The error's name, and the kernel's own words for it where it has any."""
    words = f" ({error.args[1]})" if len(error.args) > 1 and error.args[1] else ""
    return os.strerror(error.code) + words


def _explain(error: NetlinkError, interface: str, kind: str) -> str:
    if error.code in (errno.EPERM, errno.EACCES):
        return f"shaping {interface} needs root (or CAP_NET_ADMIN)"
    if error.code == errno.ENOENT and kind == Netem.KIND:
        return NO_NETEM
    if error.code in (errno.ENOENT, errno.EOPNOTSUPP):
        module = _MODULES.get(kind, f"sch_{kind}")
        return (
            f"this kernel has no {module}, which shaping {interface} needs here: load it (modprobe {module}), or "
            "install it (Debian and Ubuntu ship it with their kernels; Fedora in kernel-modules-extra)"
        )
    return f"the kernel refused {kind} on {interface}: {said(error)}"
