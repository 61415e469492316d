"""Traces played on netem: a thread that changes delay and rate of a qdisc when the trace says so.

netem computes when a packet leaves as it comes in. So a change is felt by the packets after it only: what already
waits keeps the times that it got, and follows a change late by as long as the queue is. Where the line passes less
than a packet until the next change (an outage above all), the rate would be a bad guess for when a packet is
through, and 0 would mean "not limited": the time until it is through is then played as delay, with the rate that
the line has by then, and said anew every 20 ms. Packets that come in between are late by at most these.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyroute2.netlink.exceptions import NetlinkError

from pareto.link import netem, qdisc
from pareto.link.netem import PACKET_BYTES, Layer, Moment
from pareto.link.profile import Direction
from pareto.link.tc import TrafficControl
from pareto.link.trace import Trace

TICK_S = 0.02
"""Steps shorter than this are merged into their mean."""

_LONGEST_WAIT_S = 1.0


def moment(direction: Direction, at_s: float) -> tuple[Moment, float]:
    """What the line does at a position of the direction's trace, and until which position that may be said."""
    trace = direction.trace
    if trace is None:
        raise ValueError("no trace to play")
    edges = trace.edges(at_s, at_s + _LONGEST_WAIT_S)
    next(edges)
    until_s = max(next(edges), at_s + TICK_S)
    delay_s = _mean_delay_s(trace, at_s, until_s)
    in_flight_bytes = _in_flight_bytes(trace, at_s, direction.jitter_s)
    if not trace.limited:
        return Moment(delay_s, None, in_flight_bytes), until_s
    through_s = at_s + trace.transfer_s(PACKET_BYTES, at_s)
    if through_s <= until_s:
        rate_bps = (trace.carried_bits(until_s) - trace.carried_bits(at_s)) / (until_s - at_s)
        return Moment(delay_s, rate_bps, in_flight_bytes), until_s
    rate_bps = trace.step(through_s - 1e-6).rate_bps or 1.0
    wait_s = max(0.0, through_s - at_s - 8 * PACKET_BYTES / rate_bps)
    return Moment(delay_s + wait_s, rate_bps, in_flight_bytes), at_s + TICK_S


def _mean_delay_s(trace: Trace, from_s: float, to_s: float) -> float:
    parts = pairwise(trace.edges(from_s, to_s))
    return sum(trace.step(begin).delay_s * (end - begin) for begin, end in parts) / (to_s - from_s)


def _in_flight_bytes(trace: Trace, at_s: float, jitter_s: float) -> float:
    """The most that may be under way: what went out before the rate fell still travels."""
    longest_s = trace.step(at_s).delay_s + jitter_s
    return max(
        (netem.FREE_RATE_BPS if step.rate_bps is None else step.rate_bps) / 8 * (step.delay_s + jitter_s)
        for step in trace.steps_between(at_s - longest_s, at_s)
    )


@dataclass
class Track:
    """One direction's trace, and the chain of qdiscs on the device that plays it."""

    index: int
    direction: Direction
    chain: list[Layer]
    due_s: float = 0.0


class Player:
    """Plays tracks side by side, in a loop, from a position on: seconds since the traces' own beginning.

    The first steps are on the devices when this returns. Raises QdiscError or NetlinkError.
    """

    def __init__(self, tracks: Sequence[Track], position_s: float) -> None:
        self.tracks = tracks
        self.fault = ""
        self._began = time.monotonic() - position_s
        self._end = threading.Event()
        for track in tracks:
            track.due_s = position_s
        with TrafficControl() as control:
            self._play(control, position_s)
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)
        self._thread.start()

    @property
    def position_s(self) -> float:
        """Now, wraps not taken off."""
        return time.monotonic() - self._began

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with TrafficControl() as control:
                while not self._end.wait(min(track.due_s for track in self.tracks) - self.position_s):
                    self._play(control, self.position_s)
        except NetlinkError as error:
            self._fail(qdisc.said(error))
        except Exception as error:  # whatever it was: a trace that stands still is no trace
            self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, why: str) -> None:
        self.fault = f"the trace stopped at {self.position_s:.1f} s: {why}"
        print(self.fault, file=sys.stderr)

    def _play(self, control: TrafficControl, position_s: float) -> None:
        for track in self.tracks:
            if track.due_s > position_s:
                continue
            now, track.due_s = moment(track.direction, position_s)
            last = netem.layers(track.direction, moment=now)[-1]
            if last != track.chain[-1]:
                track.chain[-1] = last
                control.change_qdisc(track.index, qdisc.nodes(track.chain)[-1])
