"""The relay: a link in user space, for machines whose kernel has no sch_netem.

``python -m pareto.remote.link.relay --edge IFACE --server IFACE`` runs as root in a network namespace between those
of two neighbours and forwards frames as a netem qdisc on each sender's egress would; in a chain of more hosts each
link has one, and `edge` is the neighbour on the edge's side. It speaks `pareto.protocol.jsonlines`:

- ``apply`` with the fields of a profile (`Profile.to_dict`) puts it in force for the frames that arrive from then
  on. It answers what is in force: each direction's fields and `limit_bytes`, the bucket, the scheduling policy.
- ``restart {"position_s": 5.0}`` begins the traces anew at that position.
- ``seed {"seed": 7}`` begins chance anew, in each direction: the same packets by number are lost, late and so on.
- ``stats`` counts packets since the start: forwarded (and their bytes on the wire), dropped by a full queue, and as the
  profile says lost, duplicated, reordered and corrupted. It says where the traces are, in how many seconds all that is
  queued has left, CPU time since the start, and since the last `apply` its share of a core and how late frames left.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import gc
import os
import select
import socket
import sys
import threading
import time
import traceback
from dataclasses import asdict, replace
from typing import Any

from pareto.protocol import jsonlines
from pareto.protocol.validation import read
from pareto.remote.link import packets
from pareto.remote.link.profile import Profile, seed_of
from pareto.remote.link.relay_path import NEVER, RelayPath
from pareto.remote.link.trace import POSITION, Step

_BATCH = 16  # frames taken from one side before the other side and what is due get their turn
_RETRY_NS = 100_000
_GIVE_UP_NS = 100_000_000
_PR_SET_TIMERSLACK = 29
_PRIORITY = 10
_REVIEW_S = 0.1
_BUSY, _CALM = 0.6, 0.3  # shares of a core
_NO_ROOM = (errno.ENOBUFS, errno.EAGAIN)  # the far side's backlog is full: a moment later it is not


class Policy:
    """SCHED_FIFO for the calling thread as long as it mostly sleeps: a relay of hundreds of Mbit/s keeps a core to
    itself, and would starve the receiver it feeds. permitted: root of a user namespace may not have it."""

    def __init__(self) -> None:
        self._fifo = os.sched_getscheduler(0) == os.SCHED_FIFO
        self.permitted = self._fifo
        self._wall = time.monotonic()
        self._cpu = time.thread_time()

    @property
    def name(self) -> str:
        return "fifo" if self._fifo else "other"

    def review(self) -> None:
        """Choose the policy by the CPU time since the last review; call it often, it acts ten times a second."""
        wall = time.monotonic()
        elapsed = wall - self._wall
        if elapsed < _REVIEW_S:
            return
        cpu = time.thread_time()
        share = (cpu - self._cpu) / elapsed
        self._wall, self._cpu = wall, cpu
        if self._fifo and share > _BUSY:
            self._fifo = not _schedule(os.SCHED_OTHER)
        elif self.permitted and not self._fifo and share < _CALM:
            self._fifo = _schedule(os.SCHED_FIFO)


def _schedule(policy: int) -> bool:
    """Give the calling thread the policy, if that is permitted (it is not in a child cpu cgroup)."""
    try:
        os.sched_setscheduler(0, policy, os.sched_param(_PRIORITY if policy == os.SCHED_FIFO else 0))
    except OSError:
        return False
    return True


class Relay:
    """Forwards frames between two interfaces, by a `RelayPath` each way, and answers requests; see the module."""

    def __init__(self, edge: str, server: str) -> None:
        self._paths = {"edge_to_server": RelayPath(), "server_to_edge": RelayPath()}
        sockets = packets.open_interface(edge), packets.open_interface(server)
        to_server, to_edge = self._paths.values()
        self._sides = {sockets[0]: (to_server, sockets[1]), sockets[1]: (to_edge, sockets[0])}
        self._buffer = memoryview(bytearray(packets.MAX_FRAME_BYTES))
        self._policy: Policy | None = None
        """The policy of the thread that forwards; None before it runs."""
        self._unread = 0
        """Frames that the kernel dropped before they were read."""
        self._begin_ns = self._applied_ns = time.monotonic_ns()
        self._cpu_s_before = time.process_time()

    def run(self) -> None:
        """Forward frames for ever, in the calling thread. It sleeps while nothing is due."""
        self._policy = Policy()
        sockets = list(self._sides)
        while True:
            wake = min(self._send_due(path, out) for path, out in self._sides.values())
            timeout = None if wake == NEVER else max(0, wake - time.monotonic_ns()) / 1e9
            for raw in select.select(sockets, [], [], timeout)[0]:
                self._receive(raw, *self._sides[raw])
            self._policy.review()

    def _receive(self, raw: socket.socket, path: RelayPath, out: socket.socket) -> None:
        for _ in range(_BATCH):
            try:
                size = raw.recv_into(self._buffer)
            except BlockingIOError:
                return
            except OSError:  # the interface went down, or the header cannot express the frame's offload
                path.dropped += 1
                return
            frame = self._buffer[:size]
            count, wire_bytes = packets.on_wire(frame)
            if path.straight:
                error = _send(out, frame)
                if not error:
                    path.count(count, wire_bytes)
                    continue
                if error not in _NO_ROOM:
                    path.dropped += count
                    continue
            path.accept(frame, count, wire_bytes, time.monotonic_ns())

    def _send_due(self, path: RelayPath, out: socket.socket) -> int:
        """Send the frames that are due; returns when the next is."""
        while (due := path.next_due_ns) <= (now := time.monotonic_ns()):
            error = _send(out, path.queue[0][1])
            if not error:
                path.left(now)
            elif error in _NO_ROOM and now - due < _GIVE_UP_NS:
                return now + _RETRY_NS
            else:
                path.discard()
        return due

    def apply(self, request: dict[str, Any]) -> dict[str, Any]:
        profile: Profile = _read(Profile, request)
        self._begin_ns = time.monotonic_ns() - round(profile.offset_s * 1e9)
        for path, direction in zip(self._paths.values(), profile.directions, strict=True):
            path.shape(direction, profile.bucket, self._begin_ns)
        self._applied_ns, self._cpu_s_before = time.monotonic_ns(), time.process_time()
        return {
            "shaper": "relay",
            "scheduling": self._scheduling,
            **{name: _in_force(path) for name, path in self._paths.items()},
            "bucket": asdict(profile.bucket) if profile.bucket else None,
        }

    def restart(self, request: dict[str, Any]) -> dict[str, Any]:
        position_s: float = _read(POSITION, request.get("position_s", 0.0), "position_s")
        self._begin_ns = time.monotonic_ns() - round(position_s * 1e9)
        for path in self._paths.values():
            if path.direction.trace is not None:
                path.restart(self._begin_ns)
        return {"position_s": self._position_s()}

    def seed(self, request: dict[str, Any]) -> dict[str, Any]:
        seed: int = _read(int, request.get("seed"), "seed")
        for name, path in self._paths.items():
            path.seed(seed_of(seed, name), self._begin_ns)
        return {"seeded": True}

    def stats(self, request: dict[str, Any]) -> dict[str, Any]:
        paths = self._paths
        self._unread += sum(packets.lost(raw) for raw in self._sides)
        late = sorted(ns for path in paths.values() for ns in path.late_ns.copy())
        now_ns, cpu_s = time.monotonic_ns(), time.process_time()
        return {
            "forwarded": {
                name: {"packets": path.packets, "bytes": path.bytes} for name, path in paths.items()
            },
            "dropped": self._unread + sum(path.dropped for path in paths.values()),
            **{
                name: sum(getattr(path, name) for path in paths.values())
                for name in ("lost", "duplicated", "reordered", "corrupted")
            },
            "position_s": self._position_s(),
            "draining_s": max(path.draining_ns(now_ns) for path in paths.values()) / 1e9,
            "cpu_s": cpu_s,
            "cpu_share": (cpu_s - self._cpu_s_before) / max(1e-9, (now_ns - self._applied_ns) / 1e9),
            "late_p99_s": late[len(late) * 99 // 100] / 1e9 if late else None,
            "scheduling": self._scheduling,
            "real_time": self._policy is not None and self._policy.permitted,
        }

    def _position_s(self) -> float | None:
        if all(path.direction.trace is None for path in self._paths.values()):
            return None
        return (time.monotonic_ns() - self._begin_ns) / 1e9

    @property
    def _scheduling(self) -> str:
        return self._policy.name if self._policy else "other"


def _read(kind: Any, value: Any, *path: str) -> Any:
    try:
        return read(kind, value, *path)
    except ValueError as error:
        raise jsonlines.Refused(str(error)) from None


def _send(out: socket.socket, frame: bytes | memoryview) -> int:
    """Hand a frame to the interface; 0 or the errno."""
    try:
        out.send(frame)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _in_force(path: RelayPath) -> dict[str, Any]:
    """A direction that is in force, as a reply has it."""
    trace = path.direction.trace
    if trace is None:
        return path.direction.to_dict() | {"limit_bytes": path.limit_bytes}
    # One step stands for all: to make dicts of the 200000 that there may be takes the better part of a second.
    brief = replace(trace, steps=(Step(0.0, trace.mean_delay_s, trace.mean_rate_bps),))
    fields = replace(path.direction, trace=brief).to_dict()
    fields["trace"] = {"name": trace.name, "period_s": trace.period_s}
    return fields | {"limit_bytes": path.limit_bytes}


def _be_on_time() -> None:
    """Timer slack, real-time scheduling, no garbage collection, before any thread starts. All inherit them: one of
    ordinary priority, preempted while it holds the interpreter lock, would hold up the one that is in a hurry."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    sys.setswitchinterval(1e-4)
    gc.collect()
    gc.freeze()
    gc.disable()
    _schedule(os.SCHED_FIFO)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m pareto.remote.link.relay", description="A link in user space."
    )
    parser.add_argument("--edge", required=True, metavar="IFACE", help="interface that faces the edge")
    parser.add_argument("--server", required=True, metavar="IFACE", help="interface that faces the server")
    options = parser.parse_args()
    try:
        relay = Relay(options.edge, options.server)
    except OSError as error:
        sys.exit(f"cannot open {options.edge} and {options.server}: {error}")
    _be_on_time()

    def forward() -> None:
        try:
            relay.run()
        except BaseException:
            # A relay that no longer forwards must not look alive.
            traceback.print_exc()
            os._exit(1)

    threading.Thread(target=forward, name="relay", daemon=True).start()
    jsonlines.serve({op: getattr(relay, op) for op in ("apply", "restart", "seed", "stats")})


if __name__ == "__main__":
    main()
