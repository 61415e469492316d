"""The relay's process by a clock and sockets of the test's own: when frames leave, what it answers, when it sleeps.

And frames on the wire: what a super-packet becomes, and damage that its receiver notices.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby, pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.protocol import jsonlines
from pareto.remote.link import packets, relay, relay_path
from pareto.remote.link.packets import VNET_HEADER, damaged, on_wire
from pareto.remote.link.profile import Direction, Gilbert
from pareto.remote.link.relay import Relay

MS = 1_000_000
BYTES = 1000


class World:
    """A clock that goes on where the relay waits, and what each side of it sends at which time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns, self.cpu_s = 5_000 * MS, 0.0
        self.coming: list[tuple[int, str, bytes]] = []
        self.waits: list[float | None] = []
        pairs = {name: socket.socketpair(type=socket.SOCK_DGRAM) for name in ("edge", "server")}
        self.hosts = {name: host for name, (host, _) in pairs.items()}
        self._near = {name: near for name, (_, near) in pairs.items()}
        for each in (*self.hosts.values(), *self._near.values()):
            each.setblocking(False)
        cpu = dict.fromkeys(("process_time", "thread_time"), lambda: self.cpu_s)
        wall = {"monotonic_ns": lambda: self.now_ns, "monotonic": lambda: self.now_ns / 1e9}
        monkeypatch.setattr(relay, "time", SimpleNamespace(**wall, **cpu))
        monkeypatch.setattr(relay, "select", SimpleNamespace(select=self._select))
        monkeypatch.setattr(packets, "open_interface", self._near.__getitem__)
        monkeypatch.setattr(packets, "lost", lambda raw: 0)
        self.relay = Relay("edge", "server")

    def close(self) -> None:
        for each in (*self.hosts.values(), *self._near.values()):
            each.close()

    def _select(
        self, sockets: Sequence[socket.socket], _: Any, __: Any, timeout_s: float | None
    ) -> tuple[list[socket.socket], list[Any], list[Any]]:
        self._look()
        self.waits.append(timeout_s)
        until_ns = None if timeout_s is None else self.now_ns + round(timeout_s * 1e9)
        if self.coming and (until_ns is None or self.coming[0][0] <= until_ns):
            self.now_ns, source, frame = self.coming.pop(0)
            self.hosts[source].send(frame)
            return [self._near[source]], [], []
        if until_ns is None:
            raise Idle
        self.now_ns = until_ns
        return [], [], []

    def _look(self) -> None:
        for name, host in self.hosts.items():
            with suppress(BlockingIOError):
                while frame := host.recv(2000):
                    self._came.append((name, frame[-1], (self.now_ns - self._began_ns) / MS))

    def run(self) -> list[tuple[str, int, float]]:
        """Which frames have come where, and when, in milliseconds from now, until nothing is left to do."""
        self._came: list[tuple[str, int, float]] = []
        self._began_ns = self.now_ns
        with pytest.raises(Idle):
            self.relay.run()
        return self._came

    def send(self, source: str, *numbers: int, after_ms: float = 0.0) -> None:
        at_ns = self.now_ns + round(after_ms * MS)
        frame = bytes(VNET_HEADER.size + BYTES - 1)
        self.coming += [(at_ns, source, frame + bytes([number])) for number in numbers]


class Idle(Exception):
    """Nothing is due, and nothing will come."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(monkeypatch)
    yield world
    world.close()


def trace_of(name: str, period_s: float, *steps: tuple[float, float, float | None]) -> dict[str, Any]:
    fields = ("at_s", "delay_s", "rate_bps")
    return {"name": name, "period_s": period_s, "steps": [dict(zip(fields, it, strict=True)) for it in steps]}


def test_frames_leave_when_they_are_due_each_way(world: World) -> None:
    """At 8 Mbit/s a frame takes a millisecond; the way back is another's."""
    world.relay.apply({"edge_to_server": {"delay_s": 0.02, "rate_bps": 8e6}, "server_to_edge": {}})
    world.send("edge", 1, 2)
    world.send("server", 3)
    world.send("edge", 4, after_ms=100)
    assert world.run() == [("edge", 3, 0), ("server", 1, 21), ("server", 2, 22), ("server", 4, 121)]
    stats = world.relay.stats({})
    assert stats["forwarded"] == {
        "edge_to_server": {"packets": 3, "bytes": 3 * BYTES},
        "server_to_edge": {"packets": 1, "bytes": BYTES},
    }
    assert stats["late_p99_s"] == 0
    # It sleeps until something is due or comes.
    world.waits.clear()
    world.relay.apply({"edge_to_server": {"delay_s": 0.02}, "server_to_edge": {}})
    world.send("edge", 1, after_ms=50)
    world.run()
    assert world.waits == [None, 0.02, None]
    # The share of a core counts from the last profile on.
    for cpu_s, share in ((3.0, 0.75), (0.4, 0.1)):
        world.relay.apply({"edge_to_server": {}, "server_to_edge": {}})
        world.cpu_s += cpu_s
        world.now_ns += 4_000 * MS
        assert world.relay.stats({})["cpu_share"] == pytest.approx(share)
    assert world.relay.stats({})["cpu_s"] == pytest.approx(3.4)


def test_what_finds_no_room_is_sent_a_moment_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    full = [errno.ENOBUFS] * 4
    send = relay._send
    monkeypatch.setattr(relay, "_send", lambda out, frame: full.pop() if full else send(out, frame))
    world.relay.apply({"edge_to_server": {}, "server_to_edge": {}})
    world.send("edge", 1, 2)
    assert world.run() == [("server", 1, 0.2), ("server", 2, 0.2)]
    full += [errno.ENOBUFS] * 10_000
    world.send("edge", 3)
    assert world.run() == []
    assert world.relay.stats({})["dropped"] == 1


def test_the_reply_says_what_is_in_force(world: World, snapshot: SnapshotAssertion) -> None:
    trace = trace_of("walk", 3.0, (0, 0.01, 4e6), (1, 0.02, 0))
    bucket = {"burst_bytes": 3000, "latency_s": 0.4}
    out = {"delay_s": 0.2, "rate_bps": 5e6}
    asked = ({"server_to_edge": {"trace": trace}}, {"server_to_edge": {}, "bucket": bucket})
    assert [world.relay.apply({"edge_to_server": out, **more}) for more in asked] == snapshot
    # Requests that cannot be are refused.
    for refuse, request, words in (
        (world.relay.apply, {"edge_to_server": {"delay_s": -1}}, "edge_to_server.delay_s is -1"),
        (world.relay.apply, {"edge_to_server": {"jitter": 1}}, "edge_to_server.jitter is 1"),
        (world.relay.restart, {"position_s": -1}, "position_s is -1"),
        (world.relay.restart, {"position_s": float("nan")}, "position_s is nan"),
        (world.relay.seed, {"seed": 0.5}, "seed is 0.5: it should be a whole number"),
    ):
        with pytest.raises(jsonlines.Refused, match=words):
            refuse(request)


def test_a_trace_is_where_it_was_told_to_begin(world: World) -> None:
    trace = trace_of("s", 100.0, (0, 0.005, None), (50, 0.06, None))
    shaped: dict[str, Any] = {"edge_to_server": {"trace": trace}, "server_to_edge": {}}
    assert world.relay.stats({})["position_s"] is None
    for begin, begins_s in (
        (lambda: world.relay.apply(shaped), 0.0),
        (lambda: world.relay.apply(shaped | {"offset_s": 49.99}), 49.99),
        (lambda: world.relay.restart({"position_s": 50.5}), 50.5),
        (lambda: world.relay.restart({}), 0.0),
    ):
        begin()
        assert world.relay.stats({})["position_s"] == pytest.approx(begins_s)
        world.send("edge", 1, after_ms=10)
        late_ms = 60 if begins_s + 0.01 >= 50 else 5
        assert world.run() == [("server", 1, 10 + late_ms)]
        assert world.relay.stats({})["position_s"] == pytest.approx(begins_s + (10 + late_ms) / 1e3)
    world.relay.apply({"edge_to_server": {}, "server_to_edge": {}})
    assert world.relay.restart({"position_s": 1.0}) == {"position_s": None}


def test_what_an_outage_holds_is_told_and_what_comes_later_leaves_after_it(world: World) -> None:
    trace = trace_of("out", 10.0, (0, 0.0, 8e6), (1, 0.0, 0), (3, 0.0, 8e6))
    world.relay.apply({"edge_to_server": {"trace": trace}, "server_to_edge": {}, "offset_s": 1.0})
    assert world.relay.stats({})["draining_s"] == 0
    (path, _), *_ = world.relay._sides.values()
    path.accept(memoryview(bytes(VNET_HEADER.size) + b"\1"), 1, BYTES, world.now_ns)
    assert world.relay.stats({})["draining_s"] == pytest.approx(2.001)
    world.relay.apply({"edge_to_server": {}, "server_to_edge": {}})
    assert world.relay.stats({})["draining_s"] == pytest.approx(2.001)
    world.send("edge", 2, after_ms=100)
    assert world.run() == [("server", 1, 2001), ("server", 2, 2001)]
    assert world.relay.stats({})["draining_s"] == 0


# Frames on the wire.


def super_packet(
    gso_type: int, to_transport: int, transport: bytes, payload: int, flags: int = 1
) -> memoryview:
    header = VNET_HEADER.pack(flags, gso_type, 0, 1448, to_transport, 16)
    kind = b"\x08\x00\x45" if to_transport == 34 else b"\x86\xdd\x60"  # the ethertype, and IP's version
    return memoryview(header + (bytes(12) + kind).ljust(to_transport, b"\0") + transport + bytes(payload))


def test_a_super_packet_costs_each_segments_headers() -> None:
    tcp, payload = bytes(12) + b"\x80" + bytes(19), 10 * 1448 + 1  # with timestamps
    for gso_type, offset, headers in ((1, 34, 66), (4, 54, 86), (0x81, 34, 66)):
        for flags in (0, 1):
            frame = super_packet(gso_type, offset, tcp, payload, flags)
            assert on_wire(frame) == (11, payload + 11 * headers)
    assert on_wire(super_packet(5, 34, bytes(8), 2 * 1448)) == (2, 2 * 1448 + 2 * 42), "UDP"
    assert on_wire(memoryview(VNET_HEADER.pack(1, 0, 0, 0, 34, 16) + bytes(1514))) == (1, 1514), "ordinary"


NEEDS_CSUM = 1
PSEUDO = bytes([10, 0, 0, 1, 10, 0, 0, 2, 0, 17])  # addresses, protocol; the length follows


def folded(data: bytes) -> int:
    """Ones' complement sum of 16-bit words, carry by carry."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def udp(payload: bytes) -> memoryview:
    """A frame whose checksum holds the pseudo-header's sum only, as a sender with checksum offload leaves it."""
    length = 8 + len(payload)
    partial = folded(PSEUDO + struct.pack(">H", length))
    datagram = struct.pack(">HHHH", 1234, 5678, length, partial) + payload
    return memoryview(VNET_HEADER.pack(NEEDS_CSUM, 0, 0, 0, 34, 6) + bytes(34) + datagram)


@pytest.mark.parametrize("payload", [b"even", b"odd", bytes(range(256)) * 5, b"\xff" * 1472])
def test_an_unfinished_checksum_is_finished_before_the_damage(payload: bytes) -> None:
    frame = udp(payload)
    length = struct.pack(">H", 8 + len(payload))
    bit = 8 * 42 + 3  # of the payload's first byte
    sent = damaged(frame, bit)
    assert sent[: VNET_HEADER.size] == bytes(VNET_HEADER.size)  # nothing is left to the card
    packet = bytearray(sent[VNET_HEADER.size :])
    padding = b"\0" * (len(payload) % 2)
    assert folded(PSEUDO + length + bytes(packet[34:]) + padding) != 0xFFFF
    packet[42] ^= 1 << 3
    assert folded(PSEUDO + length + bytes(packet[34:]) + padding) == 0xFFFF
    before = bytearray(frame[VNET_HEADER.size :])
    packet[40:42] = before[40:42]
    assert packet == before


def test_a_checksum_of_zero_is_sent_as_its_other_form() -> None:
    """In UDP zero means that there is none. A payload is made for which the sum is all ones."""
    start = udp(b"\0\0")
    rest = 0xFFFF - folded(bytes(start[VNET_HEADER.size + 34 :]))
    packet = damaged(udp(struct.pack(">H", rest)), 0)[VNET_HEADER.size :]
    assert packet[40:42] == b"\xff\xff"
    # One bit is flipped and no other.
    frame = VNET_HEADER.pack(0, 0, 0, 0, 0, 0) + bytes(range(60))
    for bit in (0, 7, 8 * 60 - 1):
        sent = damaged(memoryview(frame), bit)
        difference = int.from_bytes(sent, "little") ^ int.from_bytes(frame, "little")
        assert difference == 1 << (8 * VNET_HEADER.size + bit)


# What chance does to a packet. Seeds are fixed; intervals are four standard deviations wide

COUNT = 40_000


def losses_of(**fields: Any) -> relay_path.Losses:
    return relay_path.Losses(Direction(delay_s=0.1, **fields), Random(7))  # noqa: S311


def within(share: float) -> Any:
    return pytest.approx(share, abs=4 * (share * (1 - share) / COUNT) ** 0.5)


def test_each_impairment_has_its_own_probability() -> None:
    """An unimpaired packet passes once; every bit can be the damaged one."""
    losses = losses_of()
    assert {losses.copies() for _ in range(100)} == {(1, 0)}
    assert not any(losses.strikes(losses.direction.corrupt) for _ in range(100))
    losses = losses_of(corrupt=0.05, reorder=0.25)
    for share in (losses.direction.corrupt, losses.direction.reorder):
        assert sum(losses.strikes(share) for _ in range(COUNT)) / COUNT == within(share)
    assert {losses.bit(4) for _ in range(1000)} == set(range(32))
    # Losses are independent and cancel duplicates as in netem. 1 + duplicate - lost, and a copy that is made is
    # a packet of its own.
    losses = losses_of(loss=0.1)
    lost = [losses.copies() == (0, 1) for _ in range(COUNT)]
    assert sum(lost) / COUNT == within(0.1)
    assert sum(a and b for a, b in pairwise(lost)) / COUNT == within(0.01)
    losses = losses_of(loss=0.2, duplicate=0.3)
    outcomes = Counter(losses.copies() for _ in range(COUNT))
    assert {outcome: count / COUNT for outcome, count in outcomes.items()} == {
        (0, 1): within(0.7 * 0.2), (1, 0): within(0.7 * 0.8), (1, 1): within(0.3 * (0.2 + 0.8 * 0.2)),
        (2, 0): within(0.3 * 0.8 * 0.8),
    }  # fmt: skip


def losses_in_bursts(model: Gilbert, count: int = 10 * COUNT) -> list[bool]:
    loses = relay_path.Losses(Direction(loss=model), Random(5)).loses  # noqa: S311
    return [loses() for _ in range(count)]


def test_the_state_before_the_transition_decides() -> None:
    assert losses_in_bursts(Gilbert(1.0, 1.0), 6) == [False, True, False, True, False, True]
    # Gilbert loses its mean in bursts.
    model = Gilbert(good_to_bad=0.02, bad_to_good=0.25)
    lost = losses_in_bursts(model)
    assert sum(lost) / len(lost) == pytest.approx(model.mean, rel=0.05)
    runs = [(bad, len(list(run))) for bad, run in groupby(lost)]
    for which, mean in ((True, 1 / 0.25), (False, 1 / 0.02)):
        lengths = [length for bad, length in runs if bad is which]
        assert sum(lengths) / len(lengths) == pytest.approx(mean, rel=0.05)
    elliott = Gilbert(0.02, 0.1, in_bad=0.5, in_good=0.01)  # loses in both states
    assert sum(losses_in_bursts(elliott)) / (10 * COUNT) == pytest.approx(elliott.mean, rel=0.05)
