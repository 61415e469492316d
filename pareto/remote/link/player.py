"""Traces played on qdiscs: a thread that changes netem's delay and tbf's rate when the trace says so.

The delay is netem's, the rate is tbf's, after it. netem alone computes when a packet leaves as it comes in: a queue
that was filled on a slow line would stay slow (measured: half of what a trace carries). tbf decides when a packet is
due.

Packets come to tbf after their delay, so the rate is played that much later. tbf's bucket is a packet and 2 ms of the
rate, so that a late timer costs nothing; each change fills it, which is taken off the rate until the next. In an outage
the rate lets one packet pass by its end. So a trace is followed to within two packets.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from pyroute2.netlink.exceptions import NetlinkError

from pareto.remote.link import qdisc
from pareto.remote.link.netem import SLACK_PACKETS, Layer, Netem, Tbf
from pareto.remote.link.profile import PACKET_BYTES, Direction
from pareto.remote.link.qdisc import TrafficControl
from pareto.remote.link.trace import Trace

TICK_S = 0.02
"""Steps shorter than this are merged into their mean."""

_LONGEST_WAIT_S = 5.0
_BURST_S = 0.002
_PACKET_BITS = 8 * PACKET_BYTES
_LIMIT_BYTES = 30_000_000  # more than TCP sends unasked


def delay_at(direction: Direction, position_s: float) -> tuple[Netem, float]:
    """The netem that is due at a position of a direction's trace, and until which position it holds."""
    trace = _trace(direction)
    until_s = _until_s(trace, position_s)
    parts = pairwise(trace.edges(position_s, until_s))
    delay_s = sum(trace.step(begin).delay_s * (end - begin) for begin, end in parts)
    changing = Netem.of(direction, delay_s / (until_s - position_s))
    return replace(changing, gilbert=None), until_s  # see `chain`


class Rates:
    """Computes the tbf qdisc of a direction's trace over time. Each change makes up for what the last let pass."""

    def __init__(self, direction: Direction) -> None:
        self._trace = _trace(direction)
        self._limit_bytes = direction.waiting_bytes or _LIMIT_BYTES
        self._owed_bits = 0.0

    def at(self, position_s: float) -> tuple[Tbf, float]:
        """The tbf that is due at a position, and until which position it holds. Each call is a change of the qdisc."""
        travel_s = self._trace.step(position_s).delay_s
        from_s = position_s - travel_s
        until_s = _until_s(self._trace, from_s)
        bits = self._trace.carried_bits(until_s) - self._trace.carried_bits(from_s)
        burst_bits = _PACKET_BITS + _BURST_S * bits / (until_s - from_s)
        # A bucket in use lacks half a packet, on average, when it is filled.
        left_bits = bits - (burst_bits - _PACKET_BITS / 2) - self._owed_bits
        self._owed_bits = min(max(0.0, -left_bits), 4 * _PACKET_BITS)
        # At least what makes tbf look for the next change by then: it sleeps until a packet may pass.
        rate_bps = max(left_bits, _PACKET_BITS) / (until_s - from_s)
        return Tbf.holding(rate_bps, burst_bits / 8, self._limit_bytes), until_s + travel_s


def chain(direction: Direction, position_s: float) -> list[Layer]:
    """The qdiscs for a direction's trace, as they begin at a position."""
    # Each change puts netem back into the good state, which would cut bursts short: they get a netem of their own.
    bursts = Netem.of(direction).gilbert
    own = [] if bursts is None else [Netem(0, SLACK_PACKETS, gilbert=bursts)]
    return [*own, *(at(position_s)[0] for at in _changing(direction))]


def _changing(direction: Direction) -> list[Callable[[float], tuple[Layer, float]]]:
    """For each qdisc that the trace changes, the last ones of the chain, the `at` that computes it."""
    rates = [Rates(direction).at] if _trace(direction).limited else []
    return [partial(delay_at, direction), *rates]


def _trace(direction: Direction) -> Trace:
    if direction.trace is None:
        raise ValueError("no trace to play")
    return direction.trace


def _until_s(trace: Trace, position_s: float) -> float:
    edges = trace.edges(position_s, position_s + _LONGEST_WAIT_S)
    next(edges)
    return max(next(edges), position_s + TICK_S)


@dataclass
class Track:
    """One direction, and the chain of qdiscs on the device of that index."""

    index: int
    direction: Direction
    chain: list[Layer]

    def put(self, control: TrafficControl, place: int, layer: Layer) -> None:
        """Change one qdisc of the chain."""
        self.chain[place] = layer
        control.ask(qdisc.CHANGE, self.index, qdisc.nodes(self.chain)[place])


@dataclass
class _Part:
    """One qdisc of a track, and when its next change is due."""

    track: Track
    place: int
    at: Callable[[float], tuple[Layer, float]]
    due_s: float


def parts(track: Track, position_s: float) -> list[_Part]:
    changing = _changing(track.direction)
    first = len(track.chain) - len(changing)
    return [_Part(track, place, at, position_s) for place, at in enumerate(changing, first)]


class Player:
    """Plays tracks side by side, in a loop, from a position on. The first steps are on the devices when this returns.
    Raises QdiscError or NetlinkError."""

    def __init__(self, tracks: Sequence[Track], position_s: float) -> None:
        self.tracks = tracks
        self.fault = ""
        self._began = time.monotonic() - position_s
        self._end = threading.Event()
        self._parts = [part for track in tracks for part in parts(track, position_s)]
        with TrafficControl() as control:
            self._play(control, position_s)
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)
        self._thread.start()

    @property
    def position_s(self) -> float:
        """Seconds since the traces' own beginning; later laps count on."""
        return time.monotonic() - self._began

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with TrafficControl() as control:
                while not self._end.wait(min(part.due_s for part in self._parts) - self.position_s):
                    self._play(control, self.position_s)
        except Exception as error:  # whatever it was: a trace that stands still is no trace
            refused = isinstance(error, NetlinkError)
            why = qdisc.in_words(error) if refused else f"{type(error).__name__}: {error}"
            self.fault = f"the trace stopped at {self.position_s:.1f} s: {why}"
            print(self.fault, file=sys.stderr)

    def _play(self, control: TrafficControl, position_s: float) -> None:
        for part in self._parts:
            if part.due_s > position_s:
                continue
            layer, part.due_s = part.at(position_s)
            # tbf also where it stays the same: that its bucket is filled is counted on.
            if layer != part.track.chain[part.place] or isinstance(layer, Tbf):
                part.track.put(control, part.place, layer)
