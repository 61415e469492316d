"""The control protocol between a driver and a real child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import ChildProcess
from pareto.hosts.session import Session, SessionError, SessionLost
from pareto.protocol.jsonlines import MAX_WAITING_BYTES
from pareto.protocol.trial_messages import Progress
from tests import REPOSITORY

PROGRAM = """
import os, sys, threading
from pareto.protocol.jsonlines import Refused, send_so_far, serve

def double(request):
    print("noise on stdout")
    return 2 * request["value"]

def work(request):
    send_so_far({"phase": "warming up", "requests": 1})
    return "done"

def refuse(request):
    raise Refused("not today")

def fail(request):
    raise KeyError("oops")

def die(request):
    os._exit(3)

def leave(request):
    sys.exit("somewhere in a library")

def hang(request):
    threading.Event().wait()

def end():
    open(sys.argv[1], "w").write("ended")

ops = {"double": double, "work": work, "refuse": refuse, "fail": fail, "die": die, "leave": leave, "hang": hang}
serve(ops, at_end=end, silence_limit_s=float(sys.argv[2]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[tuple[Session, subprocess.Popen[bytes], Path]]:
    yield from start(tmp_path, "60")


def start(tmp_path: Path, silence_s: str) -> Iterator[tuple[Session, subprocess.Popen[bytes], Path]]:
    ended = tmp_path / "ended"
    wire = ChildProcess([sys.executable, "-c", PROGRAM, str(ended), silence_s], cwd=REPOSITORY)
    yield Session("program", wire), wire.process, ended
    wire.close()


def ends(process: subprocess.Popen[bytes], ended: Path) -> None:
    """It ends by itself, after its last act."""
    assert (process.wait(60), ended.read_text()) == (0, "ended")


Started = tuple[Session, subprocess.Popen[bytes], Path]


def test_answers_whatever_libraries_print(program: Started) -> None:
    assert program[0].request("double", value=21) == 42


def test_a_program_reports_how_far_it_is_before_its_answer(program: Started) -> None:
    session = program[0]
    assert session.request("work") == "done"
    assert session.progress == Progress("warming up", 1)


def test_answers_may_be_awaited_in_any_order(program: Started) -> None:
    session = program[0]
    first, second = session.send("double", value=1), session.send("double", value=2)
    assert session.report(second) == 4
    assert session.report(first) == 2


@pytest.mark.parametrize("op", ["refuse", "fail", "nonsense"])
def test_an_error_is_told_and_the_program_lives_on(
    program: Started, op: str, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(SessionError) as told:
        program[0].request(op)
    assert str(told.value) == snapshot
    assert program[0].request("double", value=1) == 2


def test_pings_get_no_answer(program: Started) -> None:
    program[0].ping()
    assert program[0].request("double", value=3) == 6


def test_a_program_that_dies_is_a_lost_session(program: Started) -> None:
    with pytest.raises(SessionLost):
        program[0].request("die")


def test_a_silent_driver_ends_it(tmp_path: Path) -> None:
    for session, process, ended in start(tmp_path, "0.5"):
        session.send("double", value=1)  # where it gets no core for so long, that is all it hears
        ends(process, ended)


LONG = b'{"op": "double", "value": %b}' % (b"9" * 5000)
LINES = [b"[1]", b"null", b"7", b"{", b"\xff\xfe", b"[" * 100_000, LONG, b'{"id": 3, "op": "leave"}']
SIGNALS = [signal.SIGTERM, signal.SIGHUP]


@pytest.mark.usefixtures("heeds_hangups")
@pytest.mark.parametrize("what", [None, *SIGNALS, *LINES], ids=lambda what: str(what)[:40])
def test_it_ends_after_its_last_act(program: Started, what: bytes | int | None) -> None:
    """By end of file, a signal, a line that is no request, and a handler that ends the thread."""
    session, process, ended = program
    session.request("double", value=1)
    if what is None:
        session.close()
    elif isinstance(what, bytes):
        session._program.send(what + b"\n")
    else:
        os.kill(process.pid, what)
    ends(process, ended)


def test_a_request_whose_name_is_none_is_answered(program: Started) -> None:
    session = program[0]
    for op in ([1], {}, 7, None, True, "x" * 10_000):
        with pytest.raises(SessionError, match="unknown request") as refused:
            session.request(op)  # type: ignore[arg-type]
        assert len(str(refused.value)) < 100
    assert session.request("double", value=1) == 2


@pytest.mark.parametrize("between", [b"", b'"}\n{"op": "hang", "more": "'])
def test_nobody_decides_how_much_is_kept(program: Started, between: bytes) -> None:
    """Neither by a line without end nor by more requests than are answered."""
    session, process, ended = program
    with pytest.raises(OSError):
        session._program.send(b'{"op": "hang", "more": "')
        for _ in range(2 * MAX_WAITING_BYTES // (1 << 20)):
            session._program.send(b"x" * (1 << 20) + between)
    ends(process, ended)
