"""Waiting for a program's answer, and for other things meanwhile; commands on this machine as one of the hosts."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from pareto.hosts import session
from pareto.hosts.connection import ChildProcess, Outcome, ThisMachine, Unreachable
from pareto.hosts.session import Session, SessionError, SessionLost
from pareto.protocol.messages import WarmUp
from pareto.protocol.trial_messages import Progress, WrongOutput
from tests.program import wait_until
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


def asked_of(clock: Clock, *arrives: tuple[float, bytes]) -> Session:
    return Session("pi", Awaited(clock, list(arrives)))


def reply(number: int, result: object) -> bytes:
    return json.dumps({"id": number, "ok": True, "result": result}).encode() + b"\n"


def so_far(phase: str, requests: int) -> bytes:
    return json.dumps({"so_far": {"phase": phase, "requests": requests}}).encode() + b"\n"


@pytest.mark.parametrize("reports", [0, 5])
def test_meanwhile_is_called_each_second_until_the_answer_is_there(clock: Clock, reports: int) -> None:
    """However often the program reports; of the next request nothing is known. What is there needs nothing."""
    seen: list[tuple[float, Progress | None]] = []
    lines = [(0.7 * turn, so_far("throughput", turn)) for turn in range(1, 1 + reports)]
    asked = asked_of(clock, *lines, (3.9, reply(1, "done")), (3.9, reply(2, "second")))
    number, other = asked.send("trial"), asked.send("usage")

    def meanwhile() -> None:
        seen.append((clock.now_s - 1000, asked.progress))

    assert asked.report(number, 60.0, meanwhile) == "done"
    progress = [Progress("throughput", int(at / 0.7)) if reports else None for at in (1, 2, 3)]
    assert seen == [(pytest.approx(at), it) for at, it in enumerate(progress, start=1)]
    assert asked.report(other, 60.0, meanwhile) == "second"
    assert len(seen) == 3
    asked.send("usage")
    assert asked.progress is None


@pytest.mark.parametrize(("slow_s", "ends_s"), [(0.0, 5.4), (2.5, 7.0), (100.0, 101.0)])
def test_the_deadline_holds_whatever_is_done_meanwhile(clock: Clock, slow_s: float, ends_s: float) -> None:
    def meanwhile() -> None:
        clock.now_s += slow_s

    asked = asked_of(clock)
    with pytest.raises(TimeoutError, match=r"^pi "):
        asked.report(asked.send("trial"), 5.4, meanwhile)
    assert clock.now_s - 1000 == pytest.approx(ends_s)


@pytest.mark.parametrize("fault", [SessionLost("the monitor ended"), TimeoutError("the monitor is late")])
def test_a_fault_meanwhile_ends_the_wait_and_loses_no_answer(clock: Clock, fault: Exception) -> None:
    """A time-out is not taken for the wait's own."""
    asked = asked_of(clock, (1.5, reply(1, "done")))
    number = asked.send("trial")
    with pytest.raises(type(fault), match=str(fault)):
        asked.report(number, 60.0, Mock(side_effect=fault))
    assert clock.now_s - 1000 == 1.0
    assert asked.report(number, 60.0) == "done"


def test_an_answer_in_pieces_among_others(clock: Clock) -> None:
    first, second = reply(1, "first"), reply(2, "second")
    asked = asked_of(clock, (0.2, second[:7]), (0.4, second[7:] + first[:3]), (1.2, first[3:]))
    one, two = asked.send("a"), asked.send("b")
    assert [asked.report(one), asked.report(two)] == ["first", "second"]
    late = asked_of(clock, (5.3, reply(1, "in the last second")))
    assert late.report(late.send("trial"), 5.4, lambda: None) == "in the last second"


def test_meanwhile_a_program_is_let_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real program, which ends its work only after `meanwhile` was called."""
    monkeypatch.setattr(session, "MEANWHILE_S", 0.1)
    asked = Session("pi", ChildProcess(["/bin/sh", "-c", SLOW]))
    try:
        assert asked.report(asked.send("trial"), CEILING_S, asked.ping) == "done"
    finally:
        asked.close()


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
    asked = asked_of(clock, (0.1, NONSENSE[nonsense]), (0.2, reply(1, "late")))
    number = asked.send("trial")
    with pytest.raises(SessionLost, match=r"^pi sends what is no reply: ") as lost:
        asked.report(number)
    assert str(lost.value).isprintable()
    assert len(str(lost.value)) < 1000
    with pytest.raises(SessionLost):
        asked.report(number)


def test_what_a_program_says_can_be_shown(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its refusal, which names the host, its answer, and its last words."""
    hostile = "\x1b]0;mine\x07\n\u202e" + "x" * 200_000
    monkeypatch.setattr(Awaited, "last_words", lambda _: hostile)
    for error, line, words in (
        (SessionError, {"id": 1, "ok": False, "error": "no such point"}, "^pi: no such point$"),
        (SessionError, {"id": 1, "ok": False, "error": hostile}, "^pi: "),
        (SessionLost, None, "^pi ended: "),
    ):
        sent = b"" if line is None else json.dumps(line).encode() + b"\n"
        with pytest.raises(error, match=words) as raised:
            asked_of(clock, (0.0, sent)).request("trial")
        assert str(raised.value).isprintable()
        assert len(str(raised.value)) < 2000
    told = asked_of(clock, (0.0, reply(1, {hostile: [hostile, 1.5, None]}))).request("facts")
    ((key, (text, *rest)),) = told.items()
    assert "\x1b" not in key + text
    assert rest == [1.5, None]
    # A line without an end is not waited for.
    monkeypatch.setattr(session, "MOST_LINE_BYTES", 1000)
    for arrives in ([(0.0, b"[" * 600)] * 2, [(0.0, b'"' + b"x" * 1000 + b'"\n')]):
        with pytest.raises(SessionLost):
            asked_of(clock, *arrives).request("trial")
    # A report that cannot be is refused with the request's name.
    wrong = {"max_abs_error": 1.0, "tolerance": 0.5}
    asked = asked_of(clock, (0.0, reply(1, wrong)), (0.0, reply(2, "0.5")))
    assert asked.ask(TRIAL_REQUEST) == WrongOutput(1.0, 0.5)
    with pytest.raises(SessionError, match=r"^pi: its report on warm cannot be: it is '0.5': "):
        asked.ask(WarmUp("tcp", 1))


# Commands on this machine: what they say, take and leave.

FIVE_MB = 5 << 20


def test_a_commands_outputs_and_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins at home; all of its input goes in and ends, while it says as much, or wants none of it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    run = ThisMachine().run
    assert run("echo one; echo two >&2; printf three; exit 7") == Outcome(7, "one\nthree", "two\n")
    assert run(r"printf 'a\377b'").out == "a\ufffdb", "no text"
    assert run("pwd -P").out.strip() == str(tmp_path.resolve())
    assert run("cat") == Outcome(0, "", "")
    assert run("wc -c", [bytes(FIVE_MB)]).out.split() == [str(FIVE_MB)]
    both = run("tee /dev/stderr", [b"0123456789abcde\n" * (FIVE_MB // 16)])
    assert (len(both.out), len(both.err)) == (FIVE_MB, FIVE_MB)
    unwanted = run("echo 'no room' >&2; exec 0<&-; exit 3", [bytes(FIVE_MB)])
    assert (unwanted.status, unwanted.words) == (3, "no room")
    nowhere = run("pareto-no-such-program")
    assert nowhere.status == 127
    assert nowhere.words.endswith("not found")
    # Why a command failed.
    said = [
        ("", "\x1b]0;mine\x07no\n"),
        ("said\n", "a warning\ntar: disk full \n\n"),
        ("only\nhere \n", " \n"),
        ("", ""),
    ]
    words = [Outcome(3, *outputs).words for outputs in said]
    assert words == [r"\x1b]0;mine\x07no", "tar: disk full", "here", "exit status 3"]
    # Each line is told at once. The command goes on only when its first line was heard.
    os.mkfifo(gate := tmp_path / "gate")
    lines: list[str] = []

    def heard(line: str) -> None:
        lines.append(line)
        if line == "first":
            gate.write_text("go\n")

    command = f"echo first; echo aside >&2; read go <'{gate}'; echo '  second '"
    assert ThisMachine().run(command, on_line=heard) == Outcome(0, "first\n  second \n", "aside\n")
    assert lines == ["first", "  second"]

    # A source that fails is not the end of the input.
    def torn() -> Iterator[bytes]:
        yield bytes(FIVE_MB)
        raise OSError("Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        ThisMachine().run("cat", torn())


@pytest.mark.parametrize(
    ("command", "stdin"), [("exec sleep", ()), ("sleep", ()), ("sleep", (bytes(FIVE_MB),))]
)
def test_a_command_too_long_is_ended_with_what_it_started(command: str, stdin: tuple[bytes, ...]) -> None:
    """Also where it takes nothing of what it is given."""
    mark = f"1000.{uuid.uuid4().int}"

    def there() -> list[str]:
        """The processes that were given it, whoever their parent is now."""
        every = [it.info for it in psutil.process_iter(["name", "cmdline", "status"])]
        living = [it for it in every if it["status"] != psutil.STATUS_ZOMBIE]
        return [it["name"] for it in living if mark in (it["cmdline"] or ())]

    with pytest.raises(Unreachable, match=r"0\.3 s"):
        ThisMachine().run(f"{command} {mark}{'; true' * (command == 'sleep')}", stdin, timeout_s=0.3)
    assert wait_until(lambda: there() == [])  # what is killed has yet to get a core for it


def test_a_program_that_talks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a group of its own, as all commands: Ctrl-C is not for them, and the driver ends what it started."""
    assert int(ThisMachine().run("ps -o pgid= -p $$").out) != os.getpgrp()
    wire = ThisMachine().open("pwd; cat", str(tmp_path / "log"))
    try:
        assert wire.read(CEILING_S).decode().strip() == str(Path.home())
        assert os.getpgid(wire.process.pid) != os.getpgrp()  # type: ignore[attr-defined]
        wire.send(b"there and back\n")
        assert wire.read(CEILING_S) == b"there and back\n"
    finally:
        wire.close()
    assert wire.process.returncode == 0  # type: ignore[attr-defined]
    # Last words are logged.
    monkeypatch.setenv("HOME", str(tmp_path))
    told = r"printf 'first\nout of \377 memory\n' >log"
    for log, writes, words in (("log", told, ": out of � memory"), ("empty", "exit 1", "")):
        wire = ThisMachine().open(writes, log)
        assert wire.read(CEILING_S) == b""
        with pytest.raises(SessionLost, match=f"^pi ended{words}$"):
            Session("pi", wire).request("trial")
        wire.close()
