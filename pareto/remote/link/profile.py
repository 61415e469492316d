"""A profile: what each direction of the link does to a packet.

The driver reads them from files by `pareto.sweep.profile_files`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from dataclasses import fields as fields_of
from functools import cached_property
from typing import Annotated, Any

from pareto.protocol.constants import QUEUE_BDP, QUEUE_LEAST_BYTES, QUEUE_LEAST_S
from pareto.protocol.errors import UserError
from pareto.protocol.validation import NAME, Bounds, check
from pareto.remote.link import units
from pareto.remote.link.trace import DELAY, MAX_DELAY_S, MAX_RATE_BPS, MIN_RATE_BPS, POSITION, Trace

MAX_LIMIT_BYTES = 1 << 30
FREE_RATE_BPS = 10e9
"""The rate, in bit/s, that an unlimited link is taken to have when its queue is sized."""

NETEM, NETEM_TBF = "netem", "netem+tbf"

_RATE_WORDS = "is out of range: 1kbit to 34gbit; leave it out for no limit"
RATE = Annotated[float, Bounds(MIN_RATE_BPS, MAX_RATE_BPS, unit="bit/s", words=_RATE_WORDS)]
SHARE = Annotated[float, Bounds(0, 1, words="is not a share of packets: 0% to 100%")]
OVERHEAD = Annotated[int, Bounds(0, 1500, unit="bytes")]
PACKET_BYTES = 1514
"""A full packet with Ethernet's header, as netem counts it."""
CELL_PAYLOAD_BYTES, CELL_BYTES = 48, 53
"""ATM's."""
BYTES = Annotated[
    int, Bounds(1514, MAX_LIMIT_BYTES, unit="bytes", words="is out of range: one packet (1514b) to 1gib")
]


@dataclass(frozen=True)
class Gilbert:
    """Bursty loss by the Gilbert-Elliott model (BSTJ 39, 1960; BSTJ 42, 1963): two states, a probability of loss in
    each."""

    good_to_bad: SHARE
    bad_to_good: SHARE
    in_bad: SHARE = 1.0
    in_good: SHARE = 0.0

    def __post_init__(self) -> None:
        check(self, "loss ")
        for name in ("good_to_bad", "bad_to_good"):
            if not getattr(self, name):
                raise UserError(f"loss {name} must be more than 0: the model changes states")

    @property
    def mean(self) -> float:
        """The share of packets lost in the long run."""
        bad = self.good_to_bad / (self.good_to_bad + self.bad_to_good)
        return bad * self.in_bad + (1 - bad) * self.in_good


@dataclass(frozen=True)
class Direction:
    """One way through the link. A packet is lost, duplicated, corrupted or reordered; what is left waits for the
    line (`rate_bps`), then travels for `delay_s`.

    `delay_s` and `jitter_s` in seconds: uniform within delay +- jitter, neighbours correlated by `jitter_correlation`;
    jitter alone never reorders. `rate_bps` in bit/s on the wire, Ethernet headers included (None: not limited): what it
    carries of full packets, where the line also takes `overhead_bytes` a packet, or whole cells (`atm`).
    Probabilities from 0 to 1; a reordered packet overtakes all that wait. `limit_bytes` may wait for the line, as in a
    router's buffer, before packets are dropped; `queue_bytes` where that says nothing, as `Profile.with_queues` sets it
    (None: more than TCP sends unasked). `trace` gives rate and delay over time in place of `rate_bps` and `delay_s`.

    Raises UserError for values that no link here can have.
    """

    delay_s: DELAY = 0.0
    rate_bps: RATE | None = None
    jitter_s: DELAY = 0.0
    jitter_correlation: SHARE = 0.0
    loss: SHARE | Gilbert = 0.0
    duplicate: SHARE = 0.0
    reorder: SHARE = 0.0
    corrupt: SHARE = 0.0
    limit_bytes: BYTES | None = None
    trace: Trace | None = None
    queue_bytes: BYTES | None = None
    overhead_bytes: OVERHEAD = 0
    atm: bool = False

    def __post_init__(self) -> None:
        check(self)
        if (self.overhead_bytes or self.atm) and self.rate_bps is None:
            raise UserError(
                "overhead and atm need a rate: they are bytes that it has to carry; a trace has its own"
            )
        if self.trace is not None and (self.delay_s or self.rate_bps is not None):
            raise UserError("a trace gives delay and rate: leave both out beside it")
        if self.jitter_s > self.delay_s and not self.trace:
            raise UserError(f"jitter {self.jitter_s:g} s must be at most the delay, {self.delay_s:g} s")
        if self.jitter_correlation and not self.jitter_s:
            raise UserError("jitter_correlation needs jitter")
        if self.reorder and not (self.delay_s or self.trace):
            raise UserError("reorder needs a delay: without one no packet can be overtaken")
        if self.limit_bytes is not None and not self.limited:
            raise UserError("limit needs a rate: without one nothing waits")

    def on_line(self, nbytes: int, packets: int = 1) -> int:
        """Bytes that the line carries for packets of so many bytes together, Ethernet headers included."""
        nbytes += packets * self.overhead_bytes
        return -(-nbytes // CELL_PAYLOAD_BYTES) * CELL_BYTES if self.atm else nbytes

    def with_line(self, line_bps: float) -> Direction:
        """The same, whose line carries so many bit/s of all that is on it."""
        return replace(self, rate_bps=line_bps / self._line_share)

    @property
    def line_bps(self) -> float | None:
        """The rate of all that is on the line, in bit/s."""
        return self.rate_bps and self.rate_bps * self._line_share

    @property
    def _line_share(self) -> float:
        """Bytes on the line for each byte of a full packet."""
        return self.on_line(PACKET_BYTES) / PACKET_BYTES

    @property
    def waiting_bytes(self) -> int | None:
        """Bytes that may wait for the line (None: no limit)."""
        return self.queue_bytes if self.limit_bytes is None else self.limit_bytes

    @property
    def limited(self) -> bool:
        """Whether there is a rate at all."""
        return self.rate_bps is not None or (self.trace is not None and self.trace.limited)

    @property
    def shaped(self) -> bool:
        return self != Direction()

    @property
    def impaired(self) -> bool:
        """Whether packets are lost, repeated, overtaken or damaged: TCP then no longer runs at the link's rate."""
        return bool(self.loss or self.duplicate or self.reorder or self.corrupt)

    @property
    def by_chance(self) -> bool:
        """Whether chance decides what becomes of a packet."""
        return self.impaired or bool(self.jitter_s)

    @property
    def mean_loss(self) -> float:
        return self.loss.mean if isinstance(self.loss, Gilbert) else self.loss

    @property
    def typical(self) -> Direction:
        """This direction with its trace's mean delay and rate in place of the trace."""
        if self.trace is None:
            return self
        return replace(
            self, trace=None, delay_s=self.trace.mean_delay_s, rate_bps=self.trace.mean_rate_bps, jitter_s=0.0
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON's types, for hosts and manifests; what is not set is left out."""
        defaults = {field.name: field.default for field in fields_of(self)}
        return {name: value for name, value in asdict(self).items() if getattr(self, name) != defaults[name]}


@dataclass(frozen=True)
class Bucket:
    """tbf's token bucket: `burst_bytes` pass at once; as tc computes it, its queue holds them and what the rate carries
    in `latency_s`."""

    burst_bytes: BYTES = 32 << 10
    latency_s: Annotated[float, Bounds(1e-9, MAX_DELAY_S, unit="s", words="must be above 0, to 60 s")] = 0.4

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Profile:
    """A named condition of the link, applied to each sender's egress. bucket: set where tbf after netem's delay
    enforces the rate, as in published experiments, and not netem itself. offset_s: where traces begin."""

    name: NAME = ""
    edge_to_server: Direction = Direction()
    server_to_edge: Direction = Direction()
    bucket: Bucket | None = None
    offset_s: POSITION = 0.0

    def __post_init__(self) -> None:
        check(self)
        if self.bucket is not None:
            if not any(direction.limited for direction in self.directions):
                raise UserError(f"shaper {NETEM_TBF} needs a rate: without one its bucket does nothing")
            for direction in self.directions:
                if direction.trace is not None or direction.limit_bytes is not None:
                    raise UserError(
                        f"shaper {NETEM_TBF} knows neither trace nor limit: its queue is what fits into latency"
                    )
                if direction.overhead_bytes or direction.atm:
                    raise UserError(f"shaper {NETEM_TBF} knows neither overhead nor atm")

    @property
    def directions(self) -> tuple[Direction, Direction]:
        """Edge to server, server to edge."""
        return self.edge_to_server, self.server_to_edge

    @property
    def shaped(self) -> bool:
        """Whether it asks for anything but the link as it is."""
        return any(direction.shaped for direction in self.directions)

    @property
    def by_chance(self) -> bool:
        """Whether chance decides what becomes of packets in either direction."""
        return any(direction.by_chance for direction in self.directions)

    @property
    def tcp_fills(self) -> bool:
        """Whether TCP runs at the link's rate: nothing is lost or out of order, and what waits has room."""
        return not any(
            direction.impaired or direction.limit_bytes is not None for direction in self.directions
        )

    @property
    def rtt_s(self) -> float:
        """The seconds that the two delays add to a round trip, on average."""
        return sum(direction.typical.delay_s for direction in self.directions)

    def with_queues(self) -> Profile:
        """The profile as it is put in force: lines without a limit of their own get a queue of the usual length."""
        # A bucket's queue is what fits into its latency.
        return self if self.bucket is not None else self._with(self._queued)

    def _with(self, change: Callable[[Direction], Direction]) -> Profile:
        out, back = map(change, self.directions)
        return replace(self, edge_to_server=out, server_to_edge=back)

    def _queued(self, direction: Direction) -> Direction:
        rate_bps = direction.typical.rate_bps
        if rate_bps is None or direction.limit_bytes is not None:
            return replace(direction, queue_bytes=None)
        usual = max(QUEUE_BDP * self.rtt_s * rate_bps / 8, QUEUE_LEAST_BYTES, QUEUE_LEAST_S * rate_bps / 8)
        return replace(direction, queue_bytes=min(int(usual), MAX_LIMIT_BYTES))

    @property
    def period_s(self) -> float | None:
        """Seconds until the link has gone through its traces once (None: it does not change)."""
        traces = [direction.trace for direction in self.directions if direction.trace is not None]
        return max((trace.period_s for trace in traces), default=None)

    @cached_property
    def typical(self) -> Profile:
        """This profile with its traces' mean delays and rates in place of the traces."""
        return self._with(lambda direction: direction.typical)

    def to_dict(self) -> dict[str, Any]:
        """JSON's types, as `validation.read` takes them."""
        return {
            "name": self.name,
            "edge_to_server": self.edge_to_server.to_dict(),
            "server_to_edge": self.server_to_edge.to_dict(),
            "bucket": asdict(self.bucket) if self.bucket else None,
            "offset_s": self.offset_s,
        }

    def record(self) -> dict[str, Any]:
        """As `to_dict`, for manifests: with the queues in force, a trace by name and digest, not by all its steps."""
        fields = self.with_queues().to_dict()
        for direction in ("edge_to_server", "server_to_edge"):
            if (trace := fields[direction].get("trace")) is not None:
                digest = hashlib.sha256(json.dumps(trace).encode()).hexdigest()
                kept = {"name": trace["name"], "period_s": trace["period_s"], "steps": len(trace["steps"])}
                fields[direction]["trace"] = kept | {"sha256": digest}
        return fields


def describe(profile: Profile) -> str:
    """The profile in words: `edge to server 200 ms at 5 Mbit/s, 1% lost; server to edge ...`."""
    names = ("edge to server", "server to edge")
    words = [
        f"{name} {_describe(direction)}"
        for name, direction in zip(names, profile.directions, strict=True)
        if direction.shaped
    ]
    by = f" (shaper {NETEM_TBF})" if profile.bucket else ""
    return ("; ".join(words) or "not shaped") + by


def _describe(direction: Direction) -> str:
    typical = direction.typical
    delay = units.duration(typical.delay_s) if typical.delay_s else ""
    if direction.jitter_s:
        delay = f"{delay} +-{units.duration(direction.jitter_s)}"
    rate = units.rate(typical.line_bps, 3) if typical.line_bps is not None else ""
    parts = [" at ".join(part for part in (delay, rate) if part)]
    if direction.trace is not None:
        parts.append(f"on average over the {direction.trace.period_s:.4g} s of {direction.trace.name}")
    bursts = " in bursts" if isinstance(direction.loss, Gilbert) else ""
    for share, what in (
        (direction.mean_loss, f"lost{bursts}"),
        (direction.duplicate, "repeated"),
        (direction.reorder, "reordered"),
        (direction.corrupt, "corrupted"),
    ):
        if share:
            parts.append(f"{100 * share:.3g}% {what}")
    if direction.overhead_bytes:
        parts.append(f"{direction.overhead_bytes} bytes more a packet")
    if direction.atm:
        parts.append("in cells of ATM")
    if direction.limit_bytes is not None:
        parts.append(f"a queue of {direction.limit_bytes} bytes")
    return ", ".join(part for part in parts if part)


def seed_of(*parts: object) -> int:
    """A seed of 48 bits for chance on a link, made of these."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest(), "big")
