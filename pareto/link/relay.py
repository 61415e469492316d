"""The relay: a link in user space, for machines whose kernel has no sch_netem.

``python -m pareto.link.relay --edge IFACE --server IFACE`` runs as root in a network namespace between those
of the two hosts and forwards frames with delay and rate in each direction, as a netem qdisc on each sender's
egress would. It speaks `pareto.jsonlines`:

- ``apply {"edge_to_server": {"delay_s": 0.2, "rate_bps": 5e6}, "server_to_edge": {}}`` puts a profile in
  force for the frames that arrive from then on, and answers what is in force.
- ``stats`` answers what was forwarded (wire packets and bytes) and dropped since the start, CPU time used,
  and how late delayed frames left since the last `apply`.
"""

from __future__ import annotations

import argparse
import errno
import os
import select
import socket
import sys
import threading
import time
import traceback
from typing import Any

from pareto import jsonlines
from pareto.link import packets, realtime
from pareto.link.lane import NEVER, Lane
from pareto.link.profile import Profile, ProfileError

_BATCH = 16  # frames taken from one side before the other side and what is due get their turn
_RETRY_NS = 100_000
_GIVE_UP_NS = 100_000_000
_NO_ROOM = (errno.ENOBUFS, errno.EAGAIN)  # the far side's backlog is full: a moment later it is not


class Relay:
    """Two interfaces and a lane each way between them."""

    def __init__(self, edge: str, server: str) -> None:
        self.lanes = {"edge_to_server": Lane(), "server_to_edge": Lane()}
        sockets = packets.open_interface(edge), packets.open_interface(server)
        to_server, to_edge = self.lanes.values()
        self._ways = {sockets[0]: (to_server, sockets[1]), sockets[1]: (to_edge, sockets[0])}
        self._buffer = memoryview(bytearray(packets.MAX_FRAME_BYTES))
        self._policy: realtime.Policy | None = None
        self._lost = 0

    @property
    def scheduling(self) -> str:
        return self._policy.name if self._policy else "other"

    def dropped(self) -> int:
        """Packets dropped since the start, on a full queue or in the kernel before they were read."""
        self._lost += sum(packets.lost(raw) for raw in self._ways)
        return self._lost + sum(lane.dropped for lane in self.lanes.values())

    def run(self) -> None:
        """Forward frames for ever, in the calling thread. It sleeps while nothing is due."""
        self._policy = realtime.Policy()
        sockets = list(self._ways)
        while True:
            wake = min(self._send_due(lane, out) for lane, out in self._ways.values())
            timeout = None if wake == NEVER else max(0, wake - time.monotonic_ns()) / 1e9
            for raw in select.select(sockets, [], [], timeout)[0]:
                self._receive(raw, *self._ways[raw])
            self._policy.review()

    def _receive(self, raw: socket.socket, lane: Lane, out: socket.socket) -> None:
        for _ in range(_BATCH):
            try:
                size = raw.recv_into(self._buffer)
            except BlockingIOError:
                return
            except OSError:  # the interface went down, or the header cannot express the frame's offload
                lane.dropped += 1
                return
            frame = self._buffer[:size]
            count, wire_bytes = packets.on_wire(frame)
            if lane.straight:
                error = _send(out, frame)
                if not error:
                    lane.count(count, wire_bytes)
                    continue
                if error not in _NO_ROOM:
                    lane.dropped += count
                    continue
            lane.accept(frame, count, wire_bytes, time.monotonic_ns())

    def _send_due(self, lane: Lane, out: socket.socket) -> int:
        """Send what is due; returns when to look again."""
        while (due := lane.next_due_ns) <= (now := time.monotonic_ns()):
            error = _send(out, lane.queue[0][1])
            if not error:
                lane.left(now)
            elif error in _NO_ROOM and now - due < _GIVE_UP_NS:
                return now + _RETRY_NS
            else:
                lane.discard()
        return due


def _send(out: socket.socket, frame: bytes | memoryview) -> int:
    """Hand a frame to the interface; 0 or the errno."""
    try:
        out.send(frame)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


class Control:
    """The relay's requests; see the module."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def apply(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            profile = Profile.from_dict(request)
        except ProfileError as error:
            raise jsonlines.Refused(str(error)) from None
        lanes = self._relay.lanes
        lanes["edge_to_server"].shape(profile.edge_to_server)
        lanes["server_to_edge"].shape(profile.server_to_edge)
        in_force = {
            name: lane.direction.to_dict() | {"limit_bytes": lane.limit_bytes} for name, lane in lanes.items()
        }
        return {"shaper": "relay", "scheduling": self._relay.scheduling, **in_force}

    def stats(self, request: dict[str, Any]) -> dict[str, Any]:
        lanes = self._relay.lanes
        late = sorted(ns for lane in lanes.values() for ns in lane.late_ns.copy())
        return {
            "forwarded": {
                name: {"packets": lane.packets, "bytes": lane.bytes} for name, lane in lanes.items()
            },
            "dropped": self._relay.dropped(),
            "cpu_s": time.process_time(),
            "late_p99_s": late[len(late) * 99 // 100] / 1e9 if late else None,
            "scheduling": self._relay.scheduling,
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pareto.link.relay", description="A link in user space.")
    parser.add_argument("--edge", required=True, metavar="IFACE", help="interface that faces the edge")
    parser.add_argument("--server", required=True, metavar="IFACE", help="interface that faces the server")
    options = parser.parse_args()
    try:
        relay = Relay(options.edge, options.server)
    except OSError as error:
        sys.exit(f"cannot open {options.edge} and {options.server}: {error}")
    realtime.prepare()

    def forward() -> None:
        try:
            relay.run()
        except BaseException:
            # A relay that no longer forwards must not look alive.
            traceback.print_exc()
            os._exit(1)

    threading.Thread(target=forward, name="relay", daemon=True).start()
    control = Control(relay)
    jsonlines.serve({"apply": control.apply, "stats": control.stats})


if __name__ == "__main__":
    main()
