"""The control protocol: what a declaration takes, what a host may report, and a driver with a real child process."""

from __future__ import annotations

import copy
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

from pareto.hosts.connection import ChildProcess
from pareto.hosts.session import Session, SessionError, SessionLost
from pareto.protocol.errors import UserError
from pareto.protocol.host_messages import CollectSamples
from pareto.protocol.jsonlines import MAX_WAITING_BYTES, plain
from pareto.protocol.messages import GetFacts
from pareto.protocol.profile_messages import TimeCodecs, TimeUnits
from pareto.protocol.trial_messages import GetUsage, Progress, RunTrial, WrongOutput
from pareto.protocol.validation import Bounds, Text, check, read
from tests import REPOSITORY
from tests.unit.refusals import refusal
from tests.unit.reported import CODEC_RUNS, SERIES, TRIAL, UNIT_RUNS, USAGE, facts

WRONG: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "NaN": (("latency_s",), math.nan),
    "infinite": (("edge_s",), math.inf),
    "negative": (("serialize_s",), -1e-3),
    "zero where it is divided by": (("sequential_ips",), 0.0),
    "absurd": (("work_s",), 1e9),
    "a text": (("throughput_ips",), "9"),
    "true": (("in_flight",), True),
    "a number beyond all counters": (("sent_bytes",), 1 << 70),
    "a window that ends before it begins": (("throughput_window",), [2.0, 1.0]),
    "a window of one end": (("trial_window",), [2.0]),
    "NaN in a request": (("requests", "latency", "edge_s", 1), math.nan),
    "a request too many in one column": (("requests", "throughput", "edge_s"), [0.1]),
    "no request": (("requests", "latency"), {name: [] for name in TRIAL["requests"]["latency"]}),
    "more stages in a request": (("requests", "latency", "stages_s", 0), [0.1, 0.2]),
    "a column that nobody knows": (("requests", "latency", "other_s"), []),
    "no phases": (("requests",), None),
    "a figure that nobody knows": (("bonus",), 1),
    "nothing at a place": (("max_abs_error",), None),
    "an error that is no number": (("max_abs_error",), math.nan),
    "decoded ahead, in no time": (("prefetch",), 2),
}


def test_a_real_one_passes() -> None:
    report = read(RunTrial.report, copy.deepcopy(TRIAL))
    assert (report.latency_s, report.stages_s) == (TRIAL["latency_s"], (0.002292,))
    assert report.requests.throughput.stages_s[1] == (0.00235,)
    told = json.loads(json.dumps(report, default=plain))
    assert told.pop("requests") == {**TRIAL["requests"], "load": None}
    assert told == {name: value for name, value in TRIAL.items() if name != "requests"}
    assert read(RunTrial.report, {**TRIAL, "work_s": 1}).work_s == 1.0, "a whole number is a number too"
    wrong = {"max_abs_error": math.inf, "tolerance": 1e-4}  # as an output of another shape may be
    assert read(RunTrial.report, wrong) == WrongOutput(math.inf, 1e-4)


def test_one_wrong_figure_is_refused_and_named(snapshot: object) -> None:
    said = {}
    for wrong, ((*outer, last), value) in WRONG.items():
        report = copy.deepcopy(TRIAL)
        part: Any = report
        for step in outer:
            part = part[step]
        part[last] = value
        said[wrong] = refusal(ValueError, read, RunTrial.report, report)
        assert str([*outer, last][0]) in said[wrong]
    assert said == snapshot


WRONG_OF_OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a window that ends before it begins": (GetUsage, {**USAGE, "throughput_window": [2.0, 2.0]}),
    "NaN in a column": (CollectSamples, {**SERIES, "busy_s": [math.nan] * 12}),
    "a column too short": (CollectSamples, {**SERIES, "busy_s": [0.0]}),
    "a column too many": (CollectSamples, {**SERIES, "more": [0.0] * 12}),
    "other units in a run": (TimeUnits, {**UNIT_RUNS, "units_s": [*UNIT_RUNS["units_s"][1:], [0.1]]}),
    "other units in memory": (TimeUnits, {**UNIT_RUNS, "peak_bytes": [1]}),
    "too few runs": (TimeUnits, {**UNIT_RUNS, "units_s": [[0.1, 0.2]] * 5}),
    "a run without units": (TimeUnits, {**UNIT_RUNS, "units_s": [[]] * 6}),
    "other codecs in a column": (TimeCodecs, {**CODEC_RUNS, "wire_bytes": [[25] * 4]}),
    "a codec without a run": (TimeCodecs, {**CODEC_RUNS, "encode_s": [[], [0.1]]}),
    "a process that cannot be": (GetFacts, {**vars(facts(7)), "pid": 0}),
}


def test_what_cannot_be_is_refused_in_other_reports(snapshot: object) -> None:
    others = WRONG_OF_OTHERS.items()
    said = {wrong: refusal(ValueError, read, kind.report, report) for wrong, (kind, report) in others}
    assert said == snapshot


# A driver and a real child process


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


Started = tuple[Session, subprocess.Popen[bytes], Path]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Started]:
    yield from start(tmp_path, "60")


def start(tmp_path: Path, silence_s: str) -> Iterator[Started]:
    ended = tmp_path / "ended"
    wire = ChildProcess([sys.executable, "-c", PROGRAM, str(ended), silence_s], cwd=REPOSITORY)
    yield Session("program", wire), wire.process, ended
    wire.close()


def ends(process: subprocess.Popen[bytes], ended: Path) -> None:
    """It ends by itself, after its last act."""
    assert (process.wait(60), ended.read_text()) == (0, "ended")


def test_answers_come_whatever_libraries_print_in_any_order(program: Started) -> None:
    session = program[0]
    assert session.request("double", value=21) == 42
    assert session.request("work") == "done"
    assert session.progress == Progress("warming up", 1)
    first, second = session.send("double", value=1), session.send("double", value=2)
    assert (session.report(second), session.report(first)) == (4, 2)
    session.ping()  # it gets no answer
    assert session.request("double", value=3) == 6


def test_an_error_is_told_and_the_program_lives_on_unless_it_dies(program: Started, snapshot: object) -> None:
    session = program[0]
    for op in ("refuse", "fail", "nonsense"):
        assert refusal(SessionError, session.request, op) == snapshot
        assert session.request("double", value=1) == 2
    for op in ([1], {}, 7, None, True, "x" * 10_000):
        line = refusal(SessionError, session.request, op)
        assert "unknown request" in line
        assert len(line) < 100
    assert session.request("double", value=1) == 2
    with pytest.raises(SessionLost):
        session.request("die")


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


@pytest.mark.parametrize("between", [b"", b'"}\n{"op": "hang", "more": "'])
def test_nobody_decides_how_much_is_kept(program: Started, between: bytes) -> None:
    """Neither by a line without end nor by more requests than are answered."""
    session, process, ended = program
    with pytest.raises(OSError):
        session._program.send(b'{"op": "hang", "more": "')
        for _ in range(2 * MAX_WAITING_BYTES // (1 << 20)):
            session._program.send(b"x" * (1 << 20) + between)
    ends(process, ended)


# What a declaration takes, and what it refuses


SHORT = Annotated[str, Text("[a-z]{1,3}", "short word")]


@dataclass(frozen=True)
class Part:
    size_bytes: Annotated[int, Bounds(1, 9, unit="mm")]
    share: Annotated[float, Bounds(0.1, 1)] = 0.5

    def __post_init__(self) -> None:
        check(self, "part ")


@dataclass(frozen=True)
class Whole:
    name: SHORT
    parts: tuple[Part, ...] = ()
    best: Annotated[float, Bounds(0, 9)] | Part = 0.0
    spare: Part | None = None
    loud: bool = False

    def __post_init__(self) -> None:
        check(self)


def test_what_json_says_becomes_what_is_declared() -> None:
    data = {
        "name": "abc",
        "parts": [{"size_bytes": 1}, {"size_bytes": 9, "share": 1}],
        "best": {"size_bytes": 2},
        "loud": True,
    }
    assert read(Whole, data) == Whole("abc", (Part(1), Part(9, 1.0)), Part(2), None, True)
    assert read(Whole, {"name": "a", "best": 3, "spare": None}) == Whole("a", (), 3)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "name is missing"),
        (None, "it is None: it should be an object"),
        ({"name": 1}, "name is 1: it should be a text"),
        ({"name": "abcd"}, "name 'abcd' is no short word"),
        ({"name": "abc\n"}, "name 'abc\\\\n' is no short word"),
        ({"name": "a", "loud": 1}, "loud is 1: it should be true or false"),
        ({"name": "a", "loud": None}, "loud is None: it should be true or false"),
        ({"name": "a", "more\n": 1}, "'more\\\\n' is 1: it should not be there"),
        ({"name": "a", "parts": {}}, "parts is a dict: it should be a list"),
        ({"name": "a", "parts": [7]}, "parts.0 is 7: it should be an object"),
        ({"name": "a", "best": "x"}, "best is 'x': it should be a number"),
        ({"name": "a", "best": True}, "best is True: it should be a number"),
        ({"name": "a", "best": None}, "best is None: it should be a number"),
        ({"name": "a", "best": float("nan")}, "best is nan: it should be from 0 to 9"),
        ({"name": "a", "spare": {"size_bytes": 10}}, "spare.size_bytes is 10: it should be from 1 to 9"),
        ({"name": "a", "spare": {"size_bytes": 2.0}}, "spare.size_bytes is 2.0: it should be a whole number"),
        ({"name": "a", "spare": {"size_bytes": 2, "share": 0}}, "spare.share is 0: it should be"),
        ({"name": "a", "spare": {"size_bytes": 2, "share": 0.0}}, "spare.share is 0.0: it should be"),
    ],
)
def test_what_is_not_as_declared_is_one_line(data: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        read(Whole, data)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("size", "share", "words"),
    [
        (10, 0.5, "part size 10 mm is out of range: 1 to 9 mm"),
        (10**400, 0.5, r"part size 1000.*000 mm is out of range"),
        (2, 0.0, "part share 0 is out of range: 0.1 to 1"),
        (2, float("nan"), "part share nan is out of range"),
    ],
)
def test_what_is_made_here_is_held_to_its_bounds_too(size: int, share: float, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Part(size, share)
