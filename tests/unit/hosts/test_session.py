"""Waiting for a program's answer, and for other things meanwhile."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

import pytest

from pareto.hosts import session
from pareto.hosts.connection import ChildProcess
from pareto.hosts.session import Session, SessionError, SessionLost
from pareto.protocol.messages import WarmUp
from pareto.protocol.trial_messages import Progress, WrongOutput
from tests.unit.far_end import Clock
from tests.unit.reported import TRIAL_REQUEST

CEILING_S = 60.0
"""Against hanging."""

# Answers the first request when it has heard a second line.
SLOW = """
read request
read ping
echo '{"id": 1, "ok": true, "result": "done"}'
read more
"""


@dataclass
class Awaited:
    """A wire on which `arrives` come at their times, in seconds from now."""

    clock: Clock
    arrives: list[tuple[float, bytes]]
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.clock.now_s

    def send(self, data: bytes) -> None: ...

    def read(self, timeout_s: float) -> bytes:
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
    clock = Clock(1000.0)
    monkeypatch.setattr(session, "time", clock)
    return clock


def reply(number: int, result: object) -> bytes:
    return json.dumps({"id": number, "ok": True, "result": result}).encode() + b"\n"


def so_far(phase: str, requests: int) -> bytes:
    return json.dumps({"so_far": {"phase": phase, "requests": requests}}).encode() + b"\n"


def test_meanwhile_is_called_each_second_until_the_answer_is_there(clock: Clock) -> None:
    called: list[float] = []
    asked = Session("pi", Awaited(clock, [(4.5, reply(1, "done"))]))
    number = asked.send("trial")
    assert asked.report(number, 60.0, lambda: called.append(clock.now_s - 1000)) == "done"
    assert called == [1.0, 2.0, 3.0, 4.0]


def test_what_a_program_reports_before_its_answer_puts_nothing_off(clock: Clock) -> None:
    """Meanwhile is called each second, however often the program reports; of the next request nothing is known."""
    seen: list[tuple[float, Progress | None]] = []
    lines = [(0.7 * turn, so_far("throughput", turn)) for turn in range(1, 6)]
    asked = Session("pi", Awaited(clock, [*lines, (3.9, reply(1, "done"))]))
    number = asked.send("trial")
    assert asked.report(number, 60.0, lambda: seen.append((clock.now_s - 1000, asked.progress))) == "done"
    assert seen == [(pytest.approx(at), Progress("throughput", int(at / 0.7))) for at in (1.0, 2.0, 3.0)]
    asked.send("usage")
    assert asked.progress is None


def test_an_answer_that_is_there_needs_nothing_meanwhile(clock: Clock) -> None:
    called: list[int] = []
    asked = Session("pi", Awaited(clock, [(0.0, reply(1, "first") + reply(2, "second"))]))
    one, two = asked.send("usage"), asked.send("usage")
    assert asked.report(one, 60.0, lambda: called.append(1)) == "first"
    assert asked.report(two, 60.0, lambda: called.append(2)) == "second"
    assert called == []


@pytest.mark.parametrize(("slow_s", "ends_s"), [(0.0, 5.4), (2.5, 7.0), (100.0, 101.0)])
def test_the_deadline_holds_whatever_is_done_meanwhile(clock: Clock, slow_s: float, ends_s: float) -> None:
    def meanwhile() -> None:
        clock.now_s += slow_s

    asked = Session("pi", Awaited(clock, []))
    with pytest.raises(TimeoutError, match=r"^pi "):
        asked.report(asked.send("trial"), 5.4, meanwhile)
    assert clock.now_s - 1000 == pytest.approx(ends_s)


def test_an_answer_in_the_last_second_is_waited_for(clock: Clock) -> None:
    asked = Session("pi", Awaited(clock, [(5.3, reply(1, "late"))]))
    assert asked.report(asked.send("trial"), 5.4, lambda: None) == "late"


def test_a_fault_meanwhile_ends_the_wait_and_loses_no_answer(clock: Clock) -> None:
    def fail() -> None:
        raise SessionLost("the monitor ended")

    asked = Session("pi", Awaited(clock, [(1.5, reply(1, "done"))]))
    number = asked.send("trial")
    with pytest.raises(SessionLost, match="the monitor ended"):
        asked.report(number, 60.0, fail)
    assert clock.now_s - 1000 == 1.0
    assert asked.report(number, 60.0) == "done"


def test_a_time_out_meanwhile_is_not_taken_for_the_waits_own(clock: Clock) -> None:
    def fail() -> None:
        raise TimeoutError("the monitor did not answer in time")

    asked = Session("pi", Awaited(clock, [(2.5, reply(1, "done"))]))
    with pytest.raises(TimeoutError, match="the monitor did not"):
        asked.report(asked.send("trial"), 60.0, fail)


def test_an_answer_in_pieces_among_others(clock: Clock) -> None:
    first, second = reply(1, "first"), reply(2, "second")
    asked = Session(
        "pi", Awaited(clock, [(0.2, second[:7]), (0.4, second[7:] + first[:3]), (1.2, first[3:])])
    )
    one, two = asked.send("a"), asked.send("b")
    assert asked.report(one) == "first"
    assert asked.report(two) == "second"


def test_meanwhile_a_program_is_let_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real program, which ends its work only after `meanwhile` was called."""
    monkeypatch.setattr(session, "MEANWHILE_S", 0.1)
    asked = Session("pi", ChildProcess(["/bin/sh", "-c", SLOW]))
    try:
        assert asked.report(asked.send("trial"), CEILING_S, asked.ping) == "done"
    finally:
        asked.close()


def test_what_is_refused_names_the_host(clock: Clock) -> None:
    told = b'{"id": 1, "ok": false, "error": "no such point"}\n'
    asked = Session("pi", Awaited(clock, [(0.1, told)]))
    with pytest.raises(SessionError, match=r"^pi: no such point$"):
        asked.request("stage")


def test_nothing_is_written_after_the_end() -> None:
    """The number of the pipe that was closed is the next file's."""
    asked = Session("pi", ChildProcess(["cat"]))
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


NONSENSE = {
    "no JSON": b"Segmentation fault\n",
    "nothing": b"\n",
    "no UTF-8": b"\xff\xfe\n",
    "no object": b"[1]\n",
    "NaN": b'{"id": 1, "ok": true, "result": NaN}\n',
    "minus infinity": b'{"id": 1, "ok": true, "result": [-Infinity]}\n',
    "deep": b'{"id": 1, "ok": true, "result": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "a little deep": b'{"id": 1, "ok": true, "result": ' + b"[" * 40 + b"]" * 40 + b"}\n",
    "no id": b'{"ok": true, "result": 1}\n',
    "the id of no request": reply(7, 1),
    "an id that is a text": b'{"id": "1", "ok": true, "result": 1}\n',
    "an id that is true": b'{"id": true, "ok": true, "result": 1}\n',
    "twice": reply(1, 1) + reply(1, 1),
    "neither well nor ill": b'{"id": 1, "ok": "yes", "result": 1}\n',
    "no result": b'{"id": 1, "ok": true}\n',
    "an error that is no text": b'{"id": 1, "ok": false, "error": {}}\n',
    "a number that no host can count to": b'{"id": 1, "ok": true, "result": ' + b"9" * 5000 + b"}\n",
    "an impossible count": so_far("latency", -1),
    "a long phase": so_far("latency " * 9, 1),
    "codes": b"\x1b]0;mine\x07\x1b[2J" + b"x" * 200_000 + b"\n",
}


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_a_program_that_sends_nonsense_is_lost_and_stays_so(clock: Clock, nonsense: str) -> None:
    asked = Session("pi", Awaited(clock, [(0.1, NONSENSE[nonsense]), (0.2, reply(1, "late"))]))
    number = asked.send("trial")
    with pytest.raises(SessionLost, match=r"^pi sends what is no reply: ") as lost:
        asked.report(number)
    assert str(lost.value).isprintable()
    assert len(str(lost.value)) < 1000
    with pytest.raises(SessionLost):
        asked.report(number)


def test_a_line_without_an_end_is_not_waited_for(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_LINE_BYTES", 1000)
    for arrives in ([(0.0, b"[" * 600)] * 2, [(0.0, b'"' + b"x" * 1000 + b'"\n')]):
        asked = Session("pi", Awaited(clock, list(arrives)))
        with pytest.raises(SessionLost):
            asked.request("trial")


def test_what_a_program_says_can_be_shown(clock: Clock) -> None:
    hostile = "\x1b]0;mine\x07\n\u202e" + "x" * 200_000
    refused = json.dumps({"id": 1, "ok": False, "error": hostile}).encode() + b"\n"
    with pytest.raises(SessionError) as error:
        Session("pi", Awaited(clock, [(0.0, refused)])).request("trial")
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 2000
    told = Session("pi", Awaited(clock, [(0.0, reply(1, {hostile: [hostile, 1.5, None]}))])).request("facts")
    ((key, (text, *rest)),) = told.items()
    assert "\x1b" not in key + text
    assert rest == [1.5, None]


def test_last_words_can_be_shown(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Awaited, "last_words", lambda _: "\x1b[2J" + "x" * 200_000)
    with pytest.raises(SessionLost, match="pi ended: ") as lost:
        Session("pi", Awaited(clock, [(0.0, b"")])).request("trial")
    assert str(lost.value).isprintable()
    assert len(str(lost.value)) < 2000


def test_a_report_that_cannot_be_is_refused_with_the_requests_name(clock: Clock) -> None:
    answers = [(0.0, reply(1, {"max_abs_error": 1.0, "tolerance": 0.5})), (0.0, reply(2, "0.5"))]
    asked = Session("pi", Awaited(clock, answers))
    assert asked.ask(TRIAL_REQUEST) == WrongOutput(1.0, 0.5)
    with pytest.raises(SessionError, match=r"^pi: its report on warm cannot be: it is '0.5': "):
        asked.ask(WarmUp("tcp", 1))
