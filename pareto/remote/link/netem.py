"""netem, tbf and prio in the kernel's own units and bytes: the one place where seconds, bits and shares become them.

Layouts and meanings are those of linux/pkt_sched.h and net/sched/sch_netem.c, sch_tbf.c and sch_prio.c.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from pareto.remote.link.offload import too_coarse
from pareto.remote.link.profile import (
    CELL_BYTES,
    CELL_PAYLOAD_BYTES,
    FREE_RATE_BPS,
    PACKET_BYTES,
    Bucket,
    Direction,
    Gilbert,
)
from pareto.remote.link.trace import MAX_RATE_BPS

TBF_NETEM_LIMIT = 1000  # packets: tc's default, which published experiments have

_TICK_NS = 64  # the kernel's PSCHED_SHIFT is 6
_ALL = (1 << 32) - 1  # every packet
_GREATEST_RATE = round(MAX_RATE_BPS / 8)
_MAX_JITTER_S = 2.147  # netem caps it at 31 bits of nanoseconds

SLACK_PACKETS = 20_000  # a few TCP connections with full windows (tcp_wmem's default maximum is 4 MiB)

# TCA_NETEM_..., NETEM_LOSS_GE, TCA_TBF_PARMS
_CORR, _REORDER, _CORRUPT, _LOSS, _RATE, _SEED, _GILBERT, _TBF_PARMS = 1, 3, 4, 5, 6, 14, 2, 1
_CELLS = CELL_PAYLOAD_BYTES, CELL_BYTES - CELL_PAYLOAD_BYTES
_NESTED = 0x8000
_TYPE = 0x3FFF  # the bits of an attribute's type that are not flags
_ETHERNET = 1  # TC_LINKLAYER_ETHERNET: said outright, tbf needs no rate table


class QdiscError(RuntimeError):
    """An interface that cannot be shaped: one line that says why and what to do."""


@dataclass(frozen=True)
class Netem:
    """netem's fields: ticks of 64 ns, bytes a second (0: not limited) of what is on the line, packets, and shares of
    2^32 - 1. overhead_bytes, a packet; atm: whether the line has cells. gilbert: p, r, h (kept in the bad state), k1
    (lost in the good state); None: independent losses. seed: 64 bits; kernels before 6.6 ignore it and report none,
    later ones make one up."""

    KIND: ClassVar[str] = "netem"
    CHILD: ClassVar[int] = 1

    delay_ticks: int
    limit_packets: int
    jitter_ticks: int = 0
    jitter_correlation: int = 0
    rate_bytes: int = 0
    loss: int = 0
    gilbert: tuple[int, int, int, int] | None = None
    duplicate: int = 0
    reorder: int = 0
    corrupt: int = 0
    seed: int | None = field(default=None, compare=False)
    overhead_bytes: int = 0
    atm: bool = False

    @classmethod
    def of(cls, direction: Direction, delay_s: float | None = None) -> Netem:
        """A direction's netem; with `delay_s`, its trace's at the moment (tbf has the rate). Raises QdiscError."""
        if direction.jitter_s > _MAX_JITTER_S:
            raise QdiscError(f"jitter {direction.jitter_s:g} s is more than netem can do: {_MAX_JITTER_S} s")
        delay_s = direction.delay_s if delay_s is None else delay_s
        rate_bps = direction.rate_bps
        in_flight_bytes = (rate_bps or FREE_RATE_BPS) / 8 * (delay_s + direction.jitter_s)
        rate_bytes = round((direction.line_bps or 0.0) / 8)
        if direction.jitter_s and rate_bps is None:
            # Without a rate netem releases packets by their own times, out of order; with any it keeps a queue.
            rate_bytes = _GREATEST_RATE
        loss = direction.loss
        return cls(
            delay_ticks=_ticks(delay_s),
            limit_packets=_limit(None if direction.trace else direction.waiting_bytes, in_flight_bytes),
            jitter_ticks=_ticks(direction.jitter_s),
            jitter_correlation=_share(direction.jitter_correlation),
            rate_bytes=rate_bytes,
            loss=0 if isinstance(loss, Gilbert) else _share(loss),
            gilbert=_gilbert(loss) if isinstance(loss, Gilbert) else None,
            duplicate=_share(direction.duplicate),
            reorder=_share(direction.reorder),
            corrupt=_share(direction.corrupt),
            overhead_bytes=direction.overhead_bytes,
            atm=direction.atm,
        )

    @property
    def direction(self) -> Direction:
        """Its effect, to the resolution of the kernel's units. At a moment of a trace the jitter may be more than the
        delay: no packet is sent before it came, so at most the delay is reported; without one, no reordering."""
        delay_s = _seconds(self.delay_ticks)
        jitter_s = min(_seconds(self.jitter_ticks), delay_s)
        ordering_only = self.jitter_ticks and self.rate_bytes == _GREATEST_RATE
        loss: float | Gilbert = self.loss / _ALL
        if self.gilbert is not None:
            p, r, h, k1 = (value / _ALL for value in self.gilbert)
            loss = Gilbert(p, r, 1 - h, k1)
        limited = self.rate_bytes and not ordering_only
        direction = Direction(
            delay_s=delay_s,
            rate_bps=self.rate_bytes * 8.0 if limited else None,
            jitter_s=jitter_s,
            jitter_correlation=self.jitter_correlation / _ALL if jitter_s else 0.0,
            loss=loss,
            duplicate=self.duplicate / _ALL,
            reorder=self.reorder / _ALL if delay_s else 0.0,
            corrupt=self.corrupt / _ALL,
            overhead_bytes=self.overhead_bytes,
            atm=self.atm,
        )
        return direction.with_line(self.rate_bytes * 8.0) if limited else direction

    def options(self) -> bytes:
        # Every attribute, zeros too: those that are not sent keep what they were, except the model of loss.
        gap = 1 if self.reorder else 0
        fixed = (self.delay_ticks, self.limit_packets, self.loss, gap, self.duplicate, self.jitter_ticks)
        attributes = {
            _CORR: _words(self.jitter_correlation, 0, 0),
            _REORDER: _words(self.reorder, 0),
            _CORRUPT: _words(self.corrupt, 0),
            _RATE: _words(self.rate_bytes, self.overhead_bytes, *(_CELLS if self.atm else (0, 0))),
        }
        if self.gilbert is not None:
            attributes[_LOSS | _NESTED] = pack({_GILBERT: _words(*self.gilbert)})
        if self.seed is not None:
            attributes[_SEED] = struct.pack("=Q", self.seed)
        return _words(*fixed) + pack(attributes)

    @classmethod
    def read(cls, options: bytes) -> Netem | str:
        """The netem of a dump's options; words where something is set that we never set."""
        delay, limit, loss, _, duplicate, jitter = struct.unpack_from("=6I", options)
        attributes = unpack(options[24:])
        models = unpack(attributes.get(_LOSS, b""))
        correlation, reorder, corrupt = (
            struct.unpack_from("=I", attributes[kind])[0] for kind in (_CORR, _REORDER, _CORRUPT)
        )
        rate, overhead, *cells = struct.unpack_from("=4I", attributes[_RATE])
        gilbert = struct.unpack("=4I", models[_GILBERT]) if _GILBERT in models else None
        seed = struct.unpack("=Q", attributes[_SEED])[0] if _SEED in attributes else None
        netem = cls(
            *(delay, limit, jitter, correlation, rate, loss, gilbert, duplicate, reorder, corrupt, seed),
            *(overhead, any(cells)),
        )
        sent = netem.options()
        as_sent = sent[:24] == options[:24] and unpack(sent[24:]).items() <= attributes.items()
        return netem if as_sent and not set(models) - {_GILBERT} else f"netem with options {options.hex()}"


@dataclass(frozen=True)
class Tbf:
    """tbf's fields: bytes a second, the burst as ticks that it takes at that rate, bytes of queue."""

    KIND: ClassVar[str] = "tbf"
    CHILD: ClassVar[int] = 1

    rate_bytes: int
    burst_ticks: int
    limit_bytes: int

    @classmethod
    def holding(cls, rate_bps: float, burst_bytes: float, limit_bytes: int) -> Tbf:
        rate = max(1, round(rate_bps / 8))
        # Rounded up: a burst of one packet must not become a byte too small for it.
        return cls(rate, math.ceil(burst_bytes * 1_000_000_000 / rate / _TICK_NS), limit_bytes)

    @property
    def bucket(self) -> dict[str, float]:
        """The fields of the `Bucket` that it is."""
        burst = round(_seconds(self.burst_ticks) * self.rate_bytes)
        return {"burst_bytes": burst, "latency_s": round((self.limit_bytes - burst) / self.rate_bytes, 6)}

    def options(self) -> bytes:
        rate = struct.pack("=BBHhH", 0, _ETHERNET, 0, 0, 0) + _words(self.rate_bytes)
        return pack({_TBF_PARMS: rate + bytes(12) + _words(self.limit_bytes, self.burst_ticks, 0)})

    @classmethod
    def read(cls, options: bytes) -> Tbf | str:
        parms = unpack(options)[_TBF_PARMS]
        rate, limit, burst = (struct.unpack_from("=I", parms, at)[0] for at in (8, 24, 28))
        tbf = cls(rate, burst, limit)
        return tbf if unpack(tbf.options())[_TBF_PARMS] == parms else f"tbf with options {options.hex()}"


@dataclass(frozen=True)
class Prio:
    """Two bands, all in the first unless a filter says the second: netem is there."""

    KIND: ClassVar[str] = "prio"
    CHILD: ClassVar[int] = 2

    def options(self) -> bytes:
        return struct.pack("=i16s", 2, bytes(16))

    @classmethod
    def read(cls, options: bytes) -> Prio | str:
        return cls() if options == cls().options() else f"prio with options {options.hex()}"


Layer = Netem | Tbf | Prio
"""One qdisc of a chain; the next is the child of its class `CHILD`."""


def layers(direction: Direction, bucket: Bucket | None = None) -> list[Layer]:
    """The chain of qdiscs for a direction without a trace."""
    if not too_coarse(direction):
        # A super-packet counts as one: the rate of full packets has the overhead of each in it.
        direction = replace(direction, overhead_bytes=0, atm=False)
    if bucket is None:
        return [Netem.of(direction)]
    netem = replace(Netem.of(replace(direction, rate_bps=None)), limit_packets=TBF_NETEM_LIMIT)
    if direction.rate_bps is None:
        return [netem]
    burst = bucket.burst_bytes
    queue = int(round(direction.rate_bps / 8) * bucket.latency_s + burst)
    return [netem, Tbf.holding(direction.rate_bps, burst, queue)]


def reading(chain: list[Layer]) -> dict[str, Any]:
    """The direction that a chain of qdiscs makes, as `Direction.to_dict`, and the packets that netem may hold."""
    netems = [layer for layer in chain if isinstance(layer, Netem)]
    direction = netems[-1].direction
    values: dict[str, Any] = {"limit_packets": netems[-1].limit_packets}
    for layer in chain:
        if isinstance(layer, Netem) and layer.gilbert is not None:
            direction = replace(direction, loss=layer.direction.loss)
        if isinstance(layer, Tbf):
            direction = replace(direction, rate_bps=layer.rate_bytes * 8.0)
            values["bucket"] = layer.bucket
    return direction.to_dict() | values


def _limit(limit_bytes: int | None, in_flight_bytes: float) -> int:
    """netem's limit counts every packet that it holds, those that only travel included."""
    if limit_bytes is not None:
        return math.ceil((in_flight_bytes + limit_bytes) / PACKET_BYTES)
    # Twice what is in flight, and room for the queue that a sender without loss builds.
    return int(2 * in_flight_bytes / PACKET_BYTES) + SLACK_PACKETS


def _gilbert(loss: Gilbert) -> tuple[int, int, int, int]:
    return (
        _share(loss.good_to_bad),
        _share(loss.bad_to_good),
        _ALL - _share(loss.in_bad),  # the kernel's h is the share that is kept
        _share(loss.in_good),
    )


def _ticks(seconds: float) -> int:
    return round(seconds * 1e9 / _TICK_NS)


def _seconds(ticks: int) -> float:
    return ticks * _TICK_NS / 1e9


def _share(probability: float) -> int:
    return round(probability * _ALL)


def _words(*values: int) -> bytes:
    for value in values:
        if not 0 <= value <= _ALL:
            raise QdiscError(f"{value} does not fit the kernel's 32 bits: take less rate, latency or burst")
    return struct.pack(f"={len(values)}I", *values)


def pack(attributes: Mapping[int, bytes]) -> bytes:
    """Netlink attributes, by type, as bytes."""
    return b"".join(
        struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)
        for kind, value in attributes.items()
    )


def unpack(data: bytes) -> dict[int, bytes]:
    """The inverse of `pack`, flags of the types dropped."""
    attributes = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        attributes[kind & _TYPE] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return attributes
