"""The relay's process by a clock and sockets of the test's own: when frames leave, what it answers, when it sleeps."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from pareto.protocol import jsonlines
from pareto.remote.link import packets, relay
from pareto.remote.link.packets import VNET_HEADER
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
        clock = {
            "monotonic_ns": lambda: self.now_ns,
            "monotonic": lambda: self.now_ns / 1e9,
            "process_time": lambda: self.cpu_s,
            "thread_time": lambda: self.cpu_s,
        }
        monkeypatch.setattr(relay, "time", SimpleNamespace(**clock))
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


def test_it_sleeps_until_something_is_due_or_comes(world: World) -> None:
    world.relay.apply({"edge_to_server": {"delay_s": 0.02}, "server_to_edge": {}})
    world.send("edge", 1, after_ms=50)
    world.run()
    assert world.waits == [None, 0.02, None]


def test_what_the_far_side_has_no_room_for_is_sent_a_moment_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_reply_says_what_is_in_force(world: World) -> None:
    steps = [{"at_s": 0, "delay_s": 0.01, "rate_bps": 4e6}, {"at_s": 1, "delay_s": 0.02, "rate_bps": 0}]
    trace = {"name": "walk", "period_s": 3.0, "steps": steps}
    out = {"delay_s": 0.2, "rate_bps": 5e6}
    reply = world.relay.apply({"edge_to_server": out, "server_to_edge": {"trace": trace}})
    assert (reply["shaper"], reply["scheduling"], reply["bucket"]) == ("relay", "other", None)
    assert out.items() <= reply["edge_to_server"].items()
    assert reply["server_to_edge"].keys() == {"trace", "limit_bytes"}
    assert reply["server_to_edge"]["trace"] == {"name": "walk", "period_s": 3.0}
    bucket = {"burst_bytes": 3000, "latency_s": 0.4}
    reply = world.relay.apply({"edge_to_server": out, "server_to_edge": {}, "bucket": bucket})
    assert reply["bucket"] == bucket
    assert reply["edge_to_server"]["limit_bytes"] == 253_000
    assert list(reply["server_to_edge"]) == ["limit_bytes"]


@pytest.mark.parametrize(
    ("op", "request_", "words"),
    [
        ("apply", {"edge_to_server": {"delay_s": -1}}, "edge_to_server.delay_s is -1"),
        ("apply", {"edge_to_server": {"jitter": 1}}, "edge_to_server.jitter is 1"),
        ("restart", {"position_s": -1}, "position_s is -1"),
        ("restart", {"position_s": float("nan")}, "position_s is nan"),
        ("seed", {"seed": 0.5}, "seed is 0.5: it should be a whole number"),
    ],
)
def test_what_cannot_be_is_refused(world: World, op: str, request_: dict[str, Any], words: str) -> None:
    with pytest.raises(jsonlines.Refused, match=words):
        getattr(world.relay, op)(request_)


def test_a_trace_is_where_it_was_told_to_begin(world: World) -> None:
    steps = [{"at_s": 0, "delay_s": 0.005, "rate_bps": None}, {"at_s": 50, "delay_s": 0.06, "rate_bps": None}]
    shaped = {
        "edge_to_server": {"trace": {"name": "s", "period_s": 100.0, "steps": steps}},
        "server_to_edge": {},
    }
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
    steps = [
        {"at_s": at_s, "delay_s": 0.0, "rate_bps": bit_s} for at_s, bit_s in ((0, 8e6), (1, 0), (3, 8e6))
    ]
    trace = {"name": "out", "period_s": 10.0, "steps": steps}
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


def test_the_share_of_a_core_counts_from_the_last_profile_on(world: World) -> None:
    for cpu_s, share in ((3.0, 0.75), (0.4, 0.1)):
        world.relay.apply({"edge_to_server": {}, "server_to_edge": {}})
        world.cpu_s += cpu_s
        world.now_ns += 4_000 * MS
        assert world.relay.stats({})["cpu_share"] == pytest.approx(share)
    assert world.relay.stats({})["cpu_s"] == pytest.approx(3.4)
