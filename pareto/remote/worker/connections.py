"""This process' own TCP connections, whichever library opened them, and what the kernel says of each.

They are found in /proc/self/fd, and looked at through duplicates of their descriptors: no flag of a socket is touched.
For TCP_INFO see `struct tcp_info` in linux/tcp.h. Fields were only ever added at its end: an older kernel's is shorter.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pareto.protocol.jsonlines import Refused
from pareto.protocol.trial_messages import TcpConnection
from pareto.remote.worker.sensors.energy import text

_INFO_BYTES = 512
_ESTABLISHED = 1
_UNKNOWN_MIN_RTT = 0xFFFFFFFF


@dataclass(frozen=True)
class Connection:
    """A connection at one moment. None: not measured, or not reported by this kernel. acked_bytes, retransmits
    (segments): since it was opened. rtt_s: smoothed. min_rtt_s: the least of the last minutes. delivery_rate_bps: the
    latest, of payload."""

    congestion: str
    acked_bytes: int | None
    retransmits: int | None
    cwnd_packets: int | None
    rtt_s: float | None
    min_rtt_s: float | None
    delivery_rate_bps: float | None

    @classmethod
    def of(cls, info: bytes, congestion: str) -> Connection:
        """The connection that a TCP_INFO structure describes."""

        def field(offset: int, kind: str = "=I") -> int | None:
            whole = offset + struct.calcsize(kind) <= len(info)
            return int(struct.unpack_from(kind, info, offset)[0]) if whole else None

        rtt_us, min_rtt_us, rate = field(68), field(148), field(160, "=Q")
        return cls(
            congestion,
            acked_bytes=field(120, "=Q"),
            retransmits=field(100),
            cwnd_packets=field(80),
            rtt_s=rtt_us * 1e-6 if rtt_us else None,
            min_rtt_s=min_rtt_us * 1e-6 if min_rtt_us not in (None, 0, _UNKNOWN_MIN_RTT) else None,
            delivery_rate_bps=8.0 * rate if rate else None,
        )


def to(peer: str) -> dict[int, Connection]:
    """The established connections to an address, by their sockets' inodes."""
    wanted = _plain(peer)
    established = {}
    for inode, sock in _sockets():
        with contextlib.suppress(OSError):  # not connected, or closed just now
            if _plain(sock.getpeername()[0]) == wanted:
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
                named = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).partition(b"\0")[0]
                if info[0] == _ESTABLISHED:
                    established[inode] = Connection.of(info, named.decode())
    return established


def carried(before: Mapping[int, Connection], after: Mapping[int, Connection]) -> TcpConnection | None:
    """The kernel's figures for the connections on which a peer acknowledged something between two looks. Times and rate
    are the busiest one's: rates are of different moments, and their sum may be above the link's."""

    def since(inode: int, field: str) -> int | None:
        end = getattr(after[inode], field)
        return None if end is None else end - (getattr(before.get(inode), field, None) or 0)

    acked = {inode: since(inode, "acked_bytes") or 0 for inode in after}
    if not acked:
        return None
    busiest = max(acked, key=acked.__getitem__)
    used = [inode for inode in acked if acked[inode] > 0] or [busiest]
    return TcpConnection(
        congestion=after[busiest].congestion,
        tcp_connections=len(used),
        tcp_retransmits=_sum(since(inode, "retransmits") for inode in used),
        tcp_cwnd_packets=_sum(after[inode].cwnd_packets for inode in used),
        tcp_rtt_s=after[busiest].rtt_s,
        tcp_min_rtt_s=after[busiest].min_rtt_s,
        tcp_delivery_rate_bps=after[busiest].delivery_rate_bps,
    )


def _sum(figures: Iterable[int | None]) -> int | None:
    """The sum of the known figures; None where none is known."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def require_congestion(name: str) -> None:
    """Raises Refused where this process may not use that congestion control, with what to do about it."""
    with socket.socket() as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except PermissionError:
            allowed = _sysctl("tcp_allowed_congestion_control")
            raise Refused(
                f"congestion control {name} is not allowed here, {' and '.join(allowed.split())} may be used; allow it "
                f'with: sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="{allowed} {name}"'
            ) from None
        except OSError:
            there_is = _sysctl("tcp_available_congestion_control")
            raise Refused(
                f"congestion control {name} is not in this kernel, which has {' and '.join(there_is.split())}; "
                f"perhaps there is a module of it: sudo modprobe tcp_{name}"
            ) from None


def set_congestion(name: str) -> None:
    """Have every TCP socket of this process use it; those of listeners hand it on to what they accept."""
    for _, sock in _sockets():
        with contextlib.suppress(OSError):  # closed just now
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())


def _sockets() -> Iterator[tuple[int, socket.socket]]:
    """Every TCP socket of this process, duplicated, and its inode, which is its own as long as it lives."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        try:
            # Sockets alone: closing a file's duplicate would give up this process' locks on the file.
            if not str(entry.readlink()).startswith("socket:"):
                continue
            fd = os.dup(int(entry.name))
        except OSError:  # closed just now
            continue
        try:
            sock = socket.socket(fileno=fd)
        except OSError:  # its number was given to something else meanwhile
            os.close(fd)
            continue
        with sock:
            if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM:
                yield os.fstat(fd).st_ino, sock


def _sysctl(name: str) -> str:
    return text(Path("/proc/sys/net/ipv4", name)) or "its default"


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address, with IPv4 mapped into IPv6 turned back into IPv4."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed
