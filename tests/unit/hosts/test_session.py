"""Waiting for a program's answer, and for other things meanwhile."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field

import pytest

from pareto.hosts import session
from pareto.hosts.session import PipeWire, Session, SessionError, SessionLost

CEILING_S = 60.0
"""Against hanging."""

# Answers the first request when it has heard a second line.
SLOW = """
read request
read ping
echo '{"id": 1, "ok": true, "result": "done"}'
read more
"""


class Clock:
    """In place of `time`: it goes on while a wire is waited for."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@dataclass
class Awaited:
    """A wire on which `arrives` come at their times, in seconds from now."""

    clock: Clock
    arrives: list[tuple[float, bytes]]
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.clock.now_s

    def send(self, data: bytes) -> None: ...

    def receive(self, timeout_s: float) -> bytes:
        until_s = self.clock.now_s + timeout_s
        if not self.arrives or self.began_s + self.arrives[0][0] > until_s:
            self.clock.now_s = until_s
            raise TimeoutError
        at_s, data = self.arrives.pop(0)
        self.clock.now_s = max(self.clock.now_s, self.began_s + at_s)
        return data

    def close(self) -> None: ...

    def last_words(self) -> str:
        return ""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(session, "time", clock)
    return clock


def reply(number: int, result: object) -> bytes:
    return json.dumps({"id": number, "ok": True, "result": result}).encode() + b"\n"


def test_meanwhile_is_called_each_second_until_the_answer_is_there(clock: Clock) -> None:
    called: list[float] = []
    asked = Session("pi", Awaited(clock, [(4.5, reply(1, "done"))]))
    number = asked.send("trial")
    assert asked.wait(number, 60.0, lambda: called.append(clock.now_s - 1000)) == "done"
    assert called == [1.0, 2.0, 3.0, 4.0]


def test_an_answer_that_is_there_needs_nothing_meanwhile(clock: Clock) -> None:
    called: list[int] = []
    asked = Session("pi", Awaited(clock, [(0.0, reply(1, "first") + reply(2, "second"))]))
    assert asked.wait(asked.send("usage"), 60.0, lambda: called.append(1)) == "first"
    assert asked.wait(asked.send("usage"), 60.0, lambda: called.append(2)) == "second"
    assert called == []


@pytest.mark.parametrize(("slow_s", "ends_s"), [(0.0, 5.4), (2.5, 7.0), (100.0, 101.0)])
def test_the_deadline_holds_whatever_is_done_meanwhile(clock: Clock, slow_s: float, ends_s: float) -> None:
    def meanwhile() -> None:
        clock.now_s += slow_s

    asked = Session("pi", Awaited(clock, []))
    with pytest.raises(TimeoutError, match=r"^pi "):
        asked.wait(asked.send("trial"), 5.4, meanwhile)
    assert clock.now_s - 1000 == pytest.approx(ends_s)


def test_an_answer_in_the_last_second_is_waited_for(clock: Clock) -> None:
    asked = Session("pi", Awaited(clock, [(5.3, reply(1, "late"))]))
    assert asked.wait(asked.send("trial"), 5.4, lambda: None) == "late"


def test_a_fault_meanwhile_ends_the_wait_and_loses_no_answer(clock: Clock) -> None:
    def fail() -> None:
        raise SessionLost("the monitor ended")

    asked = Session("pi", Awaited(clock, [(1.5, reply(1, "done"))]))
    number = asked.send("trial")
    with pytest.raises(SessionLost, match="the monitor ended"):
        asked.wait(number, 60.0, fail)
    assert clock.now_s - 1000 == 1.0
    assert asked.wait(number, 60.0) == "done"


def test_a_time_out_meanwhile_is_not_taken_for_the_waits_own(clock: Clock) -> None:
    def fail() -> None:
        raise TimeoutError("the monitor did not answer in time")

    asked = Session("pi", Awaited(clock, [(2.5, reply(1, "done"))]))
    with pytest.raises(TimeoutError, match="the monitor did not"):
        asked.wait(asked.send("trial"), 60.0, fail)


def test_an_answer_in_pieces_among_others(clock: Clock) -> None:
    first, second = reply(1, "first"), reply(2, "second")
    asked = Session(
        "pi", Awaited(clock, [(0.2, second[:7]), (0.4, second[7:] + first[:3]), (1.2, first[3:])])
    )
    one, two = asked.send("a"), asked.send("b")
    assert asked.wait(one) == "first"
    assert asked.wait(two) == "second"


def test_meanwhile_a_program_is_let_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real program, which ends its work only after `meanwhile` was called."""
    monkeypatch.setattr(session, "MEANWHILE_S", 0.1)
    asked = Session("pi", PipeWire(["/bin/sh", "-c", SLOW]))
    called: list[float] = []

    def meanwhile() -> None:
        called.append(time.monotonic())
        asked.ping()

    try:
        began_s = time.monotonic()
        assert asked.wait(asked.send("trial"), CEILING_S, meanwhile) == "done"
        assert called[0] - began_s > 0.09
    finally:
        asked.close()


def test_what_is_refused_names_the_host(clock: Clock) -> None:
    told = b'{"id": 1, "ok": false, "error": "no such point"}\n'
    asked = Session("pi", Awaited(clock, [(0.1, told)]))
    with pytest.raises(SessionError, match=r"^pi: no such point$"):
        asked.request("stage")


def test_nothing_is_written_after_the_end() -> None:
    """The number of the pipe that was closed is the next file's."""
    asked = Session("pi", PipeWire(["cat"]))
    asked.close()
    reading, writing = os.pipe()
    try:
        asked.ping()
        with pytest.raises(SessionLost):
            asked.send("trial")
        os.set_blocking(reading, False)
        with pytest.raises(BlockingIOError):
            os.read(reading, 1)
    finally:
        os.close(reading)
        os.close(writing)
