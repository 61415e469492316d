"""Segmentation offloads of an interface, through the ioctl that ethtool uses (linux/ethtool.h).

With TSO and GSO the kernel hands 64 kB super-packets to the qdisc or the relay, which release each as one packet: a
burst that no slow link would let through. GRO glues packets together on arrival.
"""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct

from pareto.remote.link.profile import Direction

SLOW_BPS = 200e6
"""Below this rate offloads are in the way; above it a super-packet passes in under 3 ms, and costs less CPU."""

Offloads = dict[str, bool]

_SIOCETHTOOL = 0x8946
_COMMANDS = {"tso": (0x1E, 0x1F), "gso": (0x23, 0x24), "gro": (0x2B, 0x2C)}  # ETHTOOL_G..., ETHTOOL_S...
OFF: Offloads = dict.fromkeys(_COMMANDS, False)


def read(interface: str) -> Offloads:
    """The state of tso, gso and gro, by name: true if on. An interface that knows none has them off. Raises OSError."""
    return {name: bool(_ethtool(interface, get)) for name, (get, _) in _COMMANDS.items()}


def write(interface: str, wanted: Offloads) -> Offloads:
    """Switch those that differ, and return the state before. Needs CAP_NET_ADMIN; raises OSError."""
    before = read(interface)
    for name, on in wanted.items():
        if on != before[name]:
            _ethtool(interface, _COMMANDS[name][1], int(on))
    return before


def too_coarse(direction: Direction) -> bool:
    """Whether super-packets would falsify this direction: one takes a slow line's time at once, is lost as a whole, and
    fills a queue that counts packets with forty times as much."""
    steps = direction.trace.steps if direction.trace is not None else (direction,)
    slow = any(step.rate_bps is not None and step.rate_bps < SLOW_BPS for step in steps)
    return slow or direction.impaired or direction.limit_bytes is not None


def _ethtool(interface: str, command: int, value: int = 0) -> int:
    """The reply to one ethtool request; 0 where the interface does not support it."""
    argument = array.array("B", struct.pack("=II", command, value))
    request = struct.pack("16sP16x", interface.encode(), argument.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return 0
    return int(struct.unpack("=II", argument.tobytes())[1])
