"""Hostile control lines for the privileged helper: all that is between stdin and the kernel, and what it would set."""

from __future__ import annotations

import copy
import json
import random
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from pareto.protocol import jsonlines
from pareto.protocol.validation import read
from pareto.remote.link import interface, player, qdisc
from pareto.remote.link.__main__ import Helper
from pareto.remote.link.interface import Interface
from pareto.remote.link.netem import Netem
from pareto.remote.link.player import Track
from pareto.remote.link.requests import Apply, Restart
from pareto.remote.link.trace import MAX_POSITION_S
from tests.unit.fuzzing import changed, edited, places

PLAYED_S = 1.0

STEPS = [{"at_s": 0.0, "delay_s": 0.02, "rate_bps": 2e6}, {"at_s": 0.5, "delay_s": 0.03, "rate_bps": 0.0}]
TRACE = {"name": "lte.csv", "period_s": 1.0, "steps": STEPS}
BURSTS = {"good_to_bad": 0.01, "bad_to_good": 0.2, "in_bad": 0.9, "in_good": 0.001}
EVERYTHING = {
    "delay_s": 0.2, "rate_bps": 5e6, "jitter_s": 0.01, "jitter_correlation": 0.25, "loss": 0.01, "duplicate": 0.02,
    "reorder": 0.03, "corrupt": 0.04, "limit_bytes": 90_000, "queue_bytes": 300_000,
}  # fmt: skip
APPLY = {"op": "apply", "interface": "lo", "address": "10.77.0.1"}
LINES: list[dict[str, Any]] = [
    {"op": "ping"},
    {"id": 1, "op": "supported"},
    {"id": 2, **APPLY, "egress": EVERYTHING, "ingress": {}, "bucket": None, "peer": None, "filtered": False},
    {"id": 3, **APPLY, "egress": {"trace": TRACE, "loss": BURSTS}, "offset_s": 12.5, "patience_s": 0.0},
    {"id": 4, **APPLY, "ingress": {"delay_s": 0.1, "rate_bps": 8e6}, "peer": "10.77.0.2", "filtered": True,
     "bucket": {"burst_bytes": 32768, "latency_s": 0.4}},
    {"id": 5, **APPLY, "ingress": {"trace": TRACE, "jitter_s": 0.005, "limit_bytes": 30_000}},
    {"id": 6, "op": "restart", "interface": "lo", "position_s": 7.5},
    {"id": 7, "op": "seed", "interface": "lo", "egress": 7, "ingress": 8},
    {"id": 8, "op": "stats", "interface": "lo"},
    {"id": 9, "op": "restore"},
    {"id": 10, **APPLY, "egress": {"trace": TRACE | {"steps": STEPS[:1]}}},
]  # fmt: skip

NESTED = "[" * 3000 + "]" * 3000


# What was found to hang it or to end it without putting back, and its kin.
KNOWN = [
    json.dumps({**APPLY, "egress": {"trace": TRACE | {"steps": STEPS[:1], "period_s": 1e-9}}}).encode(),
    json.dumps({**APPLY, "egress": {"trace": TRACE}, "offset_s": 1e300}).encode(),
    json.dumps({"op": "restart", "interface": "lo", "position_s": float("inf")}).encode(),
    *(json.dumps({"id": op, "op": op}).encode() for op in ([1], {}, None, 1, [[]])),
    *(b"null", b"[1]", b"1", b"[" * 100_000, b"", b"\xff", b'{"op": "stats", "interface": "\\ud800"}'),
]


class Unkernel(Interface):
    """An interface of which everything but the kernel's part is done: the chains, their bytes, a second of playing."""

    def apply(self, wanted: Apply) -> dict[str, Any]:
        tracks = []
        for way in (wanted.egress, wanted.ingress):
            chain = interface.chain(way, wanted)
            qdisc.nodes(chain)
            tracks.append(Track(1, way, chain))
        self._tracks = tracks[0], tracks[1]
        self.play(wanted.offset_s)
        return {}

    def play(self, position_s: float) -> None:
        for track in self._tracks:
            if track is not None and track.direction.trace is not None:
                changes = list(_played(track, position_s))
                assert len(changes) <= 2 * (PLAYED_S / player.TICK_S + 2), "it would spin"

    def seed(self, egress: int, ingress: int) -> bool:
        for track in filter(None, self._tracks):
            for layer in track.chain:
                if isinstance(layer, Netem):
                    qdisc.nodes([Netem(layer.delay_ticks, layer.limit_packets, seed=egress)])
        return True


def _played(track: Track, position_s: float) -> Any:
    """Every change that the player would make within a second."""
    parts = player.parts(track, position_s)
    end_s = position_s + PLAYED_S
    while (due_s := min(part.due_s for part in parts)) < end_s:
        for part in parts:
            if part.due_s <= due_s:
                layer, part.due_s = part.at(due_s)
                assert part.due_s > due_s
                yield qdisc.nodes([layer])


class Fuzzer:
    """Lines that a driver might send and lines that it never would, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)  # noqa: S311  (no secret)
        self._known = list(KNOWN)
        self._kinds: list[Callable[[], bytes]] = [
            self._bytes,
            self._torn,
            *[self._drawn] * 2,
            *[self._mutated] * 2,
        ]

    def line(self) -> bytes:
        if self._known:
            return self._known.pop()
        return self._rng.choice(self._kinds)().replace(b"\n", b" ")

    def _bytes(self) -> bytes:
        return self._rng.randbytes(self._rng.randrange(40))

    def _torn(self) -> bytes:
        """Bytes changed, taken out, put in or doubled."""
        line = self._text(self._rng.choice(LINES))
        for _ in range(self._rng.randint(1, 4)):
            line = edited(line, self._rng, values=(b"9" * 30, b"[" * 2000, b"e", b"-"))
        return line

    def _mutated(self) -> bytes:
        """Values replaced, taken out or added somewhere in it."""
        request = self._rng.choice(LINES)
        for _ in range(self._rng.randint(1, 3)):
            request = changed(request, self._rng, places(request))
        line = self._text(request)
        return line.replace(b"null", NESTED.encode(), 1) if self._rng.random() < 0.02 else line

    def _drawn(self) -> bytes:
        """As declared: every number a little smaller; or close to it: each drawn, on a scale of its own."""
        request, close = copy.deepcopy(self._rng.choice(LINES)), self._rng.random() < 0.5
        for place in list(_places(request)):
            for key in list(place) if isinstance(place, dict) else range(len(place)):
                if isinstance(place[key], float):
                    drawn = self._rng.choice([self._rng.random(), 10 ** self._rng.uniform(-4, 11)])
                    place[key] = place[key] * self._rng.uniform(0.9, 1.0) if close else drawn
                elif isinstance(place[key], int) and key != "id" and not isinstance(place[key], bool):
                    place[key] = place[key] if close else self._rng.randrange(1 << self._rng.randrange(1, 66))
        for way in ("egress", "ingress"):
            if isinstance(request.get(way), dict) and "trace" in request[way]:
                request[way]["trace"] = self._trace()
        return self._text(request)

    def _trace(self) -> dict[str, Any]:
        rng, count = self._rng, self._rng.randint(1, 30)
        longest = 10 ** rng.uniform(-2.5, 5)
        at, limited = [0.0], rng.random() < 0.7
        for _ in range(count):
            at.append(at[-1] + rng.uniform(0.001, longest))
        steps = []
        for at_s in at[:-1]:
            delay_s = rng.choice([0.0, rng.random(), 60 * rng.random()])
            rate_bps = rng.choice([0.0, 10 ** rng.uniform(3, 10.5)]) if limited else None
            steps.append({"at_s": at_s, "delay_s": delay_s, "rate_bps": rate_bps})
        return {"name": "drawn", "period_s": at[-1], "steps": steps}

    @staticmethod
    def _text(request: dict[str, Any]) -> bytes:
        return json.dumps(request).encode()


def _places(value: Any) -> Any:
    """All that has elements and some, from the top down."""
    if isinstance(value, (dict, list)) and value:
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _places(each)


def test_fuzzed_lines_get_one_line_or_end_the_program(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else: no exception but those that are foreseen, and nothing that would not end."""
    unforeseen = Mock(side_effect=AssertionError("an exception that nobody foresaw"))
    monkeypatch.setattr(traceback, "print_exc", unforeseen)
    monkeypatch.setattr(qdisc, "supported", lambda: True)
    helper = Helper(Unkernel)
    handlers, fuzzer, outcomes = helper.handlers(), Fuzzer(15), Counter[str]()
    for number in range(cases):
        line = fuzzer.line()
        try:
            request = jsonlines.parse(line)
        except jsonlines.ProtocolError as error:
            assert len(str(error)) < 1000
            outcomes["ended"] += 1
            continue
        op = str(request.get("op"))
        try:
            reply = jsonlines.answer(handlers, request)
        except BaseException as error:
            raise AssertionError(f"case {number}: {line[:2000]!r}") from error
        told = json.loads(reply)
        assert (reply[-1:], reply.count(b"\n")) == (b"\n", 1)
        if told["ok"]:
            outcomes[op] += 1
        else:
            outcomes["refused"] += 1
            assert 0 < len(told["error"]) < 6000, line
            assert told["error"].isprintable(), line
    print(dict(outcomes))
    assert set(outcomes) >= {"ended", "refused", *handlers}, "each way is taken"


def test_where_traces_may_begin() -> None:
    for fine in (0, MAX_POSITION_S):
        assert read(Restart, {"interface": "lo", "position_s": fine}) == Restart("lo", fine)
    for position_s in (-0.1, 1e300, float("nan"), "1", None):
        with pytest.raises(ValueError, match="position"):
            read(Restart, {"interface": "lo", "position_s": position_s})
